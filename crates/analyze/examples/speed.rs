//! How fast the tools take records: `cargo run --release -p ichnos-analyze
//! --example speed`. The stream is synthetic: loops over 3000 instructions in
//! many pages, with loads and stores over 4 MiB of heap, a stack and globals.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::time::Instant;

use ichnos_analyze::check::{Checker, Config};
use ichnos_analyze::inventory::Inventory;
use ichnos_analyze::profile::{PlainCounts, Profile};
use ichnos_base::*;

const BATCHES: u64 = 400;

fn main() {
    let records = stream();
    let checker = measure("check", &records, Checker::new(Config::default()));
    println!("{}", checker.into_verdict());
    measure("inventory", &records, Inventory::new());
    measure("profile", &records, Profile::new(PlainCounts));
    measure("null", &records, Null);
}

fn measure<S: Sink>(name: &str, records: &[Record], mut sink: S) -> S
where
    S::Error: std::fmt::Debug,
{
    let insns = records.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
    let t = ThreadId(0);
    let about = About { isa: Isa::X86_64, branches: true, ..About::default() };
    sink.begin(&about).expect("begin");
    sink.event(t, &Event::ThreadStart(ThreadStart::default())).expect("start");
    for (start, len, protection) in
        [(0x40_0000, 0x10_0000, 5), (0x60_0000, 0x80_0000, 3), (0x7ffe_0000_0000, 0x10_0000, 3)]
    {
        let map = Map {
            start: GuestVa(start),
            len,
            protection: Protection(protection),
            kind: MapKind::OTHER,
            offset: FileOff(0),
            bias: 0,
            path: "",
            build_id: &[],
        };
        sink.event(t, &Event::Map(map)).expect("map");
    }
    let code = Code { process: ProcessId(0), pc: GuestVa(0x40_0000), bytes: &[0; 0x10_0000] };
    sink.code(t, &code).expect("code");
    let started = Instant::now();
    let mut before = 0;
    for _ in 0..BATCHES {
        for part in records.chunks(4096) {
            sink.records(&Batch::new(t, before, part)).expect("records");
            before += part.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
        }
    }
    sink.finish().expect("finish");
    let seconds = started.elapsed().as_secs_f64();
    let total = records.len() as f64 * BATCHES as f64;
    let per_insn = insns as f64 * BATCHES as f64;
    println!(
        "{name}: {:.0} M records/s, {:.0} M instructions/s",
        total / seconds / 1e6,
        per_insn / seconds / 1e6
    );
    sink
}

/// A walk that ends where it begins, so that it can be told again and again.
fn stream() -> Vec<Record> {
    let mut out = Vec::new();
    let mut dice = 1u64;
    let mut roll = |n: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % n
    };
    for turn in 0..300_000 / 10 {
        let base = 0x40_0000 + turn % 300 * 0x400;
        for i in 0..9 {
            out.push(Record::insn(GuestVa(base + i * 4), 4, InsnKind::OTHER));
            match i {
                0 | 3 | 5 => {
                    out.push(Record::load(GuestVa(0x60_0000 + roll(0x40_0000 / 8) * 8), 8))
                }
                2 => out.push(Record::store(GuestVa(0x7ffe_0000_0000 + roll(512) * 8), 8)),
                _ => {}
            }
        }
        out.push(Record::insn(GuestVa(base + 36), 2, InsnKind::BRANCH));
        out.push(Record::branch(true, GuestVa(0x40_0000 + (turn + 1) % 300 * 0x400)));
    }
    out
}
