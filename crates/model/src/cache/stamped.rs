//! LRU in sets whose times of use are written by others, too.
//!
//! A collector that filters hits writes the time of a hit straight into the
//! line's stamp, without a call; the order of use is worked out only when a line
//! has to go. Times are whatever grows with every reference. It may also mark lines
//! as written, and bring lines in (`direct`): words and stamps are shared.
//!
//! The slot of a line is `set * ways + way`, and so is the place of its stamp. An
//! empty slot's stamp is 0.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::array::{Array, Filled, Found};
use super::config::CacheConfig;
use super::entry::{FLAG_BITS, Resident, entry, flags, same};
use super::index::Index;

/// The ways of a usual set.
pub(super) const EIGHT: usize = 8;

/// The times of last use, one a slot.
pub type Stamps = Arc<[AtomicU64]>;

/// The lines, one word a slot as `entry` has it.
pub(super) type Words = Arc<[AtomicU64]>;

/// LRU by stamps.
#[derive(Debug)]
pub(crate) struct StampedLru {
    index: Index,
    ways: usize,
    words: Words,
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
            words: (0..lines).map(|_| AtomicU64::new(0)).collect(),
            stamps: (0..lines).map(|_| AtomicU64::new(0)).collect(),
            now: 0,
        }
    }

    /// The times of last use.
    pub(crate) fn stamps(&self) -> Stamps {
        Arc::clone(&self.stamps)
    }

    /// The lines; and how many sets they are in, less one, if that is a mask of a
    /// line's number and each has eight ways.
    pub(super) fn in_sets_of_eight(&self) -> Option<(Words, u64)> {
        match self.index {
            Index::Mask(mask) if self.ways == EIGHT => Some((Arc::clone(&self.words), mask)),
            _ => None,
        }
    }

    /// The lines.
    pub(super) fn words(&self) -> Words {
        Arc::clone(&self.words)
    }

    #[inline(always)]
    fn find(&self, line: u64) -> (usize, Option<usize>) {
        let start = self.index.set(line) * self.ways;
        let key = entry(line);
        let words = &self.words[start..start + self.ways];
        // References that come here mostly miss, and where they hit is as good as
        // random: a usual set is looked at without a branch for each way.
        let way = match <&[AtomicU64; EIGHT]>::try_from(words) {
            Ok(words) => way_of(words, key),
            Err(_) => words.iter().position(|word| same(word.load(Relaxed), key)),
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
        let word = self.words[slot].load(Relaxed) | set;
        self.words[slot].store(word, Relaxed);
        self.stamps[slot].store(now, Relaxed);
        (slot, flags(word))
    }

    /// Puts an absent line into the set that begins at slot `start`.
    #[inline(always)]
    fn put(&mut self, start: usize, word: u64, now: u64) -> Filled {
        let slot = start + self.oldest(start);
        self.stamps[slot].store(now, Relaxed);
        let evicted = replace(&self.words[slot], word);
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

    /// The way of a full set that was used longest ago, or an empty one.
    #[inline(always)]
    fn oldest(&self, start: usize) -> usize {
        let stamps = &self.stamps[start..start + self.ways];
        match <&[AtomicU64; EIGHT]>::try_from(stamps) {
            Ok(stamps) => oldest_of_eight(stamps),
            Err(_) => oldest_of(stamps),
        }
    }
}

/// Puts a word into the place of another.
#[inline(always)]
pub(super) fn replace(place: &AtomicU64, word: u64) -> u64 {
    let old = place.load(Relaxed);
    place.store(word, Relaxed);
    old
}

/// The way of a usual set that holds the line of `key`. Mostly there is none, which is
/// seen without a branch for each.
#[inline(always)]
pub(super) fn way_of(words: &[AtomicU64; EIGHT], key: u64) -> Option<usize> {
    if may_hold(words, key) { way_exactly(words, key) } else { None }
}

/// Whether a usual set may hold the line of `key`; it surely does not if not.
#[inline(always)]
pub(super) fn may_hold(words: &[AtomicU64; EIGHT], key: u64) -> bool {
    // Words of the same line differ in their flags at most; an empty one may look so.
    let near = |way: usize| words[way].load(Relaxed) ^ key < 1 << FLAG_BITS;
    near(0) | near(1) | near(2) | near(3) | near(4) | near(5) | near(6) | near(7)
}

#[inline(never)]
fn way_exactly(words: &[AtomicU64; EIGHT], key: u64) -> Option<usize> {
    words.iter().position(|word| same(word.load(Relaxed), key))
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
pub(super) fn oldest_of_eight(stamps: &[AtomicU64; EIGHT]) -> usize {
    let ages = [0, 1, 2, 3, 4, 5, 6, 7].map(|way| stamps[way].load(Relaxed) << 3 | way as u64);
    let [a, b, c, d, e, f, g, h] = ages;
    (a.min(b)).min(c.min(d)).min((e.min(f)).min(g.min(h))) as usize & 7
}

impl Array for StampedLru {
    #[inline]
    fn access(&mut self, line: u64, set: u64, clear: u64) -> Found {
        let (_, Some(slot)) = self.find(line) else { return Found::Miss };
        let word = self.words[slot].load(Relaxed);
        self.words[slot].store((word | set) & !clear, Relaxed);
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
        Resident::from_word(replace(&self.words[slot], 0))
    }

    fn contains(&self, line: u64) -> bool {
        self.find(line).1.is_some()
    }

    fn fill_settles(&self) -> bool {
        true
    }

    fn place(&self, line: u64) -> Option<(usize, u64)> {
        let slot = self.find(line).1?;
        Some((slot, flags(self.words[slot].load(Relaxed))))
    }
}
