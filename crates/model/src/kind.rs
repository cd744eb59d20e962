//! The three kinds of reference that a memory system tells apart, and counts of
//! something by kind.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::{Add, AddAssign, Index, IndexMut};

/// Why memory was referenced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// An instruction was fetched.
    Fetch = 0,
    /// Data was read.
    Load = 1,
    /// Data was written.
    Store = 2,
}

impl Kind {
    /// All kinds, in the order of their counts.
    pub const ALL: [Self; 3] = [Self::Fetch, Self::Load, Self::Store];

    /// The name in text and JSON output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Load => "load",
            Self::Store => "store",
        }
    }
}

/// A count for each kind of reference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ByKind {
    /// Of instruction fetches.
    pub fetch: u64,
    /// Of loads.
    pub load: u64,
    /// Of stores.
    pub store: u64,
}

impl ByKind {
    /// The counts of fetches, loads and stores.
    #[must_use]
    pub const fn new(fetch: u64, load: u64, store: u64) -> Self {
        Self { fetch, load, store }
    }

    /// Of all kinds.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.fetch + self.load + self.store
    }

    /// Of loads and stores.
    #[must_use]
    pub const fn data(&self) -> u64 {
        self.load + self.store
    }

    /// These counts without those of `part`, which are among them.
    #[must_use]
    pub const fn without(&self, part: &Self) -> Self {
        Self {
            fetch: self.fetch - part.fetch,
            load: self.load - part.load,
            store: self.store - part.store,
        }
    }
}

impl Index<Kind> for ByKind {
    type Output = u64;

    #[inline]
    fn index(&self, kind: Kind) -> &u64 {
        match kind {
            Kind::Fetch => &self.fetch,
            Kind::Load => &self.load,
            Kind::Store => &self.store,
        }
    }
}

impl IndexMut<Kind> for ByKind {
    #[inline]
    fn index_mut(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Fetch => &mut self.fetch,
            Kind::Load => &mut self.load,
            Kind::Store => &mut self.store,
        }
    }
}

impl AddAssign for ByKind {
    fn add_assign(&mut self, other: Self) {
        self.fetch += other.fetch;
        self.load += other.load;
        self.store += other.store;
    }
}

impl Add for ByKind {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}
