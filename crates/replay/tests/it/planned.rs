//! Planned blocks replayed in all forms and parts: as records, as blocks, in parallel, from any instruction on.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::parts::{Blind, Unfolded};
use crate::plan::{
    Numbers, RCX, RSP, at, block, call_block, callee, insn, load, loop_block, put, raw, tail, tell,
    turn, writer,
};
use crate::twin::Twin;
use ichnos_base::*;
use ichnos_replay::{Order, Piece, Replay};
use ichnos_trace::{Block, Exits, Reader};

/// `0x1000`, without an instruction: what the loop's registers are before its first turn.
fn silent(slot: Slot) -> Block {
    let zero = Value::Sum(Sum::default());
    let steps = vec![
        Step::Take { register: RSP, width: Width::Eight, slot },
        Step::Derive { register: RCX, value: zero },
    ];
    block(0x1000, Exits::Side, steps)
}

/// Rounds of the program: some turns of the loop; then its side exit, or the call, the copy and the return; then the tail.
/// What is stored of one round, and its records.
fn round(random: &mut impl FnMut(u64) -> u64) -> (Vec<u8>, Vec<Record>) {
    let (turns, zero, stack) = (1 + random(6), random(2) == 0, 0x8000 + 64 * random(100));
    let (mut bytes, mut out) = (Vec::new(), Vec::new());
    put(&mut bytes, 50, &[stack]);
    for i in 0..turns {
        let (base, last) = (0x50_0000 + 0x100 * random(50), i + 1 == turns);
        put(&mut bytes, 10, &[base]);
        turn(&mut out, base + 16 + 8 * i, zero && last, !last);
    }
    let va = GuestVa;
    if !zero {
        put(&mut bytes, 20, &[]);
        put(&mut bytes, 30, &[]);
        out.push(Record::insn(va(0x100b), 5, InsnKind::CALL));
        out.push(Record::Store { flags: AccessFlags::STACK, size: 8, addr: va(stack - 8) });
        out.push(Record::branch(true, va(0x3000)));
        out.push(Record::insn(va(0x3000), 2, InsnKind::OTHER));
        let (count, from) = (random(4), 0x700 + random(100));
        let runs = u32::from(count > 0);
        bytes.extend(runs.to_le_bytes());
        if count > 0 {
            bytes.extend((count as u32).to_le_bytes());
            bytes.extend(1_u32.to_le_bytes());
            for word in [RefKind::Load.describe(AccessFlags::STRING, 1), from, 1] {
                bytes.extend(word.to_le_bytes());
            }
        }
        for i in 0..count {
            out.push(Record::Load { flags: AccessFlags::STRING, size: 1, addr: va(from + i) });
        }
        out.push(Record::insn(va(0x3002), 1, InsnKind::RETURN));
        out.push(Record::load(va(stack - 8), 8));
        out.push(Record::branch(true, va(0x2000)));
    }
    let addr = 0x9000 + random(1000);
    put(&mut bytes, 40, &[addr]);
    out.push(Record::insn(va(0x2000), 3, InsnKind::OTHER));
    out.push(Record::load(va(addr), 8));
    (bytes, out)
}

/// Many rounds in many buffers and chunks, and their records.
fn rounds(seed: u64) -> (Reader, Vec<Record>) {
    let mut state = seed;
    let mut random = move |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % end
    };
    let (mut writer, any) = (writer(300), Slot(0));
    let plan = [
        (10, loop_block(any)),
        (20, call_block()),
        (30, callee(any)),
        (40, tail(any)),
        (50, silent(any)),
    ];
    for (identifier, block) in plan {
        tell(&mut writer, identifier, &block).expect("a valid block");
    }
    let mut all = Vec::new();
    for _ in 0..8 {
        let (mut buffer, before) = (Vec::new(), all.len());
        for _ in 0..1 + random(600) {
            let (bytes, records) = round(&mut random);
            buffer.extend(bytes);
            all.extend(records);
        }
        // Where a buffer ends makes no difference: what comes first in it does not refer to what was known.
        let is_insn = |r: &&Record| matches!(r, Record::Insn { .. });
        let insns = all[before..].iter().filter(is_insn).count() as u64;
        let raw = raw(&[], &buffer, Leave::Next(GuestVa(0x1000)));
        writer.raw(&Raw { insns, ..raw }).expect("gathered");
        if random(3) == 0 {
            writer.event(ThreadId(0), &Event::Migrate { cpu: 3 }).expect("told");
        }
    }
    writer.finish().expect("finished");
    (Reader::from_bytes(writer.into_inner()).expect("readable"), all)
}

fn records(sink: Twin) -> Vec<String> {
    let list = sink.by_thread.into_values().next().unwrap_or_default();
    list.into_iter().filter(|text| !text.starts_with("Migrate")).collect()
}

fn told(expected: &[Record]) -> Vec<String> {
    let mut twin = Twin::default();
    twin.records(&Batch::new(ThreadId(0), 0, expected)).expect("infallible");
    records(twin)
}

#[test]
fn plans_replay_the_same_as_records_as_blocks_and_in_parallel() {
    for seed in 1..6 {
        let (reader, expected) = rounds(seed);
        let wanted = told(&expected);
        for order in [Order::ByThread, Order::ByTime] {
            let mut got = Twin::default();
            Replay::new(&reader).order(order).drive(&mut got).expect("replayed");
            assert_eq!(got.totals, reader.totals());
            assert!(records(got) == wanted, "seed {seed}");
        }
        let mut by_blocks = Unfolded::default();
        Replay::new(&reader).drive(&mut by_blocks).expect("replayed");
        let mut by_records = Blind(Unfolded::default());
        Replay::new(&reader).drive(&mut by_records).expect("replayed");
        assert!(records(by_blocks.twin) == records(by_records.0.twin), "seed {seed}");
        // All but the string copies, and none for what has no instruction.
        let entries = [0x1000, 0x100b, 0x2000];
        let is_entry =
            |r: &&Record| matches!(r, Record::Insn { pc: GuestVa(pc), .. } if entries.contains(pc));
        assert_eq!(by_blocks.blocks, expected.iter().filter(is_entry).count());

        let make = |_: &Piece| Twin::default();
        let parts = Replay::new(&reader).map_chunks(3, make, |_, twin| records(twin));
        let parts = parts.expect("replayed");
        assert!(parts.len() > 5);
        assert!(parts.concat() == wanted, "seed {seed}");
    }
}

#[test]
fn plans_replay_from_any_instruction_on() {
    let (reader, expected) = rounds(9);
    let insns = reader.totals().insns;
    let starts: Vec<_> = (0..expected.len())
        .filter(|at| matches!(expected[*at], Record::Insn { .. }))
        .chain([expected.len()])
        .collect();
    for start in (0..insns).step_by(997) {
        let range = start..insns.min(start + 333);
        let mut got = Twin::default();
        Replay::new(&reader).insns(range.clone()).drive(&mut got).expect("replayed");
        let wanted = &expected[starts[range.start as usize]..starts[range.end as usize]];
        assert!(records(got) == told(wanted), "{range:?}");
    }
}

/// What was told as blocks, kept by number.
#[derive(Default)]
struct Kept(Vec<Told>);

enum Told {
    Records(Vec<Record>),
    Blocks(Vec<BlockId>, Vec<u64>),
}

impl Sink for Kept {
    type Error = std::convert::Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        self.0.push(Told::Records(batch.records.to_vec()));
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        true
    }

    fn blocks(&mut self, told: &Blocks<'_>) -> Result<bool, Self::Error> {
        self.0.push(Told::Blocks(told.blocks.to_vec(), told.words.to_vec()));
        Ok(true)
    }
}

/// Numbers that were told while chunks were replayed apart mean the same in every other replay.
#[test]
fn numbers_of_ways_mean_the_same_in_all_replays() {
    let (reader, expected) = rounds(11);
    let jobs = std::num::NonZeroUsize::new(2).expect("not zero");
    let mut kept = Vec::new();
    let (make, done) = (|_: &Piece| Kept::default(), |_: &Piece, sink: Kept| sink.0);
    let each = |told| {
        kept.extend::<Vec<_>>(told);
        true
    };
    Replay::new(&reader).map_chunks_in_order(jobs, make, done, each).expect("replayed");
    let ways = Replay::new(&reader).ways();
    let mut sink = Unfolded::default();
    for told in &kept {
        let thread = ThreadId(0);
        let Ok(_) = match told {
            Told::Records(records) => sink.records(&Batch::new(thread, 0, records)),
            Told::Blocks(blocks, words) => {
                sink.blocks(&Blocks { thread, insns_before: 0, blocks, words, shapes: &*ways })
            }
        };
    }
    let mut wanted = Blind(Unfolded::default());
    wanted.records(&Batch::new(ThreadId(0), 0, &expected)).expect("infallible");
    assert!(sink.blocks > 1000);
    assert!(records(sink.twin) == records(wanted.0.twin));
}

/// A walk through so many blocks without any order, which comes to more places than a packer knows at a time: what is
/// stored of it, and its records.
fn stray(blocks: u64, executions: usize) -> (Vec<u8>, Vec<Record>) {
    let entry = |n: u64| GuestVa(0x1000 * (n + 1));
    let (mut numbers, mut bytes, mut all) = (Numbers(9), Vec::new(), Vec::new());
    let mut now = 0;
    for _ in 0..executions {
        let (next, word) = (numbers.below(blocks), 8 * numbers.below(1 << 20));
        put(&mut bytes, now as u32, &[word]);
        all.push(Record::insn(entry(now), 4, InsnKind::OTHER));
        all.push(Record::load(GuestVa(word), 8));
        all.push(Record::insn(entry(now).offset(4), 2, InsnKind::JUMP));
        all.push(Record::branch(true, entry(next)));
        now = next;
    }
    // Where the last one goes is not told.
    all.pop();
    (bytes, all)
}

#[test]
fn more_places_come_back_than_are_known_at_a_time() {
    const BLOCKS: u64 = 60;
    let mut writer = writer(u64::MAX);
    for n in 0..BLOCKS {
        let steps = vec![
            Step::Take { register: RCX, width: Width::Eight, slot: Slot(0) },
            insn(4, InsnKind::OTHER),
            load(at(RCX, 0)),
            // What is followed does not just move.
            Step::Derive { register: RSP, value: Value::And(RSP, !15) },
            insn(2, InsnKind::JUMP),
            Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) },
        ];
        tell(&mut writer, n as u32, &block(0x1000 * (n + 1), Exits::Side, steps)).expect("a block");
    }
    let (bytes, all) = stray(BLOCKS, 200_000);
    let walk = raw(&[], &bytes, Leave::Unknown);
    writer.raw(&Raw { follows: Some(RSP), ..walk }).expect("gathered");
    writer.finish().expect("finished");
    let reader = Reader::from_bytes(writer.into_inner()).expect("readable");
    let mut got = Twin::default();
    Replay::new(&reader).drive(&mut got).expect("replayed");
    assert_eq!(got.totals, reader.totals());
    assert!(records(got) == told(&all));
}
