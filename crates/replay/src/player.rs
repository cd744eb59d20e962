//! Plays one chunk into a sink: decodes, expands, announces code, delivers
//! events in place, and cuts records into batches.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;
use std::sync::Arc;

use ichnos_base::{Batch, BlockId, Blocks, DriveError, Event, Record, Sink, ThreadId, Totals};
use ichnos_trace::{Burst, Decoder, Error, Item, Leave, Reader, Roadmap};

use crate::announce::Announcer;
use crate::expand::{Expander, Rest};
use crate::stretch::{Stretch, Written};
use crate::ways::Ways;

/// How many records make a batch, more or less: few enough to stay in the
/// second cache level, enough to make a call worth while.
const BATCH: usize = 4096;

/// Why playing stopped.
pub(crate) type PlayError<S> = DriveError<Error, <S as Sink>::Error>;

/// Whether the sink wants more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    More,
    Enough,
}

/// Plays chunks of one trace, one at a time; keeps its memory.
#[derive(Debug)]
pub(crate) struct Player<'r> {
    decoder: Decoder<'r>,
    burst: Burst,
    expander: Expander,
    ways: Arc<Ways<'r>>,
    written: Written,
}

/// Which instructions of a thread are wanted, by number.
pub(crate) type Window = Range<u64>;

/// All of them.
pub(crate) const ALL: Window = 0..u64::MAX;

impl<'r> Player<'r> {
    pub(crate) fn new(reader: &'r Reader, ways: Arc<Ways<'r>>) -> Result<Self, Error> {
        Ok(Self {
            decoder: reader.decoder()?,
            burst: Burst::default(),
            expander: Expander::new(),
            ways,
            written: Written::default(),
        })
    }

    /// Starts on a chunk.
    pub(crate) fn open(&mut self, chunk: usize, window: Window) -> Result<Playing, Error> {
        let place = self.decoder.open(chunk)?;
        self.expander.start();
        let header = &place.header;
        let last = header.first + header.totals.insns;
        Ok(Playing {
            thread: header.thread,
            first: header.first,
            totals: header.totals,
            sent: 0,
            // A chunk may begin with accesses of the instruction before it.
            trim: (window.start > 0 && window.start >= header.first) || window.end < last,
            window,
            values: Vec::new(),
            clock: Clock::Runs,
        })
    }

    /// Plays a whole chunk.
    pub(crate) fn play<S: Sink>(
        &mut self,
        playing: &mut Playing,
        announcer: &mut Announcer,
        sink: &mut S,
    ) -> Result<Flow, PlayError<S>> {
        loop {
            match self.step(playing, announcer, sink)? {
                Step::Enough => return Ok(Flow::Enough),
                Step::End => return Ok(Flow::More),
                Step::Played | Step::Time => {}
            }
        }
    }

    /// Plays the next item of a chunk.
    pub(crate) fn step<S: Sink>(
        &mut self,
        playing: &mut Playing,
        announcer: &mut Announcer,
        sink: &mut S,
    ) -> Result<Step, PlayError<S>> {
        let Self { decoder, burst, expander, .. } = self;
        if let Clock::Stopped(ns) = playing.clock {
            playing.clock = Clock::Stops;
            return playing.tell(expander, &Event::Timestamp { ns }, sink);
        }
        let item = decoder.next(burst).map_err(DriveError::Source)?;
        match item {
            Some(Item::Executions) => self.executions(playing, announcer, sink),
            Some(Item::Snapshot) => {
                expander.machine.restore(&burst.registers);
                Ok(Step::Played)
            }
            Some(Item::Event(event)) => {
                if matches!(event, Event::Exec { .. }) {
                    announcer.forget();
                }
                // An event ends a batch, so nothing is held back here.
                match event {
                    Event::Timestamp { ns } if playing.clock == Clock::Stops => {
                        playing.clock = Clock::Stopped(ns);
                        Ok(Step::Time)
                    }
                    _ => playing.tell(expander, &event, sink),
                }
            }
            Some(Item::Loose) => {
                let mut out = Outlet { playing, decoder, sink, ways: &self.ways, enough: false };
                for loose in &burst.loose {
                    expander.loose(loose, &mut |e| out.pass(e))?;
                }
                out.flush(expander)?;
                Ok(out.done())
            }
            None => {
                decoder.check_end(&expander.totals).map_err(DriveError::Source)?;
                Ok(Step::End)
            }
        }
    }

    fn executions<S: Sink>(
        &mut self,
        playing: &mut Playing,
        announcer: &mut Announcer,
        sink: &mut S,
    ) -> Result<Step, PlayError<S>> {
        let Self { decoder, burst, expander, ways, written } = self;
        let roadmap = decoder.reader().roadmap();
        let as_blocks = sink.takes_blocks() && !playing.trim && !decoder.has_values();
        let mut rest = Rest::new(burst);
        let mut stretch = Stretch::new(burst, written);
        let mut out = Outlet { playing, decoder, sink, ways, enough: false };
        let mut entries = burst.blocks.iter().map(|id| roadmap.get(*id));
        let mut next = entries.next().flatten();
        for (at, &id) in burst.blocks.iter().enumerate() {
            let Some(entry) = next else {
                return Err(out.refuse("it needs a block that is not there"));
            };
            next = entries.next().flatten();
            let leave = match next {
                Some(next) if !next.shape.is_silent() => Leave::Next(next.shape.entry),
                Some(_) if entry.shape.is_silent() => Leave::Silent,
                _ => left(burst, at, roadmap),
            };
            if !announcer.is_settled(id)
                && let Some(code) = announcer.news(id, &entry.block)
            {
                out.flush(expander)?;
                out.flush_blocks(expander, &mut stretch)?;
                out.code(&code)?;
            }
            let words = entry.shape.words.len();
            let plain = entry.shape.plain && !matches!(leave, Leave::Cut(_));
            if as_blocks && plain {
                if !expander.count(entry, &mut rest, leave) {
                    return Err(out.refuse("a block lacks words"));
                }
                stretch.plain(words);
                continue;
            }
            if as_blocks
                && let Some((done, way)) =
                    expander.run((ways, id), &mut rest, leave, stretch.addresses())
            {
                if way.records > 0 {
                    stretch.planned(BlockId(done.way), words);
                } else {
                    stretch.skip(words);
                }
                continue;
            }
            out.flush_blocks(expander, &mut stretch)?;
            stretch.skip(words);
            if plain {
                if !expander.plain(entry, &mut rest, leave) {
                    return Err(out.refuse("a block lacks words"));
                }
            } else if !expander.planned((ways, id), entry, &mut rest, leave)
                && let Err(flaw) = expander.steps(entry, &mut rest, leave, &mut |e| out.pass(e))?
            {
                return Err(out.refuse(flaw));
            }
            if as_blocks || expander.records.len() >= BATCH {
                out.flush(expander)?;
                if out.enough {
                    return Ok(Step::Enough);
                }
            }
        }
        out.flush_blocks(expander, &mut stretch)?;
        out.flush(expander)?;
        Ok(out.done())
    }
}

/// How a burst's execution was left: for the next block that has instructions, if one follows.
#[cold]
fn left(burst: &Burst, at: usize, roadmap: &Roadmap) -> Leave {
    let later = burst.blocks.get(at + 1..).unwrap_or_default();
    let mut later = later.iter().filter_map(|id| roadmap.get(*id));
    let next = later.find(|entry| !entry.shape.is_silent());
    next.map_or(burst.leave, |entry| Leave::Next(entry.shape.entry))
}

/// What one step of playing came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Something was told.
    Played,
    /// A timestamp is next, and the clock stops there.
    Time,
    /// The chunk is over.
    End,
    /// The sink wants no more, or the window is over.
    Enough,
}

/// Where in a chunk playing is.
#[derive(Debug)]
pub(crate) struct Playing {
    pub(crate) thread: ThreadId,
    first: u64,
    /// What the chunk's records will count.
    totals: Totals,
    /// Instructions of this chunk that were flushed.
    sent: u64,
    window: Window,
    /// Whether parts of the chunk lie outside the window.
    trim: bool,
    values: Vec<u8>,
    pub(crate) clock: Clock,
}

/// What happens at timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clock {
    /// They are told like any event.
    Runs,
    /// Playing stops before each.
    Stops,
    /// Playing stopped before this one.
    Stopped(u64),
}

impl Playing {
    /// Tells an event if it lies in the window: behind an instruction of the
    /// window, or at the very beginning.
    fn tell<S: Sink>(
        &self,
        expander: &Expander,
        event: &Event<'_>,
        sink: &mut S,
    ) -> Result<Step, PlayError<S>> {
        let before = self.first + expander.totals.insns;
        let inside = before > self.window.start || (before == 0 && self.window.start == 0);
        if self.trim && (!inside || before > self.window.end) {
            return Ok(Step::Played);
        }
        if !sink.event(self.thread, event).map_err(DriveError::Sink)? {
            return Ok(Step::Enough);
        }
        Ok(Step::Played)
    }
}

/// The way out of a player.
struct Outlet<'a, 'r, S> {
    playing: &'a mut Playing,
    decoder: &'a mut Decoder<'r>,
    sink: &'a mut S,
    ways: &'a Ways<'r>,
    enough: bool,
}

impl<S: Sink> Outlet<'_, '_, S> {
    /// Tells the gathered records.
    fn flush(&mut self, expander: &mut Expander) -> Result<(), PlayError<S>> {
        let records = &expander.records;
        if records.is_empty() {
            return Ok(());
        }
        if !within(&expander.totals, &self.playing.totals) {
            return Err(self.refuse("its records are more than its header says"));
        }
        let playing = &mut *self.playing;
        playing.values.clear();
        if self.decoder.has_values() {
            let done = self.decoder.values(records, &mut playing.values);
            done.map_err(DriveError::Source)?;
        }
        let before = playing.first + playing.sent;
        playing.sent = expander.totals.insns;
        if !self.enough {
            let values = self.decoder.has_values().then_some(playing.values.as_slice());
            let batch = Batch { thread: playing.thread, insns_before: before, records, values };
            let batch = if playing.trim { trimmed(batch, &playing.window) } else { batch };
            if !batch.records.is_empty() {
                self.enough = !self.sink.records(&batch).map_err(DriveError::Sink)?;
            }
        }
        expander.records.clear();
        Ok(())
    }

    /// The same; whether more are wanted.
    fn pass(&mut self, expander: &mut Expander) -> Result<bool, PlayError<S>> {
        self.flush(expander)?;
        Ok(!self.enough)
    }

    /// Tells the blocks that wait. No records wait.
    fn flush_blocks(
        &mut self,
        expander: &Expander,
        stretch: &mut Stretch<'_>,
    ) -> Result<(), PlayError<S>> {
        let (blocks, words) = stretch.waiting();
        if blocks.is_empty() {
            return Ok(());
        }
        if !within(&expander.totals, &self.playing.totals) {
            return Err(self.refuse("its records are more than its header says"));
        }
        let playing = &mut *self.playing;
        let insns_before = playing.first + playing.sent;
        playing.sent = expander.totals.insns;
        if !self.enough {
            let (thread, shapes) = (playing.thread, self.ways);
            let told = Blocks { thread, insns_before, blocks, words, shapes };
            self.enough = !self.sink.blocks(&told).map_err(DriveError::Sink)?;
        }
        stretch.told();
        Ok(())
    }

    fn code(&mut self, code: &ichnos_base::Code<'_>) -> Result<(), PlayError<S>> {
        if !self.enough {
            let done = self.sink.code(self.playing.thread, code);
            self.enough = !done.map_err(DriveError::Sink)?;
        }
        Ok(())
    }

    fn done(&self) -> Step {
        if self.enough { Step::Enough } else { Step::Played }
    }

    fn refuse(&self, flaw: &'static str) -> PlayError<S> {
        DriveError::Source(self.decoder.refuse(flaw))
    }
}

/// Whether no count exceeds its limit.
fn within(totals: &Totals, limit: &Totals) -> bool {
    totals.insns <= limit.insns
        && totals.loads <= limit.loads
        && totals.stores <= limit.stores
        && totals.branches <= limit.branches
        && totals.prefetches <= limit.prefetches
        && totals.flushes <= limit.flushes
}

/// The part of a batch that belongs to the instructions of the window.
pub(crate) fn trimmed<'a>(batch: Batch<'a>, window: &Window) -> Batch<'a> {
    let mut insn = batch.insns_before;
    let mut start = None;
    let mut end = batch.records.len();
    let mut insns_before = insn;
    for (i, record) in batch.records.iter().enumerate() {
        insn += u64::from(matches!(record, Record::Insn { .. }));
        // The number of the instruction that this record belongs to is insn - 1.
        if insn > window.end {
            end = i;
            break;
        }
        if start.is_none() && (insn > window.start || (insn == 0 && window.start == 0)) {
            start = Some(i);
            insns_before = insn - u64::from(matches!(record, Record::Insn { .. }));
        }
    }
    let start = start.unwrap_or(end);
    let bytes = |records: &[Record]| records.iter().map(Record::value_len).sum::<usize>();
    let skipped = bytes(&batch.records[..start]);
    let kept = bytes(&batch.records[start..end]);
    Batch {
        insns_before,
        records: &batch.records[start..end],
        values: batch.values.and_then(|v| v.get(skipped..skipped + kept)),
        ..batch
    }
}

#[cfg(test)]
mod tests {
    use ichnos_base::{GuestVa, InsnKind, Plan, ProcessId, Register, Step};
    use ichnos_trace::{Options, Writer};

    use super::*;

    /// Blocks without instructions are nowhere to go.
    #[test]
    fn executions_are_left_for_what_has_instructions() {
        let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
        let steps =
            [Step::Insn { len: 1, kind: InsnKind::OTHER }, Step::Forget { register: Register(1) }];
        for (identifier, step) in (0..).zip(steps) {
            let (process, entry) = (ProcessId(0), GuestVa(0x1000 + u64::from(identifier)));
            let plan = Plan { identifier, process, entry, steps: &[step], code: &[] };
            writer.plan(&plan).expect("a valid block");
        }
        writer.finish().expect("finished");
        let reader = Reader::from_bytes(writer.into_inner()).expect("readable");
        let leave = Leave::Next(GuestVa(0x7777));
        let blocks = [0, 1, 1, 0, 0, 1].map(BlockId).to_vec();
        let burst = Burst { blocks, leave, ..Burst::default() };
        let next = Leave::Next(GuestVa(0x1000));
        let found = [0, 3, 4, 5].map(|at| left(&burst, at, reader.roadmap()));
        assert_eq!(found, [next, next, leave, leave]);
    }
}
