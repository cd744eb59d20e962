//! The blocks of the roadmap laid out flat, for those who are told executions by numbers: what `program` says of a block but for its
//! records, half a cache line or so a block, and the exits and operations of all blocks in two lists.
//!
//! Most of the time of reading a stream would go by at branches that cannot be foreseen and at lines that are not in the cache. So
//! operations are all of one form, which sets a register, puts out an address and takes bytes of the stream whether that is wanted or not: what
//! is not wanted goes to a register that nobody reads, is taken back, or is masked.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_trace::{Address, ExitKind, Register, Step, Sum, Value, Width};

use super::program::{Registers, Until, ZERO, derive};
use crate::words::u64_at;

/// A register that nobody reads.
const NOBODY: u8 = ZERO - 1;

/// All blocks that can be told by numbers.
#[derive(Debug, Default)]
pub struct Flat {
    blocks: Vec<Brief>,
    exits: Vec<Exit>,
    ops: Vec<Op>,
    /// Values that are not sums.
    values: Vec<Value>,
}

/// A block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brief {
    /// Where it begins.
    pub entry: GuestVa,
    first_exit: u32,
    first_op: u32,
    /// The number of its first way, as sinks know it; the others follow.
    pub first_way: u32,
    /// Bytes of the stream that an execution takes, but for what is told of its accesses.
    pub len: u32,
    /// What can be done with it.
    pub sort: Sort,
}

/// What can be done with a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Sort {
    /// Nothing: it is not known.
    #[default]
    Unknown,
    /// It is told by the number of its way.
    Plain,
    /// It is told by its records.
    Records,
    /// The same, and the engine tells its accesses.
    Told,
}

/// A place at which a block may be left, or its end, whose target is the address behind it.
#[derive(Clone, Copy, Debug)]
struct Exit {
    target: GuestVa,
    /// Nothing for the end.
    kind: Option<ExitKind>,
    /// Operations and instructions before it.
    ops: u16,
    insns: u16,
}

/// An operation: the sum of a register as far as nothing is taken over it, another one so many times, a constant, and what is
/// taken from the stream.
#[derive(Clone, Copy, Debug)]
struct Op {
    disp: u64,
    /// The bits that are taken from the stream, and not from the first register.
    take: u64,
    /// Where in the stream.
    at: u16,
    /// The register that it sets.
    register: u8,
    base: u8,
    index: u8,
    scale: u8,
    /// One if it is the address of an access.
    access: u8,
    /// Whether it is no sum, but the value whose number `disp` is.
    is_odd: bool,
}

const _: () = assert!(size_of::<Op>() == 24);
const _: () = assert!(size_of::<Brief>() == 32);

/// An execution.
#[derive(Clone, Copy, Debug)]
pub struct Execution {
    /// The number of its way, as sinks know it.
    pub way: u32,
    /// Its instructions.
    pub insns: u64,
    /// Where it went.
    pub next: GuestVa,
}

impl Brief {
    /// A block that is not laid out yet.
    pub const fn new(entry: GuestVa, first_way: u32, len: u32, sort: Sort) -> Self {
        Self { entry, first_exit: 0, first_op: 0, first_way, len, sort }
    }
}

impl Flat {
    /// A block.
    #[inline]
    pub fn get(&self, identifier: u32) -> Option<&Brief> {
        self.blocks.get(identifier as usize).filter(|brief| brief.sort != Sort::Unknown)
    }

    /// Adds a block; one that would be plain is told by its records if it is too long to be laid out.
    pub fn add(&mut self, identifier: u32, steps: &[Step], brief: Brief) {
        let (first_exit, first_op) = (self.exits.len() as u32, self.ops.len() as u32);
        let mut brief = Brief { first_exit, first_op, ..brief };
        let most = usize::from(u16::MAX);
        if steps.len() > most || brief.len as usize > most {
            brief.sort = brief.sort.max(Sort::Records);
        }
        if brief.sort == Sort::Plain {
            let first = self.ops.len();
            let mut layout = Layout { flat: self, first, pc: brief.entry, at: 0, insns: 0 };
            steps.iter().for_each(|step| layout.step(step));
            layout.exit(None, layout.pc);
        }
        let place = identifier as usize;
        if self.blocks.len() <= place {
            self.blocks.resize(place + 1, Brief::default());
        }
        self.blocks[place] = brief;
    }

    /// Runs a plain block whose words are stored there, with eight bytes or more behind them; the addresses of its accesses are
    /// appended. Nothing if it was cut, or if nobody knows where it went.
    #[inline]
    pub fn run(
        &self,
        brief: &Brief,
        until: Until,
        (registers, stored): (&mut Registers, &[u8]),
        words: &mut Vec<u64>,
    ) -> Option<Execution> {
        let (way, exit) = self.left(brief, until)?;
        let ops = self.ops.get(brief.first_op as usize..)?.get(..usize::from(exit.ops))?;
        let mut len = words.len();
        for op in ops {
            let taken = u64_at(stored, usize::from(op.at)).unwrap_or(0) & op.take;
            let mut value = (get(registers, op.base) & !op.take)
                .wrapping_add(get(registers, op.index).wrapping_mul(u64::from(op.scale)))
                .wrapping_add(op.disp)
                .wrapping_add(taken);
            if op.is_odd {
                value = self.values.get(op.disp as usize).map_or(0, |v| derive(registers, *v));
            }
            registers[usize::from(op.register) % Register::COUNT] = value;
            // Taken back if it is no address.
            words.push(value);
            len += usize::from(op.access);
            words.truncate(len);
        }
        let next = match (exit.kind, until) {
            (None | Some(ExitKind::Conditional | ExitKind::Indirect), Until::Next(next)) => next,
            _ => exit.target,
        };
        Some(Execution { way: brief.first_way + way, insns: u64::from(exit.insns), next })
    }

    /// The way that an execution took, and its exit or end.
    #[inline]
    fn left(&self, brief: &Brief, until: Until) -> Option<(u32, &Exit)> {
        if matches!(until, Until::Cut(_)) {
            return None;
        }
        for (way, exit) in (0..).zip(self.exits.get(brief.first_exit as usize..)?) {
            match (exit.kind, until) {
                (None | Some(ExitKind::Direct), _) | (Some(ExitKind::Indirect), Until::Next(_)) => {
                    return Some((way, exit));
                }
                (Some(ExitKind::Conditional), Until::Next(next)) if next == exit.target => {
                    return Some((way, exit));
                }
                (Some(ExitKind::Conditional), Until::Next(_) | Until::End) => {}
                _ => return None,
            }
        }
        None
    }
}

/// A block that is being laid out.
struct Layout<'a> {
    flat: &'a mut Flat,
    /// Its first operation.
    first: usize,
    pc: GuestVa,
    at: u16,
    insns: u16,
}

impl Layout<'_> {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insn { len, .. } => {
                self.pc = self.pc.offset(u64::from(len));
                self.insns += 1;
            }
            Step::Take { register, width, .. } => {
                let (take, len) = match width {
                    Width::Four => (0xffff_ffff, 4),
                    Width::Eight => (u64::MAX, 8),
                };
                let sum = Sum { base: Some(register), ..Sum::default() };
                self.op(register.0, sum, take);
                self.at += len;
            }
            Step::Derive { register, value: Value::Sum(sum) } => self.op(register.0, sum, 0),
            Step::Derive { register, value } => {
                let number = self.flat.values.len() as i64;
                self.flat.values.push(value);
                self.op(register.0, Sum { disp: number, ..Sum::default() }, 0);
                self.last(|op| op.is_odd = true);
            }
            Step::Forget { register } => self.op(register.0, Sum::default(), 0),
            Step::Ref(r) => {
                match r.address {
                    Address::Known(sum) => self.op(NOBODY, sum, 0),
                    Address::Word(_) => {
                        self.op(NOBODY, Sum::default(), u64::MAX);
                        self.at += 8;
                    }
                }
                self.last(|op| op.access = 1);
            }
            Step::Flex { .. } => {}
            Step::Exit { kind, target } => self.exit(Some(kind), target),
        }
    }

    fn op(&mut self, register: u8, sum: Sum, take: u64) {
        let (index, scale) = sum.index.map_or((ZERO, 0), |(r, n)| (r.0, n));
        let base = sum.base.map_or(ZERO, |r| r.0);
        let (at, disp) = (if take == 0 { 0 } else { self.at }, sum.disp as u64);
        let (access, is_odd) = (0, false);
        self.flat.ops.push(Op { disp, take, at, register, base, index, scale, access, is_odd });
    }

    fn last(&mut self, change: impl FnOnce(&mut Op)) {
        if let Some(op) = self.flat.ops.last_mut() {
            change(op);
        }
    }

    fn exit(&mut self, kind: Option<ExitKind>, target: GuestVa) {
        let ops = (self.flat.ops.len() - self.first) as u16;
        self.flat.exits.push(Exit { target, kind, ops, insns: self.insns });
    }
}

#[inline]
fn get(registers: &Registers, register: u8) -> u64 {
    registers[usize::from(register) % Register::COUNT]
}

#[cfg(test)]
mod tests {
    use ichnos_base::{AccessFlags, InsnKind, Record};
    use ichnos_trace::{Ref, RefKind, Slot};

    use super::super::program::Program;
    use super::*;

    const OTHERWISE: GuestVa = GuestVa(0x7777);

    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % end
        }

        fn register(&mut self) -> Register {
            Register(self.below(20) as u8)
        }

        fn sum(&mut self) -> Sum {
            Sum {
                base: Some(self.register()).filter(|_| self.below(4) > 0),
                index: Some((self.register(), 1 << self.below(4))).filter(|_| self.below(2) > 0),
                disp: self.below(1 << 20) as i64 - (1 << 19),
            }
        }

        fn value(&mut self) -> Value {
            match self.below(7) {
                0 => Value::Difference(self.register(), self.register()),
                1 => Value::And(self.register(), 0xff0),
                2 => Value::ShiftLeft(self.register(), 3),
                3 => Value::ShiftRightSigned(self.register(), 5),
                4 => Value::Low32(self.register()),
                _ => Value::Sum(self.sum()),
            }
        }

        fn steps(&mut self) -> Vec<Step> {
            let mut steps = Vec::new();
            for i in 0..1 + self.below(12) {
                steps.push(Step::Insn { len: 4, kind: InsnKind::OTHER });
                let slot = Slot(i as u32);
                for _ in 0..self.below(4) {
                    let register = self.register();
                    let address = if self.below(3) == 0 {
                        Address::Word(slot)
                    } else {
                        Address::Known(self.sum())
                    };
                    let (kind, flags) = (RefKind::Load, AccessFlags::default());
                    let width = if self.below(2) == 0 { Width::Four } else { Width::Eight };
                    steps.push(match self.below(5) {
                        0 => Step::Take { register, width, slot },
                        1 => Step::Forget { register },
                        2 => Step::Derive { register, value: self.value() },
                        _ => Step::Ref(Ref { kind, flags, size: 8, address }),
                    });
                }
                if self.below(3) == 0 {
                    let (kind, target) = (ExitKind::Conditional, GuestVa(0x10_0000 + i));
                    steps.push(Step::Exit { kind, target });
                }
            }
            let kind = match self.below(4) {
                0 => ExitKind::Direct,
                1 => ExitKind::Indirect,
                _ => return steps,
            };
            steps.push(Step::Exit { kind, target: GuestVa(0x20_0000) });
            steps
        }
    }

    fn addresses(records: &[Record]) -> Vec<u64> {
        let address = |record: &Record| match record {
            Record::Load { addr, .. } => Some(addr.0),
            _ => None,
        };
        records.iter().filter_map(address).collect()
    }

    /// Blocks laid out flat do what their programs do, wherever they are left.
    #[test]
    fn flat_blocks_run_as_their_programs_do() {
        let mut numbers = Numbers(1);
        let (mut flat, mut ran) = (Flat::default(), 0);
        for identifier in 1..500 {
            let (steps, entry) = (numbers.steps(), GuestVa(0x1000));
            let program = Program::new(entry, &steps);
            let len = program.len() as u32;
            flat.add(identifier, &steps, Brief::new(entry, 10 * identifier, len, Sort::Plain));
            let brief = *flat.get(identifier).unwrap();
            let words: Vec<u8> = (0..len + 8).map(|_| numbers.below(256) as u8).collect();
            let targets = steps.iter().filter_map(|step| match step {
                Step::Exit { target, .. } => Some(Until::Next(*target)),
                _ => None,
            });
            let others = [Until::End, Until::Unknown, Until::Next(OTHERWISE), Until::Cut(entry)];
            for until in targets.chain(others) {
                let mut first: Registers = std::array::from_fn(|_| numbers.below(1 << 30) << 3);
                first[usize::from(ZERO)] = 0;
                let (mut second, mut records, mut out) = (first, Vec::new(), vec![7]);
                let done = flat.run(&brief, until, (&mut first, &words), &mut out);
                program.run(&mut second, &words, until, &mut records);
                let Some(done) = done else {
                    assert_eq!(out, [7]);
                    continue;
                };
                ran += 1;
                second[usize::from(NOBODY)] = first[usize::from(NOBODY)];
                assert_eq!(first, second, "{steps:?} {until:?}");
                assert_eq!(out[1..], addresses(&records), "{steps:?} {until:?}");
                let insns = records.iter().filter(|r| matches!(r, Record::Insn { .. })).count();
                assert_eq!(done.insns, insns as u64);
                let way = (done.way - brief.first_way) as usize;
                assert_eq!(addresses(program.records(way)).len(), out.len() - 1);
                match records.last() {
                    Some(Record::Branch { taken: true, target }) => assert_eq!(done.next, *target),
                    _ if until == Until::Next(OTHERWISE) => assert_eq!(done.next, OTHERWISE),
                    _ => {}
                }
            }
        }
        assert!(ran > 1000, "{ran}");
        assert!(flat.get(0).is_none() && flat.get(500).is_none());
    }
}
