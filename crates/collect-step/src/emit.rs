//! Between the stepper and the sink: gathers records into batches, keeps each
//! thread's instruction count, and stamps the time at every switch of threads.
//!
//! Only one thread of the tree runs at a time, and everything any thread does
//! passes here in the order in which it happened. So whenever the thread
//! changes, a strictly later timestamp is told first, and a merge of the
//! threads' streams by timestamp gives back the true order.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Batch, Code, DriveError, Event, Record, Sink, ThreadId};

use crate::engine::Done;
use crate::{Values, sys};

/// Large enough that a sink's work per batch does not show, small enough to
/// stay in the first cache level: 4096 records are 64 KiB.
const BATCH: usize = 4096;

/// The way to the sink.
pub(crate) struct Emitter<'s, S> {
    sink: &'s mut S,
    values: Values,
    thread: Option<ThreadId>,
    records: Vec<Record>,
    bytes: Vec<u8>,
    /// Instructions in `records`.
    insns_here: u64,
    /// Instructions told before `records`, per thread.
    insns_before: Vec<u64>,
    total: u64,
    clock: u64,
    open: bool,
}

impl<'s, S: Sink> Emitter<'s, S> {
    pub(crate) fn new(sink: &'s mut S, values: Values) -> Self {
        Self {
            sink,
            values,
            thread: None,
            records: Vec::with_capacity(BATCH + 64),
            bytes: Vec::new(),
            insns_here: 0,
            insns_before: Vec::new(),
            total: 0,
            clock: 0,
            open: true,
        }
    }

    /// Whether the sink wants more.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Instructions recorded so far, of all threads.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The sink itself, for its beginning and end.
    pub(crate) fn sink(&mut self) -> &mut S {
        self.sink
    }

    /// Notes what the sink answered.
    pub(crate) fn note(&mut self, go_on: bool) {
        self.open &= go_on;
    }

    /// An instruction retired.
    #[inline]
    pub(crate) fn insn(&mut self, thread: ThreadId, insn: Record) -> Done<S> {
        if self.thread != Some(thread) || self.records.len() >= BATCH {
            self.turn(thread)?;
        }
        self.records.push(insn);
        self.insns_here += 1;
        self.total += 1;
        Ok(())
    }

    /// The instruction just told did these.
    #[inline]
    pub(crate) fn accesses(&mut self, records: &[Record], values: &[u8]) -> Done<S> {
        self.records.extend_from_slice(records);
        self.bytes.extend_from_slice(values);
        if self.records.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// The instruction just told transferred control.
    #[inline]
    pub(crate) fn branch(&mut self, branch: Record) {
        self.records.push(branch);
    }

    /// Something happened to a thread.
    pub(crate) fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Done<S> {
        self.turn(thread)?;
        if self.open {
            self.open = self.sink.event(thread, event).map_err(DriveError::Sink)?;
        }
        Ok(())
    }

    /// A thread begins: the one event that comes before any timestamp.
    pub(crate) fn start(&mut self, thread: ThreadId, event: &Event<'_>) -> Done<S> {
        self.flush()?;
        self.thread = Some(thread);
        if self.open {
            self.open = self.sink.event(thread, event).map_err(DriveError::Sink)?;
        }
        Ok(())
    }

    /// A thread is about to execute code not seen before.
    pub(crate) fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Done<S> {
        if self.thread != Some(thread) {
            self.turn(thread)?;
        }
        if self.open {
            self.open = self.sink.code(thread, code).map_err(DriveError::Sink)?;
        }
        Ok(())
    }

    /// Tells what is gathered and, if the thread changes, the time.
    fn turn(&mut self, thread: ThreadId) -> Done<S> {
        self.flush()?;
        if self.thread != Some(thread) {
            self.thread = Some(thread);
            self.stamp(thread)?;
        }
        Ok(())
    }

    /// Tells the time: later than any told before.
    pub(crate) fn stamp(&mut self, thread: ThreadId) -> Done<S> {
        self.clock = sys::monotonic_ns().max(self.clock + 1);
        if self.open {
            self.open = self
                .sink
                .event(thread, &Event::Timestamp { ns: self.clock })
                .map_err(DriveError::Sink)?;
        }
        Ok(())
    }

    /// Tells what is gathered.
    pub(crate) fn flush(&mut self) -> Done<S> {
        let Some(thread) = self.thread.filter(|_| !self.records.is_empty()) else { return Ok(()) };
        if self.insns_before.len() <= thread.index() {
            self.insns_before.resize(thread.index() + 1, 0);
        }
        let insns_before = &mut self.insns_before[thread.index()];
        let values = (self.values == Values::Collect).then_some(self.bytes.as_slice());
        let batch = Batch { thread, insns_before: *insns_before, records: &self.records, values };
        if self.open {
            self.open = self.sink.records(&batch).map_err(DriveError::Sink)?;
        }
        *insns_before += self.insns_here;
        self.insns_here = 0;
        self.records.clear();
        self.bytes.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use ichnos_base::{GuestVa, InsnKind};

    use super::*;

    /// Keeps what it is told, in words.
    #[derive(Default)]
    struct Words(Vec<String>, Vec<u64>);

    impl Sink for Words {
        type Error = Infallible;
        fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
            let (t, n, before) = (batch.thread, batch.records.len(), batch.insns_before);
            self.0.push(format!("{t}: {n} after {before}"));
            Ok(true)
        }
        fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
            if let Event::Timestamp { ns } = event {
                self.1.push(*ns);
            }
            let word = if matches!(event, Event::Timestamp { .. }) { "time" } else { "event" };
            self.0.push(format!("{thread}: {word}"));
            Ok(true)
        }
    }

    #[test]
    fn switches_are_stamped_and_counts_are_kept() {
        let mut sink = Words::default();
        let mut emitter = Emitter::new(&mut sink, Values::Omit);
        let insn = Record::insn(GuestVa(1), 1, InsnKind::OTHER);
        let (a, b) = (ThreadId(0), ThreadId(1));
        for thread in [a, a, b, a] {
            emitter.insn(thread, insn).unwrap();
        }
        emitter.event(a, &Event::SignalReturn { pc: GuestVa(1) }).unwrap();
        emitter.insn(a, insn).unwrap();
        emitter.flush().unwrap();
        assert_eq!(emitter.total(), 5);
        let expected =
            "0: time|0: 2 after 0|1: time|1: 1 after 0|0: time|0: 1 after 2|0: event|0: 1 after 3";
        assert_eq!(sink.0.join("|"), expected);
        assert!(sink.1.is_sorted_by(|x, y| x < y));
    }
}
