//! A part of a trace: some threads, and of those some instructions.
//!
//! What is passed on is itself a trace: threads begin with their start and end
//! with their end, mappings and other events that change a process come
//! through, and each stretch left out inside a thread becomes one gap. Batches
//! keep their count of instructions before them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;
use std::ops::Range;

use ichnos_base::{About, Batch, Code, Event, GapReason, Privilege, Record, Sink, ThreadId};

use crate::hash::FastMap;

/// Which part of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// Only these threads; all if none is named.
    pub threads: BTreeSet<ThreadId>,
    /// Of each thread only the instructions with these ordinals, counted from 0;
    /// all if not given.
    pub insns: Option<Range<u64>>,
    /// What becomes of the threads that are not named.
    pub others: Others,
}

/// What becomes of threads that are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Others {
    /// Nothing of them is passed on.
    #[default]
    Drop,
    /// Their beginnings, ends and what they did to the memory of their process
    /// are passed on, so that the part stays a trace that keeps all rules.
    KeepMemory,
}

/// Passes the selected part of a trace on to another sink.
#[derive(Debug)]
pub struct Select<S> {
    sink: S,
    selection: Selection,
    threads: FastMap<ThreadId, Place>,
    /// Threads that are not past their range yet, as far as they are known.
    done: u64,
}

/// How far a thread has come.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    insns: u64,
    /// Instructions left out since the last that was passed on.
    skipped: u64,
    done: bool,
    /// What the processor's level and space became in what was left out.
    level: Option<Privilege>,
    space: Option<u64>,
}

impl<S: Sink> Select<S> {
    /// Selects in front of `sink`.
    pub fn new(selection: Selection, sink: S) -> Self {
        Self { sink, selection, threads: FastMap::default(), done: 0 }
    }

    /// The sink that got the part.
    pub fn into_inner(self) -> S {
        self.sink
    }

    fn wanted(&self, thread: ThreadId) -> bool {
        self.selection.threads.is_empty() || self.selection.threads.contains(&thread)
    }

    /// Whether every thread that was asked for by name is past the range. Only
    /// then is nothing more to come.
    fn seen_enough(&mut self, thread: ThreadId) -> bool {
        let place = self.threads.entry(thread).or_default();
        if !place.done {
            place.done = true;
            self.done += 1;
        }
        self.done >= self.selection.threads.len() as u64 && !self.selection.threads.is_empty()
    }

    fn gap(&mut self, thread: ThreadId, skipped: u64) -> Result<bool, S::Error> {
        let gap = Event::Gap { reason: GapReason::Cut, insns: Some(skipped), skipped: None };
        self.sink.event(thread, &gap)
    }

    /// Tells what changed in what was left out and still holds.
    fn state(&mut self, thread: ThreadId) -> Result<bool, S::Error> {
        let place = self.threads.entry(thread).or_default();
        let (level, space) = (place.level.take(), place.space.take());
        if let Some(level) = level
            && !self.sink.event(thread, &Event::Privilege { level })?
        {
            return Ok(false);
        }
        space.map_or(Ok(true), |id| self.sink.event(thread, &Event::AddressSpace { id }))
    }

    /// Passes on the part of a batch that lies in `range`.
    fn cut(&mut self, batch: &Batch<'_>, range: &Range<u64>) -> Result<bool, S::Error> {
        // Records before the first instruction belong to one that counts as before.
        let mut ordinal = batch.insns_before.checked_sub(1);
        let mut bounds: Option<Range<usize>> = None;
        let mut insns = 0;
        for (at, record) in batch.records.iter().enumerate() {
            if matches!(record, Record::Insn { .. }) {
                ordinal = Some(ordinal.map_or(0, |n| n.saturating_add(1)));
                insns += 1;
            }
            if ordinal.is_some_and(|n| range.contains(&n)) {
                bounds = Some(bounds.map_or(at, |b| b.start)..at + 1);
            }
        }
        let end = batch.insns_before.saturating_add(insns);
        let place = self.threads.entry(batch.thread).or_default();
        place.insns = end;
        let Some(bounds) = bounds else {
            place.skipped += insns;
            return Ok(true);
        };
        let is_insn = |r: &&Record| matches!(r, Record::Insn { .. });
        let before = batch.records[..bounds.start].iter().filter(is_insn).count() as u64;
        let skipped = place.skipped + before;
        let passed = batch.records[bounds.clone()].iter().filter(is_insn).count() as u64;
        place.skipped = insns - before - passed;
        if skipped > 0 && !self.gap(batch.thread, skipped)? || !self.state(batch.thread)? {
            return Ok(false);
        }
        let values = batch.values.map(|values| values_of(batch.records, &bounds, values));
        self.sink.records(&Batch {
            thread: batch.thread,
            insns_before: batch.insns_before.saturating_add(before),
            records: &batch.records[bounds],
            values,
        })
    }
}

/// Whether an event matters beyond its place in the stream.
const fn lasts(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::ThreadStart(_)
            | Event::ThreadEnd(_)
            | Event::ThreadCreate { .. }
            | Event::Exec { .. }
            | Event::Map(_)
            | Event::Unmap { .. }
    )
}

/// The values that belong to some records of a batch. If the batch has too few,
/// so has the part.
fn values_of<'a>(records: &[Record], bounds: &Range<usize>, values: &'a [u8]) -> &'a [u8] {
    let len = |part: &[Record]| part.iter().map(Record::value_len).sum::<usize>();
    let start = len(&records[..bounds.start]).min(values.len());
    let end = (start + len(&records[bounds.clone()])).min(values.len());
    &values[start..end]
}

impl<S: Sink> Sink for Select<S> {
    type Error = S::Error;

    fn begin(&mut self, about: &About<'_>) -> Result<bool, S::Error> {
        self.sink.begin(about)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, S::Error> {
        if !self.wanted(batch.thread) {
            return Ok(true);
        }
        let Some(range) = self.selection.insns.clone() else { return self.sink.records(batch) };
        if batch.insns_before > range.end && self.seen_enough(batch.thread) {
            return Ok(false);
        }
        self.cut(batch, &range)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, S::Error> {
        if !self.wanted(thread) {
            if self.selection.others == Others::KeepMemory && lasts(event) {
                return self.sink.event(thread, event);
            }
            return Ok(true);
        }
        let place = self.threads.get(&thread).copied().unwrap_or_default();
        let range = &self.selection.insns;
        let inside = range.as_ref().is_none_or(|r| place.insns >= r.start && place.insns <= r.end);
        let ends = matches!(event, Event::ThreadEnd(_));
        match event {
            Event::Privilege { level } => {
                let level = (!inside).then_some(*level);
                self.threads.entry(thread).or_default().level = level;
            }
            Event::AddressSpace { id } => {
                let space = (!inside).then_some(*id);
                self.threads.entry(thread).or_default().space = space;
            }
            _ => {}
        }
        if !inside && !lasts(event) {
            return Ok(true);
        }
        if (inside || ends) && place.skipped > 0 {
            self.threads.entry(thread).or_default().skipped = 0;
            if !self.gap(thread, place.skipped)? {
                return Ok(false);
            }
        }
        self.sink.event(thread, event)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, S::Error> {
        self.sink.code(thread, code)
    }

    fn finish(&mut self) -> Result<(), S::Error> {
        self.sink.finish()
    }
}
