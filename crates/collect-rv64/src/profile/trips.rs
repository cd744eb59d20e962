//! Trips: from where instructions began to run in succession to the end of the one
//! that jumped, and on to its target; how often each was made. One look counts the
//! arc and says that the instructions of the run are known.
//!
//! Invariant: a trip is in the table only while its run is known to `Words`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::arcs::{Arcs, NOWHERE};

/// Entries of the table. A power of two: several times as many as a program has
/// taken branches that matter.
const ENTRIES: usize = 1 << 13;

/// Where a run began, where it ended, and where it led.
pub(super) type Trip = (u64, u64, u64);

#[derive(Clone, Copy, Debug)]
struct Entry {
    trip: Trip,
    count: u64,
}

/// No trip ends nowhere.
const EMPTY: Entry = Entry { trip: (NOWHERE, NOWHERE, NOWHERE), count: 0 };

/// Counts of trips that were made lately.
#[derive(Debug)]
pub(super) struct Trips(Box<[Entry; ENTRIES]>);

impl Trips {
    pub(super) fn new() -> Self {
        Self(Box::new([EMPTY; ENTRIES]))
    }

    #[inline(always)]
    fn place((run, from, to): Trip) -> usize {
        let mixed =
            (from ^ to.rotate_left(16) ^ run.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 48) as usize & (ENTRIES - 1)
    }

    /// Counts a trip; false if it is not in the table.
    #[inline(always)]
    pub(super) fn count(&mut self, trip: Trip) -> bool {
        let entry = &mut self.0[Self::place(trip)];
        let known = entry.trip == trip;
        entry.count += u64::from(known);
        known
    }

    /// Enters a trip, made once. The one that was in its place, and its count.
    pub(super) fn enter(&mut self, trip: Trip) -> (Trip, u64) {
        let entry = &mut self.0[Self::place(trip)];
        let old = std::mem::replace(entry, Entry { trip, count: 1 });
        (old.trip, old.count)
    }

    /// Forgets all trips, and counts their arcs.
    pub(super) fn empty(&mut self, arcs: &mut Arcs) {
        for entry in self.0.iter_mut().filter(|entry| entry.count > 0) {
            let Entry { trip: (_, from, to), count } = std::mem::replace(entry, EMPTY);
            arcs.add(from, to, count);
        }
    }
}
