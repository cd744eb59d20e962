//! A register that blocks move, from one chunk to the next: a collector that does not follow it leaves that to
//! whoever packs, and chunks are packed side by side. So as long as nothing depends on what it held before the first execution, only
//! how far it has moved is known, and nobody waits.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use ichnos_base::{Address, Leave, Ref, Register, Step, Sum, Value, Width};

use crate::block::Block;
use crate::error::Error;
use crate::flat::{NO_REGISTERS, derive};
use crate::raw_pack::take;

/// A register is not moved by a constant.
pub(crate) const ODD: i32 = i32::MIN;

/// What executions do to a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// They move it by a constant.
    Moves(i32),
    /// It becomes the eight bytes that begin here among what they took, plus a constant.
    Takes(u16, i32),
    /// Something else.
    Odd,
}

impl Change {
    /// How far the register is moved; [`ODD`] if that is no constant.
    pub(crate) const fn moves(self) -> i32 {
        match self {
            Self::Moves(by) => by,
            Self::Takes(..) | Self::Odd => ODD,
        }
    }

    /// What comes of it if executions follow that change this, and what was taken before them has so many bytes.
    pub(crate) fn then(self, next: Self, len: u16) -> Self {
        match (self, next) {
            (_, Self::Takes(at, by)) => Self::Takes(len + at, by),
            (Self::Moves(a), Self::Moves(b)) => sum(a, b).map_or(Self::Odd, Self::Moves),
            (Self::Takes(at, a), Self::Moves(b)) => {
                sum(a, b).map_or(Self::Odd, |by| Self::Takes(at, by))
            }
            (Self::Odd, _) | (_, Self::Odd) => Self::Odd,
        }
    }
}

fn sum(a: i32, b: i32) -> Option<i32> {
    a.checked_add(b).filter(|sum| *sum != ODD)
}

/// What a register holds, as far as that is known.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    register: Option<Register>,
    /// What it held before the first execution, if somebody has asked.
    start: Option<u64>,
    /// What it holds now, or how far from its start that is.
    value: u64,
    is_certain: bool,
    before: Option<Receiver<u64>>,
    after: Option<Sender<u64>>,
}

impl Followed {
    /// Nothing is known of a register yet but who will know what it held before, if anybody, and who wants to know what it holds
    /// at the end.
    pub(crate) fn new(
        register: Option<Register>,
        before: Option<Receiver<u64>>,
        after: Option<Sender<u64>>,
    ) -> Self {
        // Before a thread's first execution it holds nothing.
        let start = if before.is_none() { Some(0) } else { None };
        Self { register, start, value: 0, is_certain: before.is_none(), before, after }
    }

    /// What comes behind belongs to another chunk, which learns from this one what the register holds then.
    pub(crate) fn split(&mut self) -> Self {
        let (after, before) = channel();
        Self::new(self.register, Some(before), self.after.replace(after))
    }

    /// It moves by a constant.
    #[inline]
    pub(crate) const fn add(&mut self, by: i64) {
        self.value = self.value.wrapping_add(by as u64);
    }

    /// A block was run, left like this, that took these words.
    pub(crate) fn run(&mut self, block: &Block, leave: Leave, words: &[u8]) -> Result<(), Error> {
        let Some(register) = self.register else { return Ok(()) };
        let run = |value| follow(block, (register, value), leave, words);
        match change(block, self.register, leave) {
            Change::Moves(by) => self.add(by.into()),
            Change::Takes(at, by) => self.takes(words, at, by),
            Change::Odd if run(0) == run(u64::MAX) => {
                // It does not matter what it held before: nobody needs to know that.
                (self.value, self.is_certain) = (run(0), true);
            }
            Change::Odd => {
                self.settle()?;
                self.value = run(self.value);
            }
        }
        Ok(())
    }

    /// It becomes what was taken at this byte of these, plus a constant.
    pub(crate) fn takes(&mut self, words: &[u8], at: u16, by: i32) {
        let word = take(&mut words.get(usize::from(at)..).unwrap_or_default(), true);
        (self.value, self.is_certain) = (word.wrapping_add(by as u64), true);
    }

    /// A silent block was run: whether it set the register.
    pub(crate) fn set(&mut self, block: &Block, words: &[u8]) -> Result<bool, Error> {
        let sets = self
            .register
            .is_some_and(|register| block.steps.iter().any(|step| step.sets() == Some(register)));
        if sets {
            self.run(block, Leave::Silent, words)?;
        }
        Ok(sets)
    }

    /// Waits until it is certain what it holds.
    fn settle(&mut self) -> Result<(), Error> {
        if !self.is_certain {
            self.value = self.value.wrapping_add(self.start()?);
            self.is_certain = true;
        }
        Ok(())
    }

    /// What it held before the first execution. Whoever packs the chunk before took it up earlier and never waits for this one.
    fn start(&mut self) -> Result<u64, Error> {
        let gone = |_| {
            let source = io::Error::other("the chunk before was not packed");
            Error::Write { written: 0, source }
        };
        if let Some(before) = self.before.take() {
            self.start = Some(before.recv().map_err(gone)?);
        }
        Ok(self.start.unwrap_or(0))
    }

    /// All executions are over: the register, if it is followed, with what it held before them.
    pub(crate) fn finish(&mut self) -> Result<Option<(Register, u64)>, Error> {
        let Some(register) = self.register else { return Ok(None) };
        let start = self.start()?;
        self.settle()?;
        if let Some(after) = self.after.take() {
            // Whoever would pack the next chunk may have given up.
            let _ = after.send(self.value);
        }
        Ok(Some((register, start)))
    }
}

/// What a step does to a register that it sets, if so many bytes were taken before.
fn changed(step: &Step, register: Register, taken: u16) -> Change {
    match *step {
        Step::Derive { value: Value::Sum(Sum { base, index: None, disp }), .. }
            if base == Some(register) =>
        {
            i32::try_from(disp).ok().filter(|by| *by != ODD).map_or(Change::Odd, Change::Moves)
        }
        Step::Take { width: Width::Eight, .. } => Change::Takes(taken, 0),
        _ => Change::Odd,
    }
}

/// What an execution that was left so does to a register.
pub(crate) fn change(block: &Block, register: Option<Register>, leave: Leave) -> Change {
    let (mut all, mut taken) = (Change::Moves(0), 0);
    let Some(register) = register else { return all };
    for step in block.steps.iter().take(block.left_at(leave).steps) {
        if step.sets() == Some(register) {
            all = all.then(changed(step, register, taken), 0);
        }
        taken += match step {
            Step::Take { width: Width::Four, .. } => 4,
            Step::Take { .. } | Step::Ref(Ref { address: Address::Word(_), .. }) => 8,
            _ => 0,
        };
    }
    all
}

/// What a register holds behind an execution that was left so, whose words are these, if it held `value` before.
fn follow(
    block: &Block,
    (register, value): (Register, u64),
    leave: Leave,
    mut words: &[u8],
) -> u64 {
    let mut registers = NO_REGISTERS;
    registers[usize::from(register.0)] = value;
    for step in block.steps.iter().take(block.left_at(leave).steps) {
        match *step {
            Step::Take { register, width, .. } => {
                let before = registers[usize::from(register.0)];
                let word = take(&mut words, width == Width::Eight);
                let kept = if width == Width::Eight { 0 } else { before & !0xffff_ffff };
                registers[usize::from(register.0)] = kept | word;
            }
            Step::Derive { register, value } => {
                registers[usize::from(register.0)] = derive(&registers, value);
            }
            Step::Forget { register } => registers[usize::from(register.0)] = 0,
            Step::Ref(Ref { address: Address::Word(_), .. }) => {
                take(&mut words, true);
            }
            Step::Insn { .. } | Step::Ref(_) | Step::Flex { .. } | Step::Exit { .. } => {}
        }
    }
    registers[usize::from(register.0)]
}
