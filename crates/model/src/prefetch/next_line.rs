//! Tagged next-line prefetching (Smith, 1982): a miss, or the first use of a
//! prefetched line, asks for the lines that follow.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Outcome, Prefetcher, Seen, Wanted};

/// Asks for the lines after the one used.
#[derive(Debug)]
pub struct NextLine {
    degree: u64,
}

impl NextLine {
    /// Asks for `degree` lines at a time.
    #[must_use]
    pub const fn new(degree: u32) -> Self {
        Self { degree: degree as u64 }
    }
}

impl Prefetcher for NextLine {
    fn access(&mut self, seen: &Seen, wanted: &mut Wanted) {
        if seen.outcome != Outcome::Hit {
            for ahead in 1..=self.degree {
                wanted.push(seen.line.offset(ahead));
            }
        }
    }
}
