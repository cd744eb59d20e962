//! Replacement: which line of a full set has to go. One policy a file.
//!
//! A policy sees sets and ways, never addresses, and keeps whatever it needs to
//! choose. [`crate::Optimal`], which must know the future, stands apart.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod brrip;
mod drrip;
mod fifo;
mod lru;
mod nru;
mod optimal;
mod plru;
mod random;
mod rrip;
mod srrip;

use std::fmt::Debug;

pub use brrip::Brrip;
pub use drrip::Drrip;
pub use fifo::Fifo;
pub use lru::Lru;
pub use nru::Nru;
pub use optimal::{Optimal, OptimalReport};
pub use plru::TreePlru;
pub use random::RandomReplacement;
pub use srrip::Srrip;

use crate::Error;

/// A replacement policy by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Replacement {
    /// Least recently used.
    #[default]
    Lru,
    /// A binary tree of bits that point away from recent use.
    TreePlru,
    /// First in, first out.
    Fifo,
    /// Any line, with equal chance.
    Random {
        /// What determines the sequence of choices.
        seed: u64,
    },
    /// Not recently used: one bit a line.
    Nru,
    /// Static re-reference interval prediction, two bits a line.
    Srrip,
    /// Bimodal re-reference interval prediction.
    Brrip,
    /// Whichever of the former two misses less, found by set dueling.
    Drrip,
}

impl Replacement {
    /// All policies, random with seed 0.
    pub const ALL: [Self; 8] = [
        Self::Lru,
        Self::TreePlru,
        Self::Fifo,
        Self::Random { seed: 0 },
        Self::Nru,
        Self::Srrip,
        Self::Brrip,
        Self::Drrip,
    ];

    /// The name in configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::TreePlru => "plru",
            Self::Fifo => "fifo",
            Self::Random { .. } => "random",
            Self::Nru => "nru",
            Self::Srrip => "srrip",
            Self::Brrip => "brrip",
            Self::Drrip => "drrip",
        }
    }

    /// The policy of that name; random gets seed 0.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Checks that the policy can order `ways` ways of cache `name`.
    pub(crate) fn check(self, name: &str, ways: u32) -> Result<(), Error> {
        let needs = match self {
            Self::TreePlru if ways > 64 || !ways.is_power_of_two() => {
                "a power of two of at most 64"
            }
            Self::Nru if ways > 64 => "at most 64",
            _ => return Ok(()),
        };
        Err(Error::Unsuited {
            field: format!("{name}.ways"),
            got: u64::from(ways),
            needs,
            setting: self.name(),
        })
    }
}

/// What a policy has to order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Number of sets.
    pub sets: usize,
    /// Lines per set.
    pub ways: usize,
    /// What determines random choices.
    pub seed: u64,
}

/// A replacement policy. Sets and ways given to it are below those of its
/// shape, and so must be the ways it answers.
pub trait Policy: Debug + Send {
    /// Whether a hit on a line directly after its fill changes nothing. (A hit
    /// directly after a hit on the same line must never change anything.)
    const FILL_SETTLES: bool;

    /// The policy of an empty cache.
    fn new(shape: Shape) -> Self
    where
        Self: Sized;

    /// The line in `way` was used.
    fn hit(&mut self, set: usize, way: usize);

    /// A new line was put into `way`.
    fn fill(&mut self, set: usize, way: usize);

    /// Which line of the full set has to go.
    fn victim(&mut self, set: usize) -> usize;

    /// The line in `way` was taken away; the way is empty now.
    fn remove(&mut self, set: usize, way: usize) {
        let _ = (set, way);
    }
}
