//! A quick hash for addresses and numbers. Not for untrusted keys in bulk: the keys here are
//! addresses of code that the program runs anyway.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::hash::{BuildHasher, Hasher};

/// Builds [`Multiply`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Fast;

/// Multiplies and folds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Multiply(u64);

impl BuildHasher for Fast {
    type Hasher = Multiply;
    fn build_hasher(&self) -> Multiply {
        Multiply(0)
    }
}

impl Hasher for Multiply {
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let x = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
