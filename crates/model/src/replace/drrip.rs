//! Dynamic RRIP: set dueling between SRRIP and BRRIP.
//!
//! Some sets always follow SRRIP and as many always BRRIP; a saturating counter
//! of ten bits is moved one way by the misses of the former and the other way by
//! those of the latter, and all remaining sets follow the side that misses less.
//! Leaders are spread evenly: in every group of `sets / 32` sets (at least two),
//! the first leads for SRRIP and the last for BRRIP. A single set has no room
//! for a duel and follows SRRIP.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::rrip::{BIMODAL, DISTANT, LONG, Predictions};
use super::{Policy, Shape};

/// Leader sets of each side, if there are enough sets.
const LEADERS: usize = 32;
/// The counter lies in `0..=LIMIT`; SRRIP is followed up to the middle.
const LIMIT: u32 = 1023;

/// Dynamic re-reference interval prediction.
#[derive(Debug)]
pub struct Drrip {
    predictions: Predictions,
    fills: u32,
    group: usize,
    selector: u32,
}

impl Drrip {
    /// Counts the miss that this fill is, and says whether BRRIP decides.
    fn bimodal(&mut self, set: usize) -> bool {
        let place = set % self.group;
        if place == 0 {
            self.selector = (self.selector + 1).min(LIMIT);
            false
        } else if place == self.group - 1 {
            self.selector = self.selector.saturating_sub(1);
            true
        } else {
            self.selector > LIMIT / 2
        }
    }
}

impl Policy for Drrip {
    const FILL_SETTLES: bool = false;

    fn new(shape: Shape) -> Self {
        Self {
            predictions: Predictions::new(shape),
            fills: 0,
            group: (shape.sets / LEADERS).max(2),
            selector: LIMIT / 2,
        }
    }

    fn hit(&mut self, set: usize, way: usize) {
        self.predictions.put(set, way, 0);
    }

    fn fill(&mut self, set: usize, way: usize) {
        let value = if self.bimodal(set) {
            self.fills = (self.fills + 1) % BIMODAL;
            if self.fills == 0 { LONG } else { DISTANT }
        } else {
            LONG
        };
        self.predictions.put(set, way, value);
    }

    fn victim(&mut self, set: usize) -> usize {
        self.predictions.victim(set)
    }
}
