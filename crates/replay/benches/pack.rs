//! Size and speed of the trace file on real reference streams.
//!
//! Takes the records of stored traces, packs them, and replays the result into a sink that does nothing:
//!
//! ```text
//! cargo bench -p ichnos-replay --bench pack -- FILE.ichnos...
//! ```
//!
//! `cargo xtask bench speed` makes the traces first. Prints bits per instruction
//! and millions of instructions per second of processor time, on one core, the
//! best of three. Strength: addresses of real programs. Weakness: only the first
//! thread's order is kept, and events are left out. Without files it makes up a
//! small loop, which shows that it works and nothing more.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "printing is what a benchmark does")]

use std::path::Path;

use ichnos_base::{Batch, GuestVa, InsnKind, Null, Record, Sink, Source, ThreadId};
use ichnos_replay::Replay;
use ichnos_trace::{Options, Reader, Writer};

const RUNS: usize = 3;

fn main() {
    let files: Vec<_> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    println!(
        "{:>12} {:>10} {:>12} {:>14} {:>14}",
        "M insns", "bits/insn", "bytes", "pack M/s", "replay M/s"
    );
    if files.is_empty() {
        measure("made-up loop", &made_up());
    }
    for file in files {
        match stored(&file) {
            Ok(records) => measure(file.rsplit('/').next().unwrap_or(&file), &records),
            Err(error) => println!("{file}: {error}"),
        }
    }
}

fn measure(name: &str, records: &[Record]) {
    let (pack, bytes) = best(|| pack(|writer| tell(records, writer)));
    let reader = Reader::from_bytes(bytes).expect("a trace just written opens");
    let insns = reader.totals().insns as f64;
    let (replay, ()) = best(|| Replay::new(&reader).drive(&mut Null).expect("and replays"));
    println!(
        "{:>12.1} {:>10.4} {:>12} {:>14.1} {:>14.1}  {name}",
        insns / 1e6,
        reader.file_bytes() as f64 * 8.0 / insns,
        reader.file_bytes(),
        insns / pack / 1e6,
        insns / replay / 1e6,
    );
}

fn pack(tell: impl FnOnce(&mut Writer<Vec<u8>>)) -> Vec<u8> {
    let mut options = Options::default();
    // Chunks are as long as on a machine that has nothing else to do.
    options.chunk_time = std::time::Duration::MAX;
    let mut writer = Writer::new(Vec::new(), options).expect("a writer");
    tell(&mut writer);
    writer.finish().expect("finished");
    writer.into_inner()
}

fn tell(records: &[Record], writer: &mut Writer<Vec<u8>>) {
    let mut before = 0;
    for batch in records.chunks(4096) {
        writer.records(&Batch::new(ThreadId(0), before, batch)).expect("written");
        before += batch.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
    }
}

/// The least processor time of several runs, in seconds, and the last result.
fn best<T>(mut work: impl FnMut() -> T) -> (f64, T) {
    let mut timed = || {
        let start = processor_time();
        let result = work();
        (processor_time() - start, result)
    };
    let mut best = timed();
    for _ in 1..RUNS {
        let run = timed();
        best = (best.0.min(run.0), run.1);
    }
    best
}

/// Seconds this process has run: unlike the wall clock, this does not count the
/// time that other processes took.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    ns.unwrap_or(0.0) / 1e9
}

/// All records of a stored trace.
fn stored(path: &str) -> Result<Vec<Record>, Box<dyn std::error::Error>> {
    struct Keep(Vec<Record>);
    impl Sink for Keep {
        type Error = std::convert::Infallible;
        fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
            self.0.extend_from_slice(batch.records);
            Ok(true)
        }
    }
    let mut keep = Keep(Vec::new());
    Replay::new(&Reader::open(Path::new(path))?).drive(&mut keep)?;
    Ok(keep.0)
}

/// A loop over two arrays, with a branch now and then.
fn made_up() -> Vec<Record> {
    let mut records = Vec::new();
    for i in 0..400_000u64 {
        records.push(Record::insn(GuestVa(0x1000), 4, InsnKind::OTHER));
        records.push(Record::load(GuestVa(0x10_0000 + i * 8), 8));
        records.push(Record::insn(GuestVa(0x1004), 4, InsnKind::OTHER));
        records.push(Record::store(GuestVa(0x90_0000 + i * 4 % 4096), 4));
        if i * i % 7 == 1 {
            records.push(Record::insn(GuestVa(0x2000), 2, InsnKind::OTHER));
        }
    }
    records
}
