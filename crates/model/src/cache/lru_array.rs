//! LRU in sets, as fast as it gets: the ways of a set lie in order of use, most
//! recent first, so the order needs no storage of its own, the usual hit is
//! found at the first word, and the victim is always the last.
//!
//! Invariant: empty ways are at the end of their set.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::array::{Array, Filled, Found};
use super::config::CacheConfig;
use super::entry::{Resident, entry, flags, same};
use super::index::Index;

/// LRU in sets.
#[derive(Debug)]
pub(crate) struct LruArray {
    index: Index,
    ways: usize,
    words: Box<[u64]>,
}

impl LruArray {
    /// An empty array.
    pub(crate) fn new(config: &CacheConfig) -> Self {
        let words = vec![0; config.lines() as usize].into_boxed_slice();
        Self { index: Index::new(config), ways: config.ways as usize, words }
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [u64] {
        let start = self.index.set(line) * self.ways;
        &mut self.words[start..start + self.ways]
    }

    /// Makes a present line the most recent one, with flags set and cleared,
    /// and tells the flags it had.
    #[inline]
    pub(crate) fn touch(&mut self, line: u64, set: u64, clear: u64) -> Option<u64> {
        let key = entry(line);
        let words = self.set(line);
        for at in 0..words.len() {
            let word = words[at];
            if same(word, key) {
                push(&mut words[..=at], (word | set) & !clear);
                return Some(flags(word));
            }
        }
        None
    }
}

/// Puts `first` before all words of `set`, whose last word falls out.
#[inline]
fn push(set: &mut [u64], first: u64) -> u64 {
    let mut carried = first;
    for word in set {
        std::mem::swap(word, &mut carried);
    }
    carried
}

impl Array for LruArray {
    #[inline]
    fn access(&mut self, line: u64, set: u64, clear: u64) -> Found {
        match self.touch(line, set, clear) {
            Some(flags) => Found::Hit { flags, slot: 0 },
            None => Found::Miss,
        }
    }

    #[inline]
    fn fill(&mut self, line: u64, flags: u64) -> Filled {
        let evicted = push(self.set(line), entry(line) | flags);
        Filled { evicted: Resident::from_word(evicted), slot: 0 }
    }

    fn remove(&mut self, line: u64) -> Option<Resident> {
        let key = entry(line);
        let words = self.set(line);
        let at = words.iter().position(|&word| same(word, key))?;
        words[at..].rotate_left(1);
        let last = words.last_mut()?;
        Resident::from_word(std::mem::take(last))
    }

    fn contains(&self, line: u64) -> bool {
        let start = self.index.set(line) * self.ways;
        let key = entry(line);
        self.words[start..start + self.ways].iter().any(|&word| same(word, key))
    }

    fn fill_settles(&self) -> bool {
        true
    }
}
