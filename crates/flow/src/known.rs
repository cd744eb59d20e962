//! What replay knows of the registers at a point, and how effects change it.
//!
//! Invariant (*exact*): a register in `full` has in replay's shadow file the value
//! that the machine has; of one in `upper` the upper half has it. Steps emitted
//! keep both true: a loss that clears the upper half forgets the shadow, which
//! reads as zero.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_trace::{Register, Step, Value, Width};

use crate::Set;
use crate::insn::{Effect, Insn, Loss, value_registers};
use crate::options::{Follow, Halves, Options};

/// What replay knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Known {
    /// Registers whose value is known.
    pub(crate) full: Set,
    /// Registers whose upper half is known; a superset of `full`.
    pub(crate) upper: Set,
}

impl Known {
    /// Everything, as far as anything may be: where an analysis starts that only
    /// ever finds less.
    pub(crate) const ALL: Self = Self { full: Set::ALL, upper: Set::ALL };

    /// What both know.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { full: self.full.and(other.full), upper: self.upper.and(other.upper) }
    }

    /// What it knows of some registers.
    pub(crate) fn of(self, registers: Set) -> Self {
        Self { full: self.full.and(registers), upper: self.upper.and(registers) }
    }

    /// How much of a register has to be stored.
    pub(crate) fn width(self, register: Register, options: &Options) -> Width {
        match options.halves {
            Halves::Yes if self.upper.has(register) => Width::Four,
            _ => Width::Eight,
        }
    }

    /// A register was stored.
    pub(crate) fn take(&mut self, register: Register) {
        self.full.insert(register);
        self.upper.insert(register);
    }

    /// An effect happened. Says what replay has to do about it.
    pub(crate) fn apply(&mut self, effect: &Effect) -> Option<Step> {
        match *effect {
            Effect::Ref(_) | Effect::Flex => None,
            Effect::Set(register, value) => {
                if value_registers(value).without(self.full).is_empty() {
                    self.take(register);
                    return Some(Step::Derive { register, value });
                }
                self.lose(register, loss_of(register, value))
            }
            Effect::Lose(register, loss) => self.lose(register, loss),
        }
    }

    /// An instruction is over. Without following, the values that it computed
    /// served its own addresses alone.
    pub(crate) fn end(&mut self, insn: &Insn, options: &Options) -> Vec<Step> {
        if options.follow == Follow::Yes {
            return Vec::new();
        }
        let computed = insn.effects.iter().filter_map(|effect| match effect {
            Effect::Set(register, _) => Some(*register),
            _ => None,
        });
        computed.filter_map(|register| self.lose(register, Loss::All)).collect()
    }

    fn lose(&mut self, register: Register, loss: Loss) -> Option<Step> {
        let only = Set::only(register);
        let known = self.upper.has(register);
        self.full = self.full.without(only);
        match loss {
            Loss::All => self.upper = self.upper.without(only),
            // The shadow's upper half must read as zero from here on, whatever it
            // held on the way here.
            Loss::ZeroUpper => self.upper = self.upper.or(only),
            Loss::KeepUpper => return None,
        }
        (known || loss == Loss::ZeroUpper).then_some(Step::Forget { register })
    }
}

/// How much is lost when a value cannot be followed.
fn loss_of(register: Register, value: Value) -> Loss {
    match value {
        Value::Low32(_) => Loss::ZeroUpper,
        Value::And(_, mask) if mask <= u64::from(u32::MAX) => Loss::ZeroUpper,
        Value::ShiftRight(_, 32..) => Loss::ZeroUpper,
        // A register keeps its own upper half under a mask that leaves it.
        Value::And(source, mask) if source == register && mask >> 32 == 0xffff_ffff => {
            Loss::KeepUpper
        }
        _ => Loss::All,
    }
}
