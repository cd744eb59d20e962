//! Planned blocks as they are laid out against the same blocks walked step by step.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{AccessFlags, InsnKind, Plan, ProcessId, Shapes, Sink};
use ichnos_trace::{
    Block, ExitKind, Options, Reader, Ref, RefKind, Register, Roadmap, Slot, Sum, Value, Width,
    Writer,
};

use super::*;

const OTHERWISE: GuestVa = GuestVa(0x7777);

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }

    /// Few, so that they meet, and the last ones, which are registers like any other.
    fn register(&mut self) -> Register {
        Register([0, 1, 2, 3, 4, 5, 62, 63][self.below(8) as usize])
    }

    fn sum(&mut self) -> Sum {
        Sum {
            base: Some(self.register()).filter(|_| self.below(4) > 0),
            index: Some((self.register(), 1 << self.below(4))).filter(|_| self.below(2) > 0),
            disp: self.below(1 << 20) as i64 - (1 << 19),
        }
    }

    fn value(&mut self) -> Value {
        match self.below(9) {
            0 => Value::Difference(self.register(), self.register()),
            1 => Value::And(self.register(), 0xff0),
            2 => Value::ShiftLeft(self.register(), 3),
            3 => Value::ShiftRight(self.register(), 63),
            4 => Value::ShiftRightSigned(self.register(), 5),
            5 => Value::Low32(self.register()),
            6 => Value::Low32Signed(self.register()),
            _ => Value::Sum(self.sum()),
        }
    }

    fn reference(&mut self, may_take: bool) -> Step {
        let word = may_take && self.below(3) == 0;
        let address = if word { Address::Word(Slot(0)) } else { Address::Known(self.sum()) };
        let kinds = [RefKind::Load, RefKind::Store, RefKind::Prefetch, RefKind::Flush];
        let (kind, flags) = (kinds[self.below(4) as usize], AccessFlags::default());
        Step::Ref(Ref { kind, flags, size: 8, address })
    }

    /// Steps that set registers.
    fn setting(&mut self, may_take: bool) -> Step {
        let register = self.register();
        let width = if self.below(2) == 0 { Width::Four } else { Width::Eight };
        match self.below(if may_take { 5 } else { 3 }) {
            0 if self.below(3) == 0 => Step::Forget { register },
            0..3 => Step::Derive { register, value: self.value() },
            _ => Step::Take { register, width, slot: Slot(0) },
        }
    }

    fn block(&mut self) -> Block {
        let mut steps: Vec<_> = (0..self.below(4)).map(|_| self.setting(true)).collect();
        let mut may_take = true;
        for i in 0..self.below(9) {
            steps.push(Step::Insn { len: 4, kind: InsnKind::OTHER });
            for _ in 0..self.below(4) {
                let refers = self.below(2) == 0;
                let step = if refers { self.reference(may_take) } else { self.setting(may_take) };
                steps.push(step);
            }
            if self.below(3) == 0 {
                let (kind, target) = (ExitKind::Conditional, GuestVa(0x10_0000 + i));
                steps.push(Step::Exit { kind, target });
                may_take = false;
            }
        }
        let last = [Some(ExitKind::Direct), Some(ExitKind::Indirect), None];
        if let Some(kind) = last[self.below(3) as usize] {
            steps.push(Step::Insn { len: 2, kind: InsnKind::BRANCH });
            let target = GuestVa(if kind == ExitKind::Direct { 0x20_0000 } else { 0 });
            steps.push(Step::Exit { kind, target });
        }
        if steps.is_empty() {
            steps.push(Step::Forget { register: self.register() });
        }
        let (process, entry, exits) = (ProcessId(0), GuestVa(0x1000), Exits::Side);
        Block { process, entry, exits, steps: steps.into(), code: [].into() }
    }

    fn machine(&mut self) -> Machine {
        let mut machine = Machine::new();
        let most = self.below(4) > 0;
        for register in 0..Register::COUNT as u8 {
            // What is not known may hold anything.
            machine.registers[usize::from(register)] = self.below(1 << 30) << 20;
            if most || self.below(4) > 0 {
                machine.take(Register(register), Width::Eight, self.below(1 << 30) << 7);
            }
        }
        machine
    }
}

/// All ways in which a block may have been left, and some in which it cannot.
fn leaves(block: &Block) -> Vec<Leave> {
    let outcome = |taken| Leave::Outcome { taken, target: OTHERWISE };
    let mut leaves = vec![Leave::Silent, Leave::Unknown, outcome(false), outcome(true)];
    leaves.extend([Leave::Next(OTHERWISE), Leave::Cut(OTHERWISE)]);
    let mut pc = block.entry;
    for step in block.steps.iter() {
        match *step {
            Step::Insn { len, .. } => {
                leaves.push(Leave::Cut(pc));
                pc = pc.offset(len.into());
            }
            Step::Exit { target, .. } => leaves.push(Leave::Next(target)),
            _ => {}
        }
    }
    leaves
}

fn read(blocks: impl IntoIterator<Item = Block>) -> Reader {
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    for (identifier, block) in (0..).zip(blocks) {
        let Block { process, entry, steps, code, .. } = &block;
        let (process, entry) = (*process, *entry);
        writer.plan(&Plan { identifier, process, entry, steps, code }).expect("a valid block");
    }
    writer.finish().expect("finished");
    Reader::from_bytes(writer.into_inner()).expect("readable")
}

/// An execution walked: its records, or what is wrong with it.
fn walk(
    (entry, leave): (&Entry, Leave),
    machine: &Machine,
    rest: &mut Rest<'_>,
) -> Result<Expander, &'static str> {
    let mut walker = Expander { machine: machine.clone(), ..Expander::new() };
    let done = walker.steps(entry, rest, leave, &mut |_| Ok::<_, Infallible>(true));
    let Ok(done) = done;
    done.map(|()| walker)
}

fn without_outcomes(records: &[Record]) -> Vec<Record> {
    let blind = |record: &Record| match *record {
        Record::Branch { .. } => Record::Branch { taken: false, target: OTHERWISE },
        record => record,
    };
    records.iter().map(blind).collect()
}

/// The registers that are known.
fn shadow(machine: &Machine) -> Vec<(usize, u64)> {
    let known = (0..Register::COUNT).filter(|at| machine.known >> at & 1 != 0);
    known.map(|at| (at, machine.registers[at])).collect()
}

/// An execution each way; whether it was laid out.
fn compare(
    roadmap: &Roadmap,
    ways: &Ways<'_>,
    execution: (BlockId, Leave),
    state: State<'_>,
) -> bool {
    let (id, leave) = execution;
    let State { machine, words } = state;
    let entry = roadmap.get(id).expect("a block that was written");
    let context = || format!("{:?} {leave:?}", entry.block);
    let new = || Rest { words, flexes: &[], runs: &[] };
    let mut fast = Expander { machine: machine.clone(), ..Expander::new() };
    let mut rest = new();
    if !fast.planned((ways, id), entry, &mut rest, leave) {
        assert_eq!((fast.records.len(), rest.words), (0, words), "{}", context());
        assert_eq!(fast.totals, Totals::default());
        assert_eq!(shadow(&fast.machine), shadow(machine));
        return false;
    }
    let mut slow_rest = new();
    let slow = walk((entry, leave), machine, &mut slow_rest);
    let slow = slow.unwrap_or_else(|flaw| panic!("{flaw}: {}", context()));
    assert_eq!(fast.records, slow.records, "{}", context());
    assert_eq!(fast.totals, slow.totals, "{}", context());
    assert_eq!(slow.totals, entry.left_at(leave).totals, "{}", context());
    assert_eq!(shadow(&fast.machine), shadow(&slow.machine), "{}", context());
    assert_eq!(rest.words, slow_rest.words, "{}", context());

    let (mut told, mut addresses) = (Expander::new(), vec![7]);
    told.machine = machine.clone();
    let done = told.run((ways, id), &mut new(), leave, &mut addresses);
    let (done, _) = done.expect("it was run before");
    let mut records = ways.records(BlockId(done.way)).to_vec();
    let mut addresses = addresses[1..].iter();
    for record in &mut records {
        if !matches!(record, Record::Insn { .. } | Record::Branch { .. }) {
            set_address(record, *addresses.next().expect("an address for each access"));
        }
    }
    assert_eq!(addresses.next(), None);
    assert_eq!(without_outcomes(&records), without_outcomes(&slow.records), "{}", context());
    true
}

#[derive(Clone, Copy)]
struct State<'a> {
    machine: &'a Machine,
    words: &'a [u64],
}

#[test]
fn laid_out_blocks_do_what_their_steps_say() {
    let mut numbers = Numbers(1);
    let blocks: Vec<_> = (0..2000).map(|_| numbers.block()).collect();
    let reader = read(blocks);
    let (roadmap, mut ran, mut walked) = (reader.roadmap(), 0, 0);
    let ways = Ways::new(roadmap);
    for (id, block) in roadmap.iter() {
        for leave in leaves(block) {
            let machine = numbers.machine();
            let words: Vec<_> = (0..40).map(|_| numbers.below(1 << 31) << 20 | 0xf_00ff).collect();
            let state = State { machine: &machine, words: &words };
            if compare(roadmap, &ways, (id, leave), state) {
                ran += 1;
            } else {
                walked += 1;
            }
        }
    }
    assert!(ran > 3000 && walked > 3000, "{ran} {walked}");
}

/// A block is laid out whatever it reads, and run only where that is known.
#[test]
fn an_address_over_an_unknown_register_is_refused() {
    let (a, b) = (Register(1), Register(2));
    let sum = |register| Sum { base: Some(register), index: None, disp: 8 };
    let insn = Step::Insn { len: 4, kind: InsnKind::OTHER };
    let (kind, flags) = (RefKind::Load, AccessFlags::NONE);
    let load = |sum| Step::Ref(Ref { kind, flags, size: 8, address: Address::Known(sum) });
    let derive = Step::Derive { register: b, value: Value::Sum(sum(a)) };
    let steps = vec![derive, insn, load(sum(b))];
    let (process, entry) = (ProcessId(0), GuestVa(0x1000));
    let (steps, code) = (steps.into(), [].into());
    let block = Block { process, entry, exits: Exits::Side, steps, code };
    let reader = read([block]);
    let ways = Ways::new(reader.roadmap());
    let (id, leave) = (BlockId(0), Leave::Next(OTHERWISE));
    let entry = reader.roadmap().get(id).expect("a block");
    let mut expander = Expander::new();
    let mut rest = Rest { words: &[], flexes: &[], runs: &[] };
    assert!(!expander.planned((&ways, id), entry, &mut rest, leave));
    let flaw = walk((entry, leave), &expander.machine, &mut rest).expect_err("nothing is known");
    assert!(flaw.contains("not known"), "{flaw}");
    expander.machine.restore(&[(a, 0x5000)]);
    assert!(expander.planned((&ways, id), entry, &mut rest, leave));
    let wanted =
        [Record::insn(GuestVa(0x1000), 4, InsnKind::OTHER), Record::load(GuestVa(0x5010), 8)];
    assert_eq!(expander.records, wanted);
    assert_eq!(expander.machine.known, 0b110);
}

/// What did not retire has no records, and its block still takes all its words.
#[test]
fn a_cut_ends_before_its_instruction() {
    let insn = Step::Insn { len: 4, kind: InsnKind::OTHER };
    let exit = Step::Exit { kind: ExitKind::Conditional, target: GuestVa(0x2000) };
    let (kind, flags, address) = (RefKind::Load, AccessFlags::NONE, Address::Word(Slot(0)));
    let load = Step::Ref(Ref { kind, flags, size: 8, address });
    let (process, entry, code) = (ProcessId(0), GuestVa(0x1000), Vec::new());
    let plain = vec![insn, load, insn, load, insn, load];
    let branching = vec![insn, load, insn, load, exit, insn, insn];
    let reader = read([plain, branching].map(|steps| {
        let (exits, code) = (Exits::Side, code.clone());
        Block { process, entry, exits, steps: steps.into(), code: code.into() }
    }));
    let records = |id, cut| {
        let entry = reader.roadmap().get(BlockId(id)).expect("a block");
        let mut rest =
            Rest { words: &[0x10, 0x20, 0x30][..entry.shape.words.len()], flexes: &[], runs: &[] };
        let done = walk((entry, Leave::Cut(GuestVa(cut))), &Machine::new(), &mut rest);
        assert!(rest.words.is_empty());
        let done = done.expect("nothing is wrong with it");
        assert_eq!(done.totals, entry.left_at(Leave::Cut(GuestVa(cut))).totals);
        done.records
    };
    let insn = |pc| Record::insn(GuestVa(pc), 4, InsnKind::OTHER);
    let load = |addr| Record::load(GuestVa(addr), 8);
    let fell = Record::branch(false, GuestVa(0x2000));
    assert_eq!(records(0, 0x1000), []);
    assert_eq!(records(0, 0x1004), [insn(0x1000), load(0x10)]);
    assert_eq!(records(0, 0x1008), [insn(0x1000), load(0x10), insn(0x1004), load(0x20)]);
    let before = [insn(0x1000), load(0x10), insn(0x1004), load(0x20), fell];
    assert_eq!(records(1, 0x1008), before);
    assert_eq!(records(1, 0x100c), [&before[..], &[insn(0x1008)]].concat());
    assert_eq!(records(1, 0x1010).len(), 7);
}
