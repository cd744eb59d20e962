//! A block's roadmap steps in the form in which the host runs them: the records of the whole path ready
//! made, and the few operations that put addresses into them.
//!
//! A run copies the records as far as the block went and then works off the operations up to
//! there. Whoever needs no records is told the *way* instead, which is a number, and the addresses (`ichnos_trace::flat`): a way is a block
//! left at one of its exits, or run to its end. Which way a block was left follows from where the thread went next: the planner's superblocks
//! are such that no two of a block's exits lead to one place.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record};
use ichnos_trace::flat::{Registers, ZERO, derive};
use ichnos_trace::{Address, ExitKind, Leave, Ref, Step, Sum, Value, Width};

use crate::words::{u32_at, u64_at};

/// A block ready to run.
#[derive(Debug, Default)]
pub struct Program {
    records: Vec<Record>,
    ops: Vec<Op>,
    /// The records that get addresses, in order.
    accesses: Vec<u16>,
    /// Values that are not sums.
    values: Vec<Value>,
    exits: Vec<Exit>,
    insns: Vec<Start>,
    len: usize,
}

/// An operation, in two words.
#[derive(Clone, Copy, Debug)]
struct Op {
    what: What,
    /// The register that it sets.
    register: u8,
    /// The registers whose sum it takes, the second so many times; what is missing is register zero.
    base: u8,
    index: u8,
    scale: u8,
    /// Where in the stream it takes bytes, or which of the values it is.
    at: u16,
    disp: u64,
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// A register becomes a sum.
    Sum,
    /// A record's address is a sum.
    Address,
    /// Eight bytes of the stream become a register.
    Wide,
    /// Four bytes become its low half.
    Half,
    /// A record's address stands in the stream.
    Word,
    /// A register becomes another value.
    Derive,
}

const _: () = assert!(size_of::<Op>() == 16);

/// A place at which a block may be left.
#[derive(Clone, Copy, Debug)]
struct Exit {
    kind: ExitKind,
    target: GuestVa,
    /// Records and operations before it.
    records: usize,
    ops: usize,
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
        program
    }

    /// Says no more of a block than how many bytes an execution takes.
    pub fn unable(steps: &[Step]) -> Self {
        let len = |step: &Step| match step {
            Step::Take { width: Width::Four, .. } => 4,
            Step::Take { .. } | Step::Ref(Ref { address: Address::Word(_), .. }) => 8,
            _ => 0,
        };
        Self { len: steps.iter().map(len).sum(), ..Self::default() }
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
                let (what, len) = match width {
                    Width::Four => (What::Half, 4),
                    Width::Eight => (What::Wide, 8),
                };
                self.ops.push(Op::taking(what, register.0, self.len));
                self.len += len;
            }
            Step::Derive { register, value: Value::Sum(sum) } => {
                self.ops.push(Op::sum(What::Sum, register.0, sum));
            }
            Step::Derive { register, value } => {
                self.ops.push(Op::taking(What::Derive, register.0, self.values.len()));
                self.values.push(value);
            }
            Step::Forget { register } => {
                self.ops.push(Op::sum(What::Sum, register.0, Sum::default()));
            }
            Step::Ref(r) => {
                self.accesses.push(self.records.len() as u16);
                self.records.push(r.kind.record(r.flags, r.size, GuestVa(0)));
                match r.address {
                    Address::Known(sum) => self.ops.push(Op::sum(What::Address, ZERO, sum)),
                    Address::Word(_) => {
                        self.ops.push(Op::taking(What::Word, ZERO, self.len));
                        self.len += 8;
                    }
                }
            }
            Step::Flex { .. } => {}
            Step::Exit { kind, target } => {
                let (records, ops) = (self.records.len(), self.ops.len());
                self.exits.push(Exit { kind, target, records, ops });
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

    /// Runs the block as far as it went. `words` holds at least [`Program::len`] bytes.
    #[inline]
    pub fn run(
        &self,
        registers: &mut Registers,
        words: &[u8],
        leave: Leave,
        out: &mut Vec<Record>,
    ) {
        let (records, ops, branch) = self.way(leave);
        let start = out.len();
        out.extend_from_slice(self.records.get(..records).unwrap_or_default());
        let made = &mut out[start..];
        let mut accesses = self.accesses.iter();
        let mut put = |to: u64| {
            if let Some(record) = accesses.next() {
                put(made, *record, to);
            }
        };
        for op in self.ops.get(..ops).unwrap_or_default() {
            let at = usize::from(op.at);
            match op.what {
                What::Sum => set(registers, op.register, op.of(registers)),
                What::Address => put(op.of(registers)),
                What::Wide => set(registers, op.register, u64_at(words, at).unwrap_or(0)),
                What::Half => {
                    let low = u64::from(u32_at(words, at).unwrap_or(0));
                    let upper = get(registers, op.register) & !0xffff_ffff;
                    set(registers, op.register, upper | low);
                }
                What::Word => put(u64_at(words, at).unwrap_or(0)),
                What::Derive => {
                    let value = self.values.get(at).map_or(0, |value| derive(registers, *value));
                    set(registers, op.register, value);
                }
            }
        }
        out.extend(branch);
    }

    /// How many records and operations belong to an execution, and the branch that ends it. A stream knows no outcomes but from
    /// where the thread went.
    #[inline]
    fn way(&self, leave: Leave) -> (usize, usize, Option<Record>) {
        if let Leave::Cut(pc) = leave
            && let Some(start) = self.insns.iter().find(|s| s.pc == pc)
        {
            return (start.records, start.ops, None);
        }
        for exit in &self.exits {
            match leave.outcome(exit.kind, exit.target) {
                Some((false, _)) => {}
                Some((taken, target)) => {
                    return (exit.records, exit.ops, Some(Record::Branch { taken, target }));
                }
                None => return (exit.records, exit.ops, None),
            }
        }
        (self.records.len(), self.ops.len(), None)
    }
}

impl Op {
    /// One that takes something from elsewhere.
    fn taking(what: What, register: u8, at: usize) -> Self {
        Self { what, register, base: ZERO, index: ZERO, scale: 0, at: at as u16, disp: 0 }
    }

    fn sum(what: What, register: u8, sum: Sum) -> Self {
        let (index, scale) = sum.index.map_or((ZERO, 0), |(r, n)| (r.0, n));
        let base = sum.base.map_or(ZERO, |r| r.0);
        Self { what, register, base, index, scale, at: 0, disp: sum.disp as u64 }
    }

    #[inline]
    fn of(&self, registers: &Registers) -> u64 {
        let index = get(registers, self.index).wrapping_mul(u64::from(self.scale));
        get(registers, self.base).wrapping_add(index).wrapping_add(self.disp)
    }
}

#[inline]
fn get(registers: &Registers, register: u8) -> u64 {
    registers[usize::from(register)]
}

#[inline]
fn set(registers: &mut Registers, register: u8, value: u64) {
    registers[usize::from(register)] = value;
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

#[cfg(test)]
mod tests;
