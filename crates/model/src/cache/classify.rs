//! The three Cs (Hill, "Aspects of Cache Memory and Instruction Buffer
//! Performance", 1987): why a miss was a miss.
//!
//! *Compulsory*: the line was never referenced before. *Capacity*: a fully
//! associative LRU cache of the same capacity would have missed too.
//! *Conflict*: it would not have. A cache that is not LRU, or not filled by
//! every reference, can hit where the twin misses; such hits are not counted as
//! negative misses, so the three always add up to the misses.
//!
//! Memory grows with the number of distinct lines referenced.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::array::{Array, Found};
use super::full_lru::FullLru;
use crate::line_map::LineMap;

/// The cause of a miss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// First reference to the line.
    Compulsory,
    /// The cache is too small.
    Capacity,
    /// Too many lines share a set.
    Conflict,
}

/// Watches all references to one cache and knows the cause of a miss.
#[derive(Debug)]
pub(crate) struct Classifier {
    twin: FullLru,
    seen: LineMap,
}

impl Classifier {
    /// A classifier for a cache of `lines` lines.
    pub(crate) fn new(lines: u64) -> Self {
        Self { twin: FullLru::new(lines as usize), seen: LineMap::with_capacity(64) }
    }

    /// Takes note of a reference and says why it is a miss, should it be one.
    pub(crate) fn reference(&mut self, line: u64) -> Cause {
        if let Found::Hit { .. } = self.twin.access(line, 0, 0) {
            return Cause::Conflict;
        }
        self.twin.fill(line, 0);
        match self.seen.insert(line, 0) {
            None => Cause::Compulsory,
            Some(_) => Cause::Capacity,
        }
    }
}
