//! How fast stored traces are read and written: `cargo bench -p ichnos-replay
//! --bench file -- FILE...`, or `cargo xtask bench speed`, which makes the files.
//!
//! Reading is decoding and replay to records into a sink that does nothing;
//! writing is the cost that a writer to nowhere adds to that. One core, best of
//! several. Strength: real traces. Weakness: the file is in the page cache.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::path::Path;
use std::time::Instant;

use ichnos_base::{Null, Sink, Source};
use ichnos_replay::Replay;
use ichnos_trace::{Options, Reader, Writer};

fn seconds<S: Sink>(reader: &Reader, sink: &mut S) -> Option<f64> {
    let start = Instant::now();
    Replay::new(reader).drive(sink).ok()?;
    Some(start.elapsed().as_secs_f64())
}

fn measure(path: &Path) -> Option<(u64, f64, f64)> {
    let reader = Reader::open(path).ok()?;
    let mut read = f64::MAX;
    let mut both = f64::MAX;
    for _ in 0..5 {
        read = read.min(seconds(&reader, &mut Null)?);
        let mut writer = Writer::new(std::io::sink(), Options::default()).ok()?;
        both = both.min(seconds(&reader, &mut writer)?);
    }
    Some((reader.totals().insns, read, (both - read).max(1e-9)))
}

fn main() {
    println!(
        "{:<24} {:>14} {:>18} {:>18}",
        "trace", "instructions", "read M insn/s", "write M insn/s"
    );
    for path in std::env::args().skip(1).filter(|a| !a.starts_with("--")) {
        let path = Path::new(&path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match measure(path) {
            Some((insns, read, write)) => {
                let rate = |seconds: f64| insns as f64 / seconds / 1e6;
                println!("{name:<24} {insns:>14} {:>18.0} {:>18.0}", rate(read), rate(write));
            }
            None => println!("{name:<24} cannot be read"),
        }
    }
}
