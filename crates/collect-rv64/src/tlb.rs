//! The software translation table of a hart: direct-mapped, from virtual pages
//! to offsets into RAM. It is a cache of what the page tables say, invisible to
//! the guest but for the flushes that the architecture asks for.
//!
//! An entry has one tag per kind of access, so that a hit is one compare: the
//! tag equals the page of the access's *last* byte, while the entry was found by
//! its first; an access across a page end never hits. Pages of devices are
//! never entered, and pages that hold decoded code have no write tag.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ram::{PAGE_SHIFT, PAGE_SIZE};
use crate::trap::Access;

/// Entries per bank. A power of two.
pub(crate) const ENTRIES: usize = 256;
/// A tag that no page has: pages are multiples of their size.
const NO_PAGE: u64 = 1;
const PAGE_MASK: u64 = !(PAGE_SIZE as u64 - 1);

/// One translation.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Entry {
    read: u64,
    write: u64,
    exec: u64,
    /// Added to a virtual address gives the offset into RAM.
    addend: u64,
}

impl Entry {
    const EMPTY: Self = Self { read: NO_PAGE, write: NO_PAGE, exec: NO_PAGE, addend: 0 };
}

/// What a page may be used for: as in page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) exec: bool,
}

/// Which translations apply: they differ by mode, and a change of mode should
/// not cost a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Bank {
    User,
    Supervisor,
    /// Supervisor mode with access to user pages.
    SupervisorUser,
    /// Machine mode, or machine mode's loads and stores as another mode.
    Machine,
}

const BANKS: usize = 4;

/// The translations of one hart.
#[derive(Debug)]
pub(crate) struct Tlb {
    banks: Box<[[Entry; ENTRIES]; BANKS]>,
    active: usize,
}

impl Tlb {
    pub(crate) fn new() -> Self {
        Self { banks: Box::new([[Entry::EMPTY; ENTRIES]; BANKS]), active: Bank::User as usize }
    }

    /// Makes the translations of another mode apply.
    pub(crate) fn select(&mut self, bank: Bank) {
        self.active = bank as usize;
    }

    #[inline(always)]
    fn entry(&self, va: u64) -> &Entry {
        &self.banks[self.active & (BANKS - 1)][slot(va)]
    }

    /// The offset into RAM of `N` readable bytes at `va`, on a hit.
    #[inline(always)]
    pub(crate) fn read<const N: usize>(&self, va: u64) -> Option<usize> {
        let entry = self.entry(va);
        (entry.read == last_page::<N>(va)).then(|| va.wrapping_add(entry.addend) as usize)
    }

    /// The offset into RAM of `N` writable bytes at `va`, on a hit.
    #[inline(always)]
    pub(crate) fn write<const N: usize>(&self, va: u64) -> Option<usize> {
        let entry = self.entry(va);
        (entry.write == last_page::<N>(va)).then(|| va.wrapping_add(entry.addend) as usize)
    }

    /// The offset into RAM of the page of an executable address, on a hit.
    #[inline(always)]
    pub(crate) fn exec(&self, va: u64) -> Option<usize> {
        let entry = self.entry(va);
        (entry.exec == va & PAGE_MASK).then(|| (va & PAGE_MASK).wrapping_add(entry.addend) as usize)
    }

    /// Enters a translation. Rights of the page's present entry stay.
    pub(crate) fn fill(&mut self, va: u64, page_index: usize, rights: Rights) {
        let page = va & PAGE_MASK;
        let entry = &mut self.banks[self.active & (BANKS - 1)][slot(va)];
        let addend = (page_index as u64).wrapping_sub(page);
        if entry.addend != addend || ![entry.read, entry.write, entry.exec].contains(&page) {
            *entry = Entry { addend, ..Entry::EMPTY };
        }
        let tag = |allowed, old| if allowed { page } else { old };
        entry.read = tag(rights.read, entry.read);
        entry.write = tag(rights.write, entry.write);
        entry.exec = tag(rights.exec, entry.exec);
    }

    /// Forgets everything.
    pub(crate) fn flush(&mut self) {
        for bank in self.banks.iter_mut() {
            bank.fill(Entry::EMPTY);
        }
    }

    /// Forgets what one bank knows.
    pub(crate) fn flush_bank(&mut self, bank: Bank) {
        self.banks[bank as usize].fill(Entry::EMPTY);
    }

    /// Forgets one page, in all banks.
    pub(crate) fn flush_page(&mut self, va: u64) {
        for bank in self.banks.iter_mut() {
            bank[slot(va)] = Entry::EMPTY;
        }
    }

    /// Makes writes to a page of RAM miss from now on: it holds code.
    pub(crate) fn protect(&mut self, page_index: usize) {
        for entry in self.banks.iter_mut().flatten() {
            if entry.write != NO_PAGE && entry.write.wrapping_add(entry.addend) == page_index as u64
            {
                entry.write = NO_PAGE;
            }
        }
    }
}

#[inline(always)]
const fn slot(va: u64) -> usize {
    (va >> PAGE_SHIFT) as usize & (ENTRIES - 1)
}

#[inline(always)]
const fn last_page<const N: usize>(va: u64) -> u64 {
    va.wrapping_add(N as u64 - 1) & PAGE_MASK
}

impl Rights {
    pub(crate) const fn allows(self, access: Access) -> bool {
        match access {
            Access::Fetch => self.exec,
            Access::Load => self.read,
            Access::Store => self.write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Rights = Rights { read: true, write: true, exec: true };

    #[test]
    fn only_whole_accesses_inside_a_page_hit() {
        let mut tlb = Tlb::new();
        tlb.fill(0x7000_1000, 0x3000, ALL);
        assert_eq!(tlb.read::<8>(0x7000_1ff8), Some(0x3ff8));
        assert_eq!(tlb.read::<8>(0x7000_1ff9), None);
        assert_eq!(tlb.read::<1>(0x7000_2000), None);
        assert_eq!(tlb.exec(0x7000_1ffe), Some(0x3000));
    }

    #[test]
    fn banks_are_apart_and_code_pages_lose_their_write_tag() {
        let mut tlb = Tlb::new();
        tlb.fill(0x1000, 0x3000, ALL);
        tlb.select(Bank::Supervisor);
        assert_eq!(tlb.read::<1>(0x1000), None);
        tlb.fill(0x5000, 0x3000, Rights { read: true, write: true, exec: false });
        tlb.protect(0x3000);
        assert_eq!(tlb.write::<1>(0x5000), None);
        assert_eq!(tlb.read::<1>(0x5000), Some(0x3000));
        tlb.select(Bank::User);
        assert_eq!(tlb.write::<1>(0x1000), None);
        assert_eq!(tlb.exec(0x1000), Some(0x3000));
        tlb.flush();
        assert_eq!(tlb.read::<1>(0x1000), None);
    }
}
