//! Tables against steps, on blocks made at random.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind, Record};
use ichnos_trace::{RefKind, Register, Sum, Value};

use super::super::stream::{Done, Made, Out, Played, Shadow, Until, turns};
use super::{BEHIND, Extent, Tables};
use crate::code::{Block, Exit, Op, TAG};

struct Chance(u64);

impl Chance {
    fn next(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn register(&mut self) -> Register {
        // Few, so that they meet.
        Register(u8::try_from(self.next(6)).unwrap_or(0) + 2)
    }

    fn shift(&mut self) -> u8 {
        u8::try_from(self.next(64)).unwrap_or(0)
    }

    fn sum(&mut self) -> Sum {
        let base = (self.next(4) > 0).then(|| self.register());
        let index = (self.next(2) > 0).then(|| (self.register(), 1 << self.next(4)));
        Sum { base, index, disp: self.next(4096) as i64 - 2048 }
    }

    fn value(&mut self) -> Value {
        match self.next(12) {
            0 => Value::Difference(self.register(), self.register()),
            1 => Value::And(self.register(), !self.next(64)),
            2 => Value::ShiftLeft(self.register(), self.shift()),
            3 => Value::ShiftRight(self.register(), self.shift()),
            4 => Value::ShiftRightSigned(self.register(), self.shift()),
            5 => Value::Low32(self.register()),
            6 => Value::Low32Signed(self.register()),
            _ => Value::Sum(self.sum()),
        }
    }

    fn kind(&mut self) -> RefKind {
        [RefKind::Load, RefKind::Store, RefKind::Prefetch, RefKind::Flush][self.next(4) as usize]
    }

    /// A block, and the addresses that it can lead to.
    fn block(&mut self) -> (Block, Vec<GuestVa>) {
        let entry = GuestVa(0x1000);
        let mut pc = entry;
        let (mut ops, mut len, mut targets) = (Vec::new(), 0, Vec::new());
        let insn = |ops: &mut Vec<Op>, pc: &mut GuestVa| {
            ops.push(Op::Insn(4, InsnKind::OTHER));
            *pc = pc.offset(4);
        };
        for _ in 0..=self.next(30) {
            match self.next(10) {
                0 => {
                    ops.push(Op::Take4(self.register()));
                    len += 4;
                }
                1 => {
                    ops.push(Op::Take8(self.register()));
                    len += 8;
                }
                2 => ops.push(Op::Forget(self.register())),
                3 => {
                    insn(&mut ops, &mut pc);
                    let target = GuestVa(0x2000 + 16 * self.next(4));
                    targets.push(target);
                    ops.push(Op::Exit(Exit::Cond(target)));
                }
                4 => ops.push(Op::FsRef(self.kind(), AccessFlags::NONE, 8, self.sum())),
                5 | 6 => {
                    insn(&mut ops, &mut pc);
                    ops.push(Op::Ref(self.kind(), AccessFlags::NONE, 4, self.sum()));
                }
                _ => ops.push(Op::Derive(self.register(), self.value())),
            }
        }
        insn(&mut ops, &mut pc);
        let last = match self.next(5) {
            0 => Some(Exit::Direct(GuestVa(0x3000))),
            1 => Some(Exit::Computed),
            2 => {
                ops.push(Op::Target(self.sum()));
                Some(Exit::Known)
            }
            3 => {
                ops.push(Op::Ref(RefKind::Load, AccessFlags::NONE, 8, self.sum()));
                Some(Exit::Return)
            }
            _ => None,
        };
        targets.push(if last.is_none() { pc } else { GuestVa(0x3000) });
        ops.extend(last.map(Op::Exit));
        let mut turns = 1;
        if last.is_none() && self.next(2) == 0 {
            turns = 1 + self.next(4) as usize;
            // The last instruction turns back.
            let back = if self.next(3) == 0 { Exit::Direct(entry) } else { Exit::Cond(entry) };
            ops.push(Op::Exit(back));
        }
        let (len, code, payload) = (len * turns, Vec::new(), None);
        (Block { entry, ops, len, turns, code, payload }, targets)
    }
}

fn play(made: Made, seed: u64) -> usize {
    let mut chance = Chance(seed);
    let mut steps = Shadow::new();
    let registers: Vec<u64> = (0..16).map(|_| chance.next(1 << 40) << chance.next(24)).collect();
    steps.resumed(&registers, 0x7000_0000);
    let mut tables = steps.clone();
    let (mut by_steps, mut by_table) = (Out::new(made), Out::new(made));
    let mut refused = 0;
    for _ in 0..40 {
        let (block, targets) = chance.block();
        let mut known = Tables::new(std::slice::from_ref(&block), &[true]);
        let Block { entry, len, turns: most, .. } = block;
        let extent = Extent { entry, len, turns: most, is_event: true, is_new: true };
        assert_eq!(known.get(0), Some(extent));
        known.meet(0, &block, made);
        assert_eq!(known.get(0), Some(Extent { is_new: false, ..extent }));
        let words: Vec<u8> =
            (0..block.len + BEHIND).map(|_| chance.next(256).to_le_bytes()[0]).collect();
        let next = targets[chance.next(targets.len() as u64) as usize];
        let left = (block.turns > 1).then(|| chance.next(block.turns as u64 + 1) as usize);
        let next = if left == Some(block.turns) { block.entry } else { next };
        let at = tables.pass(&known, 0, (&words, left, next), &mut by_table);
        let done = (Done::nothing(&block), turns(&block, left, next));
        let Some(at) = at else {
            // It had too many things to compute: the table's side keeps up.
            refused += 1;
            tables.play(&block, &words, done, Until::Next(next), &mut by_table);
            steps.play(&block, &words, done, Until::Next(next), &mut by_steps);
            continue;
        };
        let played = steps.play(&block, &words, done, Until::Next(next), &mut by_steps);
        assert_eq!(played, Played::Over(Some(at)), "seed {seed}: {block:?}");
        assert_eq!(by_table.records, by_steps.records, "seed {seed}: {block:?} {left:?} {next:?}");
        assert_eq!(by_table.insns, by_steps.insns);
        for number in 0..Register::COUNT {
            let register = Register(u8::try_from(number).unwrap_or(0));
            let (a, b) = (*tables.register(register), *steps.register(register));
            assert_eq!(a, b, "seed {seed}: register {number} after {block:?}");
        }
    }
    let has_load = by_steps.records.iter().any(|r| matches!(r, Record::Load { .. }));
    assert_eq!(has_load, made != Made::Nothing);
    refused
}

#[test]
fn tables_come_to_what_steps_come_to() {
    let all = [Made::All, Made::References, Made::Nothing];
    let refused: usize = (0..500).flat_map(|seed| all.map(|made| play(made, seed))).sum();
    assert_eq!(refused, 0, "blocks of thirty steps need no more slots than there are");
}

/// Blocks that lead to each other, each by a conditional branch, a jump, a return or on.
fn ring(chance: &mut Chance) -> Vec<Block> {
    let entry = |i: u64| GuestVa(0x1000 + 0x400 * i);
    let targets = |chance: &mut Chance| entry(chance.next(4));
    let mut blocks = Vec::new();
    for i in 0..4 {
        let (mut block, _) = chance.block();
        (block.entry, block.turns) = (entry(i), 1);
        block.len = words_of(&block.ops);
        for op in &mut block.ops {
            if let Op::Exit(Exit::Cond(target)) = op {
                *target = targets(chance);
            }
        }
        while matches!(block.ops.last(), Some(Op::Exit(_))) {
            block.ops.pop();
        }
        let last = match chance.next(3) {
            0 => Exit::Direct(targets(chance)),
            1 => Exit::Computed,
            _ => Exit::Return,
        };
        block.ops.push(Op::Ref(RefKind::Load, AccessFlags::NONE, 8, chance.sum()));
        block.ops.push(Op::Exit(last));
        blocks.push(block);
    }
    blocks
}

fn words_of(ops: &[Op]) -> usize {
    let of = |op: &Op| match op {
        Op::Take4(_) => 4,
        Op::Take8(_) => 8,
        _ => 0,
    };
    ops.iter().map(of).sum()
}

/// Where a block can lead to.
fn leads(block: &Block, chance: &mut Chance) -> usize {
    let mut targets = Vec::new();
    for op in &block.ops {
        match op {
            Op::Exit(Exit::Cond(target) | Exit::Direct(target)) => targets.push(*target),
            Op::Exit(_) => targets.push(GuestVa(0x1000 + 0x400 * chance.next(4))),
            _ => {}
        }
    }
    // Mostly the same way, so that chains come to be.
    let which = if chance.next(4) > 0 { 0 } else { chance.next(targets.len() as u64) as usize };
    ((targets[which].0 - 0x1000) / 0x400) as usize
}

#[test]
fn chains_come_to_what_steps_come_to() {
    let mut chained = 0;
    for seed in 0..60 {
        for made in [Made::All, Made::References, Made::Nothing] {
            let mut chance = Chance(seed);
            let blocks = ring(&mut chance);
            let mut path = vec![0];
            let mut bytes = Vec::new();
            for i in 0..600 {
                let number: usize = path[i];
                bytes.extend((number as u32 + 1).to_le_bytes());
                bytes.extend((0..blocks[number].len).map(|_| chance.next(256).to_le_bytes()[0]));
                path.push(leads(&blocks[number], &mut chance));
            }
            let len = bytes.len();
            bytes.extend([0; BEHIND]);
            chained += compare(&blocks, (&path[..600], &bytes, len), made, seed);
        }
    }
    assert!(chained > 1000, "{chained} blocks in chains");
}

/// Plays a path both ways; how many blocks were played in chains.
fn compare(
    blocks: &[Block],
    (path, bytes, len): (&[usize], &[u8], usize),
    made: Made,
    seed: u64,
) -> usize {
    let mut tables = Tables::new(blocks, &[true; 4]);
    (0..4).for_each(|i| tables.meet(i, &blocks[i], made));
    let (mut steps, mut fast) = (Shadow::new(), Shadow::new());
    let (mut by_steps, mut by_table) = (Out::new(made), Out::new(made));
    let (mut i, mut words, mut chained) = (0, TAG, 0);
    while i + 1 < path.len() {
        let rest = &bytes[words..];
        let played = match tables.longest(path[i], rest, len - words) {
            Some(link) => fast.pass_chain(&tables, link, rest, &mut by_table).map(|r| (link, r)),
            None => None,
        };
        let (to, end) = match played {
            Some((link, reached)) => {
                assert_eq!(reached.entry, blocks[reached.number].entry);
                chained += reached.events as usize;
                let to = i + reached.events as usize;
                if let Some(next) = path.get(to + 1) {
                    tables.followed((Some(link), path[to]), *next, (&|n| blocks.get(n), made));
                }
                (to, words + reached.words)
            }
            None => {
                tables.followed((None, path[i]), path[i + 1], (&|n| blocks.get(n), made));
                let next = blocks[path[i + 1]].entry;
                let at = fast.pass(&tables, path[i], (rest, None, next), &mut by_table);
                assert_eq!(at, Some(next));
                (i + 1, words + blocks[path[i]].len + TAG)
            }
        };
        while i < to {
            let block = &blocks[path[i]];
            let until = Until::Next(blocks[path[i + 1]].entry);
            let of = &bytes[words..words + block.len];
            steps.play(block, of, (Done::nothing(block), 0), until, &mut by_steps);
            words += block.len + TAG;
            i += 1;
        }
        assert_eq!(words, end);
        assert_eq!(by_table.records, by_steps.records, "seed {seed}");
        assert_eq!(by_table.insns, by_steps.insns);
        for number in 0..16 {
            let (a, b) = (*fast.register(Register(number)), *steps.register(Register(number)));
            assert_eq!(a, b, "seed {seed}: register {number}");
        }
        by_table.records.clear();
        by_steps.records.clear();
    }
    chained
}
