//! The machine code of one process as told, and which instructions it was
//! executed as.
//!
//! A page of told code costs 12 KiB. Pages are shared between a process and its
//! forks until one of them changes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::Rc;

use ichnos_base::{GuestVa, InsnKind};

use crate::hash::FastMap;

const PAGE: usize = 4096;
const TOLD: u16 = 0x8000;
/// The longest instruction of any instruction set we know.
const LONGEST: u64 = 15;

/// Told code.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeBook {
    pages: FastMap<u64, Rc<Page>>,
}

#[derive(Clone, Debug)]
struct Page {
    bytes: [u8; PAGE],
    /// For each byte: whether it was told, and the length and kind of the
    /// instruction that was executed from it (length 0: none).
    marks: [u16; PAGE],
}

/// What the book says about an executed instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// All its bytes are told and nothing contradicts it.
    Agrees,
    /// The byte at this address was never told.
    Untold(GuestVa),
    /// The same bytes were executed as an instruction of another length or kind.
    Differs {
        /// The length it had.
        len: u8,
        /// The kind it had.
        kind: InsnKind,
    },
}

impl Page {
    fn new() -> Rc<Self> {
        Rc::new(Self { bytes: [0; PAGE], marks: [0; PAGE] })
    }
}

const fn place(addr: u64) -> (u64, usize) {
    (addr / PAGE as u64, (addr % PAGE as u64) as usize)
}

/// Lengths are at most 15 and kinds are few; larger ones of a broken trace are
/// folded, which can only make two different instructions look equal.
const fn mark(len: u8, kind: InsnKind) -> u16 {
    let len = if len > 31 { 31 } else { len };
    TOLD | (len as u16) << 8 | kind.0 as u16
}

impl CodeBook {
    /// Whether no code was ever told.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.pages.clear();
    }

    /// Takes code. Answers whether it changed bytes that were told before.
    pub fn tell(&mut self, pc: GuestVa, bytes: &[u8]) -> bool {
        let mut changed = false;
        for (i, &byte) in bytes.iter().enumerate() {
            let addr = pc.offset(i as u64);
            let (number, at) = place(addr.0);
            let page = self.pages.entry(number).or_insert_with(Page::new);
            let told = page.marks[at] & TOLD != 0;
            if told && page.bytes[at] == byte {
                continue;
            }
            let page = Rc::make_mut(page);
            page.bytes[at] = byte;
            page.marks[at] |= TOLD;
            if told {
                changed = true;
                self.forget_over(addr);
            }
        }
        changed
    }

    /// Takes an executed instruction and answers whether it fits.
    pub fn execute(&mut self, pc: GuestVa, len: u8, kind: InsnKind) -> Entry {
        let (number, at) = place(pc.0);
        // The mark was set when all bytes were told, and told bytes stay told.
        if self.pages.get(&number).is_some_and(|page| page.marks[at] == mark(len, kind)) {
            return Entry::Agrees;
        }
        if let Some(addr) =
            (0..u64::from(len)).map(|i| pc.offset(i)).find(|a| self.mark_of(*a) & TOLD == 0)
        {
            return Entry::Untold(addr);
        }
        let Some(page) = self.pages.get_mut(&number) else { return Entry::Untold(pc) };
        let had = page.marks[at];
        let had_len = (had >> 8 & 31) as u8;
        if had_len == 0 {
            Rc::make_mut(page).marks[at] = mark(len, kind);
            return Entry::Agrees;
        }
        Entry::Differs { len: had_len, kind: InsnKind(had as u8) }
    }

    fn mark_of(&self, addr: GuestVa) -> u16 {
        let (number, at) = place(addr.0);
        self.pages.get(&number).map_or(0, |page| page.marks[at])
    }

    /// Forgets which instructions were executed over a byte.
    fn forget_over(&mut self, addr: GuestVa) {
        for back in 0..LONGEST {
            let start = GuestVa(addr.0.wrapping_sub(back));
            let len = u64::from(self.mark_of(start) >> 8 & 31);
            let (number, at) = place(start.0);
            if len > back
                && let Some(page) = self.pages.get_mut(&number)
            {
                Rc::make_mut(page).marks[at] = TOLD;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PC: GuestVa = GuestVa(0x1ffe);

    #[test]
    fn code_must_be_told_and_keeps_its_shape() {
        let mut book = CodeBook::default();
        assert!(!book.tell(PC, &[1, 2, 3]));
        assert_eq!(book.execute(PC, 4, InsnKind::OTHER), Entry::Untold(PC.offset(3)));
        assert_eq!(book.execute(PC, 3, InsnKind::OTHER), Entry::Agrees);
        assert_eq!(book.execute(PC, 3, InsnKind::OTHER), Entry::Agrees);
        let differs = Entry::Differs { len: 3, kind: InsnKind::OTHER };
        assert_eq!(book.execute(PC, 2, InsnKind::OTHER), differs);
        assert_eq!(book.execute(PC, 3, InsnKind::JUMP), differs);
    }

    #[test]
    fn changed_code_may_be_another_instruction_but_retold_code_may_not() {
        let mut book = CodeBook::default();
        book.tell(PC, &[1, 2, 3]);
        book.execute(PC, 3, InsnKind::OTHER);
        assert!(!book.tell(PC, &[1, 2, 3]));
        assert!(matches!(book.execute(PC, 2, InsnKind::OTHER), Entry::Differs { .. }));
        // The third byte lies on the next page and belongs to the instruction.
        assert!(book.tell(PC.offset(2), &[9]));
        assert_eq!(book.execute(PC, 2, InsnKind::OTHER), Entry::Agrees);
    }

    #[test]
    fn a_fork_has_a_book_of_its_own() {
        let mut parent = CodeBook::default();
        parent.tell(PC, &[1, 2]);
        let mut child = parent.clone();
        assert!(child.tell(PC, &[7]));
        child.execute(PC, 2, InsnKind::JUMP);
        assert_eq!(parent.execute(PC, 1, InsnKind::OTHER), Entry::Agrees);
    }
}
