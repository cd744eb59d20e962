//! What is told raw, taken apart again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind, RefKind, Step, Sum};
use ichnos_lift::FS;
use ichnos_trace::flat::{NO_REGISTERS, derive};
use ichnos_trace::{Address, Register};

use super::super::names::Names;
use super::super::stream::Made;
use super::super::table::Tables;
use super::{Changed, Gathered, KNOWN, KNOWN_LEN, put_named, put_part, silent, steps};
use crate::code::{Block, Exit, Op};
use crate::note::{u32_at, u64_at};

fn block(entry: u64, turns: usize, target: u64) -> Block {
    let entry = GuestVa(entry);
    let ops = vec![
        Op::Take4(Register(3)),
        Op::Insn(4, InsnKind::OTHER),
        Op::Exit(Exit::Cond(GuestVa(target))),
    ];
    Block { entry, ops, len: 4 * turns, turns, code: Vec::new(), payload: None }
}

/// A loop of up to four turns, what comes behind it, and what they are called.
fn known() -> ([Block; 2], Tables, Names) {
    let blocks = [block(0x1000, 4, 0x1000), block(0x1004, 1, 0x1000)];
    let (mut tables, mut names) = (Tables::new(&blocks, &[]), Names::default());
    for (number, block) in blocks.iter().enumerate() {
        tables.meet(number, block, Made::Nothing);
        assert_eq!(names.plan(number, block), number as u32 + 1);
    }
    (blocks, tables, names)
}

/// Words as they lie in memory.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// All that was gathered, as words.
fn gathered(gathered: &mut Gathered) -> Vec<u32> {
    let (bytes, ..) = gathered.all();
    let words = bytes.chunks(4).map(|word| u32_at(word, 0).unwrap()).collect();
    gathered.clear();
    words
}

#[test]
fn turns_of_a_loop_become_executions() {
    let (_, _, mut names) = known();
    let mut out = Gathered::default();
    let words = bytes(&[10, 11, 12, 13]);
    // Words of turns that did not come to be are dropped.
    for (turns, expected) in [(4, &[1, 10, 1, 11, 1, 12, 1, 13][..]), (1, &[1, 10, 1, 11])] {
        for _ in 1..32 {
            out.put_turns(&mut names, 0, (&words, 16), (turns, 4));
            assert_eq!(out.fresh, []);
            assert_eq!(gathered(&mut out), expected);
        }
        // They are often together, and so they are one.
        out.put_turns(&mut names, 0, (&words, 16), (turns, 4));
        let finished = if turns == 4 { 4 } else { turns + 1 };
        let identifier = if turns == 4 { 3 } else { 4 };
        assert_eq!(out.fresh, [(identifier, vec![1; finished])]);
        let together = [&[identifier], &[10, 11, 12, 13][..finished]].concat();
        assert_eq!(gathered(&mut out), together);
        out.put_turns(&mut names, 0, (&words, 16), (turns, 4));
        assert_eq!(out.fresh, []);
        assert_eq!(gathered(&mut out), together);
    }
    // One is what it always was.
    (0..40).for_each(|_| out.put_turns(&mut names, 0, (&words, 16), (0, 4)));
    assert_eq!(gathered(&mut out), [1, 10].repeat(40));
    assert_eq!(Names::after(&names).plan(0, &block(0x1000, 4, 0x1000)), 5);
}

#[test]
fn blocks_that_follow_each_other_become_one_execution() {
    let (blocks, mut tables, mut names) = known();
    let get = |number: usize| blocks.get(number);
    let with: (&dyn Fn(usize) -> _, _) = (&get, Made::Nothing);
    // The loop goes on, ends after one turn, and begins again.
    let stored = bytes(&[10, 11, 12, 13, 1, 20, 21, 22, 23, 2, 30, 1, 40, 41, 42, 43]);
    let mut link = None;
    for number in [0, 1, 0] {
        (0..8).for_each(|_| tables.followed((link, 0), number, with));
        link = tables.longest(0, &stored, stored.len());
        assert!(link.is_some());
    }
    let link = link.unwrap();
    assert_eq!(tables.path(link), [0, 0, 1, 0]);
    let mut out = Gathered::default();
    for _ in 1..32 {
        out.put_chain((&tables, &mut names), link, &stored);
        assert_eq!(gathered(&mut out), [1, 10, 1, 11, 1, 12, 1, 13, 1, 20, 2, 30]);
    }
    out.put_chain((&tables, &mut names), link, &stored);
    let (identifier, chain) = out.fresh[0].clone();
    assert_eq!((out.fresh.len(), &chain[..]), (1, &[1, 1, 1, 1, 1, 2][..]));
    assert_eq!(gathered(&mut out), [identifier, 10, 11, 12, 13, 20, 30]);
}

#[test]
fn registers_that_changed_come_first() {
    let known: [u64; KNOWN_LEN] = std::array::from_fn(|i| 100 + i as u64);
    for (changed, (identifier, steps)) in [Changed::All, Changed::Stack].into_iter().zip(silent()) {
        let mut gathered = Gathered::default();
        gathered.open(&known, changed);
        let (bytes, ..) = gathered.all();
        assert_eq!(u32_at(bytes, 0), Some(identifier));
        assert_eq!(bytes.len(), 4 + 8 * steps.len());
        for (i, step) in steps.iter().enumerate() {
            let Step::Take { register, .. } = step else { panic!("{step:?}") };
            let place = KNOWN.iter().position(|known| known == register).unwrap();
            assert_eq!(u64_at(bytes, 4 + 8 * i), Some(known[place]));
        }
    }
}

#[test]
fn addresses_from_fs_are_sums_of_at_most_two_registers() {
    let mut registers = NO_REGISTERS;
    (registers[1], registers[2], registers[usize::from(FS.0)]) = (1000, 7, 0x7000_0000);
    for (base, index) in [(false, false), (true, false), (false, true), (true, true)] {
        let base = base.then_some(Register(1));
        let sum = Sum { base, index: index.then_some((Register(2), 8)), disp: -16 };
        let op = Op::FsRef(RefKind::Load, AccessFlags::NONE, 8, sum);
        let expected = derive(&registers, ichnos_trace::Value::Sum(sum)).wrapping_add(0x7000_0000);
        let block = Block { ops: vec![op], ..block(0x1000, 1, 0) };
        let mut addresses = Vec::new();
        for step in steps(&block) {
            match step {
                Step::Derive { register, value } => {
                    registers[usize::from(register.0)] = derive(&registers, value);
                }
                Step::Ref(ichnos_base::Ref { address: Address::Known(sum), .. }) => {
                    addresses.push(derive(&registers, ichnos_trace::Value::Sum(sum)));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(addresses, [expected]);
    }
}

#[test]
fn words_are_copied_whatever_lies_behind_them() {
    let words: Vec<u8> = (1..60).collect();
    for (all, len) in (0..60).flat_map(|all| (0..=all).map(move |len| (all, len))) {
        let words = &words[..all.min(words.len())];
        let len = len.min(words.len());
        let mut out = vec![7];
        put_named(0x0403_0201, (words, len), &mut out);
        put_part((words, len), &mut out);
        assert_eq!(out, [&[7, 1, 2, 3, 4], &words[..len], &words[..len]].concat());
    }
}
