//! Messages into a sink.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::sync::Arc;

use ichnos_base::{
    Batch, Code, EndStatus, Event, GapReason, GuestVa, Mode, ProcessId, Sink, ThreadId, ThreadStart,
};
use ichnos_rt::{Clock, Context, Pool};
use ichnos_sync::Held;

use super::Config;
use super::images::Images;
use super::maps::Mapped;
use super::message::{Buffers, Message, Moment, Where};
use super::reading::Reading;
use super::sides::{Plan, Side};
use super::stream::{self, Made, Out, Played, Shadow, Until, turns};
use super::syncing::Begun;
use super::table::{BEHIND, Tables};
use crate::code::Copy;
use crate::{Error, RecordError};

/// The number of the mark that tells that all threads were stopped for want of a buffer.
const STARVED: u64 = 1;

/// Records are handed on when there are so many: what a sink makes of them stays in the first cache level.
pub(super) const BATCH: usize = 1024;

/// Turns messages into records and events.
pub(crate) struct Collector<'a, S: Sink> {
    told: Told<'a, S>,
    pool: Arc<Pool>,
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    bytes: Vec<u8>,
}

/// What is handed to the sink.
pub(super) struct Told<'a, S: Sink> {
    sink: &'a mut S,
    pub(super) out: Out,
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
}

pub(super) struct Lane {
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
    fn new(shadow: Shadow, side: Side) -> Self {
        let (held, entered, begun, asked) = (None, None, None, None);
        Self { shadow, held, entered, side, begun, asked, buffer: u32::MAX, parsed: 0 }
    }
}

pub(super) type Result<T, E> = std::result::Result<T, RecordError<E>>;

impl<'a, S: Sink> Collector<'a, S> {
    /// A collector for a sink that has begun.
    pub(crate) fn new(sink: &'a mut S, pool: Arc<Pool>, (config, clock): (&Config, Clock)) -> Self {
        let records = Vec::with_capacity(2 * BATCH);
        let plan = Plan::new(config, clock);
        let made = if sink.takes_references() { Made::References } else { Made::All };
        let out = Out { records, insns: 0, made };
        let told = Told { sink, out, insns: 0, go_on: true, plan, clock };
        let (processes, threads, bytes) = Default::default();
        Self { told, pool, processes, threads, bytes }
    }

    /// Takes a message; whether to go on.
    pub(crate) fn message(
        &mut self,
        message: &Message,
        buffers: &Buffers,
    ) -> Result<bool, S::Error> {
        match message {
            Message::Start { thread, start, lane, like } => {
                self.start(*thread, *start, *lane, *like)?
            }
            Message::Exec { thread, path } => self.exec(*thread, path)?,
            Message::Program { process, images } => {
                let mut known = Process { images: images.clone(), ..Process::default() };
                for copy in images.all() {
                    known.learn(copy);
                }
                self.processes.insert(*process, known);
            }
            Message::Library { thread, process, copy } => {
                self.library(*thread, *process, copy)?;
            }
            Message::Words { thread, lane, buffer, to, last } => {
                self.words(*thread, *lane, *buffer, *to)?;
                if *last {
                    // The next one may have the same number.
                    let state = self.threads.get_mut(thread);
                    let of = state.and_then(|t| t.lanes.get_mut(lane));
                    of.into_iter().for_each(|lane| lane.buffer = u32::MAX);
                    buffers.free(*buffer);
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
                state.lanes.insert(*inner, Lane::new(shadow, side));
                state.now = *inner;
            }
            Message::SignalReturn { thread, at, inner, outer, pc } => {
                self.settle(*thread, *inner, *at)?;
                let Some(state) = self.threads.get_mut(thread) else { return Ok(true) };
                self.told.gap(*thread, state)?;
                self.told.event(*thread, Some(state), &Event::SignalReturn { pc: *pc })?;
                state.at = Some(*pc);
                state.lanes.remove(inner);
                state.now = *outer;
                let mode = state.lanes.get(outer).map(|l| l.side.mode);
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
        let lanes = HashMap::from([(lane, Lane::new(shadow, side))]);
        let process = start.process.0;
        let (insns, at, cpu, mode, clock) = (0, None, None, None, 0);
        let mut state = Thread { process, insns, at, lanes, now: lane, mode, held, clock, cpu };
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
        let mut lane = Lane::new(Shadow::new(), side);
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
        let Some(process) = self.processes.get(&state.process) else { return Ok(()) };
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
        let out = &mut self.told.out;
        match of.shadow.play(block, &held.words, (held.done, turns), until, out) {
            Played::Over(at) => state.at = at,
            Played::Paused(done) => {
                held.done = done;
                state.at = Some(done.pc());
                of.held = Some(held);
            }
        }
        self.told.flush(thread, state)
    }

    /// Reads a context's words up to an offset in its buffer.
    fn words(&mut self, thread: u32, lane: Context, buffer: u32, to: u64) -> Result<(), S::Error> {
        let Some(state) = self.threads.get_mut(&thread) else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&state.process) else { return Ok(()) };
        if process.images.is_empty() {
            return Ok(());
        }
        let Some(of) = state.lanes.get_mut(&lane) else { return Ok(()) };
        let base = self.pool.layout().buffer(buffer);
        if of.buffer == buffer {
            // What was interrupted has stored more since.
            if let Some(held) = &mut of.held {
                self.pool.read(base + held.at, &mut held.words);
            }
        } else {
            (of.buffer, of.parsed) = (buffer, 0);
        }
        let start = of.parsed;
        let len = usize::try_from(to.saturating_sub(start)).unwrap_or(0);
        self.bytes.resize(len + BEHIND, 0);
        let Some(bytes) = self.bytes.get_mut(..len) else { return Ok(()) };
        if !self.pool.read(base + start, bytes) {
            return Err(broken(thread, start, "the words lie outside the buffer"));
        }
        of.parsed = to.max(start);
        let Process { images, tables, shared, handles } = process;
        let alone = !*shared;
        let bytes = &self.bytes;
        let mut reading = Reading { images, tables, start, bytes, len, alone, handles };
        reading.all(thread, state, lane, &mut self.told)?;
        self.told.flush(thread, state)
    }
}

pub(super) fn broken<E>(thread: u32, at: u64, why: &'static str) -> RecordError<E> {
    Error::Stream { thread, at, why }.into()
}

impl<S: Sink> Told<'_, S> {
    pub(super) fn flush(&mut self, thread: u32, state: &mut Thread) -> Result<(), S::Error> {
        if !self.out.records.is_empty() {
            let batch = Batch::new(ThreadId(thread), state.insns, &self.out.records);
            self.go_on &= self.sink.records(&batch).map_err(RecordError::Sink)?;
            self.out.records.clear();
        }
        let count = std::mem::take(&mut self.out.insns);
        state.insns += count;
        self.insns += count;
        Ok(())
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

    pub(super) fn code(
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
