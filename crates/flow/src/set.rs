//! Sets of registers and of flags, by number.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;

use ichnos_trace::Register;

/// A set of registers with numbers below 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Set(pub u64);

impl Set {
    /// No register.
    pub const EMPTY: Self = Self(0);
    /// Every register.
    pub const ALL: Self = Self(u64::MAX);

    /// The set of one. A register that does not exist is in no set.
    #[inline]
    #[must_use]
    pub const fn only(register: Register) -> Self {
        Self(if register.0 < 64 { 1 << register.0 } else { 0 })
    }

    /// Members of either.
    #[inline]
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Members of both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Members of this set that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether `register` is a member.
    #[inline]
    #[must_use]
    pub const fn has(self, register: Register) -> bool {
        !self.and(Self::only(register)).is_empty()
    }

    /// Whether nothing is a member.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds a member.
    #[inline]
    pub const fn insert(&mut self, register: Register) {
        self.0 |= Self::only(register).0;
    }

    /// The members in order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Register> {
        (0..64).map(Register).filter(move |register| self.has(*register))
    }
}

impl FromIterator<Register> for Set {
    fn from_iter<I: IntoIterator<Item = Register>>(registers: I) -> Self {
        registers.into_iter().fold(Self::EMPTY, |set, register| set.or(Self::only(register)))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|register| register.0)).finish()
    }
}
