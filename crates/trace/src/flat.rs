//! Planned blocks laid out flat, for those who run them by the million: collectors that tell executions by numbers, and replay.
//!
//! A run works off a block's operations and appends the addresses of its accesses to a list. What records they belong to follows
//! from the *way*, which is a number: a way is a block left at one of its exits, or run to its end. Which way a block was left
//! follows from where the thread went next: no two exits of a superblock lead to one place.
//!
//! Most of the time of reading a stream would go by at branches that cannot be foreseen and at lines that are not in the cache. So a block is
//! half a cache line or so, the exits and operations of all blocks are two lists, and
//! operations are all of one form, which sets a register, puts out an address and takes something of the stream whether that is wanted or not: what
//! is not wanted goes to a register that nobody reads, is taken back, or is masked.
//!
//! Whether a register is known is not looked at here: one that is not reads as it was left, or as zero if it was forgotten.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::marker::PhantomData;

use ichnos_base::{Address, ExitKind, GuestVa, Leave, Register, Step, Sum, Value, Width};

/// The shadow registers, and behind them places that no block can name: there is one for every number that an operation can hold,
/// so that none needs to be checked.
pub type Registers = [u64; 1 << u8::BITS];

/// Registers of which nothing is known.
pub const NO_REGISTERS: Registers = [0; 1 << u8::BITS];

/// A register that is always zero.
pub const ZERO: u8 = Register::COUNT as u8;

/// A register that nobody reads.
const NOBODY: u8 = ZERO + 1;

/// How many operations are worked off at a time: more than most blocks have.
const PIECE: usize = 16;

/// What a stream stored of an execution.
pub trait Stored {
    /// How far on the next thing is behind one of four bytes, and behind one of eight.
    const STEPS: [u16; 2];

    /// Where there is nothing in any execution, so that a word is zero, if that is anywhere.
    const NOWHERE: Option<u16>;

    /// Eight bytes of it; their upper half means nothing for one of four. Zero if there are not so many.
    fn word(&self, at: usize) -> u64;
}

/// Bytes, as the code of traced programs stores them.
impl Stored for [u8] {
    const STEPS: [u16; 2] = [4, 8];
    // More may be stored behind an execution.
    const NOWHERE: Option<u16> = None;

    #[inline]
    fn word(&self, at: usize) -> u64 {
        let rest = self.get(at..).unwrap_or_default();
        rest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// Words, as they come out of a file: those of one execution.
impl Stored for [u64] {
    const STEPS: [u16; 2] = [1, 1];
    const NOWHERE: Option<u16> = Some(u16::MAX);

    #[inline]
    fn word(&self, at: usize) -> u64 {
        self.get(at).copied().unwrap_or(0)
    }
}

/// All blocks that can be told by numbers.
#[derive(Debug)]
pub struct Flat<S: ?Sized> {
    blocks: Vec<Brief>,
    exits: Vec<Exit>,
    ops: Vec<Op>,
    /// Values that are not sums.
    values: Vec<Value>,
    stored: PhantomData<fn(&S)>,
}

impl<S: ?Sized> Default for Flat<S> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            exits: Vec::new(),
            ops: Vec::new(),
            values: Vec::new(),
            stored: PhantomData,
        }
    }
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
    /// How much of the stream an execution takes, but for what is told of its accesses.
    pub len: u32,
    /// What can be done with it.
    pub sort: Sort,
    /// Whether it goes on where another piece of its superblock ended, and needs the registers of that one.
    pub goes_on: bool,
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
    /// The same, and the stream tells its accesses.
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
    /// Its operations.
    ops: u16,
}

impl Brief {
    /// A block that is not laid out yet.
    pub const fn new(entry: GuestVa, first_way: u32, len: u32, sort: Sort) -> Self {
        Self { entry, first_exit: 0, first_op: 0, first_way, len, sort, goes_on: false }
    }
}

impl<S: Stored + ?Sized> Flat<S> {
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
        self.name(identifier, brief);
    }

    /// Adds a block that is never run.
    pub fn name(&mut self, identifier: u32, brief: Brief) {
        let place = identifier as usize;
        if self.blocks.len() <= place {
            self.blocks.resize(place + 1, Brief::default());
        }
        self.blocks[place] = brief;
    }

    /// Runs a plain block whose words are stored there, if they are bytes with eight or more behind them; the addresses of its accesses are
    /// appended. Nothing, and nothing done, if it was cut, if nobody knows where it went, or if its outcome is told apart from that.
    #[inline]
    pub fn run(
        &self,
        brief: &Brief,
        leave: Leave,
        state: (&mut Registers, &S),
        words: &mut Vec<u64>,
    ) -> Option<Execution> {
        let execution = self.left(brief, leave)?;
        self.work(brief, &execution, state, words);
        Some(execution)
    }

    /// What an execution comes to that does not depend on its words, if [`Flat::run`] could run it.
    #[inline]
    pub fn left(&self, brief: &Brief, leave: Leave) -> Option<Execution> {
        let (way, exit) = self.exit(brief, leave)?;
        let next = match (exit.kind, leave) {
            (None | Some(ExitKind::Conditional | ExitKind::Indirect), Leave::Next(next)) => next,
            _ => exit.target,
        };
        let (way, insns) = (brief.first_way + way, u64::from(exit.insns));
        Some(Execution { way, insns, next, ops: exit.ops })
    }

    /// The rest of [`Flat::run`].
    #[inline]
    pub fn work(
        &self,
        brief: &Brief,
        execution: &Execution,
        (registers, stored): (&mut Registers, &S),
        words: &mut Vec<u64>,
    ) {
        let ops = self.ops.get(brief.first_op as usize..).unwrap_or_default();
        let ops = ops.get(..usize::from(execution.ops)).unwrap_or_default();
        for ops in ops.chunks(PIECE) {
            let start = words.len();
            // Room for all of them, so that none has to look for it; what is no address is written over.
            words.extend_from_slice(&[0; PIECE]);
            let mut made = 0;
            if let Some(room) = words.last_chunk_mut::<PIECE>() {
                for op in ops {
                    let taken = stored.word(usize::from(op.at)) & op.take;
                    let mut value = (get(registers, op.base) & !op.take)
                        .wrapping_add(get(registers, op.index).wrapping_mul(u64::from(op.scale)))
                        .wrapping_add(op.disp)
                        .wrapping_add(taken);
                    if op.is_odd {
                        value = self.odd(op, registers);
                    }
                    registers[usize::from(op.register)] = value;
                    room[made % PIECE] = value;
                    made += usize::from(op.access);
                }
            }
            words.truncate(start + made);
        }
    }

    /// What an operation comes to that is no sum.
    #[cold]
    #[inline(never)]
    fn odd(&self, op: &Op, registers: &Registers) -> u64 {
        self.values.get(op.disp as usize).map_or(0, |value| derive(registers, *value))
    }

    /// The way that an execution took, and its exit or end.
    #[inline]
    fn exit(&self, brief: &Brief, leave: Leave) -> Option<(u32, &Exit)> {
        if matches!(leave, Leave::Cut(_) | Leave::Outcome { .. }) {
            return None;
        }
        for (way, exit) in (0..).zip(self.exits.get(brief.first_exit as usize..)?) {
            match (exit.kind, leave) {
                (None | Some(ExitKind::Direct), _) | (Some(ExitKind::Indirect), Leave::Next(_)) => {
                    return Some((way, exit));
                }
                (Some(ExitKind::Conditional), Leave::Next(next)) if next == exit.target => {
                    return Some((way, exit));
                }
                (Some(ExitKind::Conditional), Leave::Next(_) | Leave::Silent) => {}
                _ => return None,
            }
        }
        None
    }
}

/// A block that is being laid out.
struct Layout<'a, S: ?Sized> {
    flat: &'a mut Flat<S>,
    /// Its first operation.
    first: usize,
    pc: GuestVa,
    at: u16,
    insns: u16,
}

impl<S: Stored + ?Sized> Layout<'_, S> {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insn { len, .. } => {
                self.pc = self.pc.offset(u64::from(len));
                self.insns += 1;
            }
            Step::Take { register, width, .. } => {
                let (take, len) = match width {
                    Width::Four => (0xffff_ffff, S::STEPS[0]),
                    Width::Eight => (u64::MAX, S::STEPS[1]),
                };
                let sum = Sum { base: Some(register), ..Sum::default() };
                self.op(register.0, sum, take);
                self.at += len;
            }
            Step::Derive { register, value } => self.derive(register, value),
            Step::Forget { register } => self.op(register.0, Sum::default(), 0),
            Step::Ref(r) => {
                match r.address {
                    Address::Known(sum) => self.op(NOBODY, sum, 0),
                    Address::Word(_) => {
                        self.op(NOBODY, Sum::default(), u64::MAX);
                        self.at += S::STEPS[1];
                    }
                }
                self.last(|op| op.access = 1);
            }
            Step::Flex { .. } => {}
            Step::Exit { kind, target } => self.exit(Some(kind), target),
        }
    }

    fn derive(&mut self, register: Register, value: Value) {
        let masked = match value {
            Value::And(from, mask) => Some((from, mask)),
            Value::Low32(from) => Some((from, 0xffff_ffff)),
            _ => None,
        };
        match (value, masked.zip(S::NOWHERE)) {
            (Value::Sum(sum), _) => self.op(register.0, sum, 0),
            (Value::ShiftLeft(from, by @ 0..8), _) => {
                let sum = Sum { index: Some((from, 1 << by)), ..Sum::default() };
                self.op(register.0, sum, 0);
            }
            // What is not kept is taken where nothing is.
            (_, Some(((from, mask), nowhere))) => {
                self.op(register.0, Sum { base: Some(from), ..Sum::default() }, !mask);
                self.last(|op| op.at = nowhere);
            }
            _ => {
                let number = self.flat.values.len() as i64;
                self.flat.values.push(value);
                self.op(register.0, Sum { disp: number, ..Sum::default() }, 0);
                self.last(|op| op.is_odd = true);
            }
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
    registers[usize::from(register)]
}

/// What a value comes to.
#[must_use]
pub fn derive(registers: &Registers, value: Value) -> u64 {
    let get = |r: Register| get(registers, r.0);
    match value {
        Value::Sum(Sum { base, index, disp }) => {
            let index = index.map_or(0, |(r, scale)| get(r).wrapping_mul(u64::from(scale)));
            base.map_or(0, get).wrapping_add(index).wrapping_add(disp as u64)
        }
        Value::Difference(a, b) => get(a).wrapping_sub(get(b)),
        Value::And(r, mask) => get(r) & mask,
        Value::ShiftLeft(r, n) => get(r).wrapping_shl(u32::from(n)),
        Value::ShiftRight(r, n) => get(r).wrapping_shr(u32::from(n)),
        Value::ShiftRightSigned(r, n) => (get(r) as i64).wrapping_shr(u32::from(n)) as u64,
        Value::Low32(r) => get(r) & 0xffff_ffff,
        Value::Low32Signed(r) => i64::from(get(r) as i32) as u64,
    }
}
