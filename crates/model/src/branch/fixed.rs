//! Predictors that learn nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Conditional, Direction};

/// A static rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fixed {
    /// Always taken.
    Taken,
    /// Never taken.
    NotTaken,
    /// Backward taken, forward not taken (Smith, 1981).
    BackwardTaken,
}

impl Direction for Fixed {
    fn predict(&mut self, branch: &Conditional) -> bool {
        match self {
            Self::Taken => true,
            Self::NotTaken => false,
            Self::BackwardTaken => branch.target < branch.pc,
        }
    }
}
