//! Fully associative FIFO of few lines, for a filter's sake: lines that come here
//! are mostly absent, and that must be cheap to see.
//!
//! Sixteen bits of each line stand together, so that a few vector instructions tell
//! whether any line may be the one looked for. The words are a ring in the order of
//! arrival: `first` is the oldest once it is full.
//!
//! A line's slot is good until a line is removed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::array::{Array, Filled, Found};
use super::entry::{Resident, entry, flags, same};
use crate::random::mix;

/// No array of this sort holds more lines.
pub(crate) const MOST: usize = 64;

/// First in, first out.
#[derive(Debug)]
pub(crate) struct SmallFifo {
    marks: [u16; MOST],
    words: [u64; MOST],
    first: usize,
    len: usize,
    capacity: usize,
}

#[inline]
fn mark(line: u64) -> u16 {
    (mix(line) >> 48) as u16
}

impl SmallFifo {
    /// An empty array for `capacity` lines, of 1 to [`MOST`].
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, MOST);
        Self { marks: [0; MOST], words: [0; MOST], first: 0, len: 0, capacity }
    }

    #[inline(always)]
    fn find(&self, line: u64) -> Option<usize> {
        let mark = mark(line);
        let any = self.marks.iter().fold(0, |any, &m| any | u16::from(m == mark));
        if any == 0 { None } else { self.find_slowly(line) }
    }

    #[cold]
    fn find_slowly(&self, line: u64) -> Option<usize> {
        let key = entry(line);
        self.words.iter().position(|&word| same(word, key))
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
        let word = self.words[slot];
        self.words[slot] = (word | set) & !clear;
        Found::Hit { flags: flags(word), slot }
    }

    #[inline(always)]
    fn fill(&mut self, line: u64, flags: u64) -> Filled {
        let wrap = |slot: usize| if slot >= self.capacity { slot - self.capacity } else { slot };
        let slot = wrap(self.first + self.len) % MOST;
        if self.len == self.capacity {
            self.first = wrap(slot + 1);
        } else {
            self.len += 1;
        }
        self.marks[slot] = mark(line);
        let evicted = std::mem::replace(&mut self.words[slot], entry(line) | flags);
        Filled { evicted: Resident::from_word(evicted), slot }
    }

    fn remove(&mut self, line: u64) -> Option<Resident> {
        let slot = self.find(line)?;
        let removed = std::mem::take(&mut self.words[slot]);
        // Those that came later move up, in their order.
        let at = |age: usize| (self.first + age) % self.capacity;
        let age = (slot + self.capacity - self.first) % self.capacity;
        let moved: Vec<_> = (age + 1..self.len).map(|age| self.words[at(age)]).collect();
        let places: Vec<_> = (age..self.len).map(at).collect();
        for (&place, word) in places.iter().zip(moved.into_iter().chain([0])) {
            self.words[place] = word;
            self.marks[place] = Resident::from_word(word).map_or(0, |r| mark(r.line()));
        }
        self.len -= 1;
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
        Some((slot, flags(self.words[slot])))
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
