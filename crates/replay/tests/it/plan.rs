//! The second way in: a hand-made plan of four blocks (a loop over an array, a
//! call, a side exit, a string copy) and raw words as its save points would store
//! them; what comes out must be the records that a stepper would have seen.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::twin::Twin;
use ichnos_base::*;
use ichnos_replay::Replay;
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

fn expected() -> Vec<Record> {
    let mut out = Vec::new();
    let va = GuestVa;
    let turn = |out: &mut Vec<Record>, addr: u64, zero: bool, again: bool| {
        out.push(Record::insn(va(0x1000), 4, InsnKind::OTHER));
        out.push(Record::load(va(addr), 8));
        out.push(Record::insn(va(0x1004), 2, InsnKind::BRANCH));
        out.push(Record::branch(zero, va(0x2000)));
        if !zero {
            out.push(Record::insn(va(0x1006), 3, InsnKind::OTHER));
            out.push(Record::insn(va(0x1009), 2, InsnKind::BRANCH));
            out.push(Record::branch(again, va(0x1000)));
        }
    };
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

fn write(chunk_insns: u64, next: Option<u64>) -> Vec<u8> {
    let mut options = Options::default();
    options.chunk_insns = chunk_insns;
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
