//! A small seeded generator of pseudo-random numbers. Models must give the same
//! answer for the same trace on every machine, so nothing here asks the system
//! for randomness.
//!
//! The method is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a Weyl
//! sequence passed through a mixing function. Any seed is a good one.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A seeded generator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that `seed` determines.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `bound`, which must not be zero. The bias is below
    /// `bound / 2^64`, nothing that a simulation can see.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// A number in `0.0..1.0`.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A bijection of 64-bit words whose every output bit depends on every input
/// bit: SplitMix64's finaliser, also used to hash addresses.
#[inline]
#[must_use]
pub const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 1234567 that the method's authors publish
    /// with their reference implementation.
    #[test]
    fn agrees_with_the_reference_outputs() {
        let mut random = Random::new(1_234_567);
        let got = [random.next(), random.next(), random.next()];
        assert_eq!(
            got,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
