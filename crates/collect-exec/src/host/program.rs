//! A block's roadmap steps in the form in which the host runs them: the records of the whole path ready
//! made, and the few operations that put addresses into them.
//!
//! A run copies the records as far as the block went and then works off the operations up to
//! there. Whoever needs no records is told the *way* instead, which is a number, and the addresses: a way is a block
//! left at one of its exits, or run to its end. Which way a block was left follows from where the thread went next: the planner's superblocks
//! are such that no two of a block's exits lead to one place.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record};
use ichnos_trace::{Address, ExitKind, Register, Step, Sum, Value, Width};

use crate::words::{u32_at, u64_at};

/// Registers as replay knows them; the last one is always zero.
pub type Registers = [u64; Register::COUNT];

const ZERO: u8 = (Register::COUNT - 1) as u8;

/// Where a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// The thread went on there.
    Next(GuestVa),
    /// The instruction there did not retire.
    Cut(GuestVa),
    /// To its last instruction.
    End,
    /// Nobody knows.
    Unknown,
}

/// A block ready to run.
#[derive(Debug, Default)]
pub struct Program {
    records: Vec<Record>,
    ops: Vec<Op>,
    exits: Vec<Exit>,
    insns: Vec<Start>,
    /// The address behind the last instruction.
    end: GuestVa,
    len: usize,
}

/// A sum that needs no decision: what is missing is register zero.
#[derive(Clone, Copy, Debug)]
struct Flat {
    base: u8,
    index: u8,
    scale: u8,
    disp: u64,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Eight bytes of the stream become a register.
    Wide { register: u8, at: u16 },
    /// Four bytes become its low half.
    Half { register: u8, at: u16 },
    /// A register becomes a sum.
    Sum { register: u8, sum: Flat },
    /// A register becomes another value.
    Derive { register: u8, value: Value },
    /// A record gets its address.
    Address { record: u16, sum: Flat },
    /// A record's address stands in the stream.
    Word { record: u16, at: u16 },
}

/// A place at which a block may be left.
#[derive(Clone, Copy, Debug)]
struct Exit {
    kind: ExitKind,
    target: GuestVa,
    /// Records, operations and instructions before it.
    records: usize,
    ops: usize,
    insns: usize,
}

/// Where an instruction begins.
#[derive(Clone, Copy, Debug)]
struct Start {
    pc: GuestVa,
    records: usize,
    ops: usize,
}

impl Program {
    /// Compiles the steps of a block. Flexible steps are left out: whoever holds the block tells
    /// their accesses behind the instruction.
    pub fn new(entry: GuestVa, steps: &[Step]) -> Self {
        let mut program = Self::default();
        let mut pc = entry;
        for step in steps {
            program.step(step, &mut pc);
        }
        program.end = pc;
        program
    }

    /// Bytes of the stream that an execution takes.
    pub fn len(&self) -> usize {
        self.len
    }

    fn step(&mut self, step: &Step, pc: &mut GuestVa) {
        match *step {
            Step::Insn { len, kind } => {
                let (records, ops) = (self.records.len(), self.ops.len());
                self.insns.push(Start { pc: *pc, records, ops });
                self.records.push(Record::Insn { len, kind, pc: *pc });
                *pc = pc.offset(u64::from(len));
            }
            Step::Take { register, width, .. } => {
                let (register, at) = (register.0, self.len as u16);
                self.len += if width == Width::Four { 4 } else { 8 };
                self.ops.push(match width {
                    Width::Four => Op::Half { register, at },
                    Width::Eight => Op::Wide { register, at },
                });
            }
            Step::Derive { register, value } => self.ops.push(match value {
                Value::Sum(sum) => Op::Sum { register: register.0, sum: flat(sum) },
                _ => Op::Derive { register: register.0, value },
            }),
            Step::Forget { register } => {
                self.ops.push(Op::Sum { register: register.0, sum: flat(Sum::default()) });
            }
            Step::Ref(r) => {
                let record = self.records.len() as u16;
                self.records.push(r.kind.record(r.flags, r.size, GuestVa(0)));
                match r.address {
                    Address::Known(sum) => self.ops.push(Op::Address { record, sum: flat(sum) }),
                    Address::Word(_) => {
                        self.ops.push(Op::Word { record, at: self.len as u16 });
                        self.len += 8;
                    }
                }
            }
            Step::Flex { .. } => {}
            Step::Exit { kind, target } => {
                let (records, ops) = (self.records.len(), self.ops.len());
                let insns = self.insns.len();
                self.exits.push(Exit { kind, target, records, ops, insns });
                self.records.push(Record::Branch { taken: false, target });
            }
        }
    }

    /// How many ways there are through the block.
    pub fn ways(&self) -> usize {
        self.exits.len() + 1
    }

    /// The records of a way, with addresses left out.
    pub fn records(&self, way: usize) -> &[Record] {
        let end = self.exits.get(way).map_or(self.records.len(), |exit| exit.records + 1);
        self.records.get(..end).unwrap_or_default()
    }

    /// Whether a way ends with a branch that is taken.
    pub fn is_taken(&self, way: usize) -> bool {
        way < self.exits.len()
    }

    /// How many instructions a way has.
    pub fn insns(&self, way: usize) -> usize {
        self.exits.get(way).map_or(self.insns.len(), |exit| exit.insns)
    }

    /// The way that an execution took, if it is one of them: not if the block was cut, or if nobody
    /// knows where it went.
    #[inline]
    pub fn way_of(&self, until: Until) -> Option<usize> {
        if matches!(until, Until::Cut(_)) {
            return None;
        }
        for (way, exit) in self.exits.iter().enumerate() {
            match (exit.kind, until) {
                (ExitKind::Direct, _) | (ExitKind::Indirect, Until::Next(_)) => return Some(way),
                (ExitKind::Conditional, Until::Next(next)) if next == exit.target => {
                    return Some(way);
                }
                (ExitKind::Conditional, Until::Next(_) | Until::End) => {}
                _ => return None,
            }
        }
        Some(self.exits.len())
    }

    /// Where an execution went that took one of the ways.
    #[inline]
    pub fn next(&self, way: usize, until: Until) -> GuestVa {
        match (self.exits.get(way), until) {
            (Some(Exit { kind: ExitKind::Direct, target, .. }), _) => *target,
            (_, Until::Next(next)) => next,
            _ => self.end,
        }
    }

    /// Runs the block on one of its ways; only addresses come out.
    #[inline]
    pub fn run_way(&self, registers: &mut Registers, words: &[u8], way: usize, out: &mut Vec<u64>) {
        let end = self.exits.get(way).map_or(self.ops.len(), |exit| exit.ops);
        for op in self.ops.get(..end).unwrap_or_default() {
            op.run(registers, words, &mut |_, to| out.push(to));
        }
    }

    /// Runs the block as far as it went. `words` holds at least [`Program::len`] bytes.
    #[inline]
    pub fn run(
        &self,
        registers: &mut Registers,
        words: &[u8],
        until: Until,
        out: &mut Vec<Record>,
    ) {
        let (records, ops, branch) = self.way(until);
        let start = out.len();
        out.extend_from_slice(self.records.get(..records).unwrap_or_default());
        let made = &mut out[start..];
        for op in self.ops.get(..ops).unwrap_or_default() {
            op.run(registers, words, &mut |record, to| put(made, record, to));
        }
        out.extend(branch);
    }

    /// How many records and operations belong to an execution, and the branch that ends it.
    #[inline]
    fn way(&self, until: Until) -> (usize, usize, Option<Record>) {
        if let Until::Cut(pc) = until
            && let Some(start) = self.insns.iter().find(|s| s.pc == pc)
        {
            return (start.records, start.ops, None);
        }
        for exit in &self.exits {
            let target = match (exit.kind, until) {
                (ExitKind::Direct, _) => exit.target,
                (ExitKind::Conditional, Until::Next(next)) if next == exit.target => next,
                (ExitKind::Conditional, Until::Next(_) | Until::Cut(_) | Until::End) => continue,
                (ExitKind::Indirect, Until::Next(next)) => next,
                (ExitKind::Conditional | ExitKind::Indirect, _) => {
                    return (exit.records, exit.ops, None);
                }
            };
            return (exit.records, exit.ops, Some(Record::Branch { taken: true, target }));
        }
        (self.records.len(), self.ops.len(), None)
    }
}

impl Op {
    /// `put` is told the addresses of records, in order.
    #[inline]
    fn run(&self, registers: &mut Registers, words: &[u8], put: &mut impl FnMut(u16, u64)) {
        match *self {
            Self::Wide { register, at } => {
                set(registers, register, u64_at(words, usize::from(at)).unwrap_or(0));
            }
            Self::Half { register, at } => {
                let low = u64::from(u32_at(words, usize::from(at)).unwrap_or(0));
                let upper = get(registers, register) & !0xffff_ffff;
                set(registers, register, upper | low);
            }
            Self::Sum { register, sum } => set(registers, register, sum.of(registers)),
            Self::Derive { register, value } => {
                set(registers, register, derive(registers, value));
            }
            Self::Address { record, sum } => put(record, sum.of(registers)),
            Self::Word { record, at } => {
                put(record, u64_at(words, usize::from(at)).unwrap_or(0));
            }
        }
    }
}

impl Flat {
    #[inline]
    fn of(self, registers: &Registers) -> u64 {
        let index = get(registers, self.index).wrapping_mul(u64::from(self.scale));
        get(registers, self.base).wrapping_add(index).wrapping_add(self.disp)
    }
}

fn flat(sum: Sum) -> Flat {
    let (index, scale) = sum.index.map_or((ZERO, 0), |(r, n)| (r.0, n));
    Flat { base: sum.base.map_or(ZERO, |r| r.0), index, scale, disp: sum.disp as u64 }
}

#[inline]
fn get(registers: &Registers, register: u8) -> u64 {
    registers[usize::from(register) % Register::COUNT]
}

#[inline]
fn set(registers: &mut Registers, register: u8, value: u64) {
    registers[usize::from(register) % Register::COUNT] = value;
}

#[inline]
fn put(made: &mut [Record], record: u16, to: u64) {
    if let Some(
        Record::Load { addr, .. }
        | Record::Store { addr, .. }
        | Record::Prefetch { addr, .. }
        | Record::Flush { addr, .. },
    ) = made.get_mut(usize::from(record))
    {
        *addr = GuestVa(to);
    }
}

fn derive(registers: &Registers, value: Value) -> u64 {
    let get = |r: Register| get(registers, r.0);
    match value {
        Value::Sum(sum) => flat(sum).of(registers),
        Value::Difference(a, b) => get(a).wrapping_sub(get(b)),
        Value::And(r, mask) => get(r) & mask,
        Value::ShiftLeft(r, n) => get(r) << n,
        Value::ShiftRight(r, n) => get(r) >> n,
        Value::ShiftRightSigned(r, n) => (get(r) as i64 >> n) as u64,
        Value::Low32(r) => get(r) & 0xffff_ffff,
        Value::Low32Signed(r) => get(r) as u32 as i32 as i64 as u64,
        _ => 0,
    }
}
