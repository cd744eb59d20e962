//! Counts per instruction, for annotation by function and source line.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use super::observe::{Access, Observe};
use crate::ByKind;
use crate::line_map::LineMap;

/// The counts of one instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PcCounts {
    /// The instruction.
    pub pc: GuestVa,
    /// Its accesses; fetches are executions, unless it straddles lines that are
    /// counted singly.
    pub accesses: ByKind,
    /// Its misses in each level, nearest first.
    pub misses: Vec<ByKind>,
}

/// Counts accesses and misses per instruction. Memory grows with the number of
/// distinct instructions executed.
#[derive(Clone, Debug)]
pub struct PerPc {
    levels: usize,
    places: LineMap,
    /// For each instruction `1 + levels` counts: accesses, then misses.
    counts: Vec<ByKind>,
    last: (GuestVa, usize),
}

impl PerPc {
    /// For a hierarchy of so many levels.
    #[must_use]
    pub fn new(levels: usize) -> Self {
        let none = (GuestVa(0), usize::MAX);
        Self { levels, places: LineMap::with_capacity(1024), counts: Vec::new(), last: none }
    }

    #[inline]
    fn place(&mut self, pc: GuestVa) -> usize {
        if self.last.0 == pc && self.last.1 != usize::MAX {
            return self.last.1;
        }
        let next = self.counts.len() / (1 + self.levels);
        let place = match self.places.get(pc.0) {
            Some(place) => place as usize,
            None => {
                self.places.insert(pc.0, next as u32);
                self.counts.resize(self.counts.len() + 1 + self.levels, ByKind::default());
                next
            }
        };
        self.last = (pc, place * (1 + self.levels));
        self.last.1
    }

    /// The counts of every instruction, in order of address.
    #[must_use]
    pub fn counts(&self) -> Vec<PcCounts> {
        let width = 1 + self.levels;
        let mut all: Vec<PcCounts> = self
            .places
            .iter()
            .filter_map(|(pc, place)| {
                let at = place as usize * width;
                let [accesses, misses @ ..] = self.counts.get(at..at + width)? else { return None };
                Some(PcCounts { pc: GuestVa(pc), accesses: *accesses, misses: misses.to_vec() })
            })
            .collect();
        all.sort_unstable_by_key(|counts| counts.pc);
        all
    }
}

impl Observe for PerPc {
    #[inline]
    fn access(&mut self, access: &Access) {
        let at = self.place(access.pc);
        let missed = (access.served as usize).min(self.levels);
        for counts in &mut self.counts[at..=at + missed] {
            counts[access.kind] += 1;
        }
    }
}
