//! What threads stored, for sinks that take it so: blocks are told once, as plans, and executions as their words. The collector
//! follows the registers, so that any stretch can be understood without what came before, and makes no records.
//!
//! Words lie in a buffer almost as sinks want them. Loops that are one block are taken apart: each turn is an execution. What
//! often comes together is one execution again (`names.rs`).
//! Registers that were told by something else than words are set by executions of *silent* blocks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    Address, ExitKind, GuestVa, Leave, Ref, Register, Slot, Step, Sum, Value, Width,
};
use ichnos_lift::FS;
use ichnos_trace::{MAX_STEPS, put_raw_accesses, put_raw_runs};

use super::names::{Fresh, Names};
use super::stream::{Out, turns_of};
use super::table::{Link, Tables};
use crate::code::{Block, Exit, Op, TAG, TARGET};

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
#[derive(Default)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    /// Chains among them of which the sink was not told.
    pub(super) fresh: Vec<Fresh>,
    /// The registers before.
    registers: Vec<(Register, u64)>,
    /// Where the last one led to.
    next: GuestVa,
}

impl Gathered {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
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
        self.bytes.extend_from_slice(&identifier.to_le_bytes());
        values.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
    }

    /// Adds the executions of a chain of blocks, of which the first one's words begin with these.
    #[inline]
    pub(super) fn put_chain(
        &mut self,
        (tables, names): (&Tables, &mut Names),
        link: Link,
        words: &[u8],
    ) {
        let Some((identifier, parts)) = names.chain(link, tables, &mut self.fresh) else {
            return self.put_each((tables, names), &tables.path(link), words);
        };
        let from = |&(from, len): &(u32, u32)| {
            (words.get(from as usize..).unwrap_or_default(), len as usize)
        };
        let (first, parts) = parts.split_first().map_or((None, parts), |(f, rest)| (Some(f), rest));
        put_named(identifier, first.map_or((&[], 0), from), &mut self.bytes);
        parts.iter().for_each(|part| put_part(from(part), &mut self.bytes));
    }

    /// The same, one block after the other.
    #[cold]
    fn put_each(
        &mut self,
        (tables, names): (&Tables, &mut Names),
        path: &[usize],
        mut words: &[u8],
    ) {
        for pair in path.windows(2) {
            let (Some(block), Some(next)) = (tables.get(pair[0]), tables.get(pair[1])) else {
                return;
            };
            let turns = turns_of(block.turns, None, next.entry == block.entry);
            self.put_turns(names, pair[0], (words, block.len), (turns, block.turns));
            words = words.get(block.len + TAG..).unwrap_or_default();
        }
    }

    /// Adds so many finished turns of a block, which has so many at the most, and the one that was left. The first so many bytes are
    /// the block's words.
    #[inline]
    pub(super) fn put_turns(
        &mut self,
        names: &mut Names,
        number: usize,
        (words, len): (&[u8], usize),
        (turns, most): (usize, usize),
    ) {
        let (each, turns) = if most > 1 { (len / most, (turns + 1).min(most)) } else { (len, 1) };
        if turns > 1
            && let Some(identifier) = names.turns(number, turns, &mut self.fresh)
        {
            return put_named(identifier, (words, turns * each), &mut self.bytes);
        }
        let identifier = names.block(number);
        for turn in 0..turns {
            let words = words.get(turn * each..).unwrap_or_default();
            put_named(identifier, (words, each), &mut self.bytes);
        }
    }

    /// Adds an execution of a block whose accesses vary: all that was played of it.
    pub(super) fn put_varying(
        &mut self,
        (identifier, block): (u32, &Block),
        words: &[u8],
        played: &Out,
    ) {
        self.bytes.extend_from_slice(&identifier.to_le_bytes());
        let mut words = words;
        for op in &block.ops {
            let len = match op {
                Op::Take4(_) => 4,
                Op::Take8(_) => 8,
                Op::Flex => {
                    match &played.long {
                        Some((_, runs)) => put_raw_runs(runs, &mut self.bytes),
                        None => put_raw_accesses(&played.records, &mut self.bytes),
                    }
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

    /// All executions, the registers before them, and how the last was left.
    pub(super) fn all(&self) -> (&[u8], &[(Register, u64)], Leave) {
        (&self.bytes, &self.registers, Leave::Next(self.next))
    }

    /// They were told.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.fresh.clear();
    }
}

/// So many bytes are copied at a time: most parts have no more.
const AT_ONCE: usize = 16;

/// Appends an identifier and so many of the words' bytes.
#[inline(always)]
fn put_named(identifier: u32, (words, len): (&[u8], usize), out: &mut Vec<u8>) {
    match words.first_chunk::<AT_ONCE>() {
        Some(chunk) if len <= AT_ONCE => {
            let end = out.len() + TAG + len;
            let mut both = [0; TAG + AT_ONCE];
            both[..TAG].copy_from_slice(&identifier.to_le_bytes());
            both[TAG..].copy_from_slice(chunk);
            out.extend_from_slice(&both);
            out.truncate(end);
        }
        _ => {
            out.extend_from_slice(&identifier.to_le_bytes());
            out.extend_from_slice(words.get(..len).unwrap_or_default());
        }
    }
}

/// Appends so many of the words' bytes.
#[inline(always)]
fn put_part((words, len): (&[u8], usize), out: &mut Vec<u8>) {
    // What lies behind them is copied with them and dropped: that is quicker than to copy each number of bytes in its own way.
    match words.first_chunk::<AT_ONCE>() {
        Some(chunk) if len <= AT_ONCE => {
            let end = out.len() + len;
            out.extend_from_slice(chunk);
            out.truncate(end);
        }
        _ => out.extend_from_slice(words.get(..len).unwrap_or_default()),
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

#[cfg(test)]
mod tests;
