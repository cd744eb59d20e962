//! The branch target buffer: where a transfer at an address went last time. Set
//! associative, LRU, full tags.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

/// A cache of targets.
#[derive(Debug)]
pub struct TargetBuffer {
    /// Per set, most recent first: branch and target.
    entries: Box<[Option<(GuestVa, GuestVa)>]>,
    sets: usize,
    ways: usize,
}

impl TargetBuffer {
    /// With `sets` sets of `ways` targets each; zeros are taken as one.
    #[must_use]
    pub fn new(sets: u32, ways: u32) -> Self {
        let (sets, ways) = (sets.max(1) as usize, ways.max(1) as usize);
        Self { entries: vec![None; sets * ways].into_boxed_slice(), sets, ways }
    }

    /// The target known for a transfer before it ran to `target`, which is
    /// known from now on.
    pub fn predict(&mut self, pc: GuestVa, target: GuestVa) -> Option<GuestVa> {
        let start = (pc.0 % self.sets as u64) as usize * self.ways;
        let set = &mut self.entries[start..start + self.ways];
        let found = set.iter().position(|entry| entry.is_some_and(|(at, _)| at == pc));
        let known = found.and_then(|at| set[at]).map(|(_, target)| target);
        let end = found.map_or(set.len(), |at| at + 1);
        set[..end].rotate_right(1);
        set[0] = Some((pc, target));
        known
    }
}
