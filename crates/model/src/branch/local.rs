//! Local two-level prediction (Yeh and Patt, 1991, PAg): each branch has a
//! history of its own, which indexes a common table of counters.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::counter::Counters;
use super::{Conditional, Direction};

/// A history per branch.
#[derive(Debug)]
pub struct Local {
    histories: Box<[u32]>,
    counters: Counters,
    mask: u32,
}

impl Local {
    /// With `1 << log_entries` histories of `history` outcomes each, and a
    /// three-bit counter for every history.
    #[must_use]
    pub fn new(log_entries: u32, history: u32) -> Self {
        Self {
            histories: vec![0; 1 << log_entries].into_boxed_slice(),
            counters: Counters::with_bits(history, 3),
            mask: ((1u64 << history) - 1) as u32,
        }
    }
}

impl Direction for Local {
    fn predict(&mut self, branch: &Conditional) -> bool {
        let at = branch.pc.0 as usize & (self.histories.len() - 1);
        let history = self.histories[at];
        let predicted = self.counters.get(u64::from(history));
        self.counters.train(u64::from(history), branch.taken);
        self.histories[at] = ((history << 1) | u32::from(branch.taken)) & self.mask;
        predicted
    }
}
