//! A quick hash for keys that are addresses and ids. Each map has a random
//! seed, so that a crafted trace cannot make all its keys collide.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map keyed by addresses or ids.
pub(crate) type FastMap<K, V> = HashMap<K, V, Seeded>;

/// Makes hashers that share one random seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0u64))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Mixer;

    #[inline]
    fn build_hasher(&self) -> Mixer {
        Mixer(self.0)
    }
}

/// Folds each word in with one wide multiplication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixer(u64);

/// Mixes a word into a state. Neither argument alone decides the result.
#[inline]
pub(crate) const fn mix(state: u64, word: u64) -> u64 {
    let wide = (state ^ word) as u128 * 0x9e37_79b9_7f4a_7c15;
    (wide as u64) ^ (wide >> 64) as u64
}

impl Hasher for Mixer {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    #[inline]
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0, n);
    }

    #[inline]
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_addresses_spread_over_low_and_high_bits() {
        let seeded = Seeded::default();
        let mut low = [0u32; 256];
        let mut high = [0u32; 128];
        for i in 0..25_600u64 {
            let hash = seeded.hash_one(0x7f00_0000_0000 + i * 4096);
            low[hash as usize % 256] += 1;
            high[(hash >> 57) as usize] += 1;
        }
        // The map uses both ends. Even shares would be 100 and 200.
        assert!(low.iter().all(|&n| (20..=300).contains(&n)), "{low:?}");
        assert!(high.iter().all(|&n| (40..=600).contains(&n)), "{high:?}");
    }
}
