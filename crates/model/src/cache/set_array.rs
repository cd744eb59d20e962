//! Sets whose lines stay where they are, with any replacement policy.
//!
//! The slot of a line is `set * ways + way`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::array::{Array, Filled, Found};
use super::config::CacheConfig;
use super::entry::{Resident, entry, flags, same};
use super::index::Index;
use crate::replace::{Policy, Shape};

/// A set-associative array under policy `P`.
#[derive(Debug)]
pub(crate) struct SetArray<P> {
    index: Index,
    ways: usize,
    words: Box<[u64]>,
    policy: P,
}

impl<P: Policy> SetArray<P> {
    /// An empty array.
    pub(crate) fn new(config: &CacheConfig, shape: Shape) -> Self {
        Self {
            index: Index::new(config),
            ways: shape.ways,
            words: vec![0; shape.sets * shape.ways].into_boxed_slice(),
            policy: P::new(shape),
        }
    }

    fn find(&self, line: u64) -> (usize, Option<usize>) {
        let set = self.index.set(line);
        let key = entry(line);
        let words = &self.words[set * self.ways..(set + 1) * self.ways];
        (set, words.iter().position(|&word| same(word, key)))
    }
}

impl<P: Policy> Array for SetArray<P> {
    fn access(&mut self, line: u64, set: u64, clear: u64) -> Found {
        let (index, Some(way)) = self.find(line) else { return Found::Miss };
        self.policy.hit(index, way);
        let slot = index * self.ways + way;
        let word = self.words[slot];
        self.words[slot] = (word | set) & !clear;
        Found::Hit { flags: flags(word), slot }
    }

    fn fill(&mut self, line: u64, flags: u64) -> Filled {
        let set = self.index.set(line);
        let words = &self.words[set * self.ways..(set + 1) * self.ways];
        let empty = words.iter().position(|&word| word == 0);
        let way = empty.unwrap_or_else(|| self.policy.victim(set));
        self.policy.fill(set, way);
        let slot = set * self.ways + way;
        let evicted = std::mem::replace(&mut self.words[slot], entry(line) | flags);
        Filled { evicted: Resident::from_word(evicted), slot }
    }

    fn remove(&mut self, line: u64) -> Option<Resident> {
        let (set, way) = self.find(line);
        let way = way?;
        self.policy.remove(set, way);
        Resident::from_word(std::mem::take(&mut self.words[set * self.ways + way]))
    }

    fn contains(&self, line: u64) -> bool {
        self.find(line).1.is_some()
    }

    fn fill_settles(&self) -> bool {
        P::FILL_SETTLES
    }

    fn place(&self, line: u64) -> Option<(usize, u64)> {
        let (set, way) = self.find(line);
        let slot = set * self.ways + way?;
        Some((slot, flags(self.words[slot])))
    }
}
