//! Gshare (McFarling, WRL TN-36, 1993): two-bit counters indexed by the
//! branch's address xor the outcomes of the last branches.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::counter::Counters;
use super::{Conditional, Direction};

/// Global history shared by all branches.
#[derive(Debug)]
pub struct Gshare {
    counters: Counters,
    history: u64,
    mask: u64,
}

impl Gshare {
    /// With `1 << log_entries` counters and a history of `history` outcomes.
    #[must_use]
    pub fn new(log_entries: u32, history: u32) -> Self {
        let mask = (1u64 << history.min(63)) - 1;
        Self { counters: Counters::new(log_entries), history: 0, mask }
    }
}

impl Direction for Gshare {
    fn predict(&mut self, branch: &Conditional) -> bool {
        let index = branch.pc.0 ^ self.history;
        let predicted = self.counters.get(index);
        self.counters.train(index, branch.taken);
        self.history = ((self.history << 1) | u64::from(branch.taken)) & self.mask;
        predicted
    }
}
