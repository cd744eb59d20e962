//! Tournament prediction (McFarling, 1993): a local and a global predictor, and
//! a table of counters, indexed like the global one, that learns which of them
//! to trust. The choice is trained only where the two differ.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::counter::Counters;
use super::gshare::Gshare;
use super::local::Local;
use super::{Conditional, Direction};

/// Local against global.
#[derive(Debug)]
pub struct Tournament {
    local: Local,
    global: Gshare,
    /// High counters choose the global predictor.
    choice: Counters,
    history: u64,
}

impl Tournament {
    /// A local predictor of `1 << log_local` histories of `local_history`
    /// outcomes, and a global one and a choice of `1 << log_global` counters.
    #[must_use]
    pub fn new(log_local: u32, local_history: u32, log_global: u32) -> Self {
        Self {
            local: Local::new(log_local, local_history),
            global: Gshare::new(log_global, log_global),
            choice: Counters::new(log_global),
            history: 0,
        }
    }
}

impl Direction for Tournament {
    fn predict(&mut self, branch: &Conditional) -> bool {
        let (local, global) = (self.local.predict(branch), self.global.predict(branch));
        let predicted = if self.choice.get(self.history) { global } else { local };
        if local != global {
            self.choice.train(self.history, global == branch.taken);
        }
        self.history = (self.history << 1) | u64::from(branch.taken);
        predicted
    }
}
