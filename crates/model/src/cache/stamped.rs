//! LRU in sets whose times of use are written by others, too.
//!
//! A collector that filters hits writes the time of a hit straight into the
//! line's stamp, without a call; the order of use is worked out only when a line
//! has to go. Times are whatever grows with every reference.
//!
//! The slot of a line is `set * ways + way`, and so is the place of its stamp. An
//! empty slot's stamp is 0.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::array::{Array, Filled, Found};
use super::config::CacheConfig;
use super::entry::{DIRTY, Resident, entry, flags, place_of, same};
use super::index::Index;

/// The times of last use, one a slot.
pub type Stamps = Arc<[AtomicU64]>;

/// LRU by stamps.
#[derive(Debug)]
pub(crate) struct StampedLru {
    index: Index,
    ways: usize,
    words: Box<[u64]>,
    stamps: Stamps,
    /// The time of the access that comes next.
    pub(crate) now: u64,
}

impl StampedLru {
    /// An empty array.
    pub(crate) fn new(config: &CacheConfig) -> Self {
        let lines = config.lines() as usize;
        Self {
            index: Index::new(config),
            ways: config.ways as usize,
            words: vec![0; lines].into_boxed_slice(),
            stamps: (0..lines).map(|_| AtomicU64::new(0)).collect(),
            now: 0,
        }
    }

    /// The times of last use.
    pub(crate) fn stamps(&self) -> Stamps {
        Arc::clone(&self.stamps)
    }

    #[inline(always)]
    fn find(&self, line: u64) -> (usize, Option<usize>) {
        let start = self.index.set(line) * self.ways;
        let key = entry(line);
        let words = &self.words[start..start + self.ways];
        // References that come here mostly miss, and where they hit is as good as
        // random: a usual set is looked at without a branch for each way.
        let way = match <&[u64; 8]>::try_from(words) {
            Ok(words) => place_of(words, key),
            Err(_) => words.iter().position(|&word| same(word, key)),
        };
        (start, way.map(|way| start + way))
    }

    /// Looks a line up, sets flags if it is there, and takes note of its use at
    /// `now`: its slot and the flags that it has then.
    #[inline(always)]
    pub(super) fn look(&mut self, line: u64, set: u64, now: u64) -> Option<(usize, u64)> {
        let slot = self.find(line).1?;
        Some(self.hit(slot, set, now))
    }

    #[inline(always)]
    fn hit(&mut self, slot: usize, set: u64, now: u64) -> (usize, u64) {
        self.words[slot] |= set;
        self.stamps[slot].store(now, Relaxed);
        (slot, flags(self.words[slot]))
    }

    /// Puts an absent line into the set that begins at slot `start`.
    #[inline(always)]
    fn put(&mut self, start: usize, word: u64, now: u64) -> Filled {
        let slot = start + self.oldest(start);
        self.stamps[slot].store(now, Relaxed);
        let evicted = std::mem::replace(&mut self.words[slot], word);
        Filled { evicted: Resident::from_word(evicted), slot }
    }

    /// Uses a line at `now`, which sets flags, and puts it in if it is absent: its slot
    /// and the flags that it has then, or what it took the place of.
    #[inline(always)]
    pub(super) fn bring(&mut self, line: u64, set: u64, now: u64) -> Result<(usize, u64), Filled> {
        match self.find(line) {
            (_, Some(slot)) => Ok(self.hit(slot, set, now)),
            (start, None) => Err(self.put(start, entry(line) | set, now)),
        }
    }

    /// Takes note that the line in a slot was written at `now`; false if there is none.
    #[inline(always)]
    pub(super) fn dirty(&mut self, slot: usize, now: u64) -> bool {
        let (Some(word), Some(stamp)) = (self.words.get_mut(slot), self.stamps.get(slot)) else {
            return false;
        };
        let there = *word != 0;
        if there {
            *word |= DIRTY;
            stamp.store(now, Relaxed);
        }
        there
    }

    /// The way of a full set that was used longest ago, or an empty one.
    #[inline(always)]
    fn oldest(&self, start: usize) -> usize {
        let stamps = &self.stamps[start..start + self.ways];
        match <&[AtomicU64; 8]>::try_from(stamps) {
            Ok(stamps) => oldest_of_eight(stamps),
            Err(_) => oldest_of(stamps),
        }
    }
}

/// The way that was used longest ago. An empty one is older than any line: its
/// time is 0, and times begin at 1.
#[inline(always)]
fn oldest_of(stamps: &[AtomicU64]) -> usize {
    let (mut way, mut oldest) = (0, u64::MAX);
    for (at, stamp) in stamps.iter().enumerate() {
        let age = stamp.load(Relaxed);
        let older = age < oldest;
        way = if older { at } else { way };
        oldest = if older { age } else { oldest };
    }
    way
}

/// The same of a usual set: ways go along in the lowest bits of their times,
/// which leave room for that, and the least is found in pairs.
#[inline(always)]
fn oldest_of_eight(stamps: &[AtomicU64; 8]) -> usize {
    let age = |way: usize| stamps[way].load(Relaxed) << 3 | way as u64;
    let pair = |one: usize| age(one).min(age(one + 1));
    let four = |one: usize| pair(one).min(pair(one + 2));
    four(0).min(four(4)) as usize & 7
}

impl Array for StampedLru {
    #[inline]
    fn access(&mut self, line: u64, set: u64, clear: u64) -> Found {
        let (_, Some(slot)) = self.find(line) else { return Found::Miss };
        let word = self.words[slot];
        self.words[slot] = (word | set) & !clear;
        self.stamps[slot].store(self.now, Relaxed);
        Found::Hit { flags: flags(word), slot }
    }

    #[inline(always)]
    fn fill(&mut self, line: u64, flags: u64) -> Filled {
        let start = self.index.set(line) * self.ways;
        self.put(start, entry(line) | flags, self.now)
    }

    fn remove(&mut self, line: u64) -> Option<Resident> {
        let slot = self.find(line).1?;
        self.stamps[slot].store(0, Relaxed);
        Resident::from_word(std::mem::take(&mut self.words[slot]))
    }

    fn contains(&self, line: u64) -> bool {
        self.find(line).1.is_some()
    }

    fn fill_settles(&self) -> bool {
        true
    }

    fn place(&self, line: u64) -> Option<(usize, u64)> {
        let slot = self.find(line).1?;
        Some((slot, flags(self.words[slot])))
    }
}
