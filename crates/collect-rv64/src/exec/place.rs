//! Places in decoded code, as handlers pass them on: one word that names a slot,
//! and the pages that a run has been to.
//!
//! By slices, with a length in a register and a check of it in every handler, the
//! interpreter takes a fifth more instructions of the host.
//!
//! Invariant of [`At`]: it points to a slot of an array that lives for `'a` and has
//! two slots that are never filled behind its last one.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(unsafe_code, reason = "a checked index costs every handler several instructions")]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::code::{BEHIND, Page, SLOTS, Slot};
use crate::ram::{PAGE_SHIFT, PAGE_SIZE};

/// Pages that are found at once when a jump leads there. A power of two; sqlite3 is
/// spread over some 250.
const KNOWN: usize = 512;
/// The bits of a tag that tell runs apart.
const RUN_SHIFT: u32 = 52;

/// A slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a>(NonNull<Slot>, PhantomData<&'a Slot>);

impl<'a> At<'a> {
    #[inline(always)]
    pub(super) fn slot(self) -> &'a Slot {
        // SAFETY: the type's invariant.
        unsafe { self.0.as_ref() }
    }

    /// The slot behind an instruction of so many halfwords.
    ///
    /// # Safety
    ///
    /// The slot is filled, and there are two at most.
    #[inline(always)]
    pub(super) unsafe fn next(self, halves: usize) -> Self {
        // SAFETY: a filled slot is not one of the two behind the last.
        Self(unsafe { self.0.add(halves) }, PhantomData)
    }
}

/// Counts of an instruction of a page each, by their ordinals, of which there is one for
/// each slot; null if nobody counts. They live as long as the run.
pub(crate) type Counters = *mut u64;

/// The page that is run in.
#[derive(Clone, Copy, Debug)]
pub(super) struct InPage<'a> {
    first: At<'a>,
    /// The address of the first slot.
    va: u64,
    /// So many bytes from there on have slots of their own.
    bytes: u64,
    counters: Counters,
}

impl<'a> InPage<'a> {
    /// A whole page, with a count for each of its slots.
    pub(super) fn new(page: &'a Page, va: u64, counters: Counters) -> Self {
        let first = At(NonNull::from(page).cast(), PhantomData);
        Self { first, va, bytes: PAGE_SIZE as u64, counters }
    }

    /// One instruction.
    pub(super) fn alone(slots: &'a [Slot; 1 + BEHIND], va: u64) -> Self {
        let first = At(NonNull::from(slots).cast(), PhantomData);
        Self { first, va, bytes: 2, counters: std::ptr::null_mut() }
    }

    /// The slot of an address, if it is one of this page.
    #[inline(always)]
    pub(super) fn at(&self, pc: u64) -> Option<At<'a>> {
        let offset = pc.wrapping_sub(self.va);
        if offset >= self.bytes {
            return None;
        }
        // SAFETY: there is a slot for every halfword of so many bytes.
        Some(At(unsafe { self.first.0.add((offset >> 1) as usize) }, PhantomData))
    }

    /// The slot so many bytes of code from a slot of this page, if it is one, too.
    ///
    /// # Safety
    ///
    /// It is a whole page.
    #[inline(always)]
    pub(super) unsafe fn at_distance(&self, at: At<'a>, bytes: u64) -> Option<At<'a>> {
        let distance = bytes.wrapping_mul(size_of::<Slot>() as u64 / 2);
        let offset = self.offset(at).wrapping_add(distance);
        let to = at.0.as_ptr().wrapping_byte_add(distance as usize);
        // Instructions stand at even addresses.
        if offset >= const { PAGE_SIZE as u64 * (size_of::<Slot>() as u64 / 2) } {
            return None;
        }
        // SAFETY: there is a slot for every halfword of a page.
        Some(At(unsafe { NonNull::new_unchecked(to) }, PhantomData))
    }

    /// The slot of an address of this page.
    ///
    /// # Safety
    ///
    /// It is a whole page.
    #[inline(always)]
    pub(super) unsafe fn at_offset(&self, pc: u64) -> At<'a> {
        let offset = pc as usize % PAGE_SIZE;
        // SAFETY: there is a slot for every halfword of a page.
        At(unsafe { self.first.0.add(offset >> 1) }, PhantomData)
    }

    #[inline(always)]
    fn offset(&self, at: At<'a>) -> u64 {
        (at.0.as_ptr() as u64).wrapping_sub(self.first.0.as_ptr() as u64)
    }

    /// The address of a slot of this page.
    #[inline(always)]
    pub(super) fn pc(&self, at: At<'a>) -> u64 {
        self.va.wrapping_add(self.offset(at) / (size_of::<Slot>() as u64 / 2))
    }

    /// Counts the instruction of this page that has an ordinal.
    ///
    /// # Safety
    ///
    /// It is a whole page, and somebody counts.
    #[inline(always)]
    pub(super) unsafe fn count(&self, ordinal: usize) {
        // SAFETY: whoever gave the counters has one for each slot of a page, keeps
        // them for the run, and holds no reference to them meanwhile.
        unsafe { *self.counters.add(ordinal % SLOTS) += 1 };
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The page's number, and above it the run's.
    tag: u64,
    first: *const Page,
    counters: Counters,
}

/// No run has the number zero.
const EMPTY: Entry = Entry { tag: 0, first: std::ptr::null(), counters: std::ptr::null_mut() };

/// The page that a computed jump leads to, if a run has been there by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond {
    /// No run has the number zero.
    run: u64,
    first: *const Page,
    counters: Counters,
}

impl Beyond {
    pub(crate) const NOTHING: Self =
        Self { run: 0, first: std::ptr::null(), counters: std::ptr::null_mut() };
}

/// Runs so far, of whatever machine: no two have the same number.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Pages that the present run has been to. Those of earlier runs are not found.
#[derive(Debug)]
pub(crate) struct Known {
    entries: Box<[Entry; KNOWN]>,
    /// What tags of the present run have besides.
    run: u64,
    number: u64,
}

impl Default for Known {
    fn default() -> Self {
        Self { entries: Box::new([EMPTY; KNOWN]), run: 0, number: 0 }
    }
}

impl Known {
    /// A run begins.
    pub(super) fn begin(&mut self) {
        self.number = RUNS.fetch_add(1, Relaxed) + 1;
        self.run = self.run.wrapping_add(1 << RUN_SHIFT);
        if self.run == 0 {
            self.run = 1 << RUN_SHIFT;
            self.entries.fill(EMPTY);
        }
    }

    #[inline(always)]
    const fn place(&self, pc: u64) -> (usize, u64) {
        let page = pc >> PAGE_SHIFT;
        (page as usize & (KNOWN - 1), page | self.run)
    }

    /// The run is in a page.
    pub(super) fn enter(&mut self, page: &Page, here: &InPage<'_>) {
        let (place, tag) = self.place(here.va);
        self.entries[place] = Entry { tag, first: page, counters: here.counters };
    }

    /// The page of an address.
    ///
    /// # Safety
    ///
    /// Decoded code stays what it is from the beginning of the run until `'a` ends.
    #[inline(always)]
    pub(super) unsafe fn find<'a>(&self, pc: u64) -> Option<InPage<'a>> {
        let (place, tag) = self.place(pc);
        let entry = &self.entries[place];
        if entry.tag != tag {
            return None;
        }
        // SAFETY: it was entered in this run as a reference, and lives still.
        let page = unsafe { &*entry.first };
        Some(InPage::new(page, pc & !(PAGE_SIZE as u64 - 1), entry.counters))
    }

    /// Goes to the page of an address that a computed jump leads to, and takes note of it:
    /// whether it is known.
    ///
    /// # Safety
    ///
    /// As for [`find`](Self::find); and the present page is one that a run entered.
    #[inline(always)]
    pub(super) unsafe fn recall<'a>(
        &self,
        beyond: &mut Beyond,
        here: &mut InPage<'a>,
        pc: u64,
    ) -> bool {
        if beyond.run != self.number {
            // SAFETY: the same.
            return unsafe { self.seek(beyond, here, pc) };
        }
        // SAFETY: as in `find`.
        let page = unsafe { &*beyond.first };
        *here = InPage::new(page, pc & !(PAGE_SIZE as u64 - 1), beyond.counters);
        true
    }

    /// The same for a jump that is new to the run.
    #[cold]
    #[inline(never)]
    unsafe fn seek<'a>(&self, beyond: &mut Beyond, here: &mut InPage<'a>, pc: u64) -> bool {
        if here.bytes != PAGE_SIZE as u64 || pc.wrapping_sub(here.va) >= here.bytes {
            // SAFETY: the same.
            let Some(page) = (unsafe { self.find(pc) }) else { return false };
            *here = page;
        }
        let first = here.first.0.as_ptr().cast_const().cast();
        *beyond = Beyond { run: self.number, first, counters: here.counters };
        true
    }
}
