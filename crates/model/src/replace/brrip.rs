//! Bimodal RRIP: most new lines are predicted distant, every 32nd one long, so
//! part of a working set that is too large stays.
//!
//! The paper picks the exceptions with probability 1/32; a counter over all
//! fills of the cache does the same reproducibly.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::rrip::{BIMODAL, DISTANT, LONG, Predictions};
use super::{Policy, Shape};

/// Bimodal re-reference interval prediction.
#[derive(Debug)]
pub struct Brrip {
    predictions: Predictions,
    fills: u32,
}

impl Policy for Brrip {
    const FILL_SETTLES: bool = false;

    fn new(shape: Shape) -> Self {
        Self { predictions: Predictions::new(shape), fills: 0 }
    }

    fn hit(&mut self, set: usize, way: usize) {
        self.predictions.put(set, way, 0);
    }

    fn fill(&mut self, set: usize, way: usize) {
        self.fills = (self.fills + 1) % BIMODAL;
        self.predictions.put(set, way, if self.fills == 0 { LONG } else { DISTANT });
    }

    fn victim(&mut self, set: usize) -> usize {
        self.predictions.victim(set)
    }
}
