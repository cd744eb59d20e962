//! A skewed-associative array (Seznec, "A Case for Two-Way Skewed-Associative
//! Caches", ISCA 1993): way `w` places a line by an index function of its own,
//! so lines that collide in one way are spread out in the others.
//!
//! The family follows the paper: split the line number into its two lowest
//! fields `a1` (lowest) and `a2` of `n` bits, where there are `2^n` sets, and
//! let way `w` use `sigma^w(a1) xor a2`, where sigma is a one-step shuffle of
//! `n` bits. The paper's shuffle is a rotation; bits above the two fields are
//! folded into `a2` first, so that they count too.
//!
//! Replacement is among the one candidate each way offers: the least recently
//! used by time stamp, or a random one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::array::{Array, Filled, Found};
use super::config::CacheConfig;
use super::entry::{Resident, entry, flags, same};
use super::index::Index;
use crate::{Random, Replacement};

/// A skewed-associative array. The slot of a line is `way * sets + index`.
#[derive(Debug)]
pub(crate) struct SkewArray {
    bits: u32,
    words: Box<[u64]>,
    stamps: Box<[u64]>,
    ways: usize,
    clock: u64,
    random: Option<Random>,
}

impl SkewArray {
    /// An empty array.
    pub(crate) fn new(config: &CacheConfig) -> Self {
        let lines = config.lines() as usize;
        let random = match config.replacement {
            Replacement::Random { seed } => Some(Random::new(seed)),
            _ => None,
        };
        Self {
            bits: config.sets().trailing_zeros(),
            words: vec![0; lines].into_boxed_slice(),
            stamps: vec![0; lines].into_boxed_slice(),
            ways: config.ways as usize,
            clock: 0,
            random,
        }
    }

    /// The slot that way `way` offers to a line.
    fn slot(&self, way: usize, line: u64) -> usize {
        if self.bits == 0 {
            return way;
        }
        let mask = (1u64 << self.bits) - 1;
        let low = line & mask;
        let high = Index::fold(1 << self.bits).set(line >> self.bits) as u64;
        let turn = (way as u32) % self.bits;
        let shuffled = ((low << turn) | (low >> (self.bits - turn).min(63))) & mask;
        (way << self.bits) + (shuffled ^ high) as usize
    }

    fn find(&self, line: u64) -> Option<usize> {
        let key = entry(line);
        (0..self.ways).map(|way| self.slot(way, line)).find(|&slot| same(self.words[slot], key))
    }

    fn stamp(&mut self, slot: usize) {
        self.clock += 1;
        self.stamps[slot] = self.clock;
    }

    fn victim(&mut self, line: u64) -> usize {
        let mut oldest = self.slot(0, line);
        for way in 0..self.ways {
            let slot = self.slot(way, line);
            if self.words[slot] == 0 {
                return slot;
            }
            if self.stamps[slot] < self.stamps[oldest] {
                oldest = slot;
            }
        }
        match &mut self.random {
            Some(random) => {
                let way = random.below(self.ways as u64) as usize;
                self.slot(way, line)
            }
            None => oldest,
        }
    }
}

impl Array for SkewArray {
    fn access(&mut self, line: u64, set: u64, clear: u64) -> Found {
        let Some(slot) = self.find(line) else { return Found::Miss };
        self.stamp(slot);
        let word = self.words[slot];
        self.words[slot] = (word | set) & !clear;
        Found::Hit { flags: flags(word), slot }
    }

    fn fill(&mut self, line: u64, flags: u64) -> Filled {
        let slot = self.victim(line);
        self.stamp(slot);
        let evicted = std::mem::replace(&mut self.words[slot], entry(line) | flags);
        Filled { evicted: Resident::from_word(evicted), slot }
    }

    fn remove(&mut self, line: u64) -> Option<Resident> {
        let slot = self.find(line)?;
        Resident::from_word(std::mem::take(&mut self.words[slot]))
    }

    fn contains(&self, line: u64) -> bool {
        self.find(line).is_some()
    }

    fn fill_settles(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheConfig, Placement};

    #[test]
    fn every_way_is_a_bijection_of_the_low_field() {
        let config =
            CacheConfig { placement: Placement::Skewed, ..CacheConfig::new(64 * 64 * 4, 4, 64) };
        let array = SkewArray::new(&config);
        for way in 0..4 {
            let mut slots: Vec<_> = (0..64).map(|low| array.slot(way, low)).collect();
            slots.sort_unstable();
            assert_eq!(slots, (way * 64..(way + 1) * 64).collect::<Vec<_>>());
        }
        // Lines that meet in way 0 part in way 1: the point of skewing.
        assert_eq!(array.slot(0, 0), array.slot(0, 65));
        assert_ne!(array.slot(1, 0), array.slot(1, 65));
    }
}
