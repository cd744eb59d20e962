//! Cutting: a part of a trace, by thread, instruction number and time, as a trace
//! of its own.
//!
//! What is left out of a kept thread is told as a gap with the number of missing
//! instructions. Events that say what the thread is and where its memory lies
//! (start, end, creation, join, exec, map, unmap) are kept wherever they stand, so that the
//! part can be understood without the whole; the processor's level and address
//! space are told anew behind a gap in which they changed. The time of an
//! instruction is the thread's last timestamp before it, 0 before the first.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;

use ichnos_base::{
    About, Batch, Code, DriveError, Event, GapReason, Privilege, Sink, Source, ThreadId,
};
use ichnos_trace::{Error, Reader, Writer};

use crate::player::trimmed;
use crate::replay::Replay;

/// Which part of a trace to keep.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Only these threads; all if none are named.
    pub threads: Vec<ThreadId>,
    /// Only instructions of these numbers, counted in each thread.
    pub insns: Range<u64>,
    /// Only instructions executed in these nanoseconds.
    pub time: Range<u64>,
}

impl Default for Cut {
    fn default() -> Self {
        Self { threads: Vec::new(), insns: 0..u64::MAX, time: 0..u64::MAX }
    }
}

/// Writes the part of a trace that `cut` names, and finishes the writer.
pub fn cut<W: Write>(reader: &Reader, cut: &Cut, writer: &mut Writer<W>) -> Result<(), Error> {
    let mut replay = Replay::new(reader);
    if !cut.threads.is_empty() {
        replay = replay.threads(cut.threads.iter().copied());
    }
    let mut filter = Filter { cut, writer, threads: BTreeMap::new() };
    replay.drive(&mut filter).map_err(|error| match error {
        DriveError::Source(error) | DriveError::Sink(error) => error,
    })
}

struct Filter<'a, W: Write> {
    cut: &'a Cut,
    writer: &'a mut Writer<W>,
    threads: BTreeMap<ThreadId, Progress>,
}

/// Where a thread is.
#[derive(Clone, Copy, Default)]
struct Progress {
    insns: u64,
    /// Instructions left out since the last thing kept.
    dropped: u64,
    /// The last timestamp, and the last that was kept.
    time: u64,
    time_kept: u64,
    /// What the processor's level and space have become since.
    level: Option<Privilege>,
    space: Option<u64>,
}

impl<W: Write> Filter<'_, W> {
    /// Something is kept now: tells the gap before it.
    fn tell_gap(&mut self, thread: ThreadId) -> Result<(), Error> {
        let Some(at) = self.threads.get_mut(&thread) else { return Ok(()) };
        let dropped = std::mem::take(&mut at.dropped);
        if dropped > 0 {
            let gap = Event::Gap { reason: GapReason::Cut, insns: Some(dropped), skipped: None };
            self.writer.event(thread, &gap)?;
        }
        Ok(())
    }

    /// Tells what changed in what was left out and still holds.
    fn tell_state(&mut self, thread: ThreadId) -> Result<(), Error> {
        let Some(at) = self.threads.get_mut(&thread) else { return Ok(()) };
        if let Some(level) = at.level.take() {
            self.writer.event(thread, &Event::Privilege { level })?;
        }
        if let Some(id) = at.space.take() {
            self.writer.event(thread, &Event::AddressSpace { id })?;
        }
        if at.time != at.time_kept {
            at.time_kept = at.time;
            self.writer.event(thread, &Event::Timestamp { ns: at.time })?;
        }
        Ok(())
    }

    /// Whether the place behind a thread's last instruction is kept.
    fn inside(&self, at: &Progress) -> bool {
        let insns = &self.cut.insns;
        let by_number = (at.insns > insns.start || (at.insns == 0 && insns.start == 0))
            && at.insns <= insns.end;
        by_number && self.cut.time.contains(&at.time)
    }
}

impl<W: Write> Sink for Filter<'_, W> {
    type Error = Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Error> {
        let at = self.threads.entry(batch.thread).or_default();
        let insns = batch.records.iter().filter(|r| r.is_insn()).count() as u64;
        at.insns = batch.insns_before + insns;
        let nothing = Batch { records: &[], values: batch.values.map(|_| &[][..]), ..*batch };
        let kept = if self.cut.time.contains(&at.time) {
            trimmed(*batch, &self.cut.insns)
        } else {
            nothing
        };
        if kept.records.is_empty() {
            at.dropped += insns;
            return Ok(true);
        }
        let first = kept.records.iter().filter(|r| r.is_insn()).count() as u64;
        let before = kept.insns_before - batch.insns_before;
        at.dropped += before;
        self.tell_gap(batch.thread)?;
        self.tell_state(batch.thread)?;
        if let Some(at) = self.threads.get_mut(&batch.thread) {
            at.dropped = insns - before - first;
        }
        self.writer.records(&kept)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Error> {
        let at = self.threads.entry(thread).or_default();
        if let Event::Timestamp { ns } = event {
            at.time = *ns;
        }
        let at = *at;
        let context = matches!(
            event,
            Event::ThreadStart(_)
                | Event::ThreadEnd(_)
                | Event::ThreadCreate { .. }
                | Event::ThreadJoin { .. }
                | Event::Exec { .. }
                | Event::Map(_)
                | Event::Unmap { .. }
        );
        let kept = context || self.inside(&at);
        if let Some(at) = self.threads.get_mut(&thread) {
            match event {
                Event::Privilege { level } => at.level = Some(*level).filter(|_| !kept),
                Event::AddressSpace { id } => at.space = Some(*id).filter(|_| !kept),
                _ => {}
            }
        }
        if !kept {
            return Ok(true);
        }
        self.tell_gap(thread)?;
        if let (Event::Timestamp { ns }, Some(at)) = (event, self.threads.get_mut(&thread)) {
            at.time_kept = *ns;
        }
        self.writer.event(thread, event)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, Error> {
        self.writer.code(thread, code)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Error> {
        self.writer.begin(about)
    }

    fn finish(&mut self) -> Result<(), Error> {
        let threads: Vec<_> = self.threads.keys().copied().collect();
        for thread in threads {
            self.tell_gap(thread)?;
        }
        self.writer.finish()
    }
}

trait IsInsn {
    fn is_insn(&self) -> bool;
}

impl IsInsn for ichnos_base::Record {
    fn is_insn(&self) -> bool {
        matches!(self, Self::Insn { .. })
    }
}
