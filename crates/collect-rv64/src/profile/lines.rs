//! The table of lines that pass: direct-mapped, from a line of the guest to the
//! host's bytes and to the place of its time of use. Generated code looks here
//! instead of in the page table, so that one look both translates and answers
//! the caches.
//!
//! A line whose page left the TLB is hidden. For each page a record says which of its
//! lines may pass, so that a page that goes costs a visit of those alone. Hidden lines
//! come back when they are used again while their page is there.
//!
//! The record of a page also knows where it is, so that generated code can bring lines
//! of it into the table by itself.
//!
//! One bank for each mode, as in `tlb`. A line is in the table only while its
//! page's translation is, while the models let it pass, and while RAM stays
//! where it is.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::host::{Data, FOUND_SHIFT, Fetched};
use super::line::{CLEAN, Geometry, HIDDEN, Line, NO_LINE, Passing, Stores, same_line};
use super::models::{Sets, Stamps, WRITTEN};
use crate::tlb::Tlb;

/// Entries of a bank. A power of two, and several times a first-level cache.
pub(crate) const LINE_ENTRIES: usize = 4096;
const BANKS: usize = 4;

/// Pages that have records. A power of two.
pub(crate) const PAGES: usize = 2048;
/// Bits of a page's record, and lines that stand together in the table.
const GROUP: usize = 64;
/// No page: an address has fewer bits.
const NO_PAGE: u64 = u64::MAX;
/// What the number of a page has besides that is not in the TLB.
pub(crate) const ABSENT: u64 = 1 << 63;

/// What is known of a page.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Page {
    /// Its number, and whether it is absent.
    pub(crate) number: u64,
    /// Which of its lines may be in the table and are not hidden for good, by the lowest
    /// bits of their numbers. Lines of large pages share bits.
    pub(crate) lines: u64,
    /// Added to a guest address gives the host's.
    pub(crate) addend: u64,
    /// What the tag for stores has besides in a line that was brought in by a load; zero
    /// if the page's place is not known.
    pub(crate) stores: u64,
}

/// The size of a page's record as a power of two.
pub(crate) const PAGE_RECORD_SHIFT: u32 = size_of::<Page>().trailing_zeros();

const UNKNOWN: Page = Page { number: NO_PAGE, lines: 0, addend: 0, stores: 0 };

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
    /// An empty bank, if lines are not of the usual size.
    unusual: Option<Box<Bank>>,
    active: usize,
    /// Whether only the first is.
    alone: bool,
    shift: u32,
    /// The bits of a line's address.
    line_mask: u64,
    /// Bytes of a page of the TLB as a power of two.
    page_shift: u32,
    pages: Box<[Page; PAGES]>,
    /// For each record a bit: those that are clear name no lines, and no place.
    used: [u64; PAGES / 64],
    /// For each group of entries a bit: those that are clear are empty.
    groups: [u64; LINE_ENTRIES / GROUP / 64],
    basis: Basis,
    stamps: Stamps,
    /// Where lines are marked as written, one word for each stamp.
    marks: Option<Stamps>,
}

impl Lines {
    /// An empty table for lines of `1 << shift` bytes in pages of `1 << page_shift`,
    /// with their times of use.
    pub(crate) fn new((shift, page_shift): (u32, u32), stamps: Stamps) -> Self {
        Self {
            first: empty_bank(),
            others: [const { None }; BANKS - 1],
            unusual: (shift != FOUND_SHIFT).then(empty_bank),
            active: 0,
            alone: true,
            shift,
            line_mask: !0 << shift,
            page_shift,
            pages: Box::new([UNKNOWN; PAGES]),
            used: [0; PAGES / 64],
            groups: [0; LINE_ENTRIES / GROUP / 64],
            basis: Basis { changes: 0, ram: 0 },
            stamps,
            marks: None,
        }
    }

    /// Lines can be marked as written here.
    pub(crate) fn mark_in(&mut self, marks: Option<Stamps>) {
        self.marks = marks.filter(|marks| marks.len() == self.stamps.len());
    }

    /// Whether its times of use and its marks are those of a cache.
    pub(crate) fn is_of(&self, sets: &Sets) -> bool {
        let marks = self.marks.as_ref();
        Arc::ptr_eq(&self.stamps, &sets.stamps)
            && marks.is_some_and(|marks| Arc::ptr_eq(marks, &sets.words))
    }

    /// How far a line's mark is from its time of use, in bytes. Nothing, if there are
    /// no marks: no line is clean then.
    pub(crate) fn mark_distance(&self) -> u64 {
        let marks = self.marks.as_ref().unwrap_or(&self.stamps);
        (marks.as_ptr() as u64).wrapping_sub(self.stamps.as_ptr() as u64)
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

    /// The host's address of bytes in a line that is not of the size that handlers find,
    /// if a load of them, or a store, passes; then takes note of its time.
    #[inline(always)]
    pub(crate) fn unusual(&self, va: u64, (size, store): (u64, bool), now: u64) -> Option<u64> {
        self.unusual.as_ref()?;
        let entry = &self.active_bank()[self.slot(va)];
        let tag = if store { entry.write } else { entry.read };
        let passes = tag == self.line(va.wrapping_add(size - 1)) && self.stamp(entry, now);
        passes.then(|| va.wrapping_add(entry.addend))
    }

    /// The active bank, for handlers that access data: one that has nothing if its lines are
    /// not of the size that they find.
    #[inline(always)]
    pub(crate) fn data(&self) -> Data {
        Data::new(self.unusual.as_deref().unwrap_or_else(|| self.active_bank()))
    }

    /// The same for handlers that fetch.
    pub(crate) fn fetched(&self) -> Fetched {
        Fetched::new(self.data())
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

    /// Whether a store to one line passes as that is clean, which it is no longer then.
    #[inline(always)]
    pub(crate) fn store_to_clean(&mut self, va: u64, now: u64) -> bool {
        let (place, line) = (self.slot(va), self.line(va));
        let entry = &mut self.active_bank_mut()[place];
        if entry.write != line | CLEAN {
            return false;
        }
        entry.write = line;
        let stamp = entry.stamp as usize;
        let slot = stamp.wrapping_sub(self.stamps.as_ptr() as usize) / 8;
        if let Some(mark) = self.marks.as_ref().and_then(|marks| marks.get(slot)) {
            mark.store(mark.load(Relaxed) | WRITTEN, Relaxed);
        }
        self.write_stamp(stamp, now);
        true
    }

    /// Where the time of use of a slot is written.
    #[inline(always)]
    pub(crate) fn stamp_of(&self, slot: u32) -> *const AtomicU64 {
        self.stamps.get(slot as usize).map_or(std::ptr::null(), std::ptr::from_ref)
    }

    /// Its lines and pages.
    #[inline(always)]
    pub(crate) const fn geometry(&self) -> Geometry {
        Geometry { line: self.shift, page: self.page_shift }
    }

    /// Whether the page of `va` is known to be in the TLB.
    #[inline(always)]
    pub(crate) fn page_passes(&self, va: u64) -> bool {
        self.page_passes_in(self.geometry(), va)
    }

    /// The same in a table of this geometry.
    #[inline(always)]
    pub(crate) fn page_passes_in(&self, geometry: Geometry, va: u64) -> bool {
        let number = va >> geometry.page;
        self.pages[number as usize & (PAGES - 1)].number == number
    }

    /// Lets the line of `va` pass: loads, stores, both or neither. Its page must
    /// be in the TLB.
    #[inline(always)]
    pub(crate) fn enter(&mut self, va: u64, passing: Passing, addend: u64, slot: u32) {
        self.enter_in(self.geometry(), va, passing, (addend, slot));
    }

    /// The same in a table of this geometry.
    #[inline(always)]
    pub(crate) fn enter_in(
        &mut self,
        geometry: Geometry,
        va: u64,
        passing: Passing,
        (addend, slot): (u64, u32),
    ) {
        let (line, stamp) = (va >> geometry.line << geometry.line, self.stamp_of(slot));
        let number = va >> geometry.page;
        let record = number as usize & (PAGES - 1);
        let page = &mut self.pages[record];
        if page.number != number || stamp.is_null() {
            return;
        }
        self.used[record / 64] |= 1 << (record % 64);
        page.lines |= 1 << (va >> geometry.line & 63);
        let marked = passing.stores != Stores::Told && self.marks.is_some();
        if passing.loads && addend != 0 {
            (page.addend, page.stores) = (addend, if marked { CLEAN } else { NO_LINE });
        }
        let read = if passing.loads { line } else { NO_LINE };
        let write = match passing.stores {
            Stores::Pass => line,
            Stores::Marked if self.marks.is_some() => line | CLEAN,
            _ => NO_LINE,
        };
        let place = (va >> geometry.line) as usize & (LINE_ENTRIES - 1);
        self.groups[place / GROUP / 64] |= 1 << (place / GROUP % 64);
        self.active_bank_mut()[place] = Line { read, write, addend, stamp };
    }

    /// Lets the line of `va` pass again if it is hidden and its page is back: whether
    /// it was.
    #[inline(always)]
    pub(crate) fn unhide(&mut self, geometry: Geometry, va: u64) -> bool {
        let line = va >> geometry.line << geometry.line;
        let place = (va >> geometry.line) as usize & (LINE_ENTRIES - 1);
        let entry = &mut self.active_bank_mut()[place];
        if entry.read ^ line != HIDDEN && (entry.write ^ line) & !CLEAN != HIDDEN {
            return false;
        }
        entry.retag(line, &|tag| tag & !HIDDEN);
        let number = va >> geometry.page;
        let page = &mut self.pages[number as usize & (PAGES - 1)];
        page.lines |= 1 << (va >> geometry.line & 63);
        true
    }

    /// The records of pages, for generated code; none unless the table is usual and has
    /// one bank.
    pub(crate) fn records(&self) -> Option<*const Page> {
        let usual = self.alone && self.geometry() == Geometry::USUAL;
        usual.then_some(self.pages.as_ptr())
    }

    /// The line of `va` passes no longer.
    #[inline(always)]
    pub(crate) fn forget(&mut self, va: u64) {
        self.forget_in(self.geometry(), va);
    }

    /// Whether there is one bank.
    #[inline(always)]
    pub(crate) const fn is_alone(&self) -> bool {
        self.alone
    }

    /// The same in the usual table of one bank.
    #[inline(always)]
    pub(crate) fn forget_alone(&mut self, va: u64) {
        let shift = Geometry::USUAL.line;
        let entry = &mut self.first[(va >> shift) as usize & (LINE_ENTRIES - 1)];
        let line = va >> shift << shift;
        if same_line(entry.read, line) | same_line(entry.write, line) {
            (entry.read, entry.write) = (NO_LINE, NO_LINE);
        }
        self.unname(Geometry::USUAL, va);
    }

    /// The record of a line's page names it no longer.
    #[inline(always)]
    fn unname(&mut self, geometry: Geometry, va: u64) {
        let number = va >> geometry.page;
        let page = &mut self.pages[number as usize & (PAGES - 1)];
        if page.number & !ABSENT == number && geometry.page <= geometry.line + 6 {
            page.lines &= !(1 << (va >> geometry.line & 63));
        }
    }

    /// The same in a table of this geometry.
    #[inline(always)]
    pub(crate) fn forget_in(&mut self, geometry: Geometry, va: u64) {
        let line = va >> geometry.line << geometry.line;
        let place = (va >> geometry.line) as usize & (LINE_ENTRIES - 1);
        self.each_bank(|bank| {
            let entry = &mut bank[place];
            if same_line(entry.read, line) || same_line(entry.write, line) {
                (entry.read, entry.write) = (NO_LINE, NO_LINE);
            }
        });
        self.unname(geometry, va);
    }

    /// Changes the tags of the lines of a page that may be in the table.
    #[inline(always)]
    fn retag(&mut self, geometry: Geometry, page: Page, change: impl Fn(u64) -> u64) {
        let start = (page.number & !ABSENT) << geometry.page;
        if geometry.page > geometry.line + 6 {
            return self.retag_large(start, page.lines, &change);
        }
        // The lines of a page are in one group, each at the place of its bit.
        let shift = geometry.line;
        let group = (start >> shift) as usize & (LINE_ENTRIES - 1) & !(GROUP - 1);
        let first = start & !((GROUP as u64) << shift).wrapping_sub(1);
        self.each_bank(|bank| {
            let mut left = page.lines;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                let entry = &mut bank[(group | bit as usize) & (LINE_ENTRIES - 1)];
                entry.retag(first | u64::from(bit) << shift, &change);
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

    /// The page of `va` left the TLB: hides its lines, each until it is used again.
    #[inline(always)]
    pub(crate) fn hide_lines(&mut self, geometry: Geometry, va: u64) {
        let number = va >> geometry.page;
        let page = &mut self.pages[number as usize & (PAGES - 1)];
        if page.number != number {
            return;
        }
        let hidden = *page;
        (page.number, page.lines) = (number | ABSENT, 0);
        self.retag(geometry, hidden, |tag| tag | HIDDEN);
    }

    /// The page of `va` is in the TLB.
    #[inline(always)]
    pub(crate) fn show_page(&mut self, geometry: Geometry, va: u64) {
        let number = va >> geometry.page;
        let page = &mut self.pages[number as usize & (PAGES - 1)];
        let old = *page;
        page.number = number;
        if old.number & !ABSENT == number {
            return;
        }
        (page.lines, page.addend, page.stores) = (0, 0, 0);
        if old.lines != 0 {
            self.retag(geometry, old, |_| NO_LINE);
        }
    }

    /// No line passes any longer.
    pub(crate) fn clear(&mut self) {
        for group in 0..self.used.len() {
            let mut left = std::mem::take(&mut self.used[group]);
            while left != 0 {
                let at = 64 * group + left.trailing_zeros() as usize;
                left &= left - 1;
                let page = &mut self.pages[at];
                (page.lines, page.addend, page.stores) = (0, 0, 0);
            }
        }
        for number in 0..self.groups.len() {
            let mut left = std::mem::take(&mut self.groups[number]);
            while left != 0 {
                let at = GROUP * (64 * number + left.trailing_zeros() as usize);
                left &= left - 1;
                self.each_bank(|bank| {
                    if let Some(group) = bank.get_mut(at..at + GROUP) {
                        group.fill(Line::EMPTY);
                    }
                });
            }
        }
    }
}
