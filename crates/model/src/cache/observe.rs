//! Who wants to know where each access was served: per-instruction counts for
//! annotation, or whatever a user writes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, ThreadId};

use crate::{ByKind, Kind};

/// One access and where it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Who made it.
    pub thread: ThreadId,
    /// The instruction.
    pub pc: GuestVa,
    /// What it referenced.
    pub addr: GuestVa,
    /// How.
    pub kind: Kind,
    /// The level that had it, from 0; the number of levels means memory. Every
    /// level before it was missed.
    pub served: u32,
}

/// Told about every access of a hierarchy, one call per access as counted.
pub trait Observe {
    /// Whether to be told at all: decided at compile time.
    const ACTIVE: bool = true;

    /// Takes one access.
    fn access(&mut self, access: &Access);
}

/// Nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unobserved;

impl Observe for Unobserved {
    const ACTIVE: bool = false;

    #[inline]
    fn access(&mut self, _access: &Access) {}
}

/// Two observers at once.
impl<A: Observe, B: Observe> Observe for (A, B) {
    const ACTIVE: bool = A::ACTIVE || B::ACTIVE;

    #[inline]
    fn access(&mut self, access: &Access) {
        self.0.access(access);
        self.1.access(access);
    }
}

/// The counts of whatever an observer tells apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LevelCounts {
    /// Accesses.
    pub accesses: ByKind,
    /// Misses in each level, nearest first; levels that were never missed may be
    /// left out at the end.
    pub misses: Vec<ByKind>,
}

impl LevelCounts {
    /// Counts one access.
    #[inline]
    pub fn count(&mut self, access: &Access) {
        self.accesses[access.kind] += 1;
        let missed = access.served as usize;
        if self.misses.len() < missed {
            self.misses.resize(missed, ByKind::default());
        }
        for misses in self.misses.iter_mut().take(missed) {
            misses[access.kind] += 1;
        }
    }
}
