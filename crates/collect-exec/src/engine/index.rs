//! The shared index of indirect targets: program address to landing pad.
//!
//! Open addressing, read by the glue without a lock and written under the engine's
//! lock. Layout of a table: the byte mask of the slots, eight bytes unused, then slots of (tag, pad).
//! A tag of zero ends a search; a tag of one was removed. The pad is written before
//! the tag, so that a reader who sees the tag sees the pad.
//!
//! A table that grows is replaced; readers may still be in the old one, so it is kept, and loses what is
//! removed (the sizes double, so all old ones together are no larger than the current one).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicU64, Ordering};

const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
const REMOVED: u64 = 1;
const FIRST_SLOTS: usize = 1 << 14;

/// A table.
pub struct Index {
    words: &'static [AtomicU64],
    slots: usize,
    used: usize,
    /// Smaller ones that it replaced, in which somebody may still look.
    older: Vec<&'static [AtomicU64]>,
}

impl Index {
    /// An empty table.
    pub fn new() -> Self {
        Self::with_slots(FIRST_SLOTS)
    }

    fn with_slots(slots: usize) -> Self {
        let words: Vec<AtomicU64> = (0..2 + slots * 2).map(|_| AtomicU64::new(0)).collect();
        let words: &'static [AtomicU64] = Box::leak(words.into_boxed_slice());
        words[0].store((slots as u64 - 1) * 16, Ordering::Relaxed);
        Self { words, slots, used: 0, older: Vec::new() }
    }

    /// What the glue reads.
    pub fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    /// The pad of a target.
    pub fn get(&self, tag: u64) -> Option<u64> {
        let slot = find(self.words, tag)?;
        Some(self.words[slot + 1].load(Ordering::Relaxed))
    }

    /// Enters a target, or replaces its pad.
    pub fn insert(&mut self, tag: u64, pad: u64) {
        for words in &self.older {
            if let Some(slot) = find(words, tag) {
                words[slot + 1].store(pad, Ordering::Release);
            }
        }
        if let Some(slot) = find(self.words, tag) {
            self.words[slot + 1].store(pad, Ordering::Release);
            return;
        }
        if self.used * 2 >= self.slots {
            self.grow();
        }
        self.put(tag, pad);
    }

    /// Removes a target.
    pub fn remove(&mut self, tag: u64) {
        for words in self.older.iter().copied().chain([self.words]) {
            if let Some(slot) = find(words, tag) {
                words[slot].store(REMOVED, Ordering::Release);
            }
        }
    }

    /// Removes all targets. Who searches meanwhile finds an old one or none.
    pub fn clear(&mut self) {
        for words in self.older.iter().copied().chain([self.words]) {
            words[2..].iter().step_by(2).for_each(|tag| tag.store(0, Ordering::Release));
        }
        self.used = 0;
    }

    fn put(&mut self, tag: u64, pad: u64) {
        let mut slot = first(self.words, tag);
        while self.words[slot].load(Ordering::Relaxed) != 0 {
            slot = next(self.words, slot);
        }
        self.words[slot + 1].store(pad, Ordering::Release);
        self.words[slot].store(tag, Ordering::Release);
        self.used += 1;
    }

    fn grow(&mut self) {
        let mut larger = Self::with_slots(self.slots * 2);
        for pair in self.words[2..].chunks_exact(2) {
            let tag = pair[0].load(Ordering::Relaxed);
            if tag > REMOVED {
                larger.put(tag, pair[1].load(Ordering::Relaxed));
            }
        }
        larger.older = std::mem::take(&mut self.older);
        larger.older.push(self.words);
        *self = larger;
    }
}

/// The slot of a target in a table.
fn find(words: &[AtomicU64], tag: u64) -> Option<usize> {
    let mut slot = first(words, tag);
    loop {
        match words[slot].load(Ordering::Relaxed) {
            0 => return None,
            found if found == tag => return Some(slot),
            _ => slot = next(words, slot),
        }
    }
}

/// The first slot in which a target may be.
fn first(words: &[AtomicU64], tag: u64) -> usize {
    let slots = (words.len() - 2) / 2;
    let hash = tag.wrapping_mul(HASH) >> 32;
    2 + 2 * (hash as usize & (slots - 1))
}

/// The slot after one.
fn next(words: &[AtomicU64], slot: usize) -> usize {
    2 + slot % (words.len() - 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn agrees_with_a_map() {
        let mut index = Index::new();
        let mut map = HashMap::new();
        let mut x = 1u64;
        for i in 0..60_000u64 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let tag = 2 + (x >> 48);
            if i == 30_000 {
                index.clear();
                map.clear();
            } else if i % 5 == 0 {
                index.remove(tag);
                map.remove(&tag);
            } else {
                index.insert(tag, i);
                map.insert(tag, i);
            }
        }
        assert!((2..70_000).all(|tag| index.get(tag) == map.get(&tag).copied()));
    }
}
