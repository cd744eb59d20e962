//! Targets of indirect jumps and calls from the path that led there (after
//! Chang, Hao and Patt's target cache, ISCA 1997, and the tagged tables of
//! ITTAGE, Seznec 2011).
//!
//! Two tagged tables are indexed by the branch and a hash of the last few
//! indirect targets, a short and a long path; the longest match predicts. Behind
//! them a table without path holds the last target of each branch. A
//! misprediction writes the target into the next longer table than the one that
//! provided, if the entry there has lost its confidence.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use crate::random::mix;

/// How many targets the paths of the tables have; the first has none.
const PATHS: [u32; 3] = [0, 2, 6];
/// Bits of a target in the path.
const STEP: u32 = 10;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    pc: GuestVa,
    check: u16,
    target: GuestVa,
    confidence: u8,
    used: bool,
}

/// Tables of indirect targets.
#[derive(Debug)]
pub struct PathTargets {
    tables: [Box<[Entry]>; 3],
    log_entries: u32,
    path: u64,
}

impl PathTargets {
    /// With `1 << log_entries` targets in each of three tables.
    #[must_use]
    pub fn new(log_entries: u32) -> Self {
        let table = || vec![Entry::default(); 1 << log_entries].into_boxed_slice();
        Self { tables: [table(), table(), table()], log_entries, path: 0 }
    }

    /// The place of a branch in a table and the check of its path.
    fn locate(&self, table: usize, pc: GuestVa) -> (usize, u16) {
        let bits = PATHS[table] * STEP;
        let path = self.path & ((1u64 << bits) - 1);
        let hash = mix(pc.0 ^ mix(path));
        let index = if table == 0 { pc.0 } else { hash } as usize & ((1 << self.log_entries) - 1);
        (index, if table == 0 { 0 } else { (hash >> 48) as u16 })
    }

    /// The predicted target of a transfer that then ran to `target`.
    pub fn predict(&mut self, pc: GuestVa, target: GuestVa) -> Option<GuestVa> {
        let places = [0, 1, 2].map(|table| self.locate(table, pc));
        let matches = |table: &usize| {
            let (at, check) = places[*table];
            let entry = &self.tables[*table][at];
            entry.used && entry.pc == pc && entry.check == check
        };
        let provider = [2, 1, 0].into_iter().find(matches);
        let predicted = provider.map(|table| self.tables[table][places[table].0].target);
        let right = predicted == Some(target);
        if let Some(table) = provider {
            self.tables[table][places[table].0].learn(target);
        }
        let next = provider.map_or(0, |table| table + 1);
        if !right && next < PATHS.len() {
            let (at, check) = places[next];
            let entry = &mut self.tables[next][at];
            if entry.confidence == 0 {
                *entry = Entry { pc, check, target, confidence: 0, used: true };
            } else {
                entry.confidence -= 1;
            }
        }
        let step = (mix(target.0) >> 32) & ((1 << STEP) - 1);
        self.path = (self.path << STEP) | step;
        predicted
    }
}

impl Entry {
    /// Keeps a target that is right, and replaces one that was wrong twice.
    fn learn(&mut self, target: GuestVa) {
        if self.target == target {
            self.confidence = (self.confidence + 1).min(3);
        } else if self.confidence > 0 {
            self.confidence -= 1;
        } else {
            self.target = target;
        }
    }
}
