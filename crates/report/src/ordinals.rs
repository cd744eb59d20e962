//! Where in each thread a dump is, and which values belong to which record.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{Batch, Record, ThreadId};

/// How many instructions of each thread were told.
#[derive(Debug, Default)]
pub(crate) struct Ordinals(HashMap<ThreadId, u64>);

impl Ordinals {
    /// Instructions before a batch.
    pub fn begin(&self, batch: &Batch<'_>) -> u64 {
        batch.insns_before
    }

    pub fn end(&mut self, thread: ThreadId, insns: u64) {
        self.0.insert(thread, insns);
    }

    pub fn of(&self, thread: ThreadId) -> u64 {
        self.0.get(&thread).copied().unwrap_or(0)
    }
}

/// A batch's values, record by record. If there are too few, the last records
/// have none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    pub fn of(batch: &Batch<'a>) -> Self {
        Self(batch.values.unwrap_or_default())
    }

    #[inline]
    pub fn take(&mut self, record: &Record) -> &'a [u8] {
        if self.0.is_empty() {
            return &[];
        }
        let (mine, rest) = self.0.split_at(record.value_len().min(self.0.len()));
        self.0 = rest;
        mine
    }
}
