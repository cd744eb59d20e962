//! How fast dumps are: `cargo run --release -p ichnos-report --example dump_speed`.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::io;
use std::time::Instant;

use ichnos_base::*;
use ichnos_report::{DumpJson, DumpLackey, DumpText};

fn main() {
    let mut records = Vec::new();
    for i in 0..1000u64 {
        records.push(Record::insn(GuestVa(0x7fff_f7a0_1000 + i * 4), 4, InsnKind::OTHER));
        records.push(Record::load(GuestVa(0x7fff_ffff_d000 + i * 24 % 4096), 8));
        records.push(Record::insn(GuestVa(0x7fff_f7a0_1004 + i * 4), 2, InsnKind::BRANCH));
        records.push(Record::branch(i % 3 == 0, GuestVa(0x7fff_f7a0_1008 + i * 4)));
    }
    measure("text", &records, DumpText::new(io::sink()));
    measure("jsonl", &records, DumpJson::new(io::sink()));
    measure("lackey", &records, DumpLackey::new(io::sink()));
}

fn measure<S: Sink>(name: &str, records: &[Record], mut sink: S)
where
    S::Error: std::fmt::Debug,
{
    let started = Instant::now();
    const TURNS: u64 = 2000;
    for turn in 0..TURNS {
        sink.records(&Batch::new(ThreadId(1), turn * 2000, records)).expect("records");
    }
    sink.finish().expect("finish");
    let lines = TURNS as f64 * records.len() as f64;
    println!("{name}: {:.1} M records/s", lines / started.elapsed().as_secs_f64() / 1e6);
}
