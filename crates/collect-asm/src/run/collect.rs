//! Messages into a sink.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ichnos_base::{
    Batch, Chain, Code, EndStatus, Event, GapReason, GuestVa, Mode, Plan as Planned, ProcessId,
    Raw, Record, Sink, ThreadId, ThreadStart,
};
use ichnos_rt::{Clock, Context, Pool};
use ichnos_sync::Held;
use ichnos_trace::Run;

use super::Config;
use super::images::Images;
use super::maps::Mapped;
use super::message::{Message, Moment, Where};
use super::names::Names;
use super::raw::{Changed, Gathered, is_planned, silent, steps};
use super::reading::Reading;
use super::sides::{Plan, Side};
use super::stream::{self, Done, Made, Out, Played, Shadow, Until, turns};
use super::syncing::Begun;
use super::table::{BEHIND, Tables};
use crate::code::{Block, Copy};
use crate::{Error, RecordError};

/// The number of the mark that tells that all threads were stopped for want of a buffer.
const STARVED: u64 = 1;

/// Records are handed on when there are so many: what a sink makes of them stays in the first cache level.
pub(super) const BATCH: usize = 1024;
/// So are executions of so many instructions.
pub(super) const MANY: u64 = 1 << 20;

/// Turns messages into records and events.
pub(crate) struct Collector<'a, S: Sink> {
    told: Told<'a, S>,
    /// The memory that is stored into, unless that is gone: all words come with messages then.
    pool: Option<Arc<Pool>>,
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    /// The words that are being read.
    bytes: Vec<u8>,
}

/// What is handed to the sink.
pub(super) struct Told<'a, S: Sink> {
    sink: &'a mut S,
    pub(super) out: Out,
    /// Executions, if they are told as they were stored.
    pub(super) raw: Option<Gathered>,
    /// The processes of which the silent blocks were told.
    silent: HashSet<u32>,
    insns: u64,
    go_on: bool,
    /// How threads switch, if they do.
    pub(super) plan: Option<Plan>,
    clock: Clock,
}

#[derive(Default)]
struct Process {
    /// All copies that it ever had: what is read may be of a library that is gone.
    images: Images,
    /// The blocks that were met: their code was told.
    tables: Tables,
    /// Whether it ever had more than one thread.
    shared: bool,
    /// Its threads, by their handles.
    handles: HashMap<u64, u32>,
    /// What its blocks are called, if executions are told as they were stored.
    names: Names,
}

impl Process {
    /// Learns the blocks of a copy; no, if they are known.
    fn learn(&mut self, copy: &Copy) -> bool {
        let events: &[bool] = copy.exec.as_ref().map_or(&[], |e| &e.events);
        self.tables.add(copy.plot.first.block as usize, &copy.blocks, events)
    }
}

pub(super) struct Thread {
    process: u32,
    insns: u64,
    /// Where it is, if that is known.
    pub(super) at: Option<GuestVa>,
    pub(super) lanes: HashMap<Context, Lane>,
    now: Context,
    /// The mode that was told last, if threads switch.
    mode: Option<Mode>,
    /// The locks that it holds.
    pub(super) held: Held,
    /// The latest time that was told.
    clock: u64,
    /// The processor that it was last seen on.
    cpu: Option<u32>,
    /// The context whose executions were last told as they were stored.
    told: Option<Context>,
}

impl Thread {
    /// Which registers a sink has to be told, that is about to get executions of a context; then it knows them.
    pub(super) fn changes_to_tell(&mut self, of: &mut Lane) -> Changed {
        let same = self.told.replace(of.context) == Some(of.context);
        let changed = std::mem::replace(&mut of.changed, Changed::Nothing);
        if same { changed } else { Changed::All }
    }
}

pub(super) struct Lane {
    context: Context,
    /// Which registers changed since the sink was told executions.
    pub(super) changed: Changed,
    pub(super) shadow: Shadow,
    pub(super) held: Option<stream::Held>,
    pub(super) entered: Option<[u64; 3]>,
    pub(super) side: Side,
    /// The call of a synchronising function that has not returned.
    pub(super) begun: Option<Begun>,
    /// The number of the system call that has not returned.
    pub(super) asked: Option<u64>,
    buffer: u32,
    parsed: u64,
}

impl Lane {
    fn new(context: Context, shadow: Shadow, side: Side) -> Self {
        let (held, entered, begun, asked) = (None, None, None, None);
        let (changed, buffer, parsed) = (Changed::All, u32::MAX, 0);
        Self { context, changed, shadow, held, entered, side, begun, asked, buffer, parsed }
    }
}

pub(super) type Result<T, E> = std::result::Result<T, RecordError<E>>;

impl<'a, S: Sink> Collector<'a, S> {
    /// A collector for a sink that has begun.
    pub(crate) fn new(
        sink: &'a mut S,
        pool: Option<Arc<Pool>>,
        (config, clock): (&Config, Clock),
    ) -> Self {
        let records = Vec::with_capacity(2 * BATCH);
        let plan = Plan::new(config, clock);
        let made = match () {
            () if sink.takes_references() => Made::References,
            () if sink.takes_raw() => Made::Nothing,
            () => Made::All,
        };
        let raw = (made == Made::Nothing).then(Gathered::default);
        let out = Out { records, ..Out::new(made) };
        let silent = HashSet::new();
        let told = Told { sink, out, raw, silent, insns: 0, go_on: true, plan, clock };
        let (processes, threads, bytes) = Default::default();
        Self { told, pool, processes, threads, bytes }
    }

    /// The sink.
    pub(super) fn sink(&mut self) -> &mut S {
        self.told.sink
    }

    /// Takes a message, and the words of its buffer if they are not there any more; whether to go on.
    pub(crate) fn message(
        &mut self,
        message: &Message,
        words: Option<&[u8]>,
    ) -> Result<bool, S::Error> {
        match message {
            Message::Start { thread, start, lane, like } => {
                self.start(*thread, *start, *lane, *like)?
            }
            Message::Exec { thread, path } => self.exec(*thread, path)?,
            Message::Program { process, images } => {
                let before = self.processes.get(process);
                let names = before.map_or_else(Names::default, |p| Names::after(&p.names));
                let mut known = Process { images: images.clone(), names, ..Process::default() };
                for copy in images.all() {
                    known.learn(copy);
                }
                self.processes.insert(*process, known);
            }
            Message::Library { thread, process, copy } => {
                self.library(*thread, *process, copy)?;
            }
            Message::Words { thread, lane, buffer, to, last } => {
                self.words((*thread, *lane), (*buffer, words), *to)?;
                if *last {
                    // The next one may have the same number.
                    let state = self.threads.get_mut(thread);
                    let of = state.and_then(|t| t.lanes.get_mut(lane));
                    of.into_iter().for_each(|lane| lane.buffer = u32::MAX);
                }
            }
            Message::Create { thread, child } => {
                let event = Event::ThreadCreate { child: ThreadId(*child) };
                self.told.event(*thread, self.threads.get_mut(thread), &event)?;
            }
            Message::Signal { thread, at, outer, inner, info, mode } => {
                self.settle(*thread, *outer, *at)?;
                let Some(state) = self.threads.get_mut(thread) else { return Ok(true) };
                self.told.gap_unless(*thread, state, info.interrupted)?;
                self.told.event(*thread, Some(state), &Event::Signal(*info))?;
                self.told.mode(*thread, state, mode.0)?;
                state.at = Some(info.handler);
                let lane = state.lanes.get(outer);
                let shadow = lane.map_or(Shadow::new(), |l| l.shadow.clone());
                let begun = Side::new(self.told.plan.as_ref());
                let plan = self.told.plan.as_ref();
                let side = lane.map_or(begun, |l| l.side).in_handler(plan, *mode);
                state.lanes.insert(*inner, Lane::new(*inner, shadow, side));
                state.now = *inner;
            }
            Message::SignalReturn { thread, at, inner, outer, pc, changed } => {
                self.settle(*thread, *inner, *at)?;
                let Some(state) = self.threads.get_mut(thread) else { return Ok(true) };
                self.told.gap(*thread, state)?;
                self.told.event(*thread, Some(state), &Event::SignalReturn { pc: *pc })?;
                state.at = Some(*pc);
                state.lanes.remove(inner);
                state.now = *outer;
                let lane = state.lanes.get_mut(outer);
                // A handler may give registers other values, and what was interrupted goes on with those.
                let mode = lane.map(|lane| {
                    let is_inside = lane.held.as_ref().is_some_and(|h| h.done.pc() == *pc);
                    lane.shadow.change(changed, is_inside);
                    lane.side.mode
                });
                self.told.mode(*thread, state, mode.unwrap_or(Mode::Inst))?;
            }
            Message::Rests { thread, lane, at } => self.settle(*thread, *lane, *at)?,
            Message::Stamp { thread, ns } => {
                if let Some(state) = self.threads.get_mut(thread) {
                    self.told.timestamp(*thread, state, *ns)?;
                }
            }
            Message::Maps { thread, gone, maps } => {
                self.leave_copies(*thread)?;
                for event in gone.iter().map(Mapped::as_gone) {
                    self.told.event(*thread, self.threads.get_mut(thread), &event)?;
                }
                for map in maps {
                    let event = Event::Map(map.as_event());
                    self.told.event(*thread, self.threads.get_mut(thread), &event)?;
                }
            }
            Message::Starved {} => {}
            Message::Turnover { thread, moment } => self.turnover(*thread, *moment)?,
            Message::Left { thread, outer } => {
                if let Some(state) = self.threads.get_mut(thread) {
                    state.lanes.remove(outer);
                }
            }
            Message::Handle { thread, handle } => {
                let process = self.threads.get(thread).map(|t| t.process);
                let process = process.and_then(|p| self.processes.get_mut(&p));
                if let Some(process) = process {
                    process.handles.insert(*handle, *thread);
                }
            }
            Message::End { thread, at, status, left } => {
                self.end(*thread, *at, (*status, *left))?;
            }
        }
        Ok(self.told.go_on)
    }

    /// What is left is not read, for this reason: ends all threads where they were known to be.
    pub(crate) fn break_off(&mut self, reason: GapReason) -> Result<(), S::Error> {
        let mut left: Vec<u32> = self.threads.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().try_for_each(|thread| self.lose(thread, reason))
    }

    /// What else a thread did is not read, for this reason: ends it where it was known to be.
    pub(crate) fn lose(&mut self, thread: u32, reason: GapReason) -> Result<(), S::Error> {
        let Some(mut state) = self.threads.remove(&thread) else { return Ok(()) };
        let gap = Event::Gap { reason, insns: None, skipped: None };
        self.told.event(thread, Some(&mut state), &gap)?;
        self.told.event(thread, Some(&mut state), &Event::ThreadEnd(EndStatus::Unknown))
    }

    /// Ends all threads whose end nobody saw, and the trace. Answers how many instructions
    /// there were.
    pub(crate) fn finish(mut self) -> Result<u64, S::Error> {
        let mut left: Vec<u32> = self.threads.keys().copied().collect();
        left.sort_unstable();
        for thread in left {
            self.end(thread, Where::Unknown, (EndStatus::Unknown, u64::MAX))?;
        }
        self.told.sink.finish().map_err(RecordError::Sink)?;
        Ok(self.told.insns)
    }

    fn start(
        &mut self,
        thread: u32,
        start: ThreadStart,
        lane: Context,
        like: Option<u32>,
    ) -> Result<(), S::Error> {
        let parent = like.and_then(|l| self.threads.get(&l));
        // A forked process goes on as its maker was; any other thread that was made shares its maker's.
        let shared = match parent {
            Some(parent) => self.processes.get(&parent.process).is_some_and(|p| p.shared),
            None => start.creator.is_some(),
        };
        let held = parent.map(|p| p.held.clone()).unwrap_or_default();
        let like = parent.and_then(|parent| {
            parent.lanes.get(&parent.now).map(|lane| (lane.shadow.clone(), lane.side))
        });
        let (shadow, side) = like.unwrap_or_else(|| (Shadow::new(), self.side()));
        if let Some(process) = self.processes.get_mut(&start.process.0) {
            process.shared |= shared;
        }
        let lanes = HashMap::from([(lane, Lane::new(lane, shadow, side))]);
        let process = start.process.0;
        let (insns, at, cpu, mode, clock, told) = (0, None, None, None, 0, None);
        let now = lane;
        let mut state = Thread { process, insns, at, lanes, now, mode, held, clock, cpu, told };
        self.told.event(thread, Some(&mut state), &Event::ThreadStart(start))?;
        self.told.mode(thread, &mut state, side.mode)?;
        self.threads.insert(thread, state);
        Ok(())
    }

    /// A thread of a process loaded a library.
    fn library(&mut self, thread: u32, process: u32, copy: &Arc<Copy>) -> Result<(), S::Error> {
        let Some(process) = self.processes.get_mut(&process) else { return Ok(()) };
        process.images.add(Arc::clone(copy));
        if process.learn(copy) {
            return Ok(());
        }
        // It was loaded before, and others may have been at its place since.
        let Some(state) = self.threads.get_mut(&thread) else { return Ok(()) };
        let numbered = (copy.plot.first.block as usize..).zip(&copy.blocks);
        for (_, block) in numbered.filter(|(number, _)| process.tables.is_met(*number)) {
            self.told.code(thread, state, (block.entry, &block.code))?;
        }
        Ok(())
    }

    /// A thread is known to be outside copied code.
    fn leave_copies(&mut self, thread: u32) -> Result<(), S::Error> {
        let Some(now) = self.threads.get(&thread).map(|t| t.now) else { return Ok(()) };
        self.settle(thread, now, Where::Outside(GuestVa(0)))
    }

    fn exec(&mut self, thread: u32, path: &str) -> Result<(), S::Error> {
        let Some(now) = self.threads.get(&thread).map(|t| t.now) else { return Ok(()) };
        self.settle(thread, now, Where::Outside(GuestVa(0)))?;
        let Some(state) = self.threads.get_mut(&thread) else { return Ok(()) };
        self.told.gap(thread, state)?;
        self.told.event(thread, Some(state), &Event::Exec { path })?;
        (state.at, state.held) = (None, Held::default());
        let buffer = state.lanes.get(&now).map(|l| (l.buffer, l.parsed));
        let side = Side::new(self.told.plan.as_ref());
        let mut lane = Lane::new(now, Shadow::new(), side);
        (lane.buffer, lane.parsed) = buffer.unwrap_or((lane.buffer, lane.parsed));
        state.lanes = HashMap::from([(now, lane)]);
        self.told.mode(thread, state, side.mode)
    }

    /// The side on which threads begin.
    fn side(&self) -> Side {
        Side::new(self.told.plan.as_ref())
    }

    fn end(
        &mut self,
        thread: u32,
        at: Where,
        (status, left): (EndStatus, u64),
    ) -> Result<(), S::Error> {
        let Some(now) = self.threads.get(&thread).map(|t| t.now) else { return Ok(()) };
        self.settle(thread, now, at)?;
        let Some(mut state) = self.threads.remove(&thread) else { return Ok(()) };
        let side = state.lanes.get(&now).map(|l| l.side);
        let skipped =
            side.zip(self.told.plan.as_ref()).and_then(|(s, p)| s.skipped_at_end(p, left));
        if let Some(skipped) = skipped {
            self.told.skipped(thread, &mut state, skipped)?;
        } else if !matches!(at, Where::Copy { .. }) {
            self.told.gap(thread, &mut state)?;
        }
        self.told.event(thread, Some(&mut state), &Event::ThreadEnd(status))
    }

    /// A thread got a new buffer.
    fn turnover(&mut self, thread: u32, moment: Moment) -> Result<(), S::Error> {
        let Some(state) = self.threads.get_mut(&thread) else { return Ok(()) };
        if moment.starved {
            let event = Event::Marker { id: STARVED, text: "all threads stopped: no free buffer" };
            self.told.event(thread, Some(state), &event)?;
        }
        self.told.timestamp(thread, state, moment.ns)?;
        if let Some(cpu) = moment.cpu.filter(|cpu| state.cpu != Some(*cpu)) {
            state.cpu = Some(cpu);
            self.told.event(thread, Some(state), &Event::Migrate { cpu })?;
        }
        Ok(())
    }

    /// Plays what is held as far as is known from where the thread is.
    fn settle(&mut self, thread: u32, lane: Context, at: Where) -> Result<(), S::Error> {
        let Some(state) = self.threads.get_mut(&thread) else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&state.process) else { return Ok(()) };
        let Some(of) = state.lanes.get_mut(&lane) else { return Ok(()) };
        let Some(mut held) = of.held.take() else { return Ok(()) };
        let Some(block) = process.images.block(held.block) else { return Ok(()) };
        let (until, turns) = match at {
            Where::Copy { pc, stored: true, turn } => (Until::Cut(pc), turn),
            Where::Copy { pc, stored: false, turn } => {
                let left = held.left.or((turn > 0).then_some(turn));
                (Until::Next(pc), turns(block, left, pc))
            }
            Where::Outside(_) | Where::Exec(_) => (Until::Outside, 0),
            Where::Unknown => (Until::Unknown, 0),
        };
        let (number, done) = (held.block, (held.done, turns));
        let Some(mut of) = state.lanes.remove(&lane) else { return Ok(()) };
        let played = self.told.play(
            thread,
            (state, &mut of, &mut process.names),
            (number, block, held.words.as_slice()),
            done,
            until,
        )?;
        match played {
            Played::Over(at) => state.at = at,
            Played::Paused(done) => {
                held.done = done;
                state.at = Some(done.pc());
                of.held = Some(held);
            }
        }
        state.lanes.insert(lane, of);
        self.told.flush(thread, state)
    }

    /// Reads a context's words up to an offset in its buffer.
    fn words(
        &mut self,
        (thread, lane): (u32, Context),
        (buffer, words): (u32, Option<&[u8]>),
        to: u64,
    ) -> Result<(), S::Error> {
        let Some(state) = self.threads.get_mut(&thread) else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&state.process) else { return Ok(()) };
        if process.images.is_empty() {
            return Ok(());
        }
        let Some(of) = state.lanes.get_mut(&lane) else { return Ok(()) };
        let pool = self.pool.as_ref();
        let read = |at: u64, into: &mut [u8]| match words {
            Some(words) => copy(words, at, into),
            None => pool.is_some_and(|pool| pool.read(pool.layout().buffer(buffer) + at, into)),
        };
        if of.buffer == buffer {
            // What was interrupted has stored more since.
            if let Some(held) = &mut of.held {
                read(held.at, &mut held.words);
            }
        } else {
            (of.buffer, of.parsed) = (buffer, 0);
        }
        let start = of.parsed;
        let len = usize::try_from(to.saturating_sub(start)).unwrap_or(0);
        self.bytes.resize(len + BEHIND, 0);
        let Some(bytes) = self.bytes.get_mut(..len) else { return Ok(()) };
        if !read(start, bytes) {
            return Err(broken(thread, start, "the words lie outside the buffer"));
        }
        of.parsed = to.max(start);
        let Process { images, tables, names, shared, handles } = process;
        let (bytes, alone) = (&*self.bytes, !*shared);
        let mut reading = Reading { images, tables, names, start, bytes, len, alone, handles };
        reading.all(thread, state, lane, &mut self.told)?;
        self.told.flush(thread, state)
    }
}

/// Copies bytes from an offset on; no if there are not so many.
fn copy(from: &[u8], at: u64, into: &mut [u8]) -> bool {
    let from = usize::try_from(at).ok().and_then(|at| from.get(at..)?.get(..into.len()));
    from.inspect(|from| into.copy_from_slice(from)).is_some()
}

pub(super) fn broken<E>(thread: u32, at: u64, why: &'static str) -> RecordError<E> {
    Error::Stream { thread, at, why }.into()
}

impl<S: Sink> Told<'_, S> {
    /// Whether the next execution that is gathered is the first.
    #[inline]
    pub(super) fn is_fresh(&self) -> bool {
        self.raw.as_ref().is_some_and(Gathered::is_empty)
    }

    /// Plays a block step by step from where it stands, with so many turns finished before the one that `until` is about.
    pub(super) fn play(
        &mut self,
        thread: u32,
        (state, of, names): (&mut Thread, &mut Lane, &mut Names),
        (number, block, words): (usize, &Block, &[u8]),
        (done, turns): (Done, usize),
        until: Until,
    ) -> Result<Played, S::Error> {
        let Some(raw) = &mut self.raw else {
            let played = of.shadow.play(block, words, (done, turns), until, &mut self.out);
            if self.out.long.is_some() {
                self.flush(thread, state)?;
            }
            return Ok(played);
        };
        let (known, as_stored) = (of.shadow.known(), !of.shadow.is_changed());
        let mut out = Out::new(Made::All);
        let played = of.shadow.play(block, words, (done, turns), until, &mut out);
        if let Played::Over(Some(at)) = played
            && !matches!(until, Until::Cut(_))
            && done == Done::nothing(block)
            && as_stored
            && is_planned(block)
        {
            if raw.is_empty() {
                raw.open(&known, state.changes_to_tell(of));
            }
            match block.payload {
                Some(_) => raw.put_varying((names.block(number), block), words, &out),
                None => {
                    raw.put_turns(names, number, (words, words.len()), (turns, block.turns));
                }
            }
            raw.leads(at);
            self.out.insns += out.insns;
            return Ok(played);
        }
        // Part of a block is told by its records.
        self.flush(thread, state)?;
        of.changed = Changed::All;
        self.tell_code(thread, state, (block.entry, &block.code))?;
        self.out = Out { made: self.out.made, ..out };
        self.flush(thread, state)?;
        Ok(played)
    }

    /// Tells a block that nobody of a thread's process has been to, if executions are told as they were stored.
    pub(super) fn planned(
        &mut self,
        state: &Thread,
        names: &mut Names,
        (number, block): (usize, &Block),
    ) -> Result<(), S::Error> {
        if self.raw.is_none() {
            return Ok(());
        }
        let process = ProcessId(state.process);
        if self.silent.insert(state.process) {
            for (identifier, steps) in silent() {
                let (entry, steps, code) = (GuestVa(0), &*steps, &[][..]);
                let plan = Planned { identifier, process, entry, steps, code };
                self.go_on &= self.sink.plan(&plan).map_err(RecordError::Sink)?;
            }
        }
        let (identifier, entry) = (names.plan(number, block), block.entry);
        let (steps, code) = (&*steps(block), &*block.code);
        let plan = Planned { identifier, process, entry, steps, code };
        self.go_on &= self.sink.plan(&plan).map_err(RecordError::Sink)?;
        Ok(())
    }

    pub(super) fn flush(&mut self, thread: u32, state: &mut Thread) -> Result<(), S::Error> {
        if let Some(raw) = self.raw.as_mut().filter(|raw| !raw.is_empty()) {
            let process = ProcessId(state.process);
            for (identifier, blocks) in &raw.fresh {
                let chain = Chain { identifier: *identifier, process, blocks };
                self.go_on &= self.sink.chain(&chain).map_err(RecordError::Sink)?;
            }
            let (bytes, registers, leave) = raw.all();
            let told = Raw {
                thread: ThreadId(thread),
                process,
                insns_before: state.insns,
                insns: self.out.insns,
                registers: Some(registers),
                follows: None,
                bytes: [bytes, &[]],
                leave,
            };
            self.go_on &= self.sink.raw(&told).map_err(RecordError::Sink)?;
            raw.clear();
        }
        if let Some((before, runs)) = self.out.long.take() {
            self.flush_long((thread, state.insns), before, &runs)?;
        } else {
            self.flush_records((thread, state.insns))?;
        }
        self.out.records.clear();
        let count = std::mem::take(&mut self.out.insns);
        state.insns += count;
        self.insns += count;
        Ok(())
    }

    /// Tells the records, before which there were so many instructions of the thread.
    fn flush_records(&mut self, (thread, insns): (u32, u64)) -> Result<(), S::Error> {
        if !self.out.records.is_empty() {
            let batch = Batch::new(ThreadId(thread), insns, &self.out.records);
            self.go_on &= self.sink.records(&batch).map_err(RecordError::Sink)?;
        }
        Ok(())
    }

    /// Tells the records with runs behind so many of them, piece by piece.
    #[cold]
    fn flush_long(
        &mut self,
        (thread, insns): (u32, u64),
        before: usize,
        runs: &[Run],
    ) -> Result<(), S::Error> {
        let rest = self.out.records.split_off(before.min(self.out.records.len()));
        self.flush_records((thread, insns))?;
        let is_insn = |record: &&Record| matches!(record, Record::Insn { .. });
        let insns = insns + self.out.records.iter().filter(is_insn).count() as u64;
        for run in runs {
            let mut turn = 0;
            while turn < run.count && self.go_on {
                let end = run.count.min(turn.saturating_add(BATCH as u32));
                self.out.records.clear();
                self.out.records.extend(run.records(turn, end));
                self.flush_records((thread, insns))?;
                turn = end;
            }
        }
        self.out.records = rest;
        self.flush_records((thread, insns))
    }

    pub(super) fn event(
        &mut self,
        thread: u32,
        state: Option<&mut Thread>,
        event: &Event<'_>,
    ) -> Result<(), S::Error> {
        if let Some(state) = state {
            self.flush(thread, state)?;
        }
        self.go_on &= self.sink.event(ThreadId(thread), event).map_err(RecordError::Sink)?;
        Ok(())
    }

    /// A block's code, which belongs to its plan if there is one.
    pub(super) fn code(
        &mut self,
        thread: u32,
        state: &mut Thread,
        code: (GuestVa, &[u8]),
    ) -> Result<(), S::Error> {
        if self.raw.is_some() { Ok(()) } else { self.tell_code(thread, state, code) }
    }

    fn tell_code(
        &mut self,
        thread: u32,
        state: &mut Thread,
        (pc, bytes): (GuestVa, &[u8]),
    ) -> Result<(), S::Error> {
        self.flush(thread, state)?;
        let code = Code { process: ProcessId(state.process), pc, bytes };
        self.go_on &= self.sink.code(ThreadId(thread), &code).map_err(RecordError::Sink)?;
        Ok(())
    }

    /// Code without a copy ran.
    pub(super) fn gap(&mut self, thread: u32, state: &mut Thread) -> Result<(), S::Error> {
        let reason = GapReason::Untraced;
        self.event(thread, Some(state), &Event::Gap { reason, insns: None, skipped: None })
    }

    pub(super) fn gap_unless(
        &mut self,
        thread: u32,
        state: &mut Thread,
        pc: GuestVa,
    ) -> Result<(), S::Error> {
        if state.at == Some(pc) { Ok(()) } else { self.gap(thread, state) }
    }

    /// Something was passed over as the user asked: so many events, if they were counted.
    pub(super) fn skipped(
        &mut self,
        thread: u32,
        state: &mut Thread,
        skipped: Option<u64>,
    ) -> Result<(), S::Error> {
        let reason = self.plan.as_ref().map_or(GapReason::Sampling, |p| p.reason);
        self.event(thread, Some(state), &Event::Gap { reason, insns: None, skipped })
    }

    /// A thread is in this mode from here on.
    pub(super) fn mode(
        &mut self,
        thread: u32,
        state: &mut Thread,
        mode: Mode,
    ) -> Result<(), S::Error> {
        if self.plan.is_none() || state.mode == Some(mode) {
            return Ok(());
        }
        state.mode = Some(mode);
        self.event(thread, Some(state), &Event::ModeSwitch { mode })
    }

    /// The time at which the processor's clock stood so, if times are told.
    pub(super) fn stamp(&self, ticks: u64) -> Option<u64> {
        self.plan.as_ref().map_or_else(|| Some(self.clock.at(ticks)), |plan| plan.stamp(ticks))
    }

    /// A thread was here at this time.
    pub(super) fn timestamp(
        &mut self,
        thread: u32,
        state: &mut Thread,
        ns: u64,
    ) -> Result<(), S::Error> {
        state.clock = state.clock.max(ns);
        let ns = state.clock;
        self.event(thread, Some(state), &Event::Timestamp { ns })
    }
}
