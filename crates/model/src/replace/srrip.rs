//! Static RRIP: a new line is predicted to be used again after a long interval,
//! so a scan passes through without pushing out what was used twice.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::rrip::{LONG, Predictions};
use super::{Policy, Shape};

/// Static re-reference interval prediction.
#[derive(Debug)]
pub struct Srrip {
    predictions: Predictions,
}

impl Policy for Srrip {
    const FILL_SETTLES: bool = false;

    fn new(shape: Shape) -> Self {
        Self { predictions: Predictions::new(shape) }
    }

    fn hit(&mut self, set: usize, way: usize) {
        self.predictions.put(set, way, 0);
    }

    fn fill(&mut self, set: usize, way: usize) {
        self.predictions.put(set, way, LONG);
    }

    fn victim(&mut self, set: usize) -> usize {
        self.predictions.victim(set)
    }
}
