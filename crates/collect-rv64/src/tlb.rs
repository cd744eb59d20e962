//! The software translation table of a hart: direct-mapped, from virtual pages
//! to offsets into RAM. It is a cache of what the page tables say, invisible to
//! the guest but for the flushes that the architecture asks for.
//!
//! An entry has one tag per kind of access, so that a hit is one compare: the
//! tag equals the page of the access's *last* byte, while the entry was found by
//! its first; an access across a page end never hits. Pages of devices are
//! never entered, and pages that hold decoded code have no write tag.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::ram::{PAGE_SHIFT, PAGE_SIZE};
use crate::trap::Access;

/// Entries per bank. A power of two. Measured with bzip2, whose tables are 8 MB:
/// 256 entries make it twice as slow, 4096 no faster.
pub(crate) const ENTRIES: usize = 2048;
/// The size of an entry as a power of two, and where its fields stand.
pub(crate) const ENTRY_SHIFT: u32 = 5;
pub(crate) const READ_TAG: i32 = std::mem::offset_of!(Entry, read) as i32;
pub(crate) const WRITE_TAG: i32 = std::mem::offset_of!(Entry, write) as i32;
pub(crate) const ADDEND: i32 = std::mem::offset_of!(Entry, addend) as i32;
const _: () = assert!(size_of::<Entry>() == 1 << ENTRY_SHIFT);
/// Entries of the table of jumps. A power of two.
pub(crate) const JUMPS_COUNT: usize = 1 << 14;
/// Epochs until the table of jumps must be emptied: the key has 16 bits, of
/// which two are the bank.
const EPOCHS: u64 = 1 << 14;
/// No two states of translations, of whatever hart, have the same number while
/// there are numbers left; jumps that know a block by its number are wrong never.
static STATES: AtomicU32 = AtomicU32::new(1);
/// The first number that is not given out: all states behind have this one, and
/// no jump is linked under it.
const LAST_STATE: u32 = (1 << 29) - 1;
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

/// What is known of a byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Its offset into RAM, if it may be read or written.
    pub(crate) index: u64,
}

impl Reach {
    /// Whether data may be accessed so.
    #[inline(always)]
    pub(crate) fn allows(self, access: Access) -> bool {
        if access == Access::Store { self.write } else { self.read }
    }
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

/// A jump's target in generated code, tagged with its guest address and the key
/// of the translations under which it was found.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Jump {
    tag: u64,
    code: u64,
}

/// No address has this tag: it is odd.
const NO_JUMP: Jump = Jump { tag: 1, code: 0 };

/// The translations of one hart.
#[derive(Debug)]
pub(crate) struct Tlb {
    banks: Box<[[Entry; ENTRIES]; BANKS]>,
    active: usize,
    /// Which banks hold anything.
    used: [bool; BANKS],
    /// Grows when translations are forgotten.
    epoch: u64,
    /// Epoch and bank, in the bits that addresses leave alone.
    pub(crate) key: u64,
    /// The number of the present state of translations, and the bank: under it
    /// generated code knows blocks of other pages.
    pub(crate) state: u64,
    number: u32,
    /// Where generated code finds computed jumps.
    pub(crate) jumps: Box<[Jump; JUMPS_COUNT]>,
    /// Which generation of generated code the jumps lead to.
    generation: u64,
    /// How often translations were forgotten or restricted.
    changes: u64,
}

impl Tlb {
    pub(crate) fn new() -> Self {
        let mut tlb = Self {
            banks: Box::new([[Entry::EMPTY; ENTRIES]; BANKS]),
            active: Bank::User as usize,
            used: [false; BANKS],
            epoch: 0,
            key: 0,
            state: 0,
            number: 0,
            jumps: Box::new([NO_JUMP; JUMPS_COUNT]),
            generation: 0,
            changes: 0,
        };
        tlb.new_number();
        tlb
    }

    /// Jumps linked so far are not valid under this state.
    fn new_number(&mut self) {
        let next = |number: u32| (number < LAST_STATE).then_some(number + 1);
        self.number = STATES.fetch_update(Relaxed, Relaxed, next).unwrap_or(LAST_STATE);
        self.update_key();
    }

    /// Under which number a jump may be linked to a block of another page.
    pub(crate) fn linkable_state(&self) -> Option<u32> {
        (self.number < LAST_STATE).then_some(self.state as u32)
    }

    /// How often translations were forgotten or restricted.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of the active bank.
    pub(crate) const fn active(&self) -> usize {
        self.active
    }

    /// Makes the translations of another mode apply.
    pub(crate) fn select(&mut self, bank: Bank) {
        self.active = bank as usize;
        self.update_key();
    }

    fn update_key(&mut self) {
        self.key = (self.epoch << 2 | self.active as u64) << 48;
        self.state = u64::from(self.number << 2) | self.active as u64;
    }

    /// No jump found so far is valid any more.
    fn new_epoch(&mut self) {
        self.changes += 1;
        self.epoch += 1;
        if self.epoch == EPOCHS {
            self.epoch = 0;
            self.jumps.fill(NO_JUMP);
        }
        self.new_number();
    }

    /// The active bank, for generated code.
    pub(crate) fn bank(&self) -> *const Entry {
        self.banks[self.active & (BANKS - 1)].as_ptr()
    }

    /// Forgets jumps into code that is no more.
    pub(crate) fn follow_generation(&mut self, generation: u64) {
        if self.generation != generation {
            self.generation = generation;
            self.jumps.fill(NO_JUMP);
        }
    }

    /// Lets generated code find the block at `va`.
    pub(crate) fn enter_jump(&mut self, va: u64, code: u64) {
        self.jumps[(va >> 1) as usize & (JUMPS_COUNT - 1)] = Jump { tag: va ^ self.key, code };
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

    /// What is known of the byte at `va`.
    #[inline(always)]
    pub(crate) fn reach(&self, va: u64) -> Reach {
        let (entry, page) = (self.entry(va), va & PAGE_MASK);
        Reach {
            read: entry.read == page,
            write: entry.write == page,
            index: va.wrapping_add(entry.addend),
        }
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
        self.used[self.active & (BANKS - 1)] = true;
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
        for (bank, used) in self.banks.iter_mut().zip(&mut self.used) {
            if std::mem::take(used) {
                bank.fill(Entry::EMPTY);
            }
        }
        self.new_epoch();
    }

    /// Forgets what one bank knows.
    pub(crate) fn flush_bank(&mut self, bank: Bank) {
        if std::mem::take(&mut self.used[bank as usize]) {
            self.banks[bank as usize].fill(Entry::EMPTY);
        }
        self.new_epoch();
    }

    /// Makes writes to a page of RAM miss from now on: it holds code.
    pub(crate) fn protect(&mut self, page_index: usize) {
        self.changes += 1;
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

    #[test]
    fn jumps_are_forgotten_with_their_translations() {
        let found = |tlb: &Tlb, va: u64| {
            let jump = tlb.jumps[(va >> 1) as usize & (JUMPS_COUNT - 1)];
            (jump.tag == va ^ tlb.key).then_some(jump.code)
        };
        let mut tlb = Tlb::new();
        tlb.enter_jump(0x1_0000, 7);
        assert_eq!(found(&tlb, 0x1_0000), Some(7));
        tlb.select(Bank::Supervisor);
        assert_eq!(found(&tlb, 0x1_0000), None, "another mode sees other pages");
        tlb.select(Bank::User);
        assert_eq!(found(&tlb, 0x1_0000), Some(7));
        for _ in 0..EPOCHS {
            tlb.flush();
            assert_eq!(found(&tlb, 0x1_0000), None);
        }
        tlb.enter_jump(0x1_0000, 8);
        tlb.follow_generation(1);
        assert_eq!(found(&tlb, 0x1_0000), None);
    }
}
