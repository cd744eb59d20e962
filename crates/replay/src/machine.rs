//! The shadow register file: what replay knows of the traced thread's registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_trace::flat::{NO_REGISTERS, Registers};
use ichnos_trace::{Register, Sum, Value, Width};

/// Registers by number. What one holds that is not known means nothing.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) registers: Registers,
    /// Those that are known, as bits.
    pub(crate) known: u64,
}

impl Machine {
    pub(crate) const fn new() -> Self {
        Self { registers: NO_REGISTERS, known: 0 }
    }

    /// Knows these registers and no others from here on.
    pub(crate) fn restore(&mut self, snapshot: &[(Register, u64)]) {
        *self = Self::new();
        for (register, value) in snapshot {
            self.set(*register, Some(*value));
        }
    }

    pub(crate) fn take(&mut self, register: Register, width: Width, word: u64) {
        let value = match width {
            Width::Eight => word,
            Width::Four => {
                let upper = self.get(register).unwrap_or(0) & !0xffff_ffff;
                upper | word & 0xffff_ffff
            }
        };
        self.set(register, Some(value));
    }

    /// Makes these registers, which are not known, 0.
    #[inline]
    pub(crate) fn clear(&mut self, mut registers: u64) {
        while registers != 0 {
            self.registers[registers.trailing_zeros() as usize] = 0;
            registers &= registers - 1;
        }
    }

    pub(crate) fn forget(&mut self, register: Register) {
        self.set(register, None);
    }

    /// What is unknown stays unknown: a value over an unknown register is none.
    pub(crate) fn derive(&mut self, register: Register, value: Value) {
        let value = self.value(value);
        self.set(register, value);
    }

    /// The sum's value, if all its registers are known.
    pub(crate) fn sum(&self, sum: Sum) -> Option<u64> {
        let base = match sum.base {
            Some(register) => self.get(register)?,
            None => 0,
        };
        let index = match sum.index {
            Some((register, scale)) => self.get(register)?.wrapping_mul(u64::from(scale)),
            None => 0,
        };
        Some(base.wrapping_add(index).wrapping_add(sum.disp as u64))
    }

    fn value(&self, value: Value) -> Option<u64> {
        Some(match value {
            Value::Sum(sum) => self.sum(sum)?,
            Value::Difference(a, b) => self.get(a)?.wrapping_sub(self.get(b)?),
            Value::And(r, mask) => self.get(r)? & mask,
            Value::ShiftLeft(r, n) => self.get(r)?.wrapping_shl(u32::from(n)),
            Value::ShiftRight(r, n) => self.get(r)?.wrapping_shr(u32::from(n)),
            Value::ShiftRightSigned(r, n) => {
                (self.get(r)? as i64).wrapping_shr(u32::from(n)) as u64
            }
            Value::Low32(r) => self.get(r)? & 0xffff_ffff,
            Value::Low32Signed(r) => i64::from(self.get(r)? as i32) as u64,
        })
    }

    fn get(&self, register: Register) -> Option<u64> {
        let at = usize::from(register.0) % Register::COUNT;
        (self.known >> at & 1 != 0).then_some(self.registers[at])
    }

    fn set(&mut self, register: Register, value: Option<u64>) {
        let at = usize::from(register.0) % Register::COUNT;
        self.registers[at] = value.unwrap_or(0);
        self.known = self.known & !(1 << at) | u64::from(value.is_some()) << at;
    }
}
