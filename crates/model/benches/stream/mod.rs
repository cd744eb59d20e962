//! Synthetic record streams for the benchmarks.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(dead_code, reason = "each benchmark uses some of the streams")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use ichnos_base::{Batch, GuestVa, InsnKind, Record, Sink, ThreadId};
use ichnos_model::Random;

/// The processor time that this thread has had, which unlike the clock on the
/// wall does not count what others run meanwhile.
pub fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds: f64 =
        text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_default();
    nanoseconds / 1e9
}

/// The best of five runs of a fresh sink over the records, in seconds.
pub fn measure<S: Sink>(records: &[Record], mut fresh: impl FnMut() -> S) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let mut sink = fresh();
        let start = cpu_seconds();
        for chunk in records.chunks(4096) {
            let _ = sink.records(&Batch::new(ThreadId(0), 0, chunk));
        }
        best = best.min(cpu_seconds() - start);
    }
    best
}

/// The streams by name; all of them, or the one that the command line names.
pub fn chosen() -> Vec<(&'static str, Vec<Record>)> {
    let only = std::env::args().nth(1).filter(|name| !name.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let mut streams = Vec::new();
    let mut add = |name, make: fn(usize) -> Option<Vec<Record>>| {
        if wanted(name) {
            streams.extend(make(16 << 20).map(|records| (name, records)));
        }
    };
    add("loops", |n| Some(loops(n)));
    add("heap", |n| Some(heap(n)));
    add("list", |n| Some(list(n)));
    add("bzip2", bzip2);
    streams
}

/// A program of `functions` straight bodies of about `len` instructions, each
/// run a few times in a loop, with data addresses from `data`.
fn program(
    count: usize,
    functions: u64,
    mut data: impl FnMut(&mut Random, u64) -> Record,
) -> Vec<Record> {
    let mut random = Random::new(42);
    let mut records = Vec::with_capacity(count + 4096);
    while records.len() < count {
        // Some functions are hot: the smaller of two draws.
        let function = random.below(functions).min(random.below(functions));
        let (base, len) = (0x40_0000 + function * 512, 20 + function % 60);
        for _ in 0..1 + random.below(12) {
            let mut pc = GuestVa(base);
            for step in 0..len {
                let size = 2 + ((function + step) % 5) as u8;
                let last = step + 1 == len;
                let kind = if last { InsnKind::BRANCH } else { InsnKind::OTHER };
                records.push(Record::insn(pc, size, kind));
                if (function ^ step) % 5 < 2 {
                    records.push(data(&mut random, pc.0));
                }
                if last {
                    records.push(Record::branch(random.below(8) != 0, GuestVa(base)));
                }
                pc = pc.offset(u64::from(size));
            }
        }
    }
    records
}

/// Array loops and a stack: small strides, few misses.
pub fn loops(count: usize) -> Vec<Record> {
    let mut at = 0u64;
    program(count, 64, move |random, pc| match pc % 7 {
        0..=3 => Record::load(GuestVa(0x7fff_0000 + random.below(64) * 8), 8),
        4 => Record::store(GuestVa(0x7fff_0000 + random.below(64) * 8), 8),
        5 => {
            at += 8;
            Record::load(GuestVa(0x1000_0000 + (at % (4 << 20))), 8)
        }
        _ => Record::store(GuestVa(0x2000_0000 + (at % (256 << 10))), 8),
    })
}

/// A heap with hot and cold parts: most references to few objects.
pub fn heap(count: usize) -> Vec<Record> {
    program(count, 512, |random, pc| {
        let object = random.below(1 << 18) >> random.below(18);
        let addr = GuestVa(0x1000_0000 + object * 48 + random.below(5) * 8);
        if pc % 3 == 0 { Record::store(addr, 8) } else { Record::load(addr, 8) }
    })
}

/// Pointers without any locality over 64 MiB: the worst case.
pub fn list(count: usize) -> Vec<Record> {
    program(count, 8, |random, _| Record::load(GuestVa(0x1000_0000 + random.below(1 << 23) * 8), 8))
}

/// The first `count` records of bzip2 compressing this benchmark's own source
/// many times over, as Valgrind's lackey tells them; none without Valgrind.
pub fn bzip2(count: usize) -> Option<Vec<Record>> {
    let input = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-input");
    let source = include_str!("mod.rs").as_bytes();
    let text: Vec<u8> = source
        .iter()
        .cycle()
        .take(400_000)
        .enumerate()
        .map(|(at, byte)| if at % 97 == 0 { (at >> 7) as u8 } else { *byte })
        .collect();
    fs::write(&input, text).ok()?;
    let mut child = Command::new("valgrind")
        .args([
            "--tool=lackey",
            "--trace-mem=yes",
            "--basic-counts=no",
            "--log-fd=1",
            "bzip2",
            "-kc",
        ])
        .arg(&input)
        .args(["-f", "--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut reader = BufReader::with_capacity(1 << 20, child.stdout.take()?);
    let mut records = Vec::with_capacity(count);
    let mut line = Vec::new();
    while records.len() < count {
        line.clear();
        if reader.read_until(b'\n', &mut line).ok()? == 0 {
            break;
        }
        lackey(&String::from_utf8_lossy(&line), &mut records);
    }
    child.kill().ok()?;
    child.wait().ok()?;
    Some(records)
}

fn lackey(line: &str, records: &mut Vec<Record>) {
    let (Some(kind), Some((addr, size))) =
        (line.get(..3), line.get(3..).and_then(|rest| rest.split_once(',')))
    else {
        return;
    };
    let (Ok(addr), Ok(size)) = (u64::from_str_radix(addr, 16), size.trim().parse::<u32>()) else {
        return;
    };
    let addr = GuestVa(addr);
    match kind {
        "I  " => records.push(Record::insn(addr, size as u8, InsnKind::OTHER)),
        " L " => records.push(Record::load(addr, size)),
        " S " => records.push(Record::store(addr, size)),
        " M " => records.extend([Record::load(addr, size), Record::store(addr, size)]),
        _ => {}
    }
}
