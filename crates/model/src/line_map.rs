//! A hash table from line or page numbers to small integers, made for one job:
//! several lookups per simulated reference.
//!
//! Open addressing with linear probing and backward-shift deletion, so there
//! are no tombstones; the multiplicative mix spreads strided keys. At most
//! three quarters full. Keys are arbitrary 64-bit words; the value `u32::MAX`
//! is reserved and marks an empty place.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::random::mix;

const EMPTY: u32 = u32::MAX;

/// A map from `u64` keys to `u32` values below `u32::MAX`.
#[derive(Clone, Debug)]
pub(crate) struct LineMap {
    places: Box<[(u64, u32)]>,
    mask: usize,
    len: usize,
}

impl LineMap {
    /// An empty map with room for `capacity` keys before it grows.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let places = (capacity + capacity / 2 + 8).next_power_of_two();
        Self { places: vec![(0, EMPTY); places].into_boxed_slice(), mask: places - 1, len: 0 }
    }

    /// How many keys there are.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        mix(key) as usize & self.mask
    }

    /// The place of a key, or the empty place where it would go.
    #[inline]
    fn place(&self, key: u64) -> usize {
        let mut at = self.home(key);
        while self.places[at].1 != EMPTY && self.places[at].0 != key {
            at = (at + 1) & self.mask;
        }
        at
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        let value = self.places[self.place(key)].1;
        if value == EMPTY { None } else { Some(value) }
    }

    /// Gives a key a value and returns the one it had.
    #[inline]
    pub(crate) fn insert(&mut self, key: u64, value: u32) -> Option<u32> {
        let at = self.place(key);
        let old = std::mem::replace(&mut self.places[at], (key, value)).1;
        if old != EMPTY {
            return Some(old);
        }
        self.len += 1;
        if self.len * 4 > self.places.len() * 3 {
            self.grow();
        }
        None
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::with_capacity(self.places.len());
        for &(key, value) in self.places.iter().filter(|place| place.1 != EMPTY) {
            larger.insert(key, value);
        }
        *self = larger;
    }

    /// Forgets a key and returns the value it had.
    pub(crate) fn remove(&mut self, key: u64) -> Option<u32> {
        let mut hole = self.place(key);
        let old = self.places[hole].1;
        if old == EMPTY {
            return None;
        }
        self.len -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let (next, value) = self.places[at];
            if value == EMPTY {
                break;
            }
            // A key may move back into the hole unless its home lies after it.
            let from_home = at.wrapping_sub(self.home(next)) & self.mask;
            let from_hole = at.wrapping_sub(hole) & self.mask;
            if from_home >= from_hole {
                self.places[hole] = (next, value);
                hole = at;
            }
        }
        self.places[hole].1 = EMPTY;
        Some(old)
    }

    /// Replaces every value by what `new` makes of it.
    pub(crate) fn update(&mut self, mut new: impl FnMut(u32) -> u32) {
        for place in self.places.iter_mut().filter(|place| place.1 != EMPTY) {
            place.1 = new(place.1);
        }
    }

    /// All keys and values, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.places.iter().copied().filter(|place| place.1 != EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_the_standard_map(ops in prop::collection::vec((0u64..50, 0u32..1000, any::<bool>()), 0..400)) {
            let mut ours = LineMap::with_capacity(0);
            let mut theirs = HashMap::new();
            for (key, value, insert) in ops {
                let key = key.wrapping_mul(0x1_0000_0001);
                if insert {
                    prop_assert_eq!(ours.insert(key, value), theirs.insert(key, value));
                } else {
                    prop_assert_eq!(ours.remove(key), theirs.remove(&key));
                }
                prop_assert_eq!(ours.len(), theirs.len());
                prop_assert_eq!(ours.get(key), theirs.get(&key).copied());
            }
            let mut all: Vec<_> = ours.iter().collect();
            let mut want: Vec<_> = theirs.into_iter().collect();
            all.sort_unstable();
            want.sort_unstable();
            prop_assert_eq!(all, want);
        }
    }
}
