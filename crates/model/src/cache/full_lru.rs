//! Fully associative LRU and FIFO of any size in constant time per access: a
//! hash table finds the slot, a doubly linked list keeps the order of use or of
//! arrival.
//!
//! Invariant: slots `0..used` are in the list unless freed; freed slots are on
//! their own list and in no other. `next` leads from recent to old.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::array::{Array, Filled, Found};
use super::entry::{Resident, entry, flags};
use crate::line_map::LineMap;

/// No slot.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    word: u64,
    next: u32,
    previous: u32,
}

/// Fully associative, least recently used out first.
pub(crate) type FullLru = FullList<true>;
/// Fully associative, first in, first out.
pub(crate) type FullFifo = FullList<false>;

/// A fully associative array; using a line moves it to the front if `RENEWS`.
#[derive(Debug)]
pub(crate) struct FullList<const RENEWS: bool> {
    map: LineMap,
    slots: Vec<Slot>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    capacity: usize,
}

impl<const RENEWS: bool> FullList<RENEWS> {
    /// An empty array for `capacity` lines, which must not be zero. Memory grows
    /// with what is in it.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            // Several times as large as need be while that is little: a look then
            // ends at the first place, and a removal moves nothing.
            map: LineMap::with_capacity(capacity.min(128) * 5),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            capacity,
        }
    }

    #[inline]
    fn unlink(&mut self, slot: u32) {
        let Slot { next, previous, .. } = self.slots[slot as usize];
        match previous {
            NONE => self.newest = next,
            at => self.slots[at as usize].next = next,
        }
        match next {
            NONE => self.oldest = previous,
            at => self.slots[at as usize].previous = previous,
        }
    }

    #[inline]
    fn link_newest(&mut self, slot: u32) {
        self.slots[slot as usize].next = self.newest;
        self.slots[slot as usize].previous = NONE;
        match self.newest {
            NONE => self.oldest = slot,
            at => self.slots[at as usize].previous = slot,
        }
        self.newest = slot;
    }

    /// A slot for a new line, and the line that was in it.
    #[inline]
    fn claim(&mut self) -> (u32, Option<Resident>) {
        if let Some(slot) = self.free.pop() {
            return (slot, None);
        }
        if self.slots.len() < self.capacity {
            self.slots.push(Slot::default());
            return (self.slots.len() as u32 - 1, None);
        }
        let slot = self.oldest;
        self.unlink(slot);
        let evicted = Resident::from_word(self.slots[slot as usize].word);
        if let Some(old) = evicted {
            self.map.remove(old.line());
        }
        (slot, evicted)
    }
}

impl FullFifo {
    /// Uses a line and puts it in if it is absent. None if it was there, else the
    /// line that had to go, if one had to.
    #[inline]
    pub(crate) fn bring(&mut self, line: u64) -> Option<Option<Resident>> {
        match self.map.get(line) {
            Some(_) => None,
            None => Some(self.fill(line, 0).evicted),
        }
    }
}

impl<const RENEWS: bool> Array for FullList<RENEWS> {
    #[inline]
    fn access(&mut self, line: u64, set: u64, clear: u64) -> Found {
        let Some(slot) = self.map.get(line) else { return Found::Miss };
        if RENEWS && self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
        let word = &mut self.slots[slot as usize].word;
        let old = flags(*word);
        *word = (*word | set) & !clear;
        Found::Hit { flags: old, slot: slot as usize }
    }

    #[inline]
    fn fill(&mut self, line: u64, flags: u64) -> Filled {
        let (slot, evicted) = self.claim();
        self.slots[slot as usize].word = entry(line) | flags;
        self.link_newest(slot);
        self.map.insert(line, slot);
        Filled { evicted, slot: slot as usize }
    }

    fn remove(&mut self, line: u64) -> Option<Resident> {
        let slot = self.map.remove(line)?;
        self.unlink(slot);
        self.free.push(slot);
        Resident::from_word(std::mem::take(&mut self.slots[slot as usize].word))
    }

    fn contains(&self, line: u64) -> bool {
        self.map.get(line).is_some()
    }

    fn fill_settles(&self) -> bool {
        true
    }

    fn place(&self, line: u64) -> Option<(usize, u64)> {
        let slot = self.map.get(line)? as usize;
        Some((slot, flags(self.slots[slot].word)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::config::CacheConfig;
    use super::super::set_array::SetArray;
    use super::*;
    use crate::replace::{Fifo, Shape};

    proptest! {
        #[test]
        fn fifo_is_that_of_sets(ops in prop::collection::vec((0u64..24, 0u8..8), 0..400)) {
            const WAYS: usize = 12;
            let config = CacheConfig::new(64 * WAYS as u64, WAYS as u32, 64);
            let mut sets = SetArray::<Fifo>::new(&config, Shape { sets: 1, ways: WAYS, seed: 0 });
            let mut list = FullFifo::new(WAYS);
            for (line, op) in ops {
                if op == 0 {
                    prop_assert_eq!(list.remove(line), sets.remove(line));
                } else if !sets.contains(line) {
                    prop_assert!(!list.contains(line));
                    prop_assert_eq!(list.fill(line, 0).evicted, sets.fill(line, 0).evicted);
                } else {
                    let hits = |found: Found| matches!(found, Found::Hit { .. });
                    prop_assert!(hits(list.access(line, 0, 0)) && hits(sets.access(line, 0, 0)));
                }
                prop_assert_eq!(list.place(line).is_some(), sets.contains(line));
            }
        }
    }
}
