//! Size and speed of the trace file on real reference streams.
//!
//! Reads Valgrind lackey text (`valgrind --tool=lackey --trace-mem=yes --log-file=F
//! PROG`), packs it, and replays it into a sink that does nothing:
//!
//! ```text
//! cargo bench -p ichnos-replay --bench pack -- F...
//! ```
//!
//! Prints bits per instruction and millions of instructions per second of processor time,
//! the best of three. Strength: addresses of real programs. Weakness: lackey
//! names no branches and no code, so blocks are runs between jumps. Without
//! files it makes up a small loop, which shows that it works and nothing more.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "printing is what a benchmark does")]

use std::fs::File;
use std::io::{BufRead, BufReader};

use ichnos_base::{Batch, GuestVa, InsnKind, Null, Record, Sink, Source, ThreadId};
use ichnos_replay::Replay;
use ichnos_trace::{Options, Reader, Writer};

/// How many instructions of each file are read.
const INSNS: usize = 50_000_000;

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
        match lackey(&file) {
            Ok(records) => measure(&file, &records),
            Err(error) => println!("{file}: {error}"),
        }
    }
}

fn measure(name: &str, records: &[Record]) {
    let (pack, bytes) = best(|| pack(records));
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

fn pack(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    let mut before = 0;
    for batch in records.chunks(4096) {
        writer.records(&Batch::new(ThreadId(0), before, batch)).expect("written");
        before += batch.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
    }
    writer.finish().expect("finished");
    writer.into_inner()
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

fn lackey(path: &str) -> std::io::Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut insns = 0;
    for line in BufReader::with_capacity(1 << 20, File::open(path)?).lines() {
        let Some((kind, addr, size)) = parse(&line?) else { continue };
        insns += usize::from(kind == 'I');
        if insns > INSNS {
            break;
        }
        match kind {
            'I' => records.push(Record::insn(addr, size as u8, InsnKind::OTHER)),
            'L' => records.push(Record::load(addr, size)),
            'S' => records.push(Record::store(addr, size)),
            _ => records.extend([Record::load(addr, size), Record::store(addr, size)]),
        }
    }
    Ok(records)
}

/// `I  04000ab0,3`, ` L 1ffeffe7c8,8`, ` S ...`, ` M ...`.
fn parse(line: &str) -> Option<(char, GuestVa, u32)> {
    let text = line.trim_start();
    let kind = text.chars().next().filter(|k| "ILSM".contains(*k))?;
    let (addr, size) = text.get(1..)?.trim_start().split_once(',')?;
    Some((kind, GuestVa(u64::from_str_radix(addr, 16).ok()?), size.trim().parse().ok()?))
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
