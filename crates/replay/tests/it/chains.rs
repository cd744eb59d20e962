//! Chains of planned blocks: whatever is told in chains comes back as if it had been told block by block.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use crate::parts::Unfolded;
use crate::plan::{Numbers, RSP, at, block, insn, load, put, raw, tell, writer};
use crate::twin::Twin;
use ichnos_base::*;
use ichnos_replay::{Order, Replay};
use ichnos_trace::{Block, Error, Exits, Reader, Writer, salvage_bytes};

const ENTRY: u64 = 0x1000;
const BLOCKS: u64 = 30;
/// What sets the stack pointer, and what makes accesses that vary.
const SILENT: u32 = u32::MAX - 3;
const VARIES: u32 = u32::MAX - 4;
/// Identifiers of chains.
const CHAINS: u32 = 1000;

/// A superblock that may do anything to the stack pointer, and takes up to thirty words.
fn any_block(numbers: &mut Numbers, number: u64) -> Block {
    let sum = |disp| Value::Sum(Sum { base: Some(RSP), index: None, disp });
    let mut steps = Vec::new();
    if numbers.below(8) == 0 {
        let width = if numbers.below(2) == 0 { Width::Four } else { Width::Eight };
        steps.push(Step::Take { register: RSP, width, slot: Slot(0) });
    }
    let words = if numbers.below(12) == 0 { 15 + numbers.below(15) } else { numbers.below(4) };
    for i in 0..words {
        let width = if numbers.below(2) == 0 { Width::Four } else { Width::Eight };
        steps.push(Step::Forget { register: Register(8 + i as u8) });
        steps.push(Step::Take { register: Register(8 + i as u8), width, slot: Slot(0) });
    }
    for i in 0..1 + numbers.below(4) {
        steps.push(insn(4, InsnKind::OTHER));
        match numbers.below(8) {
            0 => steps.push(load(at(RSP, 16))),
            1 => steps.push(Step::Derive { register: RSP, value: sum(-8) }),
            2 => steps.push(Step::Derive { register: RSP, value: sum(0x60) }),
            3 => steps.push(Step::Derive { register: RSP, value: Value::And(RSP, !15) }),
            _ if words > 0 => {
                let base = Register(8 + numbers.below(words) as u8);
                steps.push(load(at(base, numbers.below(64) as i64)));
            }
            _ => {}
        }
        if numbers.below(2) == 0 {
            let target = GuestVa(ENTRY * (1 + (number * 7 + 3 + i) % BLOCKS));
            steps.push(Step::Exit { kind: ExitKind::Conditional, target });
        }
    }
    if numbers.below(2) == 0 {
        steps.push(insn(2, InsnKind::JUMP));
        steps.push(Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) });
    }
    block(ENTRY * (1 + number), Exits::Side, steps)
}

/// One execution as it is stored.
#[derive(Clone)]
struct Execution {
    identifier: u32,
    words: Vec<u8>,
}

/// The program of one process, and who of its blocks are told in chains.
struct Program {
    process: ProcessId,
    blocks: Vec<Block>,
    last: Vec<u64>,
    chains: HashMap<Vec<u32>, u32>,
}

impl Program {
    fn new(numbers: &mut Numbers, process: ProcessId) -> Self {
        let of_process = |block| Block { process, ..block };
        let blocks = (0..BLOCKS).map(|n| of_process(any_block(numbers, n))).collect();
        Self { process, blocks, last: vec![0; 64 * BLOCKS as usize], chains: HashMap::new() }
    }

    fn tell(&self, writer: &mut Writer<Vec<u8>>) {
        for (identifier, block) in (0..).zip(&self.blocks) {
            tell(writer, identifier, block).expect("a valid block");
        }
        let take = vec![Step::Take { register: RSP, width: Width::Eight, slot: Slot(0) }];
        let flex = vec![insn(4, InsnKind::OTHER), Step::Flex { slot: Slot(0) }];
        for (identifier, steps) in [(SILENT, take), (VARIES, flex)] {
            let block = Block { process: self.process, ..block(0xf000, Exits::Side, steps) };
            tell(writer, identifier, &block).expect("a valid block");
        }
    }

    /// Tells some chains: a path's first blocks, more and more of them, and sometimes others.
    fn tell_chains(&mut self, numbers: &mut Numbers, writer: &mut Writer<Vec<u8>>) {
        for _ in 0..6 {
            let mut now = numbers.below(BLOCKS);
            let mut path = Vec::new();
            for _ in 0..2 + numbers.below(29) {
                path.push(now as u32);
                let is_odd = numbers.below(12) == 0;
                now = if is_odd { numbers.below(BLOCKS) } else { usual(now) };
            }
            let mut lens: Vec<_> = (2..=path.len()).collect();
            if numbers.below(3) == 0 {
                lens.reverse();
            }
            for len in lens {
                if self.chains.contains_key(&path[..len]) {
                    continue;
                }
                let identifier = CHAINS + self.chains.len() as u32;
                let (process, blocks) = (self.process, &path[..len]);
                writer.chain(&Chain { identifier, process, blocks }).expect("a valid chain");
                self.chains.insert(blocks.to_vec(), identifier);
            }
        }
    }

    fn execution(&mut self, numbers: &mut Numbers, now: u64) -> Execution {
        let mut words = Vec::new();
        for (i, step) in self.blocks[now as usize].steps.iter().enumerate() {
            let Step::Take { width, register, .. } = step else { continue };
            let word = &mut self.last[now as usize * 64 + i % 64];
            *word = match numbers.below(40) {
                0 => numbers.below(1 << 40) << 20,
                1..=4 => *word,
                _ => word.wrapping_add(8),
            };
            if *register == RSP {
                *word = 0x7ff0_0000 + numbers.below(1 << 16) * 8;
            }
            match width {
                Width::Four => words.extend((*word as u32).to_le_bytes()),
                Width::Eight => words.extend(word.to_le_bytes()),
            }
        }
        Execution { identifier: now as u32, words }
    }

    /// The executions with as many as possible in chains, or sometimes fewer.
    fn chained(&self, numbers: &mut Numbers, all: &[Execution]) -> (Vec<u8>, usize) {
        let (mut out, mut rest, mut chains) = (Vec::new(), all, 0);
        while let Some(first) = rest.first() {
            let ids: Vec<_> = rest.iter().take(40).map(|e| e.identifier).collect();
            let most = if numbers.below(8) == 0 { 1 + numbers.below(8) as usize } else { 40 };
            let found = (2..=ids.len().min(most)).rev();
            let found = found.map(|len| &ids[..len]).find_map(|ids| self.chains.get_key_value(ids));
            let (identifier, len) = match found {
                Some((blocks, identifier)) => (*identifier, blocks.len()),
                None => (first.identifier, 1),
            };
            chains += usize::from(len > 1);
            out.extend(identifier.to_le_bytes());
            rest[..len].iter().for_each(|e| out.extend(&e.words));
            rest = &rest[len..];
        }
        (out, chains)
    }
}

fn usual(now: u64) -> u64 {
    (now * 7 + 3) % BLOCKS
}

fn plain(all: &[Execution]) -> Vec<u8> {
    all.iter().flat_map(|e| [&e.identifier.to_le_bytes(), &*e.words].concat()).collect()
}

/// A thread of a program.
struct Walk {
    thread: ThreadId,
    program: usize,
    now: u64,
    /// Whether the collector leaves it to others to follow the stack pointer.
    follows: bool,
    has_begun: bool,
}

impl Walk {
    /// Some executions, and how the last was left.
    fn buffer(&mut self, numbers: &mut Numbers, program: &mut Program) -> (Vec<Execution>, Leave) {
        let (mut all, len) = (Vec::new(), 1 + numbers.below(400));
        let set = |to: u64| Execution { identifier: SILENT, words: to.to_le_bytes().to_vec() };
        if !self.follows || !std::mem::replace(&mut self.has_begun, true) {
            all.push(set(0x7fff_0000));
        }
        loop {
            let now = self.now;
            all.push(program.execution(numbers, now));
            let is_odd = numbers.below(12) == 0;
            self.now = if is_odd { numbers.below(BLOCKS) } else { usual(now) };
            let next = GuestVa(ENTRY * (1 + self.now));
            let entry = program.blocks[now as usize].entry;
            if all.len() as u64 >= len {
                let leave = match numbers.below(6) {
                    0 => Leave::Silent,
                    1 => Leave::Unknown,
                    2 => Leave::Cut(entry.offset(4 * numbers.below(4))),
                    3 => Leave::Outcome { taken: false, target: next },
                    _ => Leave::Next(next),
                };
                return (all, leave);
            }
            match numbers.below(80) {
                0 => all.push(set(0x7ffe_0000 + 16 * numbers.below(100))),
                1 => {
                    let mut runs = Vec::new();
                    for number in [1_u32, 3, 1] {
                        runs.extend(number.to_le_bytes());
                    }
                    for word in [RefKind::Store.describe(AccessFlags::STRING, 4), 0x700, 4] {
                        runs.extend(word.to_le_bytes());
                    }
                    all.push(Execution { identifier: VARIES, words: runs });
                }
                _ => {}
            }
        }
    }
}

/// The same executions of several threads block by block and in chains, and how many of these there are.
fn both(seed: u64) -> ([Vec<u8>; 2], usize) {
    let mut numbers = Numbers(seed);
    let chunk = [u64::MAX, 1, 150, 5000][seed as usize % 4];
    let mut writers = [writer(chunk), writer(chunk)];
    let mut programs = [5, 3].map(|process| Program::new(&mut numbers, ProcessId(process)));
    for program in &programs {
        writers.iter_mut().for_each(|writer| program.tell(writer));
    }
    let mut walks: Vec<_> = (0..4)
        .map(|i| Walk {
            thread: ThreadId(i),
            program: i as usize % 2,
            now: 0,
            follows: i > 1,
            has_begun: false,
        })
        .collect();
    let mut chains = 0;
    for turn in 0..60 {
        // Some chains are told when there are chunks already.
        if turn % 20 == 0 {
            for program in &mut programs {
                program.tell_chains(&mut numbers, &mut writers[1]);
            }
        }
        let walk = &mut walks[numbers.below(4) as usize];
        let program = &mut programs[walk.program];
        let (all, leave) = walk.buffer(&mut numbers, program);
        let (bytes, found) = program.chained(&mut numbers, &all);
        chains += found;
        let (is_event, is_flush) = (numbers.below(2) == 0, numbers.below(20) == 0);
        for (writer, bytes) in writers.iter_mut().zip([plain(&all), bytes]) {
            let (thread, process) = (walk.thread, program.process);
            let follows = walk.follows.then_some(RSP);
            let told = raw(&[], &bytes, leave);
            writer.raw(&Raw { thread, process, insns: 100, follows, ..told }).expect("gathered");
            if is_event {
                writer.event(thread, &Event::Timestamp { ns: turn + 1 }).expect("gathered");
            }
            if is_flush {
                writer.flush().expect("packed");
            }
        }
    }
    let files = writers.map(|mut writer| {
        writer.finish().expect("finished");
        writer.into_inner()
    });
    (files, chains)
}

/// A small trace with chains in several chunks.
pub fn small() -> Vec<u8> {
    let mut writer = writer(1);
    let mut numbers = Numbers(3);
    let blocks: Vec<_> = (0..3).map(|n| any_block(&mut numbers, n)).collect();
    for (identifier, block) in (0..).zip(&blocks) {
        tell(&mut writer, identifier, block).expect("a valid block");
    }
    let process = ProcessId(0);
    for (identifier, blocks) in [(10, &[0, 1][..]), (11, &[0, 1, 2]), (12, &[2, 2])] {
        writer.chain(&Chain { identifier, process, blocks }).expect("a valid chain");
    }
    let words = |n: u32| -> usize {
        let steps = &blocks[n as usize].steps;
        let len = |step: &Step| match step {
            Step::Take { width: Width::Four, .. } => 4,
            Step::Take { .. } => 8,
            _ => 0,
        };
        steps.iter().map(len).sum()
    };
    for turn in 0..6_u8 {
        let mut bytes = Vec::new();
        for (identifier, blocks) in [(10, &[0, 1][..]), (11, &[0, 1, 2]), (12, &[2, 2]), (1, &[1])]
        {
            put(&mut bytes, identifier, &[]);
            let len: usize = blocks.iter().map(|n| words(*n)).sum();
            bytes.extend((0..len).map(|i| i as u8 ^ turn));
        }
        writer.raw(&raw(&[(RSP, 0x8000)], &bytes, Leave::Silent)).expect("gathered");
    }
    writer.finish().expect("finished");
    writer.into_inner()
}

fn replayed(reader: &Reader, order: Order) -> Twin {
    let mut twin = Twin::default();
    Replay::new(reader).order(order).drive(&mut twin).expect("replayed");
    assert_eq!(twin.totals, reader.totals());
    twin
}

#[test]
fn chains_come_back_as_their_blocks() {
    for seed in 0..12 {
        let (files, chains) = both(seed);
        assert!(chains > 500, "{chains}");
        let mut kept = Vec::new();
        let salvaged = salvage_bytes(files[1].clone(), &mut kept).expect("salvaged");
        assert!(salvaged.lost.is_empty());
        let [one, many] = files.map(|file| Reader::from_bytes(file).expect("readable"));
        let kept = Reader::from_bytes(kept).expect("readable");
        assert_eq!((one.roadmap().chains(), one.totals()), (0, many.totals()));
        assert!(many.roadmap().chains() > 20);
        for order in [Order::ByThread, Order::ByTime] {
            let wanted = replayed(&one, order).by_thread;
            assert!(wanted == replayed(&many, order).by_thread, "seed {seed}");
            assert!(wanted == replayed(&kept, order).by_thread, "seed {seed}");
        }
        let [one, many] = [one, many].map(|reader| {
            let mut by_blocks = Unfolded::default();
            Replay::new(&reader).drive(&mut by_blocks).expect("replayed");
            (by_blocks.twin.by_thread, by_blocks.blocks)
        });
        assert!(one == many, "seed {seed}");
    }
}

#[test]
fn chains_replay_from_any_instruction_on() {
    let ([one, many], _) = both(1);
    let [one, many] = [one, many].map(|file| Reader::from_bytes(file).expect("readable"));
    let insns = one.totals().insns;
    for start in (0..insns).step_by(1999) {
        let [one, many] = [&one, &many].map(|reader| {
            let mut twin = Twin::default();
            Replay::new(reader).insns(start..start + 333).drive(&mut twin).expect("replayed");
            twin.by_thread
        });
        assert!(one == many, "from {start}");
    }
}

#[test]
fn bad_chains_are_refused() {
    let chain = |blocks: &[u32], process: u32, identifier: u32| {
        let mut writer = writer(u64::MAX);
        let mut numbers = Numbers(1);
        Program::new(&mut numbers, ProcessId(5)).tell(&mut writer);
        Program::new(&mut numbers, ProcessId(6)).tell(&mut writer);
        let good = Chain { identifier: CHAINS, process: ProcessId(5), blocks: &[1, 2] };
        writer.chain(&good).expect("a valid chain");
        let process = ProcessId(process);
        writer.chain(&Chain { identifier, process, blocks })
    };
    assert!(matches!(chain(&[1, 2, 3], 5, CHAINS + 1), Ok(true)));
    assert!(matches!(chain(&[1, 2], 6, CHAINS), Ok(true)));
    let misuse = |blocks: &[u32], process, identifier| {
        let done = chain(blocks, process, identifier);
        assert!(matches!(done, Err(Error::Misuse(_))), "{blocks:?}");
    };
    for blocks in [&[][..], &[1], &[1, SILENT], &[VARIES, 1], &[1, 999], &[CHAINS, 1], &[1; 64]] {
        misuse(blocks, 5, CHAINS + 1);
    }
    misuse(&[1, 2], 7, CHAINS + 1);
    misuse(&[1, 2, 3], 5, CHAINS);
    misuse(&[1, 2, 3], 5, 4);
    // An execution of a chain that is cut, and one that was not told.
    for (identifier, len) in [(10, 3), (11, 8)] {
        let mut writer = writer(u64::MAX);
        let taking = vec![
            Step::Take { register: RSP, width: Width::Four, slot: Slot(0) },
            insn(1, InsnKind::OTHER),
        ];
        tell(&mut writer, 1, &block(0, Exits::Side, taking)).expect("a valid block");
        let process = ProcessId(0);
        writer.chain(&Chain { identifier: 10, process, blocks: &[1, 1] }).expect("a valid chain");
        let mut bytes = vec![];
        put(&mut bytes, identifier, &[]);
        bytes.extend(vec![0; len]);
        writer.raw(&raw(&[], &bytes, Leave::Silent)).expect("gathered");
        assert!(matches!(writer.finish(), Err(Error::Raw { .. })));
    }
}
