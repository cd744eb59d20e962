//! Not recently used: each line has one bit, set by use. When the last bit of a
//! set would be set, all others are cleared first. The victim is the first way
//! whose bit is clear.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Policy, Shape};

/// Not recently used.
#[derive(Debug)]
pub struct Nru {
    full: u64,
    used: Box<[u64]>,
}

impl Policy for Nru {
    const FILL_SETTLES: bool = true;

    fn new(shape: Shape) -> Self {
        let full = if shape.ways >= 64 { u64::MAX } else { (1 << shape.ways) - 1 };
        Self { full, used: vec![0; shape.sets].into_boxed_slice() }
    }

    fn hit(&mut self, set: usize, way: usize) {
        let bits = self.used[set] | 1 << way;
        self.used[set] = if bits == self.full { 1 << way } else { bits };
    }

    fn fill(&mut self, set: usize, way: usize) {
        self.hit(set, way);
    }

    fn victim(&mut self, set: usize) -> usize {
        // With one way the only bit may be set; the only way is the victim.
        let clear = !self.used[set] & self.full;
        if clear == 0 { 0 } else { clear.trailing_zeros() as usize }
    }

    fn remove(&mut self, set: usize, way: usize) {
        self.used[set] &= !(1 << way);
    }
}
