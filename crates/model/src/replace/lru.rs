//! Least recently used, by time stamps: for arrays whose lines must stay where
//! they are. Plain LRU caches use an array in order of use instead.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Policy, Shape};

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    ways: usize,
    stamps: Box<[u64]>,
    clock: u64,
}

impl Policy for Lru {
    const FILL_SETTLES: bool = true;

    fn new(shape: Shape) -> Self {
        let stamps = vec![0; shape.sets * shape.ways].into_boxed_slice();
        Self { ways: shape.ways, stamps, clock: 0 }
    }

    fn hit(&mut self, set: usize, way: usize) {
        self.clock += 1;
        self.stamps[set * self.ways + way] = self.clock;
    }

    fn fill(&mut self, set: usize, way: usize) {
        self.hit(set, way);
    }

    fn victim(&mut self, set: usize) -> usize {
        let stamps = &self.stamps[set * self.ways..(set + 1) * self.ways];
        (0..self.ways).min_by_key(|&way| stamps[way]).unwrap_or(0)
    }
}
