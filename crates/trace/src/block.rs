//! A roadmap block, and its shape: what the block's steps come to when they are
//! laid out flat for matching and replay.
//!
//! Invariants of a valid block (checked by [`Block::check`], for blocks from a
//! plan and for blocks from a file alike): it has at most [`MAX_STEPS`] steps;
//! references, flexes and exits come after an instruction; every register is
//! below [`Register::COUNT`]; the code, if known, is as long as the
//! instructions together; an indirect or direct exit is the last step; in a block
//! with side exits no two exits have the same target, and nothing is taken from the
//! stream after the first exit.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;

use ichnos_base::{Address, ExitKind, GuestVa, Leave, ProcessId, Record, Slot, Step, Totals};

use crate::error::Flaw;
use crate::places::Taken;

/// The most steps a block may have.
pub const MAX_STEPS: usize = 1024;

/// Which exits of a block can be taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Exits {
    /// Only the last one: the block is a path that was executed to its end, and the
    /// conditional branches inside fell through.
    Last,
    /// Any: the block is a superblock, and the entry of the next one tells
    /// where it was left.
    Side,
}

/// One superblock of the roadmap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// The address space that holds it.
    pub process: ProcessId,
    /// The address of its first instruction.
    pub entry: GuestVa,
    /// Which exits can be taken.
    pub exits: Exits,
    /// What replay does, in order.
    pub steps: Arc<[Step]>,
    /// The machine code of all its instructions; empty if unknown.
    pub code: Arc<[u8]>,
}

/// Where an execution of a superblock ended.
#[derive(Clone, Copy, Debug)]
pub struct LeftAt {
    /// How many steps were executed.
    pub steps: usize,
    /// The outcome of the exit that is the last of them, if it is one and its outcome was seen.
    pub outcome: Option<(bool, GuestVa)>,
    /// What the executed steps count.
    pub totals: Totals,
}

/// A word of a block: whose it is, and which record of the template it fills.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// The slot that predicts it.
    pub slot: Slot,
    /// The record's place in the template; meaningless unless the shape is plain. A block has at most [`MAX_STEPS`] steps.
    pub record: u16,
    /// What it fills.
    pub taken: Taken,
}

/// What a block comes to. What is looked at for every execution comes first, in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Shape {
    /// The words that one execution takes from the stream, in order.
    pub words: Arc<[Word]>,
    /// The address of the first instruction.
    pub entry: GuestVa,
    /// The block's last step, if that is an exit.
    pub last_exit: Option<(ExitKind, GuestVa)>,
    /// What one execution to the end counts, without flexible accesses and with the last
    /// branch taken.
    pub tally: Tally,
    /// Only instructions, word references and exits, of which the last alone
    /// can be taken: one execution is the template with its words filled in.
    pub plain: bool,
    /// How many flexible instructions there are.
    pub flexes: u32,
    /// The records of one execution, with addresses of words left 0 and the last
    /// branch taken; exact only if the shape is plain.
    pub template: Arc<[Record]>,
    /// The address after the last instruction.
    pub end: GuestVa,
}

const _: () = assert!(std::mem::offset_of!(Shape, template) <= 64);

impl Shape {
    /// Whether the block has no instruction, and so no records: it only says what registers hold. How the one before it was left follows
    /// from the one behind it.
    #[inline]
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.tally.insns == 0
    }
}

/// What one execution of a block counts, in little room: it is looked at for every execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    insns: u16,
    loads: u16,
    stores: u16,
    branches: u16,
    taken: u16,
    prefetches: u16,
    flushes: u16,
}

impl Tally {
    /// Nothing.
    pub(crate) const NONE: Self =
        Self { insns: 0, loads: 0, stores: 0, branches: 0, taken: 0, prefetches: 0, flushes: 0 };

    /// A block has at most [`MAX_STEPS`] steps, so the numbers fit.
    #[must_use]
    pub const fn new(totals: &Totals) -> Self {
        Self {
            insns: totals.insns as u16,
            loads: totals.loads as u16,
            stores: totals.stores as u16,
            branches: totals.branches as u16,
            taken: totals.taken as u16,
            prefetches: totals.prefetches as u16,
            flushes: totals.flushes as u16,
        }
    }

    /// The last branch was not taken.
    #[inline]
    pub const fn falls_through(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// The last branch was not seen.
    #[inline]
    pub const fn ends_unseen(&mut self) {
        self.falls_through();
        self.branches = self.branches.saturating_sub(1);
    }

    /// Both together: what a chain of blocks counts fits, too.
    #[must_use]
    pub(crate) const fn and(self, other: &Self) -> Self {
        Self {
            insns: self.insns + other.insns,
            loads: self.loads + other.loads,
            stores: self.stores + other.stores,
            branches: self.branches + other.branches,
            taken: self.taken + other.taken,
            prefetches: self.prefetches + other.prefetches,
            flushes: self.flushes + other.flushes,
        }
    }

    /// Adds one execution.
    #[inline]
    pub const fn add_to(&self, totals: &mut Totals) {
        self.add_times(1, totals);
    }

    /// Adds so many executions.
    #[inline]
    pub const fn add_times(&self, times: u64, totals: &mut Totals) {
        totals.insns += self.insns as u64 * times;
        totals.loads += self.loads as u64 * times;
        totals.stores += self.stores as u64 * times;
        totals.branches += self.branches as u64 * times;
        totals.taken += self.taken as u64 * times;
        totals.prefetches += self.prefetches as u64 * times;
        totals.flushes += self.flushes as u64 * times;
    }
}

impl Block {
    /// Whether the block keeps the rules.
    pub(crate) fn check(&self) -> Result<(), Flaw> {
        if self.steps.is_empty() || self.steps.len() > MAX_STEPS {
            return Err(Flaw("a block has no steps, or too many"));
        }
        let mut code_len = 0;
        let mut in_insn = false;
        let mut targets: Vec<GuestVa> = Vec::new();
        for (i, step) in self.steps.iter().enumerate() {
            let last = i + 1 == self.steps.len();
            match *step {
                Step::Insn { len, .. } => {
                    code_len += usize::from(len);
                    in_insn = true;
                }
                Step::Ref(_) | Step::Flex { .. } | Step::Exit { .. } if !in_insn => {
                    return Err(Flaw("a block refers to memory before its first instruction"));
                }
                Step::Exit { kind, target } => {
                    if kind != ExitKind::Conditional && !last {
                        return Err(Flaw("a block goes on after an unconditional exit"));
                    }
                    // After its branch an instruction is over: references that
                    // followed would come out before the branch's outcome is known.
                    in_insn = false;
                    if self.exits == Exits::Side {
                        if targets.contains(&target) && kind != ExitKind::Indirect {
                            return Err(Flaw("two exits of a block have the same target"));
                        }
                        targets.push(target);
                    }
                }
                _ => {}
            }
            if !targets.is_empty() && self.exits == Exits::Side && step.takes() {
                return Err(Flaw("a block takes a word after an exit"));
            }
            if !step.is_sound() {
                return Err(Flaw("a block names a register that does not exist"));
            }
        }
        if !self.code.is_empty() && self.code.len() != code_len {
            return Err(Flaw("a block's code is not as long as its instructions"));
        }
        Ok(())
    }

    /// Where an execution ended, given how it was left. Flexible accesses are not counted.
    #[must_use]
    pub fn left_at(&self, leave: Leave) -> LeftAt {
        let mut left = LeftAt { steps: 0, outcome: None, totals: Totals::default() };
        let mut pc = self.entry;
        for (i, step) in self.steps.iter().enumerate() {
            let last = i + 1 == self.steps.len();
            if matches!(step, Step::Insn { .. }) && leave == Leave::Cut(pc) {
                return left;
            }
            left.outcome = None;
            match *step {
                Step::Insn { len, .. } => {
                    pc = pc.offset(u64::from(len));
                    left.totals.insns += 1;
                }
                Step::Ref(r) => left.totals.count(&r.kind.record(r.flags, r.size, GuestVa(0))),
                Step::Exit { target, .. } if !last && self.exits == Exits::Last => {
                    left.totals.branches += 1;
                    left.outcome = Some((false, target));
                }
                Step::Exit { kind, target } => {
                    let outcome = leave.outcome(kind, target);
                    let here = outcome.is_none_or(|(taken, _)| taken);
                    left.totals.branches += u64::from(outcome.is_some());
                    left.totals.taken += u64::from(outcome.is_some_and(|o| o.0));
                    left.outcome = outcome;
                    if last || here {
                        left.steps = i + 1;
                        return left;
                    }
                }
                _ => {}
            }
            left.steps = i + 1;
        }
        left
    }

    /// What the steps come to.
    pub(crate) fn shape(&self) -> Shape {
        let mut layout = Layout { end: self.entry, ..Layout::default() };
        for step in self.steps.iter() {
            layout.add(step);
        }
        let mut last_exit = None;
        if let Some(Step::Exit { kind, target }) = self.steps.last() {
            last_exit = Some((*kind, *target));
            if let Some(Record::Branch { taken, .. }) = layout.template.last_mut() {
                *taken = true;
                layout.totals.taken += 1;
            }
        }
        Shape {
            entry: self.entry,
            template: layout.template.into(),
            words: layout.words.into(),
            flexes: layout.flexes,
            plain: self.exits == Exits::Last && !layout.registers,
            last_exit,
            end: layout.end,
            tally: Tally::new(&layout.totals),
        }
    }
}

/// A shape in the making.
#[derive(Default)]
struct Layout {
    template: Vec<Record>,
    words: Vec<Word>,
    flexes: u32,
    /// Whether there is a step that is no instruction, word reference or exit.
    registers: bool,
    end: GuestVa,
    totals: Totals,
}

impl Layout {
    fn add(&mut self, step: &Step) {
        match *step {
            Step::Insn { len, kind } => {
                self.push(Record::Insn { len, kind, pc: self.end });
                self.end = self.end.offset(u64::from(len));
            }
            Step::Ref(r) => {
                if let Address::Word(slot) = r.address {
                    self.words.push(Word {
                        slot,
                        record: self.template.len() as u16,
                        taken: Taken::ADDRESS,
                    });
                } else {
                    self.registers = true;
                }
                self.push(r.kind.record(r.flags, r.size, GuestVa(0)));
            }
            Step::Exit { target, .. } => self.push(Record::Branch { taken: false, target }),
            Step::Take { register, width, slot } => {
                self.words.push(Word { slot, record: 0, taken: Taken::new(register, width) });
                self.registers = true;
            }
            Step::Flex { .. } => {
                self.flexes += 1;
                self.registers = true;
            }
            Step::Derive { .. } | Step::Forget { .. } => self.registers = true,
        }
    }

    fn push(&mut self, record: Record) {
        self.totals.count(&record);
        self.template.push(record);
    }
}
