//! What threads stored, for sinks that take it so: blocks are told once, as plans, and executions as their words. The collector
//! follows the registers, so that any stretch can be understood without what came before, and makes no records.
//!
//! Words lie in a buffer almost as sinks want them. Loops that are one block are taken apart: each turn is an execution.
//! Registers that were told by something else than words are set by executions of *silent* blocks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;
use std::rc::Rc;

use ichnos_base::{
    AccessFlags, Address, ExitKind, GuestVa, Leave, Record, Ref, RefKind, Register, Slot, Step,
    Sum, Value, Width,
};
use ichnos_lift::FS;
use ichnos_trace::MAX_STEPS;

use super::stream::turns_of;
use super::table::Tables;
use crate::code::{Block, Exit, Op, TAG, TARGET};
use crate::note::u32_at;

/// How many registers are known across blocks.
pub(super) const KNOWN_LEN: usize = 18;

/// These: the general ones, the base of `fs`, and what an indirect transfer finds in memory.
pub(super) const KNOWN: [Register; KNOWN_LEN] = {
    let mut known = [TARGET; KNOWN_LEN];
    let mut i = 0;
    while i < 16 {
        known[i] = Register(i as u8);
        i += 1;
    }
    known[FS_AT] = FS;
    known
};

/// The places of the stack pointer and of the base of `fs` among them.
const STACK_AT: usize = 4;
const FS_AT: usize = 16;

/// A register for sums of three, which no block has.
const AUXILIARY: Register = Register(43);

/// The identifiers of silent blocks, which no other block has: one sets all registers, the other those that a function's entry tells.
const SET_ALL: u32 = u32::MAX;
const SET_STACK: u32 = u32::MAX - 1;

/// Registers.
pub(super) type Known = [u64; KNOWN_LEN];

/// Which registers changed in another way than by blocks since the sink last knew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Changed {
    /// None.
    Nothing,
    /// Those that are told where a function is entered.
    Stack,
    /// Perhaps all of them.
    All,
}

/// Executions of one thread, until they are told.
pub(super) struct Gathered {
    /// The words that are being read.
    source: Rc<Vec<u8>>,
    /// What of them comes behind `bytes`, as it is.
    stretch: Range<usize>,
    bytes: Vec<u8>,
    /// The registers before.
    registers: Vec<(Register, u64)>,
    /// Where the last one led to.
    next: GuestVa,
    /// What is added to identifiers: programs that a process had before have used others.
    base: u32,
}

impl Gathered {
    pub(super) fn new() -> Self {
        let (source, stretch, bytes, registers) = Default::default();
        Self { source, stretch, bytes, registers, next: GuestVa(0), base: 0 }
    }

    /// Words are read, of a program whose identifiers begin behind `base`. Nothing is gathered.
    pub(super) fn read(&mut self, source: Rc<Vec<u8>>, base: u32) {
        (self.source, self.base) = (source, base);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.stretch.is_empty() && self.bytes.is_empty()
    }

    /// Begins with these registers, of which some have to be told.
    pub(super) fn open(&mut self, known: &Known, changed: Changed) {
        self.registers.clear();
        self.registers.extend(KNOWN.into_iter().zip(known.iter().copied()));
        let (identifier, values): (_, &[u64]) = match changed {
            Changed::Nothing => return,
            Changed::Stack => (SET_STACK, &[known[STACK_AT], known[FS_AT]]),
            Changed::All => (SET_ALL, known),
        };
        self.bytes.extend(identifier.to_le_bytes());
        values.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
    }

    /// Adds the executions of the blocks that lie there in the words; the last led to `next`. Whether any of them is a loop must be
    /// known.
    #[inline]
    pub(super) fn put(
        &mut self,
        tables: &Tables,
        at: Range<usize>,
        (next, has_loops): (GuestVa, bool),
    ) {
        self.next = next;
        if has_loops || self.base != 0 {
            return self.put_each(tables, at, next);
        }
        if self.stretch.end != at.start || self.stretch.is_empty() {
            self.put_stretch();
            self.stretch.start = at.start;
        }
        self.stretch.end = at.end;
    }

    #[inline(never)]
    fn put_each(&mut self, tables: &Tables, at: Range<usize>, next: GuestVa) {
        let source = Rc::clone(&self.source);
        let mut start = at.start;
        let get = |at: usize| {
            let number = (u32_at(&source, at)? as usize).wrapping_sub(1);
            Some((number, tables.get(number)?))
        };
        while start < at.end
            && let Some((number, extent)) = get(start)
        {
            let end = start + TAG + extent.len;
            let next = if end < at.end { get(end).map_or(next, |(_, e)| e.entry) } else { next };
            let turns = turns_of(extent.turns, None, next == extent.entry);
            let words = source.get(start + TAG..end).unwrap_or_default();
            self.put_turns(number, words, (turns, extent.turns));
            start = end;
        }
    }

    /// Adds so many finished turns of a block, which has so many at the most, and the one that was left.
    pub(super) fn put_turns(&mut self, number: usize, words: &[u8], (turns, most): (usize, usize)) {
        self.put_stretch();
        let (each, identifier) = (words.len() / most.max(1), self.identifier(number));
        for turn in 0..(turns + 1).min(most) {
            self.bytes.extend(identifier.to_le_bytes());
            let words = words.get(turn * each..(turn + 1) * each);
            self.bytes.extend_from_slice(words.unwrap_or_default());
        }
    }

    /// Adds an execution of a block whose accesses vary: these.
    pub(super) fn put_varying(
        &mut self,
        (number, block): (usize, &Block),
        words: &[u8],
        records: &[Record],
    ) {
        self.put_stretch();
        self.bytes.extend(self.identifier(number).to_le_bytes());
        let mut words = words;
        for op in &block.ops {
            let len = match op {
                Op::Take4(_) => 4,
                Op::Take8(_) => 8,
                Op::Flex => {
                    put_runs(records, &mut self.bytes);
                    continue;
                }
                _ => continue,
            };
            let Some((word, rest)) = words.split_at_checked(len) else { return };
            self.bytes.extend_from_slice(word);
            words = rest;
        }
    }

    /// The last execution led there.
    pub(super) fn leads(&mut self, next: GuestVa) {
        self.next = next;
    }

    /// The identifier of a block.
    pub(super) fn identifier(&self, number: usize) -> u32 {
        self.base.wrapping_add(number as u32).wrapping_add(1)
    }

    fn put_stretch(&mut self) {
        let stretch = std::mem::take(&mut self.stretch);
        self.bytes.extend_from_slice(self.source.get(stretch).unwrap_or_default());
    }

    /// All executions, the registers before them, and how the last was left.
    pub(super) fn all(&mut self) -> (&[u8], &[(Register, u64)], Leave) {
        if !self.bytes.is_empty() {
            self.put_stretch();
        }
        let whole = self.source.get(self.stretch.clone()).unwrap_or_default();
        let bytes = if self.bytes.is_empty() { whole } else { &self.bytes };
        (bytes, &self.registers, Leave::Next(self.next))
    }

    /// They were told.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.stretch = 0..0;
    }
}

/// The silent blocks: their identifiers and steps.
pub(super) fn silent() -> [(u32, Vec<Step>); 2] {
    let take = |register: Register| Step::Take { register, width: Width::Eight, slot: Slot(0) };
    let stack = [KNOWN[STACK_AT], KNOWN[FS_AT]];
    [
        (SET_ALL, KNOWN.into_iter().map(take).collect()),
        (SET_STACK, stack.into_iter().map(take).collect()),
    ]
}

/// Whether a block can be planned: no file holds one with more steps.
pub(super) fn is_planned(block: &Block) -> bool {
    block.ops.len() <= MAX_STEPS / 2 || steps(block).len() <= MAX_STEPS
}

/// The steps of a turn of a block.
pub(super) fn steps(block: &Block) -> Vec<Step> {
    let mut steps = Vec::with_capacity(block.ops.len());
    let slot = Slot(0);
    for op in &block.ops {
        let step = match *op {
            Op::Insn(len, kind) => Step::Insn { len, kind },
            Op::Take4(register) => Step::Take { register, width: Width::Four, slot },
            Op::Take8(register) => Step::Take { register, width: Width::Eight, slot },
            Op::Derive(register, value) => Step::Derive { register, value },
            Op::Forget(register) => Step::Forget { register },
            Op::Ref(kind, flags, size, sum) => {
                Step::Ref(Ref { kind, flags, size, address: Address::Known(sum) })
            }
            Op::FsRef(kind, flags, size, sum) => {
                let sum = with_fs(sum, &mut steps);
                Step::Ref(Ref { kind, flags, size, address: Address::Known(sum) })
            }
            Op::Target(_) => continue,
            Op::Flex => Step::Flex { slot },
            Op::Exit(Exit::Direct(target)) => Step::Exit { kind: ExitKind::Direct, target },
            Op::Exit(Exit::Cond(target)) => Step::Exit { kind: ExitKind::Conditional, target },
            Op::Exit(Exit::Known | Exit::Computed | Exit::Return) => {
                Step::Exit { kind: ExitKind::Indirect, target: GuestVa(0) }
            }
        };
        steps.push(step);
    }
    steps
}

/// A sum and the base of `fs`.
fn with_fs(sum: Sum, steps: &mut Vec<Step>) -> Sum {
    match sum {
        Sum { base: None, .. } => Sum { base: Some(FS), ..sum },
        Sum { index: None, .. } => Sum { index: Some((FS, 1)), ..sum },
        Sum { base, .. } => {
            let value = Value::Sum(Sum { base, index: Some((FS, 1)), disp: 0 });
            steps.push(Step::Derive { register: AUXILIARY, value });
            Sum { base: Some(AUXILIARY), ..sum }
        }
    }
}

/// Appends the references among records as runs of one lane or two.
fn put_runs(records: &[Record], out: &mut Vec<u8>) {
    let references: Vec<_> = records.iter().filter_map(RefKind::of).collect();
    let head = out.len();
    out.extend(0_u32.to_le_bytes());
    let (mut rest, mut count) = (references.as_slice(), 0_u32);
    while !rest.is_empty() {
        let [one, two] = [1, 2].map(|lanes| turns_in(rest, lanes));
        let (turns, lanes) = if 2 * two > one { (two, 2) } else { (one, 1) };
        out.extend((turns as u32).to_le_bytes());
        out.extend((lanes as u32).to_le_bytes());
        for (lane, &(kind, flags, size, addr)) in rest.iter().take(lanes).enumerate() {
            let second = rest.get(lane + lanes).filter(|_| turns > 1).map_or(addr, |r| r.3);
            out.extend(kind.describe(flags, size).to_le_bytes());
            out.extend(addr.0.to_le_bytes());
            out.extend(second.0.wrapping_sub(addr.0).to_le_bytes());
        }
        rest = rest.get(turns * lanes..).unwrap_or_default();
        count += 1;
    }
    out[head..head + 4].copy_from_slice(&count.to_le_bytes());
}

type Reference = (RefKind, AccessFlags, u32, GuestVa);

/// How many turns of so many lanes references begin with.
fn turns_in(references: &[Reference], lanes: usize) -> usize {
    let turns = references.chunks_exact(lanes);
    let Some(first) = turns.clone().next() else { return 0 };
    let stride = |lane: usize| {
        let second = references.get(lane + lanes).map_or(first[lane].3, |r| r.3);
        second.0.wrapping_sub(first[lane].3.0)
    };
    let strides = [stride(0), stride(lanes - 1)];
    let is_next = |turn: u64, references: &[Reference]| {
        references.iter().zip(first).zip(strides).all(|((r, f), stride)| {
            let addr = f.3.0.wrapping_add(stride.wrapping_mul(turn));
            (r.0, r.1, r.2, r.3.0) == (f.0, f.1, f.2, addr)
        })
    };
    (0..).zip(turns).take_while(|(turn, references)| is_next(*turn, references)).count()
}

#[cfg(test)]
mod tests;
