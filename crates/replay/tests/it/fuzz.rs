//! A short run of the fuzz targets without a fuzzer: a small trace, mutated at
//! random from a fixed seed, for a few seconds.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::{Duration, Instant};

use crate::twin::Input;
use ichnos_base::{GuestVa, InsnKind, Leave, Record, Sink};
use ichnos_replay::fuzz::{trace_file, trace_salvage};
use ichnos_trace::{Options, Writer};

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = [None, Some(7)].map(seed).to_vec();
    seeds.push(crate::plan::write(1, Leave::Next(GuestVa(0x2000))));
    seeds.push(crate::chains::small());
    // Some with tables of many rows.
    for chunk_insns in [u64::MAX, 5000] {
        let walk = crate::plan::Walk {
            seed: 5,
            chunk_insns,
            turns: 900,
            is_wild: false,
            ends: 300,
            silent: u32::MAX,
        };
        seeds.push(crate::plan::walked(&walk).0);
    }
    seeds
}

fn seed(values: Option<u8>) -> Vec<u8> {
    let mut inputs = vec![Input::Event(0, 0), Input::Code(0, 0x1000, (0..30).collect())];
    for turn in 0..20u64 {
        let mut records = vec![Record::insn(GuestVa(0x1000), 3, InsnKind::OTHER)];
        records.extend((0..turn % 12).map(|i| Record::store(GuestVa(0x9000 + 8 * i), 8)));
        records.push(Record::insn(GuestVa(0x1003), 2, InsnKind::BRANCH));
        records.push(Record::branch(turn.is_multiple_of(3), GuestVa(0x1000)));
        records.push(Record::load(GuestVa(turn << 20), 4));
        inputs.push(Input::Records((turn % 2) as u32, records, values));
        inputs.push(Input::Event(0, turn));
    }
    let mut options = Options::default();
    options.chunk_insns = 15;
    // Columns stored as they are can be mutated with meaning.
    options.level = -50;
    let mut writer = Writer::new(Vec::new(), options).expect("a writer");
    crate::twin::push(&inputs, &mut writer).expect("written");
    writer.finish().expect("finished");
    writer.into_inner()
}

fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..1 + dice.roll(4) {
        let at = dice.roll(bytes.len());
        match dice.roll(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..(at + dice.roll(9)).min(bytes.len()))),
            2 => {
                let from = dice.roll(bytes.len());
                let piece = bytes[from..(from + dice.roll(40)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][dice.roll(5)],
            _ => bytes[at] ^= 1 << dice.roll(8),
        }
        if bytes.is_empty() {
            return;
        }
    }
}

#[test]
fn mutated_traces_do_no_harm() {
    let seeds = seeds();
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let end = Instant::now() + Duration::from_secs(4);
    let mut runs = 0;
    while Instant::now() < end {
        let mut bytes = seeds[dice.roll(seeds.len())].clone();
        mutate(&mut dice, &mut bytes);
        trace_file(&bytes);
        trace_salvage(&bytes);
        runs += 1;
    }
    assert!(runs > 50, "only {runs} runs in four seconds");
}
