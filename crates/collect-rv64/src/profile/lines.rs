//! The table of lines that pass: direct-mapped, from a line of the guest to the
//! host's bytes and to the place of its time of use. Generated code looks here
//! instead of in the page table, so that one look both translates and answers
//! the caches.
//!
//! A line whose page left the TLB is hidden: it comes back with its page.
//!
//! One bank for each mode, as in `tlb`. A line is in the table only while its
//! page's translation is, while the models let it pass, and while RAM stays
//! where it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::models::Stamps;
use crate::tlb::Tlb;

/// Entries of a bank. A power of two, and several times a first-level cache.
pub(crate) const LINE_ENTRIES: usize = 4096;
/// The size of an entry as a power of two.
pub(crate) const LINE_SHIFT: u32 = 5;
/// A tag that no line has: lines have at least eight bytes.
const NO_LINE: u64 = 1;
/// What a hidden line's tags have besides: no line's address ends so.
const HIDDEN: u64 = 2;
const BANKS: usize = 4;

/// A line that passes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Line {
    /// The line's address if loads pass.
    pub(crate) read: u64,
    /// The same for stores.
    pub(crate) write: u64,
    /// Added to a guest address gives the host's.
    pub(crate) addend: u64,
    /// Where its time of use is written.
    pub(crate) stamp: *const AtomicU64,
}

const _: () = assert!(size_of::<Line>() == 1 << LINE_SHIFT);

impl Line {
    const EMPTY: Self = Self { read: NO_LINE, write: NO_LINE, addend: 0, stamp: std::ptr::null() };
}

/// What translations a table was filled under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Basis {
    changes: u64,
    ram: u64,
}

/// The lines of one thread.
#[derive(Debug)]
pub(crate) struct Lines {
    banks: [Vec<Line>; BANKS],
    active: usize,
    shift: u32,
    basis: Basis,
    /// For each bank a bit an entry: those that are empty are clear.
    filled: [Vec<u64>; BANKS],
    stamps: Stamps,
}

impl Lines {
    /// An empty table for lines of `1 << shift` bytes, with their times of use.
    pub(crate) fn new(shift: u32, stamps: Stamps) -> Self {
        Self {
            banks: std::array::from_fn(|_| Vec::new()),
            active: 0,
            shift,
            basis: Basis { changes: 0, ram: 0 },
            filled: std::array::from_fn(|_| Vec::new()),
            stamps,
        }
    }

    /// Follows the hart to its present translations, and RAM to its place.
    pub(crate) fn follow(&mut self, tlb: &Tlb, ram: u64) {
        let now = Basis { changes: tlb.changes(), ram };
        if now != self.basis {
            self.clear();
            self.basis = now;
        }
        self.select(tlb.active());
    }

    /// Without translations there is one bank.
    pub(crate) fn select(&mut self, bank: usize) {
        self.active = bank & (BANKS - 1);
        if self.banks[self.active].is_empty() {
            self.banks[self.active] = vec![Line::EMPTY; LINE_ENTRIES];
            self.filled[self.active] = vec![0; LINE_ENTRIES / 64];
        }
    }

    /// The active bank, for generated code.
    pub(crate) fn bank(&self) -> *const Line {
        self.banks[self.active].as_ptr()
    }

    #[inline(always)]
    fn slot(&self, va: u64) -> usize {
        (va >> self.shift) as usize & (LINE_ENTRIES - 1)
    }

    #[inline(always)]
    fn line(&self, va: u64) -> u64 {
        va >> self.shift << self.shift
    }

    /// Whether a load of `size` bytes passes; then takes note of its time.
    #[inline(always)]
    pub(crate) fn load(&self, va: u64, size: u64, now: u64) -> bool {
        let Some(entry) = self.banks[self.active].get(self.slot(va)) else { return false };
        entry.read == self.line(va.wrapping_add(size - 1)) && self.stamp(entry, now)
    }

    /// The same for a store.
    #[inline(always)]
    pub(crate) fn store(&self, va: u64, size: u64, now: u64) -> bool {
        let Some(entry) = self.banks[self.active].get(self.slot(va)) else { return false };
        entry.write == self.line(va.wrapping_add(size - 1)) && self.stamp(entry, now)
    }

    #[inline(always)]
    fn stamp(&self, entry: &Line, now: u64) -> bool {
        self.write_stamp(entry.stamp as usize, now);
        true
    }

    /// Writes a time of use at the host address that [`stamp_of`](Self::stamp_of)
    /// gave.
    #[inline(always)]
    pub(crate) fn write_stamp(&self, at: usize, now: u64) {
        let bytes = at.wrapping_sub(self.stamps.as_ptr() as usize);
        if let Some(stamp) = self.stamps.get(bytes / 8) {
            stamp.store(now, Relaxed);
        }
    }

    /// Where the time of use of a slot is written.
    pub(crate) fn stamp_of(&self, slot: u32) -> *const AtomicU64 {
        self.stamps.get(slot as usize).map_or(std::ptr::null(), std::ptr::from_ref)
    }

    /// Lets the line of `va` pass: loads, stores, both or neither.
    pub(crate) fn enter(&mut self, va: u64, (read, write): (bool, bool), addend: u64, slot: u32) {
        let (line, place, stamp) = (self.line(va), self.slot(va), self.stamp_of(slot));
        let tag = |passes: bool| if passes && !stamp.is_null() { line } else { NO_LINE };
        let Some(entry) = self.banks[self.active].get_mut(place) else { return };
        *entry = Line { read: tag(read), write: tag(write), addend, stamp };
        self.filled[self.active][place / 64] |= 1 << (place % 64);
    }

    /// The line of `va` passes no longer.
    pub(crate) fn forget(&mut self, va: u64) {
        let (line, place) = (self.line(va), self.slot(va));
        for bank in &mut self.banks {
            if let Some(entry) = bank.get_mut(place)
                && (entry.read & !HIDDEN == line || entry.write & !HIDDEN == line)
            {
                (entry.read, entry.write) = (NO_LINE, NO_LINE);
            }
        }
    }

    /// Visits the filled entries among `lines` from `first` on.
    fn visit(&mut self, first: usize, lines: usize, mut visit: impl FnMut(&mut Line)) {
        for (bank, filled) in self.banks.iter_mut().zip(&mut self.filled) {
            let groups = first / 64..(first + lines).div_ceil(64);
            let Some(bits) = filled.get_mut(groups.clone()) else { continue };
            for (group, bits) in groups.zip(bits) {
                let mut left = *bits;
                while left != 0 {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    let Some(entry) = bank.get_mut(64 * group + bit as usize) else { continue };
                    visit(entry);
                    if entry.read == NO_LINE && entry.write == NO_LINE {
                        *bits &= !(1 << bit);
                    }
                }
            }
        }
    }

    /// Changes the tags of a page's lines.
    fn retag(&mut self, va: u64, bytes: u64, change: impl Fn(u64) -> u64) {
        let start = va & !(bytes - 1);
        let inside = |tag: u64| tag & !(bytes - 1) == start && tag != NO_LINE;
        let lines = (bytes >> self.shift).min(LINE_ENTRIES as u64) as usize;
        let first = self.slot(start) & !(lines - 1);
        self.visit(first, lines, |entry| {
            let tag = |tag: u64| if inside(tag) { change(tag) } else { tag };
            (entry.read, entry.write) = (tag(entry.read), tag(entry.write));
        });
    }

    /// Hides the lines of a page.
    pub(crate) fn hide_page(&mut self, va: u64, bytes: u64) {
        self.retag(va, bytes, |tag| tag | HIDDEN);
    }

    /// Lets the hidden lines of a page pass again.
    pub(crate) fn show_page(&mut self, va: u64, bytes: u64) {
        self.retag(va, bytes, |tag| tag & !HIDDEN);
    }

    /// No line passes any longer.
    pub(crate) fn clear(&mut self) {
        self.visit(0, LINE_ENTRIES, |entry| *entry = Line::EMPTY);
    }
}
