//! Messages into a sink.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::sync::Arc;

use ichnos_base::{
    Batch, Code, EndStatus, Event, GapReason, GuestVa, ProcessId, Record, Sink, ThreadId,
    ThreadStart,
};
use ichnos_rt::{Context, Pool};

use super::message::{Buffers, Message, Moment, Where};
use super::stream::{Done, Held, Played, Shadow, Until, turns};
use crate::code::{Copy, ENTERED, ENTERED_LEN, TAG, turns_of_tag};
use crate::note::{u32_at, u64_at};
use crate::{Error, RecordError};

/// The number of the mark that tells that all threads were stopped for want of a buffer.
const STARVED: u64 = 1;

/// Records are handed on when there are so many.
const BATCH: usize = 8192;

/// Turns messages into records and events.
pub(crate) struct Collector<'a, S: Sink> {
    told: Told<'a, S>,
    pool: Arc<Pool>,
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    bytes: Vec<u8>,
}

/// What is handed to the sink.
struct Told<'a, S: Sink> {
    sink: &'a mut S,
    records: Vec<Record>,
    insns: u64,
    go_on: bool,
}

#[derive(Default)]
struct Process {
    copy: Option<Arc<Copy>>,
    /// Whether each block's code was told.
    told: Vec<bool>,
}

struct Thread {
    process: u32,
    insns: u64,
    /// Where it is, if that is known.
    at: Option<GuestVa>,
    lanes: HashMap<Context, Lane>,
    now: Context,
    /// The processor that it was last seen on.
    cpu: Option<u32>,
}

struct Lane {
    shadow: Shadow,
    held: Option<Held>,
    entered: Option<[u64; 3]>,
    buffer: u32,
    parsed: u64,
}

impl Lane {
    fn new(shadow: Shadow) -> Self {
        Self { shadow, held: None, entered: None, buffer: u32::MAX, parsed: 0 }
    }
}

type Result<T, E> = std::result::Result<T, RecordError<E>>;

impl<'a, S: Sink> Collector<'a, S> {
    /// A collector for a sink that has begun.
    pub(crate) fn new(sink: &'a mut S, pool: Arc<Pool>) -> Self {
        let told = Told { sink, records: Vec::with_capacity(2 * BATCH), insns: 0, go_on: true };
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
            Message::Program { process, copy } => {
                let blocks = copy.as_ref().map_or(0, |c| c.blocks.len());
                let known = Process { copy: copy.clone(), told: vec![false; blocks] };
                self.processes.insert(*process, known);
            }
            Message::Words { thread, lane, buffer, to, last } => {
                self.words(*thread, *lane, *buffer, *to)?;
                if *last {
                    buffers.free(*buffer);
                }
            }
            Message::Create { thread, child } => {
                let event = Event::ThreadCreate { child: ThreadId(*child) };
                self.told.event(*thread, self.threads.get_mut(thread), &event)?;
            }
            Message::Signal { thread, at, outer, inner, info } => {
                self.settle(*thread, *outer, *at)?;
                let Some(state) = self.threads.get_mut(thread) else { return Ok(true) };
                self.told.gap_unless(*thread, state, info.interrupted)?;
                self.told.event(*thread, Some(state), &Event::Signal(*info))?;
                state.at = Some(info.handler);
                let shadow = state.lanes.get(outer).map_or(Shadow::new(), |l| l.shadow.clone());
                state.lanes.insert(*inner, Lane::new(shadow));
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
            }
            Message::Maps { thread, maps } => {
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
            Message::End { thread, at, status } => self.end(*thread, *at, *status)?,
        }
        Ok(self.told.go_on)
    }

    /// Ends all threads whose end nobody saw, and the trace. Answers how many instructions
    /// there were.
    pub(crate) fn finish(mut self) -> Result<u64, S::Error> {
        let mut left: Vec<u32> = self.threads.keys().copied().collect();
        left.sort_unstable();
        for thread in left {
            self.end(thread, Where::Unknown, EndStatus::Unknown)?;
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
        let shadow = like.and_then(|l| {
            let parent = self.threads.get(&l)?;
            parent.lanes.get(&parent.now).map(|lane| lane.shadow.clone())
        });
        let lanes = HashMap::from([(lane, Lane::new(shadow.unwrap_or(Shadow::new())))]);
        let process = start.process.0;
        let mut state = Thread { process, insns: 0, at: None, lanes, now: lane, cpu: None };
        self.told.event(thread, Some(&mut state), &Event::ThreadStart(start))?;
        self.threads.insert(thread, state);
        Ok(())
    }

    fn exec(&mut self, thread: u32, path: &str) -> Result<(), S::Error> {
        let Some(now) = self.threads.get(&thread).map(|t| t.now) else { return Ok(()) };
        self.settle(thread, now, Where::Outside(GuestVa(0)))?;
        let Some(state) = self.threads.get_mut(&thread) else { return Ok(()) };
        self.told.gap(thread, state)?;
        self.told.event(thread, Some(state), &Event::Exec { path })?;
        state.at = None;
        let buffer = state.lanes.get(&now).map(|l| (l.buffer, l.parsed));
        let mut lane = Lane::new(Shadow::new());
        (lane.buffer, lane.parsed) = buffer.unwrap_or((lane.buffer, lane.parsed));
        state.lanes = HashMap::from([(now, lane)]);
        Ok(())
    }

    fn end(&mut self, thread: u32, at: Where, status: EndStatus) -> Result<(), S::Error> {
        let Some(now) = self.threads.get(&thread).map(|t| t.now) else { return Ok(()) };
        self.settle(thread, now, at)?;
        let Some(mut state) = self.threads.remove(&thread) else { return Ok(()) };
        if !matches!(at, Where::Copy { .. }) {
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
        self.told.event(thread, Some(state), &Event::Timestamp { ns: moment.ns })?;
        if let Some(cpu) = moment.cpu.filter(|cpu| state.cpu != Some(*cpu)) {
            state.cpu = Some(cpu);
            self.told.event(thread, Some(state), &Event::Migrate { cpu })?;
        }
        Ok(())
    }

    /// Plays what is held as far as is known from where the thread is.
    fn settle(&mut self, thread: u32, lane: Context, at: Where) -> Result<(), S::Error> {
        let Some(state) = self.threads.get_mut(&thread) else { return Ok(()) };
        let process = self.processes.get(&state.process);
        let Some(copy) = process.and_then(|p| p.copy.as_ref()) else { return Ok(()) };
        let Some(of) = state.lanes.get_mut(&lane) else { return Ok(()) };
        let Some(mut held) = of.held.take() else { return Ok(()) };
        let Some(block) = copy.blocks.get(held.block) else { return Ok(()) };
        let (until, turns) = match at {
            Where::Copy { pc, stored: true, turn } => (Until::Cut(pc), turn),
            Where::Copy { pc, stored: false, turn } => {
                let left = held.left.or((turn > 0).then_some(turn));
                (Until::Next(pc), turns(block, left, pc))
            }
            Where::Outside(_) => (Until::Outside, 0),
            Where::Unknown => (Until::Unknown, 0),
        };
        let records = &mut self.told.records;
        match of.shadow.play(block, &held.words, (held.done, turns), until, records) {
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
        let Some(copy) = process.copy.as_ref() else { return Ok(()) };
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
        self.bytes.resize(usize::try_from(to.saturating_sub(start)).unwrap_or(0), 0);
        if !self.pool.read(base + start, &mut self.bytes) {
            return Err(broken(thread, start, "the words lie outside the buffer"));
        }
        of.parsed = to.max(start);
        let mut reading = Reading { copy, told: &mut process.told, start, bytes: &self.bytes };
        reading.all(thread, state, lane, &mut self.told)?;
        self.told.flush(thread, state)
    }
}

fn broken<E>(thread: u32, at: u64, why: &'static str) -> RecordError<E> {
    Error::Stream { thread, at, why }.into()
}

/// Words being read.
struct Reading<'a> {
    copy: &'a Copy,
    told: &'a mut Vec<bool>,
    start: u64,
    bytes: &'a [u8],
}

impl Reading<'_> {
    fn all<S: Sink>(
        &mut self,
        thread: u32,
        state: &mut Thread,
        lane: Context,
        told: &mut Told<'_, S>,
    ) -> Result<(), S::Error> {
        let Some(mut of) = state.lanes.remove(&lane) else { return Ok(()) };
        // The block before the one at `at`, whose words lie in these bytes, and the turns that
        // it was told to have had.
        let mut held: Option<(usize, usize)> = None;
        let mut left = of.held.as_ref().and_then(|h| h.left);
        let mut at = 0;
        while let Some(tag) = u32_at(self.bytes, at) {
            let bad = |why| broken(thread, self.start + at as u64, why);
            if tag == ENTERED {
                let word = |i: usize| u64_at(self.bytes, at + TAG + 8 * i);
                let (Some(rsp), Some(back), Some(fs)) = (word(0), word(1), word(2)) else {
                    return Err(bad("an entry is cut"));
                };
                of.entered = Some([rsp, back, fs]);
                at += ENTERED_LEN;
                continue;
            }
            if let Some(turns) = turns_of_tag(tag) {
                left = Some(turns);
                at += TAG;
                continue;
            }
            let number = (tag as usize).wrapping_sub(1);
            let block =
                self.copy.blocks.get(number).ok_or_else(|| bad("there is no such block"))?;
            let until = Until::Next(block.entry);
            let left = left.take();
            if let Some((before, words)) = held.take() {
                let previous = &self.copy.blocks[before];
                let words = self.bytes.get(words..words + previous.len).unwrap_or_default();
                let done = (Done::nothing(previous), turns(previous, left, block.entry));
                if let Played::Over(at) =
                    of.shadow.play(previous, words, done, until, &mut told.records)
                {
                    state.at = at;
                }
            } else if let Some(held) = of.held.take() {
                let previous = self.copy.blocks.get(held.block);
                let previous = previous.ok_or_else(|| bad("there is no such block"))?;
                let done = (held.done, turns(previous, left, block.entry));
                let played = of.shadow.play(previous, &held.words, done, until, &mut told.records);
                if let Played::Over(at) = played {
                    state.at = at;
                }
            }
            if state.at != Some(block.entry) {
                told.gap(thread, state)?;
            }
            if let Some([rsp, back, fs]) = of.entered.take() {
                match self.copy.holds(back) {
                    true => of.shadow.called(rsp, fs),
                    false => of.shadow.entered(rsp, GuestVa(back), fs),
                }
            }
            if !self.told[number] {
                self.told[number] = true;
                told.code(thread, state, (block.entry, &block.code))?;
            }
            held = Some((number, at + TAG));
            at += TAG + block.len;
            if told.records.len() >= BATCH {
                told.flush(thread, state)?;
            }
        }
        if at > self.bytes.len() {
            return Err(broken(thread, self.start + at as u64, "a block is cut"));
        }
        if let Some((number, words)) = held {
            let block = &self.copy.blocks[number];
            of.held = Some(Held {
                block: number,
                at: self.start + words as u64,
                words: self.bytes.get(words..words + block.len).unwrap_or_default().to_vec(),
                done: Done::nothing(block),
                left,
            });
        } else if let Some(held) = &mut of.held {
            held.left = left;
        }
        state.lanes.insert(lane, of);
        Ok(())
    }
}

impl<S: Sink> Told<'_, S> {
    fn flush(&mut self, thread: u32, state: &mut Thread) -> Result<(), S::Error> {
        if self.records.is_empty() {
            return Ok(());
        }
        let batch = Batch::new(ThreadId(thread), state.insns, &self.records);
        self.go_on &= self.sink.records(&batch).map_err(RecordError::Sink)?;
        let count = self.records.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
        state.insns += count;
        self.insns += count;
        self.records.clear();
        Ok(())
    }

    fn event(
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

    fn code(
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
    fn gap(&mut self, thread: u32, state: &mut Thread) -> Result<(), S::Error> {
        let reason = GapReason::Untraced;
        self.event(thread, Some(state), &Event::Gap { reason, insns: None, skipped: None })
    }

    fn gap_unless(&mut self, thread: u32, state: &mut Thread, pc: GuestVa) -> Result<(), S::Error> {
        if state.at == Some(pc) { Ok(()) } else { self.gap(thread, state) }
    }
}
