//! Bimodal prediction (Smith, ISCA 1981): a table of two-bit counters indexed
//! by the branch's address.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::counter::Counters;
use super::{Conditional, Direction};

/// One counter per branch, as far as the table reaches.
#[derive(Debug)]
pub struct Bimodal {
    counters: Counters,
}

impl Bimodal {
    /// With `1 << log_entries` counters.
    #[must_use]
    pub fn new(log_entries: u32) -> Self {
        Self { counters: Counters::new(log_entries) }
    }
}

impl Direction for Bimodal {
    fn predict(&mut self, branch: &Conditional) -> bool {
        let predicted = self.counters.get(branch.pc.0);
        self.counters.train(branch.pc.0, branch.taken);
        predicted
    }
}
