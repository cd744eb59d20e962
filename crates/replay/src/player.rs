//! Plays one chunk into a sink: decodes, expands, announces code, delivers
//! events in place, and cuts records into batches.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::{
    Batch, BlockId, Blocks, DriveError, Event, Record, Shapes, Sink, ThreadId, Totals,
};
use ichnos_trace::{Burst, Decoder, Error, Item, Leave, Reader, Roadmap};

use crate::announce::Announcer;
use crate::expand::{Expander, Rest};

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
}

/// Which instructions of a thread are wanted, by number.
pub(crate) type Window = Range<u64>;

/// All of them.
pub(crate) const ALL: Window = 0..u64::MAX;

impl<'r> Player<'r> {
    pub(crate) fn new(reader: &'r Reader) -> Result<Self, Error> {
        Ok(Self { decoder: reader.decoder()?, burst: Burst::default(), expander: Expander::new() })
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
        let Self { decoder, burst, expander } = self;
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
                let mut out = Outlet { playing, decoder, sink, enough: false };
                for loose in &burst.loose {
                    expander.loose(loose, &mut |e| out.flush(e))?;
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
        let Self { decoder, burst, expander } = self;
        let roadmap = decoder.reader().roadmap();
        let as_blocks = sink.takes_blocks() && !playing.trim && !decoder.has_values();
        let mut rest = Rest::new(burst);
        let mut stretch = Stretch { roadmap, burst, blocks: 0..0, words: 0..0 };
        let mut out = Outlet { playing, decoder, sink, enough: false };
        let mut entries = burst.blocks.iter().map(|id| roadmap.get(*id));
        let mut next = entries.next().flatten();
        for id in &burst.blocks {
            let Some(entry) = next else {
                return Err(out.refuse("it needs a block that is not there"));
            };
            next = entries.next().flatten();
            let leave = next.map_or(burst.leave, |next| Leave::Next(next.shape.entry));
            if !announcer.is_settled(*id)
                && let Some(code) = announcer.news(*id, &entry.block)
            {
                out.flush(expander)?;
                out.flush_blocks(expander, &mut stretch)?;
                out.code(&code)?;
            }
            if as_blocks && entry.shape.plain {
                if !expander.count(entry, &mut rest, leave) {
                    return Err(out.refuse("a block lacks words"));
                }
                stretch.grow(entry.shape.words.len());
                continue;
            }
            out.flush_blocks(expander, &mut stretch)?;
            stretch.skip(entry.shape.words.len());
            if entry.shape.plain {
                if !expander.plain(entry, &mut rest, leave) {
                    return Err(out.refuse("a block lacks words"));
                }
            } else if let Err(flaw) =
                expander.steps(entry, &mut rest, leave, &mut |e| out.flush(e))?
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

/// Consecutive executions of a burst that wait to be told as blocks. Its ends stand between two
/// executions, and its words are those of its blocks.
struct Stretch<'a> {
    roadmap: &'a Roadmap,
    burst: &'a Burst,
    blocks: Range<usize>,
    words: Range<usize>,
}

impl Stretch<'_> {
    /// The next execution belongs to it.
    fn grow(&mut self, words: usize) {
        self.blocks.end += 1;
        self.words.end += words;
    }

    /// The next execution does not, and nothing waits.
    fn skip(&mut self, words: usize) {
        self.grow(words);
        self.blocks.start = self.blocks.end;
        self.words.start = self.words.end;
    }
}

impl Shapes for Stretch<'_> {
    fn records(&self, block: BlockId) -> &[Record] {
        self.roadmap.get(block).map_or(&[], |entry| &entry.shape.template)
    }
}

/// The way out of a player.
struct Outlet<'a, 'r, S> {
    playing: &'a mut Playing,
    decoder: &'a mut Decoder<'r>,
    sink: &'a mut S,
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

    /// Tells the blocks that wait. No records wait.
    fn flush_blocks(
        &mut self,
        expander: &Expander,
        stretch: &mut Stretch<'_>,
    ) -> Result<(), PlayError<S>> {
        if stretch.blocks.is_empty() {
            return Ok(());
        }
        if !within(&expander.totals, &self.playing.totals) {
            return Err(self.refuse("its records are more than its header says"));
        }
        let playing = &mut *self.playing;
        let insns_before = playing.first + playing.sent;
        playing.sent = expander.totals.insns;
        let blocks = stretch.burst.blocks.get(stretch.blocks.clone()).unwrap_or_default();
        let words = stretch.burst.words.get(stretch.words.clone()).unwrap_or_default();
        if !self.enough {
            let thread = playing.thread;
            let told = Blocks { thread, insns_before, blocks, words, shapes: &*stretch };
            self.enough = !self.sink.blocks(&told).map_err(DriveError::Sink)?;
        }
        stretch.blocks.start = stretch.blocks.end;
        stretch.words.start = stretch.words.end;
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
