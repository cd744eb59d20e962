//! Any model over time: something is done every so many instructions, such as
//! taking a report or forgetting the counts of a warm-up.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::num::NonZeroU64;

use ichnos_base::{About, Batch, Code, Event, Record, Sink, ThreadId};

/// Passes everything on to a sink and calls a function between instructions:
/// after every window of instructions of all threads together, and at the end
/// if the last window is not whole.
///
/// ```
/// use std::num::NonZeroU64;
/// use ichnos_base::{Batch, GuestVa, InsnKind, Record, Sink, ThreadId};
/// use ichnos_model::{InsnMix, Windowed};
///
/// let mut lengths = Vec::new();
/// let window = NonZeroU64::new(2).unwrap();
/// let mut sink = Windowed::new(InsnMix::new(), window, |mix: &mut InsnMix, instructions| {
///     lengths.push((instructions, mix.report().totals.loads));
/// });
/// let insn = Record::insn(GuestVa(0), 1, InsnKind::OTHER);
/// let records = [insn, insn, Record::load(GuestVa(8), 8), insn];
/// sink.records(&Batch::new(ThreadId(0), 0, &records)).unwrap();
/// sink.finish().unwrap();
/// drop(sink);
/// assert_eq!(lengths, [(2, 1), (3, 1)]);
/// ```
#[derive(Debug)]
pub struct Windowed<S, F> {
    sink: S,
    each: F,
    window: NonZeroU64,
    in_window: u64,
    instructions: u64,
}

impl<S: Sink, F: FnMut(&mut S, u64)> Windowed<S, F> {
    /// Calls `each` with the sink and the instructions so far.
    pub const fn new(sink: S, window: NonZeroU64, each: F) -> Self {
        Self { sink, each, window, in_window: 0, instructions: 0 }
    }

    /// The sink.
    pub const fn sink(&self) -> &S {
        &self.sink
    }

    /// The sink, at the end.
    pub fn into_sink(self) -> S {
        self.sink
    }

    fn end_window(&mut self) {
        self.instructions += self.in_window;
        self.in_window = 0;
        (self.each)(&mut self.sink, self.instructions);
    }
}

impl<S: Sink, F: FnMut(&mut S, u64)> Sink for Windowed<S, F> {
    type Error = S::Error;

    /// A window ends where the first instruction of the next one begins, so the
    /// accesses of its last instruction are inside.
    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, S::Error> {
        if batch.values.is_some() {
            // Cutting the values too would need a walk over the accesses, and no
            // model of this crate looks at them.
            return self.records(&Batch { values: None, ..*batch });
        }
        let (mut start, mut insns_before) = (0, batch.insns_before);
        let mut in_piece = 0;
        for (at, record) in batch.records.iter().enumerate() {
            if !matches!(record, Record::Insn { .. }) {
                continue;
            }
            if self.in_window == self.window.get() {
                let piece = Batch { records: &batch.records[start..at], insns_before, ..*batch };
                let more = self.sink.records(&piece)?;
                insns_before += in_piece;
                (start, in_piece) = (at, 0);
                self.end_window();
                if !more {
                    return Ok(false);
                }
            }
            self.in_window += 1;
            in_piece += 1;
        }
        self.sink.records(&Batch { records: &batch.records[start..], insns_before, ..*batch })
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, S::Error> {
        self.sink.event(thread, event)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, S::Error> {
        self.sink.code(thread, code)
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, S::Error> {
        self.sink.begin(about)
    }

    fn finish(&mut self) -> Result<(), S::Error> {
        if self.in_window > 0 {
            self.end_window();
        }
        self.sink.finish()
    }
}
