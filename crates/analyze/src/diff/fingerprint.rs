//! One hash per stretch of a thread's items, enough to find the stretch where
//! two traces first differ. Memory: 8 bytes per 4096 items.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;

use ichnos_base::{Batch, Event, Record, Sink, ThreadId, ThreadStart};

use crate::hash::mix;

/// Items per stretch.
pub(crate) const STRETCH: u64 = 4096;

/// How much of a trace is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Depth {
    /// Instructions only.
    Insns,
    /// All records.
    Records,
    /// All records and the events, but for what no two runs have in common:
    /// clocks, processors, and the system's numbers for threads; and but for
    /// synchronisation (locks, conditions, barriers, joins), which not every
    /// collector tells.
    #[default]
    Events,
    /// Events, records, and the values of loads and stores.
    Values,
}

impl Depth {
    /// Whether a record counts.
    #[inline]
    pub(crate) const fn takes(self, record: &Record) -> bool {
        !matches!(self, Self::Insns) || matches!(record, Record::Insn { .. })
    }

    /// An event as it is compared, if it is.
    pub(crate) fn event(self, event: &Event<'_>) -> Option<String> {
        if matches!(self, Self::Insns | Self::Records) {
            return None;
        }
        match *event {
            Event::Timestamp { .. }
            | Event::Migrate { .. }
            | Event::Lock { .. }
            | Event::Cond { .. }
            | Event::Barrier { .. }
            | Event::ThreadJoin { .. } => None,
            Event::ThreadStart(start) => {
                let start = ThreadStart { os_pid: 0, os_tid: 0, ..start };
                Some(format!("{:?}", Event::ThreadStart(start)))
            }
            _ => Some(format!("{event:?}")),
        }
    }
}

/// Hashes a trace.
#[derive(Clone, Debug)]
pub struct Fingerprint {
    depth: Depth,
    threads: BTreeMap<ThreadId, Print>,
}

/// One thread's hashes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Print {
    hash: u64,
    /// How many items there are.
    pub items: u64,
    /// The hash of everything up to the end of each whole stretch.
    stretches: Vec<u64>,
}

impl Print {
    #[inline]
    fn add(&mut self, first: u64, second: u64) {
        self.hash = mix(mix(self.hash, first), second.rotate_left(32));
        self.items += 1;
        if self.items.is_multiple_of(STRETCH) {
            self.stretches.push(self.hash);
        }
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.hash = mix(self.hash, u64::from_le_bytes(word));
        }
    }

    /// The first item of the stretch in which two threads differ, if they do.
    pub fn differs_from(&self, other: &Self) -> Option<u64> {
        if self == other {
            return None;
        }
        let pairs = self.stretches.iter().zip(&other.stretches);
        Some(pairs.take_while(|(a, b)| a == b).count() as u64 * STRETCH)
    }
}

impl Fingerprint {
    /// A fingerprint of nothing yet.
    #[must_use]
    pub const fn new(depth: Depth) -> Self {
        Self { depth, threads: BTreeMap::new() }
    }

    /// How many items each thread has.
    #[must_use]
    pub fn lengths(&self) -> BTreeMap<ThreadId, u64> {
        self.threads.iter().map(|(&id, print)| (id, print.items)).collect()
    }

    pub(crate) fn print(&self, thread: ThreadId) -> Print {
        self.threads.get(&thread).cloned().unwrap_or_default()
    }
}

/// A record as two words that no other record has.
#[inline]
fn words(record: &Record) -> (u64, u64) {
    match *record {
        Record::Insn { len, kind, pc } => (1 | u64::from(len) << 8 | u64::from(kind.0) << 16, pc.0),
        Record::Load { flags, size, addr } => access(2, flags.0, size, addr.0),
        Record::Store { flags, size, addr } => access(3, flags.0, size, addr.0),
        Record::Prefetch { flags, size, addr } => access(4, flags.0, size, addr.0),
        Record::Flush { flags, size, addr } => access(5, flags.0, size, addr.0),
        Record::Branch { taken, target } => (6 | u64::from(taken) << 8, target.0),
    }
}

#[inline]
fn access(sort: u64, flags: u8, size: u32, addr: u64) -> (u64, u64) {
    (sort | u64::from(flags) << 8 | u64::from(size) << 16, addr)
}

impl Sink for Fingerprint {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let print = self.threads.entry(batch.thread).or_default();
        let mut values = match (self.depth, batch.values) {
            (Depth::Values, Some(values)) => values,
            _ => &[],
        };
        for record in batch.records.iter().filter(|r| self.depth.takes(r)) {
            if !values.is_empty() {
                let (mine, rest) = values.split_at(record.value_len().min(values.len()));
                print.add_bytes(mine);
                values = rest;
            }
            let (first, second) = words(record);
            print.add(first, second);
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        let print = self.threads.entry(thread).or_default();
        if let Some(text) = self.depth.event(event) {
            print.add_bytes(text.as_bytes());
            print.add(7, text.len() as u64);
        }
        Ok(true)
    }
}
