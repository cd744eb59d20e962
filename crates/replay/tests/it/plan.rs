//! The second way in: a hand-made plan of four blocks (a loop over an array, a
//! call, a side exit, a string copy) and raw words as its save points would store
//! them; what comes out must be the records that a stepper would have seen.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::parts::{Blind, Unfolded};
use crate::twin::Twin;
use ichnos_base::*;
use ichnos_replay::{Order, Piece, Replay};
use ichnos_trace::*;

const RBX: Register = Register(3);
const RCX: Register = Register(1);
const RSP: Register = Register(4);

fn insn(len: u8, kind: InsnKind) -> Step {
    Step::Insn { len, kind }
}

fn load(address: Address) -> Step {
    Step::Ref(Ref { kind: RefKind::Load, flags: AccessFlags::NONE, size: 8, address })
}

fn at(base: Register, disp: i64) -> Address {
    Address::Known(Sum { base: Some(base), index: None, disp })
}

fn block(entry: u64, exits: Exits, steps: Vec<Step>) -> Block {
    Block { process: ProcessId(0), entry: GuestVa(entry), exits, steps, code: Vec::new() }
}

/// `0x1000`: a loop turn. Loads `[rbx + rcx*8]`, leaves to 0x2000 if it is zero,
/// counts rcx up, loops while not done; the array's base comes from the stream.
fn loop_block(slot: Slot) -> Block {
    let element = Sum { base: Some(RBX), index: Some((RCX, 8)), disp: 16 };
    let next = Value::Sum(Sum { base: Some(RCX), index: None, disp: 1 });
    let side = Step::Exit { kind: ExitKind::Conditional, target: GuestVa(0x2000) };
    let back = Step::Exit { kind: ExitKind::Conditional, target: GuestVa(0x1000) };
    block(
        0x1000,
        Exits::Side,
        vec![
            Step::Take { register: RBX, width: Width::Eight, slot },
            insn(4, InsnKind::OTHER),
            load(Address::Known(element)),
            insn(2, InsnKind::BRANCH),
            side,
            insn(3, InsnKind::OTHER),
            Step::Derive { register: RCX, value: next },
            insn(2, InsnKind::BRANCH),
            back,
        ],
    )
}

/// `0x100b`: calls 0x3000; the push goes to where the stack pointer is known to be.
fn call_block() -> Block {
    let down = Value::Sum(Sum { base: Some(RSP), index: None, disp: -8 });
    block(
        0x100b,
        Exits::Side,
        vec![
            insn(5, InsnKind::CALL),
            Step::Derive { register: RSP, value: down },
            Step::Ref(Ref {
                kind: RefKind::Store,
                flags: AccessFlags::STACK,
                size: 8,
                address: at(RSP, 0),
            }),
            Step::Exit { kind: ExitKind::Direct, target: GuestVa(0x3000) },
        ],
    )
}

/// `0x3000`: a string copy of any length, then a return.
fn callee(slot: Slot) -> Block {
    let up = Value::Sum(Sum { base: Some(RSP), index: None, disp: 8 });
    block(
        0x3000,
        Exits::Side,
        vec![
            insn(2, InsnKind::OTHER),
            Step::Flex { slot },
            insn(1, InsnKind::RETURN),
            load(at(RSP, 0)),
            Step::Derive { register: RSP, value: up },
            Step::Forget { register: RCX },
            Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) },
        ],
    )
}

/// `0x2000`: reached by the side exit or after the call; an address straight from the stream.
fn tail(slot: Slot) -> Block {
    block(0x2000, Exits::Side, vec![insn(3, InsnKind::OTHER), load(Address::Word(slot))])
}

fn raw_words() -> Vec<u64> {
    let load = describe(RefKind::Load, AccessFlags::STRING, 1);
    let store = describe(RefKind::Store, AccessFlags::STRING, 1);
    let mut words = vec![10, 0x50_0000, 10, 0x50_0000, 10, 0x60_0000, 20, 30, 4];
    words.extend([load, 0x700, store, 0x800, load, 0x701, store, 0x801]);
    words.extend([40, 0x9000, 10, 0x50_0000]);
    words
}

/// The records of a turn of the loop.
fn turn(out: &mut Vec<Record>, addr: u64, zero: bool, again: bool) {
    let va = GuestVa;
    out.push(Record::insn(va(0x1000), 4, InsnKind::OTHER));
    out.push(Record::load(va(addr), 8));
    out.push(Record::insn(va(0x1004), 2, InsnKind::BRANCH));
    out.push(Record::branch(zero, va(0x2000)));
    if !zero {
        out.push(Record::insn(va(0x1006), 3, InsnKind::OTHER));
        out.push(Record::insn(va(0x1009), 2, InsnKind::BRANCH));
        out.push(Record::branch(again, va(0x1000)));
    }
}

fn expected() -> Vec<Record> {
    let mut out = Vec::new();
    let va = GuestVa;
    turn(&mut out, 0x50_0000 + 16, false, true);
    turn(&mut out, 0x50_0000 + 24, false, true);
    turn(&mut out, 0x60_0000 + 32, false, false);
    out.push(Record::insn(va(0x100b), 5, InsnKind::CALL));
    out.push(Record::Store { flags: AccessFlags::STACK, size: 8, addr: va(0x7ff8) });
    out.push(Record::branch(true, va(0x3000)));
    out.push(Record::insn(va(0x3000), 2, InsnKind::OTHER));
    for i in 0..2 {
        out.push(Record::Load { flags: AccessFlags::STRING, size: 1, addr: va(0x700 + i) });
        out.push(Record::Store { flags: AccessFlags::STRING, size: 1, addr: va(0x800 + i) });
    }
    out.push(Record::insn(va(0x3002), 1, InsnKind::RETURN));
    out.push(Record::load(va(0x7ff8), 8));
    out.push(Record::branch(true, va(0x2000)));
    out.push(Record::insn(va(0x2000), 3, InsnKind::OTHER));
    out.push(Record::load(va(0x9000), 8));
    // The loop again, in the next buffer with rcx anew, left by the side exit.
    turn(&mut out, 0x50_0000 + 16 + 8 * 7, true, false);
    out
}

pub fn write(chunk_insns: u64, next: Option<u64>) -> Vec<u8> {
    let mut options = Options::default();
    options.chunk_insns = chunk_insns;
    // Columns stored as they are can be mutated with meaning.
    options.level = -50;
    let mut writer = Writer::new(Vec::new(), options).expect("a writer");
    let slots = [writer.plan_slot(), writer.plan_slot(), writer.plan_slot()];
    let plan = [
        (10, loop_block(slots[0])),
        (20, call_block()),
        (30, callee(slots[1])),
        (40, tail(slots[2])),
    ];
    for (identifier, block) in plan {
        writer.plan_block(identifier, block).expect("a valid block");
    }
    let words = raw_words();
    let (first, second) = words.split_at(words.len() - 2);
    let thread = ThreadId(0);
    let registers = [(RCX, 0), (RSP, 0x8000)];
    let used = writer.raw(thread, &Raw { registers: &registers, words: first }).expect("packed");
    assert_eq!(used, first.len());
    let registers = [(RCX, 7), (RSP, 0x8000)];
    writer.raw(thread, &Raw { registers: &registers, words: second }).expect("packed");
    if let Some(next) = next {
        writer.raw_next(thread, GuestVa(next)).expect("known thread");
    }
    writer.finish().expect("finished");
    writer.into_inner()
}

fn check(bytes: Vec<u8>, expected: &[Record]) {
    let mut wanted = Twin::default();
    wanted.records(&Batch::new(ThreadId(0), 0, expected)).expect("infallible");
    let reader = Reader::from_bytes(bytes).expect("readable");
    let mut got = Twin::default();
    Replay::new(&reader).drive(&mut got).expect("replayed");
    assert_eq!(got.by_thread, wanted.by_thread);
    assert_eq!(reader.totals(), wanted.totals);
}

#[test]
fn raw_words_become_the_records_of_the_plan() {
    check(write(u64::MAX, Some(0x2000)), &expected());
}

#[test]
fn each_buffer_can_begin_a_chunk() {
    let bytes = write(1, Some(0x2000));
    let reader = Reader::from_bytes(bytes.clone()).expect("readable");
    assert_eq!(reader.threads()[0].chunks.len(), 2);
    check(bytes, &expected());
}

#[test]
fn an_unknown_end_stops_before_the_first_guess() {
    let mut expected = expected();
    assert!(matches!(expected.pop(), Some(Record::Branch { .. })));
    check(write(u64::MAX, None), &expected);
}

#[test]
fn bad_plans_and_words_are_refused() {
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    let raw = Raw { registers: &[], words: &[99] };
    assert!(matches!(writer.raw(ThreadId(0), &raw), Err(Error::Misuse(_))));
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    let mut twice = loop_block(Slot(0));
    twice.steps.retain(|s| !matches!(s, Step::Take { .. }));
    twice.steps.push(Step::Take { register: RBX, width: Width::Eight, slot: Slot(0) });
    assert!(matches!(writer.plan_block(1, twice), Err(Error::Misuse(_))));
}

#[test]
fn an_unfinished_execution_is_left_out() {
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    let slot = writer.plan_slot();
    writer.plan_block(40, tail(slot)).expect("a valid block");
    let raw = Raw { registers: &[], words: &[40, 0x9000, 40] };
    assert_eq!(writer.raw(ThreadId(0), &raw).expect("packed"), 2);
    writer.finish().expect("finished");
    let wanted =
        [Record::insn(GuestVa(0x2000), 3, InsnKind::OTHER), Record::load(GuestVa(0x9000), 8)];
    check(writer.into_inner(), &wanted);
}

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
/// Raw words of one round, and its records.
fn round(random: &mut impl FnMut(u64) -> u64) -> (Vec<u64>, Vec<Record>) {
    let (turns, zero, stack) = (1 + random(6), random(2) == 0, 0x8000 + 64 * random(100));
    let (mut words, mut out) = (vec![50, stack], Vec::new());
    for i in 0..turns {
        let (base, last) = (0x50_0000 + 0x100 * random(50), i + 1 == turns);
        words.extend([10, base]);
        turn(&mut out, base + 16 + 8 * i, zero && last, !last);
    }
    let va = GuestVa;
    if !zero {
        words.extend([20, 30]);
        out.push(Record::insn(va(0x100b), 5, InsnKind::CALL));
        out.push(Record::Store { flags: AccessFlags::STACK, size: 8, addr: va(stack - 8) });
        out.push(Record::branch(true, va(0x3000)));
        out.push(Record::insn(va(0x3000), 2, InsnKind::OTHER));
        let (count, from) = (random(4), 0x700 + random(100));
        words.push(count);
        for i in 0..count {
            words.extend([describe(RefKind::Load, AccessFlags::STRING, 1), from + i]);
            out.push(Record::Load { flags: AccessFlags::STRING, size: 1, addr: va(from + i) });
        }
        out.push(Record::insn(va(0x3002), 1, InsnKind::RETURN));
        out.push(Record::load(va(stack - 8), 8));
        out.push(Record::branch(true, va(0x2000)));
    }
    let addr = 0x9000 + random(1000);
    words.extend([40, addr]);
    out.push(Record::insn(va(0x2000), 3, InsnKind::OTHER));
    out.push(Record::load(va(addr), 8));
    (words, out)
}

/// Many rounds in many buffers and chunks, and their records.
fn rounds(seed: u64) -> (Reader, Vec<Record>) {
    let mut state = seed;
    let mut random = move |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % end
    };
    let mut options = Options::default();
    options.chunk_insns = 300;
    let mut writer = Writer::new(Vec::new(), options).expect("a writer");
    let slots = [writer.plan_slot(), writer.plan_slot(), writer.plan_slot(), writer.plan_slot()];
    let plan = [
        (10, loop_block(slots[0])),
        (20, call_block()),
        (30, callee(slots[1])),
        (40, tail(slots[2])),
        (50, silent(slots[3])),
    ];
    for (identifier, block) in plan {
        writer.plan_block(identifier, block).expect("a valid block");
    }
    let mut all = Vec::new();
    for _ in 0..8 {
        let mut buffer = Vec::new();
        for _ in 0..1 + random(600) {
            let (words, records) = round(&mut random);
            buffer.extend(words);
            all.extend(records);
        }
        // Where a buffer ends makes no difference: what comes first in it does not refer to what was known.
        let raw = Raw { registers: &[], words: &buffer };
        assert_eq!(writer.raw(ThreadId(0), &raw).expect("packed"), buffer.len());
        if random(3) == 0 {
            writer.raw_next(ThreadId(0), GuestVa(0x1000)).expect("known thread");
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
