//! Basic-block vectors against a naive count.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_base::{GuestVa, InsnKind, Record, ThreadId};
use ichnos_convert::{Format, WriteOptions};
use proptest::prelude::*;

use crate::program::{Step, execution, step};
use crate::tape::{Item, Tape, scratch, write_file};

fn vectors(tape: &Tape, name: &str, interval: u64) -> String {
    let path = scratch(name);
    let mut options = WriteOptions::default();
    options.interval = interval;
    write_file(Format::Bbv, tape, &path, &options);
    std::fs::read_to_string(path).expect("just written")
}

#[test]
fn a_loop_is_counted_as_simpoint_wants_it() {
    let mut tape = Tape::default();
    let mut push = |r| tape.items.push((ThreadId(0), Item::Record(r)));
    push(Record::insn(GuestVa(0x10), 2, InsnKind::OTHER));
    for turn in 0..5 {
        push(Record::insn(GuestVa(0x12), 3, InsnKind::OTHER));
        push(Record::insn(GuestVa(0x15), 2, InsnKind::BRANCH));
        push(Record::branch(turn < 4, GuestVa(0x12)));
    }
    push(Record::insn(GuestVa(0x17), 1, InsnKind::OTHER));
    // The first turn belongs to the block that begins before the loop.
    assert_eq!(vectors(&tape, "loop.bb", 1000), "T:1:3 :2:8 :3:1 \n");
    assert_eq!(vectors(&tape, "loop.bb", 4), "T:1:3 :2:2 \nT:2:4 \nT:2:2 :3:1 \n");
}

/// Blocks of an execution: first and last address, and instructions.
fn blocks(records: &[Record]) -> Vec<(u64, u64, u64)> {
    let mut found: Vec<(u64, u64, u64)> = Vec::new();
    let mut next = None;
    for record in records {
        let Record::Insn { pc, len, kind } = *record else { continue };
        match found.last_mut() {
            Some(block) if next == Some(pc) => {
                block.1 = pc.0;
                block.2 += 1;
            }
            _ => found.push((pc.0, pc.0, 1)),
        }
        next = (!kind.transfers()).then(|| pc.offset(u64::from(len)));
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn counts_are_those_of_a_naive_twin(
        steps in proptest::collection::vec(step(), 1..200),
        interval in 1..60_u64,
    ) {
        let calm = |s: &&Step| !matches!(s, Step::Gap | Step::Signal { .. } | Step::SignalReturn { .. });
        let steps: Vec<Step> = steps.iter().filter(calm).cloned().collect();
        let tape = execution(&steps);
        let mut ids: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        let mut lines = Vec::new();
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        let mut executed = 0;
        for (first, last, insns) in blocks(&tape.records()) {
            let fresh = ids.len() + 1;
            *counts.entry(*ids.entry((first, last)).or_insert(fresh)).or_default() += insns;
            executed += insns;
            if executed >= interval {
                lines.push(std::mem::take(&mut counts));
                executed %= interval;
            }
        }
        if !counts.is_empty() {
            lines.push(counts);
        }
        let mut expected = String::new();
        for line in lines {
            expected.push('T');
            line.iter().for_each(|(id, n)| expected.push_str(&format!(":{id}:{n} ")));
            expected.push('\n');
        }
        prop_assert_eq!(vectors(&tape, "property.bb", interval), expected);
    }
}
