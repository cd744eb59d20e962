//! The table of lines that pass: direct-mapped, from a line of the guest to the
//! host's bytes and to the place of its time of use. Generated code looks here
//! instead of in the page table, so that one look both translates and answers
//! the caches.
//!
//! A line whose page left the TLB is hidden: it comes back with its page. For each
//! page a record says which of its lines may be in the table, so that a page that
//! comes or goes costs a visit of those alone. A line is in the table only while
//! its page has a record.
//!
//! One bank for each mode, as in `tlb`. A line is in the table only while its
//! page's translation is, while the models let it pass, and while RAM stays
//! where it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::host::Data;
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

/// Pages that have records. A power of two.
const PAGES: usize = 2048;
/// Bits of a page's record, and lines that stand together in the table.
const GROUP: usize = 64;
/// No page: an address has fewer bits.
const NO_PAGE: u64 = u64::MAX;
/// What the number of a page has besides that is not in the TLB.
const ABSENT: u64 = 1 << 63;

/// What is known of a page.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Its number, and whether it is absent.
    number: u64,
    /// Which of its lines may be in the table, by the lowest bits of their numbers.
    lines: u64,
}

const UNKNOWN: Page = Page { number: NO_PAGE, lines: 0 };

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

    /// Changes its tags if it is the line that begins at `line`, hidden or not.
    #[inline(always)]
    fn retag(&mut self, line: u64, change: &impl Fn(u64) -> u64) {
        let tag = |tag: u64| if tag & !HIDDEN == line { change(tag) } else { tag };
        (self.read, self.write) = (tag(self.read), tag(self.write));
    }
}

/// The lines of one mode.
type Bank = [Line; LINE_ENTRIES];

fn empty_bank() -> Box<Bank> {
    Box::new([Line::EMPTY; LINE_ENTRIES])
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
    first: Box<Bank>,
    /// The banks of further modes, if they are in use.
    others: [Option<Box<Bank>>; BANKS - 1],
    active: usize,
    /// Whether only the first is.
    alone: bool,
    shift: u32,
    /// The bits of a line's address.
    line_mask: u64,
    /// Bytes of a page of the TLB as a power of two.
    page_shift: u32,
    pages: Box<[Page; PAGES]>,
    /// For each record a bit: those that are clear name no lines.
    used: [u64; PAGES / 64],
    /// The same: those that are clear are of no page.
    known: [u64; PAGES / 64],
    basis: Basis,
    stamps: Stamps,
}

impl Lines {
    /// An empty table for lines of `1 << shift` bytes in pages of `1 << page_shift`,
    /// with their times of use.
    pub(crate) fn new((shift, page_shift): (u32, u32), stamps: Stamps) -> Self {
        Self {
            first: empty_bank(),
            others: [const { None }; BANKS - 1],
            active: 0,
            alone: true,
            shift,
            line_mask: !0 << shift,
            page_shift,
            pages: Box::new([UNKNOWN; PAGES]),
            used: [0; PAGES / 64],
            known: [0; PAGES / 64],
            basis: Basis { changes: 0, ram: 0 },
            stamps,
        }
    }

    /// Follows the hart to its present translations, and RAM to its place.
    pub(crate) fn follow(&mut self, tlb: &Tlb, ram: u64) {
        self.follow_changes(tlb, ram);
        self.select(tlb.active());
    }

    /// The same while the hart's mode stays what it is.
    #[inline]
    pub(crate) fn follow_changes(&mut self, tlb: &Tlb, ram: u64) {
        let now = Basis { changes: tlb.changes(), ram };
        if now != self.basis {
            self.clear();
            self.basis = now;
        }
    }

    /// Without translations there is one bank.
    pub(crate) fn select(&mut self, bank: usize) {
        self.active = bank & (BANKS - 1);
        if let Some(other) = self.active.checked_sub(1).and_then(|n| self.others.get_mut(n)) {
            other.get_or_insert_with(empty_bank);
            self.alone = false;
        }
    }

    #[inline(always)]
    fn active_bank(&self) -> &Bank {
        let other = || self.others.get(self.active.wrapping_sub(1))?.as_deref();
        if self.active == 0 { &self.first } else { other().unwrap_or(&self.first) }
    }

    #[inline(always)]
    fn active_bank_mut(&mut self) -> &mut Bank {
        let other = self.active.checked_sub(1).and_then(|n| self.others.get_mut(n)?.as_deref_mut());
        other.unwrap_or(&mut self.first)
    }

    /// Does the same to all banks.
    #[inline(always)]
    fn each_bank(&mut self, mut change: impl FnMut(&mut Bank)) {
        change(&mut self.first);
        if !self.alone {
            self.others.iter_mut().flatten().for_each(|bank| change(bank));
        }
    }

    /// The active bank, for generated code.
    pub(crate) fn bank(&self) -> *const Line {
        self.active_bank().as_ptr()
    }

    #[inline(always)]
    fn slot(&self, va: u64) -> usize {
        (va >> self.shift) as usize & (LINE_ENTRIES - 1)
    }

    #[inline(always)]
    fn line(&self, va: u64) -> u64 {
        va & self.line_mask
    }

    /// Whether a load of `size` bytes passes; then takes note of its time.
    #[inline(always)]
    pub(crate) fn load(&self, va: u64, size: u64, now: u64) -> bool {
        let entry = &self.active_bank()[self.slot(va)];
        entry.read == self.line(va.wrapping_add(size - 1)) && self.stamp(entry, now)
    }

    /// The same for a store.
    #[inline(always)]
    pub(crate) fn store(&self, va: u64, size: u64, now: u64) -> bool {
        let entry = &self.active_bank()[self.slot(va)];
        entry.write == self.line(va.wrapping_add(size - 1)) && self.stamp(entry, now)
    }

    /// The active bank, for handlers.
    pub(crate) fn data(&self) -> Data {
        Data::new(self.active_bank(), self.shift)
    }

    /// The bits of a line's address.
    pub(crate) const fn mask(&self) -> u64 {
        self.line_mask
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

    /// The slot of the line of a store whose loads pass and whose stores do not.
    #[inline(always)]
    pub(crate) fn clean(&self, va: u64, size: u64) -> Option<u32> {
        let entry = &self.active_bank()[self.slot(va)];
        let line = self.line(va.wrapping_add(size - 1));
        let bytes = (entry.stamp as usize).wrapping_sub(self.stamps.as_ptr() as usize);
        (entry.read == line && entry.write != line).then_some((bytes / 8) as u32)
    }

    /// Lets stores to the line of `va` pass, as loads of it do.
    #[inline(always)]
    pub(crate) fn let_stores_pass(&mut self, va: u64) {
        let place = self.slot(va);
        let entry = &mut self.active_bank_mut()[place];
        entry.write = entry.read;
    }

    /// Where the time of use of a slot is written.
    pub(crate) fn stamp_of(&self, slot: u32) -> *const AtomicU64 {
        self.stamps.get(slot as usize).map_or(std::ptr::null(), std::ptr::from_ref)
    }

    /// The record of the page of `va`, or of another page in its place.
    #[inline(always)]
    fn page_at(&mut self, va: u64) -> (u64, &mut Page) {
        let number = va >> self.page_shift;
        (number, &mut self.pages[number as usize & (PAGES - 1)])
    }

    /// The bit of a line in its page's record. Lines of large pages share bits.
    #[inline(always)]
    const fn bit(&self, va: u64) -> u64 {
        1 << (va >> self.shift & 63)
    }

    /// Whether the page of `va` is known to be in the TLB.
    #[inline(always)]
    pub(crate) fn page_passes(&self, va: u64) -> bool {
        let number = va >> self.page_shift;
        self.pages[number as usize & (PAGES - 1)].number == number
    }

    /// Lets the line of `va` pass: loads, stores, both or neither. Its page must
    /// be in the TLB.
    #[inline(always)]
    pub(crate) fn enter(&mut self, va: u64, (read, write): (bool, bool), addend: u64, slot: u32) {
        let (line, place, stamp) = (self.line(va), self.slot(va), self.stamp_of(slot));
        let (bit, (number, page)) = (self.bit(va), self.page_at(va));
        if page.number != number {
            return;
        }
        page.lines |= bit;
        let record = number as usize & (PAGES - 1);
        self.used[record / 64] |= 1 << (record % 64);
        let tag = |passes: bool| if passes && !stamp.is_null() { line } else { NO_LINE };
        self.active_bank_mut()[place] = Line { read: tag(read), write: tag(write), addend, stamp };
    }

    /// The line of `va` passes no longer.
    #[inline(always)]
    pub(crate) fn forget(&mut self, va: u64) {
        let (line, place) = (self.line(va), self.slot(va));
        self.each_bank(|bank| {
            let entry = &mut bank[place];
            if entry.read & !HIDDEN == line || entry.write & !HIDDEN == line {
                (entry.read, entry.write) = (NO_LINE, NO_LINE);
            }
        });
        if self.page_shift <= self.shift + 6 {
            let (bit, (number, page)) = (self.bit(va), self.page_at(va));
            if page.number & !ABSENT == number {
                page.lines &= !bit;
            }
        }
    }

    /// Changes the tags of the lines of a page that may be in the table.
    #[inline(always)]
    fn retag(&mut self, page: Page, change: impl Fn(u64) -> u64) {
        let start = (page.number & !ABSENT) << self.page_shift;
        if self.page_shift > self.shift + 6 {
            return self.retag_large(start, page.lines, &change);
        }
        // The lines of a page are in one group, each at the place of its bit.
        let (group, shift) = (self.slot(start) / GROUP, self.shift);
        let first = start & !((GROUP as u64) << shift).wrapping_sub(1);
        self.each_bank(|bank| {
            let Some(entries) = bank.as_chunks_mut::<GROUP>().0.get_mut(group) else { return };
            let mut left = page.lines;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                entries[bit as usize % GROUP].retag(first | u64::from(bit) << shift, &change);
            }
        });
    }

    /// The same for a page that has more lines than its record has bits.
    #[cold]
    fn retag_large(&mut self, start: u64, lines: u64, change: &impl Fn(u64) -> u64) {
        let mut left = lines;
        while left != 0 {
            let first = start | u64::from(left.trailing_zeros()) << self.shift;
            left &= left - 1;
            let mut at = first;
            while (at ^ start) >> self.page_shift == 0 {
                let (place, line) = (self.slot(at), self.line(at));
                self.each_bank(|bank| bank[place].retag(line, change));
                at = at.wrapping_add((GROUP as u64) << self.shift);
            }
        }
    }

    /// The page of `va` left the TLB: hides its lines.
    #[inline(always)]
    pub(crate) fn hide_page(&mut self, va: u64) {
        let record = (va >> self.page_shift) as usize & (PAGES - 1);
        if self.known[record / 64] >> (record % 64) & 1 == 0 {
            return;
        }
        let (number, page) = self.page_at(va);
        if page.number != number {
            return;
        }
        let hidden = *page;
        page.number |= ABSENT;
        self.retag(hidden, |tag| tag | HIDDEN);
    }

    /// The page of `va` is in the TLB: its hidden lines pass again.
    pub(crate) fn show_page(&mut self, va: u64) {
        let (number, page) = self.page_at(va);
        let record = number as usize & (PAGES - 1);
        let old = std::mem::replace(page, Page { number, lines: 0 });
        if old.number & !ABSENT == number {
            page.lines = old.lines;
            self.retag(old, |tag| tag & !HIDDEN);
        } else {
            self.known[record / 64] |= 1 << (record % 64);
            if old.lines != 0 {
                self.retag(old, |_| NO_LINE);
            }
        }
    }

    /// No line passes any longer.
    pub(crate) fn clear(&mut self) {
        for group in 0..self.used.len() {
            let mut left = std::mem::take(&mut self.used[group]);
            while left != 0 {
                let at = 64 * group + left.trailing_zeros() as usize;
                left &= left - 1;
                let page = self.pages[at];
                self.retag(page, |_| NO_LINE);
                self.pages[at].lines = 0;
            }
        }
    }
}
