//! Re-reference interval prediction (Jaleel, Theobald, Steely and Emer, ISCA
//! 2010): what SRRIP, BRRIP and DRRIP share.
//!
//! Each line has a two-bit prediction of when it is used again: 0 is soon, 3 is
//! in the distant future. A hit predicts 0 (the paper's hit priority). The
//! victim is the first line that predicts 3; while there is none, all lines of
//! the set are aged by one. The policies differ in what they predict for a new
//! line: *long* (2) or *distant* (3).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::Shape;

/// The prediction of the distant future.
pub(super) const DISTANT: u8 = 3;
/// The prediction that SRRIP gives a new line.
pub(super) const LONG: u8 = 2;
/// BRRIP gives every 32nd new line the long prediction (the paper's epsilon).
pub(super) const BIMODAL: u32 = 32;

/// The predictions of all lines.
#[derive(Debug)]
pub(super) struct Predictions {
    ways: usize,
    values: Box<[u8]>,
}

impl Predictions {
    /// Of an empty cache.
    pub(super) fn new(shape: Shape) -> Self {
        let values = vec![DISTANT; shape.sets * shape.ways].into_boxed_slice();
        Self { ways: shape.ways, values }
    }

    /// Predicts `value` for a line.
    pub(super) fn put(&mut self, set: usize, way: usize, value: u8) {
        self.values[set * self.ways + way] = value;
    }

    /// The first distant line, after ageing the set until there is one.
    pub(super) fn victim(&mut self, set: usize) -> usize {
        let values = &mut self.values[set * self.ways..(set + 1) * self.ways];
        let oldest = values.iter().copied().max().unwrap_or(DISTANT);
        for value in values.iter_mut() {
            *value += DISTANT - oldest;
        }
        values.iter().position(|&value| value == DISTANT).unwrap_or(0)
    }
}
