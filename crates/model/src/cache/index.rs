//! Placement: from a line number to a set number.
//!
//! Skewed placement has an index per way and lives with its array.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::config::{CacheConfig, Placement};

/// An index function over a checked geometry. `set` is always below the number
/// of sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Index {
    /// A power of two of sets: the low bits.
    Mask(u64),
    /// Any number of sets: the remainder.
    Modulo(u64),
    /// A power of two of sets: all bits folded by exclusive-or.
    Fold { mask: u64, bits: u32 },
}

impl Index {
    /// The index function of a cache. Skewed caches get their first way's.
    pub(crate) fn new(config: &CacheConfig) -> Self {
        let sets = config.sets().max(1);
        if !sets.is_power_of_two() {
            return Self::Modulo(sets);
        }
        match config.placement {
            Placement::XorHash if sets > 1 => Self::fold(sets),
            _ => Self::Mask(sets - 1),
        }
    }

    /// Folding onto `sets` sets, a power of two above one.
    pub(crate) const fn fold(sets: u64) -> Self {
        Self::Fold { mask: sets - 1, bits: sets.trailing_zeros() }
    }

    /// The set of a line.
    #[inline]
    pub(crate) fn set(self, line: u64) -> usize {
        let set = match self {
            Self::Mask(mask) => line & mask,
            Self::Modulo(sets) => line % sets,
            Self::Fold { mask, bits } => fold(line, bits) & mask,
        };
        set as usize
    }
}

fn fold(mut line: u64, bits: u32) -> u64 {
    let mut folded = 0;
    while line != 0 {
        folded ^= line;
        line >>= bits;
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_every_bit_once() {
        let index = Index::fold(16);
        assert_eq!(index.set(0x0), 0);
        assert_eq!(index.set(0x321), 0x3 ^ 0x2 ^ 0x1);
        // A stride of the whole cache meets every set instead of one.
        let mut sets: Vec<_> = (0..16).map(|i| index.set(i * 16)).collect();
        sets.sort_unstable();
        assert_eq!(sets, (0..16).collect::<Vec<_>>());
    }
}
