//! The second way in: a hand-made plan of four blocks (a loop over an array, a
//! call, a side exit, a string copy) and raw words as its save points would store
//! them; what comes out must be the records that a stepper would have seen.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::*;
use ichnos_replay::Replay;
use ichnos_trace::*;

const RBX: Register = Register(3);
pub const RCX: Register = Register(1);
pub const RSP: Register = Register(4);

pub fn insn(len: u8, kind: InsnKind) -> Step {
    Step::Insn { len, kind }
}

pub fn load(address: Address) -> Step {
    Step::Ref(Ref { kind: RefKind::Load, flags: AccessFlags::NONE, size: 8, address })
}

pub fn at(base: Register, disp: i64) -> Address {
    Address::Known(Sum { base: Some(base), index: None, disp })
}

pub fn block(entry: u64, exits: Exits, steps: Vec<Step>) -> Block {
    Block {
        process: ProcessId(0),
        entry: GuestVa(entry),
        exits,
        steps: steps.into(),
        code: [].into(),
    }
}

/// `0x1000`: a loop turn. Loads `[rbx + rcx*8]`, leaves to 0x2000 if it is zero,
/// counts rcx up, loops while not done; the array's base comes from the stream.
pub fn loop_block(slot: Slot) -> Block {
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
pub fn call_block() -> Block {
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
pub fn callee(slot: Slot) -> Block {
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
pub fn tail(slot: Slot) -> Block {
    block(0x2000, Exits::Side, vec![insn(3, InsnKind::OTHER), load(Address::Word(slot))])
}

/// An execution without accesses of its own: its identifier and words of eight bytes.
pub fn put(out: &mut Vec<u8>, identifier: u32, words: &[u64]) {
    out.extend(identifier.to_le_bytes());
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
}

fn raw_bytes() -> Vec<u8> {
    let load = RefKind::Load.describe(AccessFlags::STRING, 1);
    let store = RefKind::Store.describe(AccessFlags::STRING, 1);
    let mut bytes = Vec::new();
    for base in [0x50_0000, 0x50_0000, 0x60_0000] {
        put(&mut bytes, 10, &[base]);
    }
    put(&mut bytes, 20, &[]);
    put(&mut bytes, 30, &[]);
    for number in [1_u32, 2, 2] {
        bytes.extend(number.to_le_bytes());
    }
    for word in [load, 0x700, 1, store, 0x800, 1] {
        bytes.extend(word.to_le_bytes());
    }
    put(&mut bytes, 40, &[0x9000]);
    bytes
}

/// The records of a turn of the loop.
pub fn turn(out: &mut Vec<Record>, addr: u64, zero: bool, again: bool) {
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

pub fn tell(writer: &mut Writer<Vec<u8>>, identifier: u32, block: &Block) -> Result<(), Error> {
    let Block { process, entry, ref steps, ref code, .. } = *block;
    writer.plan(&Plan { identifier, process, entry, steps, code }).map(drop)
}

pub fn raw<'a>(registers: &'a [(Register, u64)], bytes: &'a [u8], leave: Leave) -> Raw<'a> {
    let (thread, process) = (ThreadId(0), ProcessId(0));
    let (insns_before, insns, registers, follows) = (0, 1, Some(registers), None);
    let bytes = [bytes, &[]];
    Raw { thread, process, insns_before, insns, registers, follows, bytes, leave }
}

pub fn writer(chunk_insns: u64) -> Writer<Vec<u8>> {
    let mut options = Options::default();
    options.chunk_insns = chunk_insns;
    // Columns stored as they are can be mutated with meaning.
    options.level = -50;
    Writer::new(Vec::new(), options).expect("a writer")
}

pub fn write(chunk_insns: u64, leave: Leave) -> Vec<u8> {
    let mut writer = writer(chunk_insns);
    let any = Slot(0);
    let plan = [(10, loop_block(any)), (20, call_block()), (30, callee(any)), (40, tail(any))];
    for (identifier, block) in plan {
        tell(&mut writer, identifier, &block).expect("a valid block");
    }
    // The stack pointer becomes known by a block without instructions.
    let take = [Step::Take { register: RSP, width: Width::Eight, slot: any }];
    tell(&mut writer, u32::MAX, &block(0, Exits::Side, take.to_vec())).expect("a silent block");
    let mut bytes = Vec::new();
    put(&mut bytes, u32::MAX, &[0x8000]);
    bytes.extend(raw_bytes());
    let first = raw(&[(RCX, 0)], &bytes, Leave::Next(GuestVa(0x1000)));
    writer.raw(&first).expect("gathered");
    let mut last = Vec::new();
    put(&mut last, 10, &[0x50_0000]);
    put(&mut last, u32::MAX, &[0x8000]);
    writer.event(ThreadId(0), &Event::Timestamp { ns: 7 }).expect("gathered");
    writer.flush().expect("packed");
    writer.raw(&raw(&[(RCX, 7), (RSP, 0x8000)], &last, leave)).expect("gathered");
    writer.finish().expect("finished");
    writer.into_inner()
}

/// Keeps records and what they count.
#[derive(Default)]
struct Kept(Vec<Record>, Totals);

impl Sink for Kept {
    type Error = std::convert::Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        self.0.extend_from_slice(batch.records);
        self.1.count_batch(batch);
        Ok(true)
    }
}

fn check(bytes: Vec<u8>, expected: &[Record]) {
    let reader = Reader::from_bytes(bytes).expect("readable");
    let mut got = Kept::default();
    Replay::new(&reader).drive(&mut got).expect("replayed");
    let differs = got.0.iter().zip(expected).position(|(got, wanted)| got != wanted);
    assert_eq!(differs, None, "{:?}", differs.map(|at| (got.0[at], expected[at])));
    assert_eq!(got.0.len(), expected.len());
    assert_eq!(reader.totals(), got.1);
}

#[test]
fn raw_words_become_the_records_of_the_plan() {
    check(write(u64::MAX, Leave::Next(GuestVa(0x2000))), &expected());
}

#[test]
fn each_buffer_can_begin_a_chunk() {
    let bytes = write(1, Leave::Next(GuestVa(0x2000)));
    let reader = Reader::from_bytes(bytes.clone()).expect("readable");
    assert_eq!(reader.threads()[0].chunks.len(), 2);
    check(bytes, &expected());
}

/// Keeps the records of each thread.
#[derive(Default)]
struct Threads([Vec<Record>; 2]);

impl Sink for Threads {
    type Error = std::convert::Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Self::Error> {
        self.0[batch.thread.0 as usize].extend_from_slice(batch.records);
        Ok(true)
    }
}

#[test]
fn processes_may_run_the_same_blocks() {
    // Chunks of one buffer and of many, whose words are alike or not.
    for (chunk_insns, apart) in [(1, 0), (1, 0x7000), (u64::MAX, 0x7000)] {
        let mut writer = writer(chunk_insns);
        for process in [0, 1] {
            let any = Slot(0);
            for (identifier, block) in [(10, loop_block(any)), (40, tail(any))] {
                let block = Block { process: ProcessId(process), ..block };
                tell(&mut writer, identifier + process, &block).expect("a valid block");
            }
        }
        let mut wanted = Threads::default();
        for round in 0..1000 {
            let process = round as u32 % 3 % 2;
            let base = 0x50_0000 + round * 16 + u64::from(process) * apart;
            let (mut bytes, last) = (Vec::new(), 0x9000 + round);
            put(&mut bytes, 10 + process, &[base]);
            put(&mut bytes, 40 + process, &[last]);
            let told = raw(&[(RCX, 2)], &bytes, Leave::Next(GuestVa(0x1000)));
            let (thread, process) = (ThreadId(process), ProcessId(process));
            writer.raw(&Raw { thread, process, ..told }).expect("gathered");
            let wanted = &mut wanted.0[thread.0 as usize];
            turn(wanted, base + 32, true, false);
            wanted.push(Record::insn(GuestVa(0x2000), 3, InsnKind::OTHER));
            wanted.push(Record::load(GuestVa(last), 8));
        }
        writer.finish().expect("finished");
        let reader = Reader::from_bytes(writer.into_inner()).expect("readable");
        let mut got = Threads::default();
        Replay::new(&reader).drive(&mut got).expect("replayed");
        assert!(got.0 == wanted.0);
        let blocks: Vec<&Block> = reader.roadmap().iter().map(|(_, block)| block).collect();
        let [first, _, second, _] = blocks[..] else { panic!("four blocks: {}", blocks.len()) };
        // They have the same slots, and lie in memory once.
        assert!(std::sync::Arc::ptr_eq(&first.steps, &second.steps));
        assert_eq!((first.process.0, second.process.0), (0, 1));
    }
}

#[test]
fn an_unknown_end_stops_before_the_first_guess() {
    let mut expected = expected();
    assert!(matches!(expected.pop(), Some(Record::Branch { .. })));
    check(write(u64::MAX, Leave::Unknown), &expected);
}

#[test]
fn a_cut_execution_ends_before_what_did_not_retire() {
    let mut all = expected();
    all.truncate(all.len() - 2);
    check(write(u64::MAX, Leave::Cut(GuestVa(0x1004))), &all);
    // Nothing of it retired.
    all.truncate(all.len() - 2);
    check(write(u64::MAX, Leave::Cut(GuestVa(0x1000))), &all);
}

#[test]
fn an_end_that_nobody_tells_is_the_end() {
    let mut all = expected();
    all.pop();
    all.push(Record::branch(false, GuestVa(0x2000)));
    all.push(Record::insn(GuestVa(0x1006), 3, InsnKind::OTHER));
    all.push(Record::insn(GuestVa(0x1009), 2, InsnKind::BRANCH));
    all.push(Record::branch(false, GuestVa(0x1000)));
    check(write(u64::MAX, Leave::Silent), &all);
}

#[test]
fn bad_plans_and_words_are_refused() {
    // What packers find is heard of at the end at the latest.
    let refused = |bytes: &[u8]| {
        let mut writer = writer(u64::MAX);
        tell(&mut writer, 40, &tail(Slot(0))).expect("a valid block");
        let take = vec![Step::Take { register: RSP, width: Width::Eight, slot: Slot(0) }];
        tell(&mut writer, 50, &block(0, Exits::Side, take)).expect("a silent block");
        writer.raw(&raw(&[], bytes, Leave::Silent)).expect("gathered");
        match writer.finish() {
            Err(Error::Raw { thread: ThreadId(0), at, .. }) => at,
            done => panic!("{bytes:?}: {done:?}"),
        }
    };
    assert_eq!(refused(&[99, 0, 0, 0]), 0);
    assert_eq!(refused(&[40, 0, 0, 0, 1, 2, 3]), 0);
    assert_eq!(refused(&[40, 0]), 0);
    let mut later = Vec::new();
    (0..3).for_each(|_| put(&mut later, 40, &[8]));
    let bad = later.len();
    put(&mut later, 41, &[8]);
    assert_eq!(refused(&later), bad);
    // Registers are set again and again, and nothing is executed.
    let mut silent = Vec::new();
    (0..2000).for_each(|_| put(&mut silent, 50, &[1]));
    refused(&silent);
    let mut writer = writer(u64::MAX);
    tell(&mut writer, 1, &tail(Slot(0))).expect("a valid block");
    assert!(matches!(tell(&mut writer, 1, &tail(Slot(0))), Err(Error::Misuse(_))));
    let mut late = loop_block(Slot(0));
    let take = Step::Take { register: RBX, width: Width::Eight, slot: Slot(0) };
    late.steps = late.steps.iter().copied().chain([take]).collect();
    let mut writer = Writer::new(Vec::new(), Options::default()).expect("a writer");
    assert!(matches!(tell(&mut writer, 1, &late), Err(Error::Misuse(_))));
}

/// Numbers that look random.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }

    /// A superblock of some instructions: what it takes comes first, up to thirty words.
    fn block(&mut self, entry: u64) -> Block {
        let mut steps = Vec::new();
        let words = if self.below(8) == 0 { 18 + self.below(13) } else { self.below(5) };
        for i in 0..words {
            let width = if self.below(2) == 0 { Width::Four } else { Width::Eight };
            // Its upper half is not what another block left there.
            steps.push(Step::Forget { register: Register(i as u8) });
            steps.push(Step::Take { register: Register(i as u8), width, slot: Slot(0) });
        }
        for i in 0..1 + self.below(6) {
            steps.push(insn(4, InsnKind::OTHER));
            if words > 0 {
                let (base, disp) = (Register(self.below(words) as u8), self.below(64) as i64);
                steps.push(load(at(base, disp)));
            }
            if self.below(2) == 0 {
                let target = GuestVa(ENTRY * (1 + (entry / ENTRY + i) % BLOCKS));
                let kind = ExitKind::Conditional;
                if !steps.iter().any(|s| matches!(s, Step::Exit { target: t, .. } if *t == target))
                {
                    steps.push(Step::Exit { kind, target });
                }
            }
        }
        if self.below(2) == 0 {
            steps.push(insn(2, InsnKind::JUMP));
            steps.push(Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) });
        }
        block(entry, Exits::Side, steps)
    }
}

const ENTRY: u64 = 0x1000;
const BLOCKS: u64 = 40;

/// What an execution comes to, worked out by hand.
fn run(block: &Block, words: &[u64], leave: Leave) -> Vec<Record> {
    let (mut registers, mut words, mut out) = ([0; 64], words.iter(), Vec::new());
    let mut pc = block.entry;
    for step in block.steps.iter().take(block.left_at(leave).steps) {
        match *step {
            Step::Take { register, .. } => {
                registers[usize::from(register.0)] = *words.next().expect("a word");
            }
            Step::Forget { .. } => {}
            Step::Insn { len, kind } => {
                out.push(Record::insn(pc, len, kind));
                pc = pc.offset(u64::from(len));
            }
            Step::Ref(Ref { address: Address::Known(sum), size, .. }) => {
                let base = registers[usize::from(sum.base.expect("one").0)];
                out.push(Record::load(GuestVa(base).offset(sum.disp as u64), size));
            }
            Step::Exit { kind, target } => {
                if let Some((taken, target)) = leave.outcome(kind, target) {
                    out.push(Record::branch(taken, target));
                }
            }
            _ => unreachable!("no such step was made"),
        }
    }
    out
}

/// How many executions of many blocks there are, how often one goes somewhere unusual, and how often something is between them.
pub struct Walk {
    pub seed: u64,
    pub chunk_insns: u64,
    pub turns: u64,
    pub is_wild: bool,
    pub ends: u64,
    /// The identifier of a block that sets a register.
    pub silent: u32,
}

/// Executions of many blocks, in many buffers with events between and in many chunks, come back as they were.
fn random_executions(walk: &Walk) {
    let (file, wanted) = walked(walk);
    check(file, &wanted);
}

/// A trace of such executions, and their records.
pub fn walked(walk: &Walk) -> (Vec<u8>, Vec<Record>) {
    let mut numbers = Numbers(walk.seed);
    let mut writer = writer(walk.chunk_insns);
    let blocks: Vec<Block> = (1..=BLOCKS).map(|i| numbers.block(ENTRY * i)).collect();
    for (i, block) in blocks.iter().enumerate() {
        tell(&mut writer, i as u32, block).expect("a valid block");
    }
    let silent = vec![Step::Take { register: RSP, width: Width::Eight, slot: Slot(0) }];
    tell(&mut writer, walk.silent, &block(0, Exits::Side, silent)).expect("a silent block");
    let (mut wanted, mut bytes, mut now) = (Vec::new(), Vec::new(), 0);
    let mut last: Vec<u64> = vec![0; 4096];
    for turn in 0..walk.turns {
        let block = &blocks[now];
        bytes.extend((now as u32).to_le_bytes());
        let mut words = Vec::new();
        for (i, step) in block.steps.iter().enumerate() {
            let Step::Take { width, .. } = step else { continue };
            let word = &mut last[now * 64 + i];
            // Mostly something that can be expected.
            *word = match numbers.below(40) {
                0 => numbers.below(1 << 40) << 20,
                1..=4 => *word,
                _ => word.wrapping_add(8),
            };
            match width {
                Width::Four => {
                    *word &= 0xffff_ffff;
                    bytes.extend((*word as u32).to_le_bytes());
                }
                Width::Eight => bytes.extend(word.to_le_bytes()),
            }
            words.push(*word);
        }
        if numbers.below(50) == 0 {
            put(&mut bytes, walk.silent, &[0x7000 + turn % 3]);
        }
        let usual = (now as u64 * 7 + 3) % BLOCKS;
        let is_usual = !walk.is_wild && numbers.below(10) > 0;
        let next = if is_usual { usual } else { numbers.below(BLOCKS) };
        let mut leave = Leave::Next(GuestVa(ENTRY * (1 + next)));
        let is_end = numbers.below(walk.ends) == 0 || turn == walk.turns - 1;
        if is_end {
            leave = match numbers.below(4) {
                0 => Leave::Silent,
                1 => Leave::Unknown,
                2 => Leave::Cut(block.entry.offset(4 * numbers.below(4))),
                _ => leave,
            };
        }
        wanted.extend(run(block, &words, leave));
        if is_end || numbers.below(500) == 0 {
            let told = Raw { insns: 100, ..raw(&[], &bytes, leave) };
            writer.raw(&told).expect("gathered");
            bytes.clear();
        }
        if is_end {
            writer.event(ThreadId(0), &Event::Timestamp { ns: turn + 1 }).expect("gathered");
        }
        now = next as usize;
    }
    writer.finish().expect("finished");
    (writer.into_inner(), wanted)
}

#[test]
fn random_executions_come_back() {
    for seed in 0..6 {
        let chunk_insns = [u64::MAX, 1, 50, 5000][seed as usize % 4];
        let silent = u32::MAX - 7 * (seed as u32 % 2);
        let walk = Walk { seed, chunk_insns, turns: 30_000, is_wild: false, ends: 300, silent };
        random_executions(&walk);
    }
}

/// A chunk may come through more places than are told apart by what was before.
#[test]
fn so_many_places_come_back() {
    for seed in 10..12 {
        let walk = Walk {
            seed,
            chunk_insns: u64::MAX,
            turns: 250_000,
            is_wild: true,
            ends: 50_000,
            silent: u32::MAX,
        };
        random_executions(&walk);
    }
}

/// A block that does this to the stack pointer, stores where that is then, and goes anywhere.
fn moving(entry: u64, change: Step) -> Block {
    let store =
        Ref { kind: RefKind::Store, flags: AccessFlags::NONE, size: 8, address: at(RSP, 0) };
    let mut steps = vec![insn(4, InsnKind::OTHER), change, Step::Ref(store)];
    steps.push(Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) });
    if matches!(change, Step::Take { .. }) {
        steps.swap(0, 1);
    }
    block(entry, Exits::Side, steps)
}

#[test]
fn a_register_is_followed_from_chunk_to_chunk() {
    let sum = |disp| Value::Sum(Sum { base: Some(RSP), index: None, disp });
    let derive = |value| Step::Derive { register: RSP, value };
    let take = |width| Step::Take { register: RSP, width, slot: Slot(0) };
    let changes = [
        derive(sum(-8)),
        derive(sum(8)),
        derive(sum(-0x60)),
        derive(Value::And(RSP, !15)),
        take(Width::Eight),
        take(Width::Four),
    ];
    for seed in 0..8 {
        let mut numbers = Numbers(seed);
        // Some chunks have one buffer, others many.
        let mut writer = writer([1, 700, u64::MAX][seed as usize % 3]);
        for (i, change) in changes.iter().enumerate() {
            tell(&mut writer, i as u32, &moving(ENTRY * (1 + i as u64), *change)).expect("valid");
        }
        let silent = vec![Step::Take { register: RSP, width: Width::Eight, slot: Slot(0) }];
        tell(&mut writer, u32::MAX, &block(0, Exits::Side, silent)).expect("a silent block");
        let (mut wanted, mut bytes, mut now) = (Vec::new(), Vec::new(), 0);
        let mut stack = 0x7fff_0000_u64;
        put(&mut bytes, u32::MAX, &[stack]);
        for turn in 0..20_000 {
            // What does not follow from what was before is rare in some runs, and comes never in others.
            let rare = [0, 3, 100][seed as usize / 3];
            let next = if numbers.below(100) < rare { numbers.below(6) } else { numbers.below(3) };
            let told = 0x7ff0_0000 + numbers.below(1 << 16);
            match now {
                0 => stack -= 8,
                1 => stack += 8,
                2 => stack -= 0x60,
                3 => stack &= !15,
                4 => stack = told,
                _ => stack = stack & !0xffff_ffff | told,
            }
            match now {
                4 => put(&mut bytes, 4, &[told]),
                5 => {
                    bytes.extend(5_u32.to_le_bytes());
                    bytes.extend((told as u32).to_le_bytes());
                }
                _ => put(&mut bytes, now as u32, &[]),
            }
            let (pc, to) = (GuestVa(ENTRY * (1 + now)), GuestVa(ENTRY * (1 + next)));
            wanted.push(Record::insn(pc, 4, InsnKind::OTHER));
            wanted.push(Record::store(GuestVa(stack), 8));
            wanted.push(Record::branch(true, to));
            if numbers.below(400) == 0 {
                // Behind a block, before the next: it holds from there on.
                stack = 0x7fe0_0000 + turn * 8;
                put(&mut bytes, u32::MAX, &[stack]);
            }
            if turn == 19_999 || numbers.below(300) == 0 {
                let told = raw(&[], &bytes, Leave::Next(to));
                let told = Raw { insns: 100, follows: Some(RSP), ..told };
                writer.raw(&told).expect("gathered");
                bytes.clear();
            }
            if numbers.below(2000) == 0 {
                writer.event(ThreadId(0), &Event::Timestamp { ns: turn + 1 }).expect("gathered");
            }
            now = next;
        }
        writer.finish().expect("finished");
        check(writer.into_inner(), &wanted);
    }
}
