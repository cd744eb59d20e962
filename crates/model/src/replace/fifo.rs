//! First in, first out: hits change nothing.
//!
//! Each set has a hand that points at the oldest fill. Ways emptied by an
//! invalidation are refilled out of turn, so stamps of fills are kept instead
//! of a bare hand: the order stays that of the fills whatever happens between.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Policy, Shape};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    ways: usize,
    filled: Box<[u64]>,
    clock: u64,
}

impl Policy for Fifo {
    const FILL_SETTLES: bool = true;

    fn new(shape: Shape) -> Self {
        let filled = vec![0; shape.sets * shape.ways].into_boxed_slice();
        Self { ways: shape.ways, filled, clock: 0 }
    }

    fn hit(&mut self, _set: usize, _way: usize) {}

    fn fill(&mut self, set: usize, way: usize) {
        self.clock += 1;
        self.filled[set * self.ways + way] = self.clock;
    }

    fn victim(&mut self, set: usize) -> usize {
        let filled = &self.filled[set * self.ways..(set + 1) * self.ways];
        (0..self.ways).min_by_key(|&way| filled[way]).unwrap_or(0)
    }
}
