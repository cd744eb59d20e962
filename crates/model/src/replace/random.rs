//! Random replacement from a seed: one number drawn per eviction, so the choice
//! depends on the order of evictions alone.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Policy, Shape};
use crate::Random;

/// Any line of the set, with equal chance.
#[derive(Debug)]
pub struct RandomReplacement {
    ways: u64,
    random: Random,
}

impl Policy for RandomReplacement {
    const FILL_SETTLES: bool = true;

    fn new(shape: Shape) -> Self {
        Self { ways: shape.ways as u64, random: Random::new(shape.seed) }
    }

    fn hit(&mut self, _set: usize, _way: usize) {}

    fn fill(&mut self, _set: usize, _way: usize) {}

    fn victim(&mut self, _set: usize) -> usize {
        self.random.below(self.ways) as usize
    }
}
