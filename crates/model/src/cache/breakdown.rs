//! Counts per thread and per region of memory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_base::{GuestVa, ThreadId};

use super::observe::{Access, LevelCounts, Observe};
use crate::Error;
use crate::error::conflict;

/// Counts accesses and misses per thread, also in shared caches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PerThread {
    counts: BTreeMap<ThreadId, LevelCounts>,
}

impl PerThread {
    /// The counts of every thread.
    pub fn counts(&self) -> impl Iterator<Item = (ThreadId, &LevelCounts)> {
        self.counts.iter().map(|(&thread, counts)| (thread, counts))
    }
}

impl Observe for PerThread {
    fn access(&mut self, access: &Access) {
        self.counts.entry(access.thread).or_default().count(access);
    }
}

/// A stretch of memory with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// First address.
    pub start: GuestVa,
    /// Bytes.
    pub len: u64,
    /// What it is called.
    pub name: String,
}

/// Counts accesses and misses per region of memory, by the address referenced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerRegion {
    regions: Vec<Region>,
    counts: Vec<LevelCounts>,
    elsewhere: LevelCounts,
}

impl PerRegion {
    /// For these regions, in any order.
    ///
    /// # Errors
    ///
    /// If two of them overlap or one ends beyond the address space.
    pub fn new(mut regions: Vec<Region>) -> Result<Self, Error> {
        regions.sort_by_key(|region| region.start);
        for (at, region) in regions.iter().enumerate() {
            let Some(end) = region.start.0.checked_add(region.len) else {
                return Err(conflict(&region.name, "the region ends beyond the address space"));
            };
            if regions.get(at + 1).is_some_and(|next| next.start.0 < end) {
                return Err(conflict(&region.name, "the region overlaps the next one"));
            }
        }
        let counts = vec![LevelCounts::default(); regions.len()];
        Ok(Self { regions, counts, elsewhere: LevelCounts::default() })
    }

    /// The counts of every region, in order of address.
    pub fn counts(&self) -> impl Iterator<Item = (&Region, &LevelCounts)> {
        self.regions.iter().zip(&self.counts)
    }

    /// The counts of accesses outside of all regions.
    #[must_use]
    pub const fn elsewhere(&self) -> &LevelCounts {
        &self.elsewhere
    }
}

impl Observe for PerRegion {
    fn access(&mut self, access: &Access) {
        let after = self.regions.partition_point(|region| region.start <= access.addr);
        let inside = after.checked_sub(1).filter(|&at| {
            let region = &self.regions[at];
            access.addr.since(region.start) < region.len
        });
        match inside {
            Some(at) => self.counts[at].count(access),
            None => self.elsewhere.count(access),
        }
    }
}
