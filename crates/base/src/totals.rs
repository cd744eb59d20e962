//! Counts of records: the same definition for every collector and consumer.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{Batch, Record};

/// How many records of each sort.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Totals {
    /// Retired instructions.
    pub insns: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// Control transfers, taken or not.
    pub branches: u64,
    /// Control transfers taken.
    pub taken: u64,
    /// Prefetches.
    pub prefetches: u64,
    /// Cache-line flushes.
    pub flushes: u64,
}

impl Totals {
    /// Counts one record.
    #[inline]
    pub fn count(&mut self, record: &Record) {
        match record {
            Record::Insn { .. } => self.insns += 1,
            Record::Load { .. } => self.loads += 1,
            Record::Store { .. } => self.stores += 1,
            Record::Prefetch { .. } => self.prefetches += 1,
            Record::Flush { .. } => self.flushes += 1,
            Record::Branch { taken, .. } => {
                self.branches += 1;
                self.taken += u64::from(*taken);
            }
        }
    }

    /// Counts a whole batch.
    #[inline]
    pub fn count_batch(&mut self, batch: &Batch<'_>) {
        for record in batch.records {
            self.count(record);
        }
    }

    /// Adds the counts of another stretch.
    pub const fn add(&mut self, other: &Self) {
        self.insns += other.insns;
        self.loads += other.loads;
        self.stores += other.stores;
        self.branches += other.branches;
        self.taken += other.taken;
        self.prefetches += other.prefetches;
        self.flushes += other.flushes;
    }

    /// All memory references that read or write: loads and stores.
    #[must_use]
    pub const fn references(&self) -> u64 {
        self.loads + self.stores
    }

    /// How many records there are of any sort.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.insns + self.references() + self.branches + self.prefetches + self.flushes
    }
}
