//! Stride profiles: by how much each load and store instruction moves from one
//! execution to the next.
//!
//! An access is told apart by its instruction and its place among that
//! instruction's accesses of the same batch-independent order, so the source and
//! the destination of a string move do not disturb each other. Accesses beyond
//! the eighth of one execution share the eighth's place.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;

use ichnos_base::{Batch, GuestVa, Record, Sink, ThreadId};

use crate::line_map::LineMap;

/// Distinct strides remembered per access; the rest is counted together.
const STRIDES: usize = 4;
/// Accesses of one execution that are told apart.
const PLACES: u64 = 8;

/// How one access of one instruction moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrideReport {
    /// The instruction.
    pub pc: GuestVa,
    /// Which of its accesses, from 0.
    pub place: u32,
    /// How often it was made.
    pub count: u64,
    /// The first few strides it showed, in bytes, and how often each.
    pub strides: Vec<(i64, u64)>,
    /// Moves by any other stride.
    pub other: u64,
}

impl StrideReport {
    /// The stride it showed most often, and the share of its moves.
    #[must_use]
    pub fn dominant(&self) -> Option<(i64, f64)> {
        let &(stride, count) = self.strides.iter().max_by_key(|&&(_, count)| count)?;
        Some((stride, count as f64 / (self.count - 1).max(1) as f64))
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    last: GuestVa,
    count: u64,
    strides: [(i64, u64); STRIDES],
    other: u64,
}

/// Watches every load and store. Memory grows with the number of distinct
/// instructions that access memory.
#[derive(Debug)]
pub struct StrideProfile {
    places: LineMap,
    keys: Vec<(GuestVa, u32)>,
    entries: Vec<Entry>,
    threads: HashMap<ThreadId, (GuestVa, u64)>,
}

impl StrideProfile {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            places: LineMap::with_capacity(1024),
            keys: Vec::new(),
            entries: Vec::new(),
            threads: HashMap::new(),
        }
    }

    fn access(&mut self, pc: GuestVa, place: u64, addr: GuestVa) {
        let key = pc.0.wrapping_mul(PLACES).wrapping_add(place);
        let Some(at) = self.places.get(key) else {
            self.places.insert(key, self.entries.len() as u32);
            self.keys.push((pc, place as u32));
            self.entries.push(Entry { last: addr, count: 1, strides: [(0, 0); STRIDES], other: 0 });
            return;
        };
        let entry = &mut self.entries[at as usize];
        let stride = addr.since(entry.last) as i64;
        entry.last = addr;
        entry.count += 1;
        for (known, count) in &mut entry.strides {
            if *count == 0 || *known == stride {
                *known = stride;
                *count += 1;
                return;
            }
        }
        entry.other += 1;
    }

    /// All accesses, most frequent first.
    #[must_use]
    pub fn report(&self) -> Vec<StrideReport> {
        let mut all: Vec<StrideReport> = self
            .keys
            .iter()
            .zip(&self.entries)
            .map(|(&(pc, place), entry)| StrideReport {
                pc,
                place,
                count: entry.count,
                strides: entry.strides.iter().copied().filter(|&(_, count)| count > 0).collect(),
                other: entry.other,
            })
            .collect();
        all.sort_by_key(|report| (std::cmp::Reverse(report.count), report.pc, report.place));
        all
    }
}

impl Default for StrideProfile {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink for StrideProfile {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let (mut pc, mut place) = self.threads.get(&batch.thread).copied().unwrap_or_default();
        for record in batch.records {
            match *record {
                Record::Insn { pc: at, .. } => (pc, place) = (at, 0),
                Record::Load { addr, .. } | Record::Store { addr, .. } => {
                    self.access(pc, place, addr);
                    place = (place + 1).min(PLACES - 1);
                }
                _ => {}
            }
        }
        self.threads.insert(batch.thread, (pc, place));
        Ok(true)
    }
}
