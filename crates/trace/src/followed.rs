//! A register that blocks move, from one chunk to the next: a collector that does not follow it leaves that to
//! whoever packs, and chunks are packed side by side. So as long as nothing depends on what it held before the first execution, only
//! how far it has moved is known, and nobody waits.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::sync::mpsc::{Receiver, Sender};

use ichnos_base::{Address, Leave, Ref, Register, Step, Sum, Value, Width};

use crate::block::Block;
use crate::error::Error;
use crate::flat::{NO_REGISTERS, derive};
use crate::raw_pack::take;

/// A register is not moved by a constant.
pub(crate) const ODD: i32 = i32::MIN;

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

    /// It moves by a constant.
    #[inline]
    pub(crate) const fn add(&mut self, by: i64) {
        self.value = self.value.wrapping_add(by as u64);
    }

    /// A block was run, left like this, that took these words.
    pub(crate) fn run(&mut self, block: &Block, leave: Leave, words: &[u8]) -> Result<(), Error> {
        let Some(register) = self.register else { return Ok(()) };
        let run = |value| follow(block, (register, value), leave, words);
        let by = moves(block, self.register, leave);
        if by != ODD {
            self.add(by.into());
        } else if run(0) == run(u64::MAX) {
            // It does not matter what it held before: nobody needs to know that.
            (self.value, self.is_certain) = (run(0), true);
        } else {
            self.settle()?;
            self.value = run(self.value);
        }
        Ok(())
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

/// What a step adds to a register that it sets, if that is all it does to it.
fn added(step: &Step, register: Register) -> Option<i64> {
    match *step {
        Step::Derive { value: Value::Sum(Sum { base, index: None, disp }), .. }
            if base == Some(register) =>
        {
            Some(disp)
        }
        _ => None,
    }
}

/// How far an execution that was left so moves a register; [`ODD`] if that is no constant.
pub(crate) fn moves(block: &Block, register: Option<Register>, leave: Leave) -> i32 {
    let Some(register) = register else { return 0 };
    let steps = block.steps.get(..block.left_at(leave).steps).unwrap_or_default();
    let mut sets = steps.iter().filter(|step| step.sets() == Some(register));
    let all = sets.try_fold(0_i64, |all, step| all.checked_add(added(step, register)?));
    all.and_then(|all| i32::try_from(all).ok()).unwrap_or(ODD)
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
