//! Arcs: from the end of the instruction that was left to the one that was
//! entered, and how often. A small table before a complete one, so that counting
//! a frequent arc is one look and one addition.
//!
//! Traps, interrupts, signals and the turns of threads are arcs as well: control
//! left one place and entered another. A thread's start comes from [`NOWHERE`],
//! its end goes there.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use crate::exec::Beyond;

/// Neither an end nor a beginning of any instruction.
pub(crate) const NOWHERE: u64 = u64::MAX;

const ENTRIES: usize = 4096;

/// In one line of the host's cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Entry {
    from: u64,
    to: u64,
    count: u64,
    beyond: Beyond,
}

const EMPTY: Entry = Entry { from: NOWHERE, to: NOWHERE, count: 0, beyond: Beyond::NOTHING };

/// Counts of arcs.
#[derive(Debug)]
pub(crate) struct Arcs {
    recent: Box<[Entry; ENTRIES]>,
    all: HashMap<(u64, u64), u64>,
}

impl Arcs {
    pub(crate) fn new() -> Self {
        Self { recent: Box::new([EMPTY; ENTRIES]), all: HashMap::new() }
    }

    #[inline(always)]
    fn recent(&mut self, from: u64, to: u64) -> &mut Entry {
        let mixed = (from >> 1 ^ (to >> 1).rotate_left(5)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &mut self.recent[(mixed >> 52) as usize & (ENTRIES - 1)]
    }

    /// Counts an arc once if it is a recent one: what the interpreter knows of where it
    /// leads.
    #[inline(always)]
    pub(crate) fn count_at_once(&mut self, from: u64, to: u64) -> Option<&mut Beyond> {
        let entry = self.recent(from, to);
        if entry.from != from || entry.to != to {
            return None;
        }
        entry.count += 1;
        Some(&mut entry.beyond)
    }

    /// Counts an arc once.
    #[inline(always)]
    pub(crate) fn count(&mut self, from: u64, to: u64) {
        if self.count_at_once(from, to).is_none() {
            let new = Entry { from, to, count: 1, ..EMPTY };
            let old = std::mem::replace(self.recent(from, to), new);
            self.keep(old);
        }
    }

    #[cold]
    fn keep(&mut self, entry: Entry) {
        self.add(entry.from, entry.to, entry.count);
    }

    /// Counts an arc many times. A jump to what follows it is none: control goes on.
    pub(crate) fn add(&mut self, from: u64, to: u64, count: u64) {
        if count > 0 && from != to {
            *self.all.entry((from, to)).or_default() += count;
        }
    }

    /// All arcs, and begins anew.
    pub(crate) fn take(&mut self) -> HashMap<(u64, u64), u64> {
        for at in 0..ENTRIES {
            let old = std::mem::replace(&mut self.recent[at], EMPTY);
            self.keep(old);
        }
        std::mem::take(&mut self.all)
    }
}
