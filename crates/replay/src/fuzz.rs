//! The bodies of the fuzz targets, as plain functions: the folder `fuzz/` calls them
//! under a fuzzer, and an ordinary test calls them with mutated traces.
//!
//! Each either returns or panics; a panic is a finding.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Null, Source};
use ichnos_trace::{Condition, Reader, salvage_bytes};

use crate::replay::{Order, Replay};

/// Any bytes as a trace file: opened, and everything in it replayed.
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
        let _ = Replay::new(&reader).order(order).drive(&mut Null);
    }
}
