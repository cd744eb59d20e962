//! How many records a second go through a sink that does nothing, and through
//! one that counts: `cargo bench -p ichnos-base`.
//!
//! Strength: the cost of the interface alone. Weakness: the batch stays in the
//! first cache level, as it should with a good source but need not.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::hint::black_box;
use std::time::Instant;

use ichnos_base::{Batch, GuestVa, InsnKind, Null, Record, Sink, ThreadId, Totals};

const BATCH: usize = 1024;
const BATCHES: usize = 100_000;

struct Counting(Totals);

impl Sink for Counting {
    type Error = std::convert::Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        self.0.count_batch(batch);
        Ok(true)
    }
}

/// Writes every record of every batch, as a source does, and pushes the batch.
fn push<S: Sink>(sink: &mut S) -> f64 {
    let mut records = vec![Record::insn(GuestVa(0), 4, InsnKind::OTHER); BATCH];
    let start = Instant::now();
    for batch in 0..BATCHES as u64 {
        for (i, record) in records.iter_mut().enumerate() {
            let at = GuestVa(batch.wrapping_mul(4096) + i as u64 * 4);
            *record =
                if i % 3 == 2 { Record::load(at, 8) } else { Record::insn(at, 4, InsnKind::OTHER) };
        }
        let batch = Batch::new(ThreadId(0), batch, black_box(&records));
        black_box(sink.records(&batch).is_ok());
    }
    (BATCH * BATCHES) as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let best = |run: &mut dyn FnMut() -> f64| (0..5).map(|_| run()).fold(0.0, f64::max);
    let null = best(&mut || push(&mut Null));
    let counting = best(&mut || push(&mut Counting(Totals::default())));
    println!("sink      M records/s");
    println!("null      {null:11.0}");
    println!("counting  {counting:11.0}");
}
