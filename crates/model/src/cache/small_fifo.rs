//! Fully associative FIFO of few lines, for a filter's sake: lines that come here
//! are mostly absent, and that must be cheap to see.
//!
//! The words are a ring in the order of arrival. Behind them the ring counts, for the
//! lowest bits of lines' numbers, the lines it holds: one that no line has the bits of
//! is absent. All of it is in one piece that a filter can share, see [`Ring`].
//!
//! A line's slot is good until a line is removed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::array::{Array, Filled, Found};
use super::entry::{Resident, entry, flags, same};
use super::stamped::Stamps;

/// No array of this sort holds more lines.
pub(crate) const MOST: usize = 64;
/// Lowest bits of lines' numbers that are told apart: a power of two.
const COUNTS: usize = 1 << 12;

/// Where the parts of a shared FIFO of at most 64 lines are, in words of eight bytes. The
/// words of the lines come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring;

impl Ring {
    /// The slot that is filled next.
    pub const NEXT: usize = MOST;
    /// How many lines there are.
    pub const LEN: usize = MOST + 1;
    /// For the lowest bits of lines' numbers how many lines have them, a byte each.
    pub const COUNTS: usize = MOST + 2;
    /// The number of those bytes.
    pub const COUNTED: usize = COUNTS;
    /// All words.
    pub const WORDS: usize = Self::COUNTS + COUNTS / 8;
}

/// First in, first out.
#[derive(Debug)]
pub(crate) struct SmallFifo {
    ring: Stamps,
    capacity: usize,
}

impl SmallFifo {
    /// An empty array for `capacity` lines, of 1 to [`MOST`].
    pub(crate) fn new(capacity: usize) -> Self {
        let ring: Arc<[AtomicU64]> = (0..Ring::WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { ring, capacity: capacity.clamp(1, MOST) }
    }

    /// All that it holds, and how many lines that may be.
    pub(crate) fn ring(&self) -> (Stamps, u64) {
        (Arc::clone(&self.ring), self.capacity as u64)
    }

    #[inline(always)]
    fn get(&self, at: usize) -> u64 {
        self.ring[at].load(Relaxed)
    }

    #[inline(always)]
    fn set(&self, at: usize, word: u64) {
        self.ring[at].store(word, Relaxed);
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        &self.ring[..MOST]
    }

    /// The word that counts lines with the lowest bits of this one, and how far its
    /// count is shifted.
    #[inline(always)]
    fn count_of(line: u64) -> (usize, u32) {
        let at = line as usize & (COUNTS - 1);
        (Ring::COUNTS + at / 8, 8 * (at % 8) as u32)
    }

    #[inline(always)]
    fn find(&self, line: u64) -> Option<usize> {
        let (at, shift) = Self::count_of(line);
        if self.get(at) >> shift & 0xff == 0 { None } else { self.find_slowly(line) }
    }

    #[cold]
    fn find_slowly(&self, line: u64) -> Option<usize> {
        let key = entry(line);
        self.words().iter().position(|word| same(word.load(Relaxed), key))
    }

    /// Puts a word into a slot and gives the one that was there.
    #[inline(always)]
    fn replace(&self, slot: usize, word: u64) -> u64 {
        let old = self.get(slot);
        self.set(slot, word);
        if let Some(resident) = Resident::from_word(old) {
            let (at, shift) = Self::count_of(resident.line());
            self.set(at, self.get(at) - (1 << shift));
        }
        if let Some(resident) = Resident::from_word(word) {
            let (at, shift) = Self::count_of(resident.line());
            self.set(at, self.get(at) + (1 << shift));
        }
        old
    }

    /// Uses a line and puts it in if it is absent. None if it was there, else the
    /// line that had to go, if one had to.
    #[inline(always)]
    pub(crate) fn bring(&mut self, line: u64) -> Option<Option<Resident>> {
        match self.find(line) {
            Some(_) => None,
            None => Some(self.fill(line, 0).evicted),
        }
    }
}

impl Array for SmallFifo {
    fn access(&mut self, line: u64, set: u64, clear: u64) -> Found {
        let Some(slot) = self.find(line) else { return Found::Miss };
        let word = self.get(slot);
        self.set(slot, (word | set) & !clear);
        Found::Hit { flags: flags(word), slot }
    }

    #[inline(always)]
    fn fill(&mut self, line: u64, flags: u64) -> Filled {
        let (slot, len) = (self.get(Ring::NEXT) as usize % MOST, self.get(Ring::LEN));
        self.set(Ring::NEXT, if slot + 1 == self.capacity { 0 } else { slot as u64 + 1 });
        self.set(Ring::LEN, (len + 1).min(self.capacity as u64));
        let evicted = self.replace(slot, entry(line) | flags);
        Filled { evicted: Resident::from_word(evicted), slot }
    }

    fn remove(&mut self, line: u64) -> Option<Resident> {
        let slot = self.find(line)?;
        let removed = self.get(slot);
        let (next, len) = (self.get(Ring::NEXT) as usize, self.get(Ring::LEN) as usize);
        let first = (next + self.capacity - len) % self.capacity;
        // Those that came later move up, in their order.
        let at = |age: usize| (first + age) % self.capacity;
        let age = (slot + self.capacity - first) % self.capacity;
        let moved: Vec<_> = (age + 1..len).map(|age| self.get(at(age))).chain([0]).collect();
        for (age, word) in (age..len).zip(moved) {
            self.replace(at(age), word);
        }
        self.set(Ring::NEXT, at(len - 1) as u64);
        self.set(Ring::LEN, len as u64 - 1);
        Resident::from_word(removed)
    }

    fn contains(&self, line: u64) -> bool {
        self.find(line).is_some()
    }

    fn fill_settles(&self) -> bool {
        true
    }

    fn place(&self, line: u64) -> Option<(usize, u64)> {
        let slot = self.find(line)?;
        Some((slot, flags(self.get(slot))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::full_lru::FullFifo;
    use super::*;

    proptest! {
        #[test]
        fn it_is_the_hashed_one(
            capacity in 1usize..20,
            ops in prop::collection::vec((0u64..40, 0u8..8), 0..400),
        ) {
            let (mut small, mut hashed) = (SmallFifo::new(capacity), FullFifo::new(capacity));
            for (line, op) in ops {
                match op {
                    0 => prop_assert_eq!(small.remove(line), hashed.remove(line)),
                    1 => {
                        let hits = |found: Found| matches!(found, Found::Hit { .. });
                        prop_assert_eq!(hits(small.access(line, 2, 0)), hits(hashed.access(line, 2, 0)));
                    }
                    _ => prop_assert_eq!(small.bring(line), hashed.bring(line)),
                }
                prop_assert_eq!(small.contains(line), hashed.contains(line));
            }
        }
    }
}
