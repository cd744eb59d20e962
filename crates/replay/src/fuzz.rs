//! The bodies of the fuzz targets, as plain functions: the folder `fuzz/` calls them
//! under a fuzzer, and an ordinary test calls them with mutated traces.
//!
//! Each either returns or panics; a panic is a finding.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{Batch, Blocks, Record, Sink, Source, Totals};
use ichnos_trace::{Condition, Reader, salvage_bytes};

use crate::replay::{Order, Replay};

/// Any bytes as a trace file: opened, and everything in it replayed. What is told as blocks comes to the same as records.
///
/// Bytes behind a valid checksum are what a fuzzer hardly ever makes, so the
/// checksums are put right first.
pub fn trace_file(data: &[u8]) {
    replay_all(data.to_vec());
    replay_all(ichnos_trace::mend_checksums(data.to_vec()));
}

/// Any bytes as a damaged trace file: salvaged, and what was kept replayed.
pub fn trace_salvage(data: &[u8]) {
    for data in [data.to_vec(), ichnos_trace::mend_checksums(data.to_vec())] {
        let mut kept = Vec::new();
        if salvage_bytes(data, &mut kept).is_ok() {
            let reader = Reader::from_bytes(kept);
            let reader = reader.unwrap_or_else(|error| panic!("A salvaged file fails: {error}"));
            assert_eq!(*reader.condition(), Condition::Complete, "a salvaged file is complete");
        }
    }
}

fn replay_all(data: Vec<u8>) {
    let Ok(reader) = Reader::from_bytes(data) else { return };
    for order in [Order::ByThread, Order::ByTime] {
        // Errors are fine; the answer alone matters here.
        let [records, blocks] = [false, true].map(|by_blocks| {
            let mut count = Count { by_blocks, totals: Totals::default() };
            let done = Replay::new(&reader).order(order).drive(&mut count);
            done.map(|()| count.totals).ok()
        });
        assert_eq!(records, blocks, "blocks are records");
    }
}

/// Counts all but branches, of which blocks say too little.
struct Count {
    by_blocks: bool,
    totals: Totals,
}

impl Count {
    fn count(&mut self, records: &[Record]) {
        let others = records.iter().filter(|r| !matches!(r, Record::Branch { .. }));
        others.for_each(|record| self.totals.count(record));
    }
}

impl Sink for Count {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.count(batch.records);
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        self.by_blocks
    }

    fn blocks(&mut self, told: &Blocks<'_>) -> Result<bool, Infallible> {
        let is_access = |r: &&Record| !matches!(r, Record::Insn { .. } | Record::Branch { .. });
        let mut accesses = 0;
        for id in told.blocks {
            let records = told.shapes.records(*id);
            assert!(!records.is_empty(), "a block has records");
            accesses += records.iter().filter(is_access).count();
            self.count(records);
        }
        assert_eq!(accesses, told.words.len(), "there is a word for each access");
        Ok(true)
    }
}
