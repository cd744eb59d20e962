//! Synthetic record streams for the benchmarks.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(dead_code, reason = "each benchmark uses some of the streams")]

use ichnos_base::{GuestVa, InsnKind, Record};
use ichnos_model::Random;

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
    program(count, 64, move |random, pc| {
        at += 8;
        match pc % 3 {
            0 => Record::load(GuestVa(0x7fff_0000 + random.below(256)), 8),
            1 => Record::load(GuestVa(0x1000_0000 + (at % (4 << 20))), 8),
            _ => Record::store(GuestVa(0x2000_0000 + (at % (1 << 20))), 8),
        }
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
