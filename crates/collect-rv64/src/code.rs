//! Decoded code: for each page of RAM that is executed, one slot per halfword,
//! filled when execution first gets there. Slots are found by place in RAM, so
//! all harts and address spaces share them.
//!
//! Invariant: a slot is filled only while the RAM page's code flag is set, and
//! every write to such a page passes by [`Code::forget`] before the next
//! instruction of any hart.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::InsnKind;
use ichnos_isa_rv64::{Class, Insn, Op, is_compressed};

use crate::cpu::SINK;
use crate::ram::{CodeWrite, PAGE_SHIFT, PAGE_SIZE, Ram};

/// Halfwords of a page.
pub(crate) const SLOTS: usize = PAGE_SIZE / 2;

/// A decoded instruction, ready to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// None until decoded; stays so for illegal instructions and for those that
    /// reach into the next page.
    pub(crate) insn: Option<Insn>,
    pub(crate) kind: InsnKind,
}

impl Slot {
    const EMPTY: Self = Self { insn: None, kind: InsnKind::OTHER };
}

/// The decoded instructions of one page.
pub(crate) type Page = [Slot; SLOTS];

/// A page with how many of its slots are filled.
#[derive(Debug)]
struct Opened {
    slots: Box<Page>,
    filled: usize,
}

/// All decoded code, by page of RAM.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pages: Vec<Option<Opened>>,
}

/// What stands at a place in memory.
pub(crate) enum Decoded {
    /// An instruction, now in its slot.
    Insn,
    /// Not an instruction of this machine.
    Illegal(u32),
    /// The second half lies in the next page.
    Straddles,
}

impl Code {
    /// The decoded page that starts at this index of RAM.
    #[inline]
    pub(crate) fn page(&self, page_index: usize) -> Option<&Page> {
        self.pages.get(page_index >> PAGE_SHIFT)?.as_ref().map(|p| &*p.slots)
    }

    /// Makes room for decoded code from this page, and says whether it is new:
    /// then every hart must stop writing to it unseen.
    pub(crate) fn open(&mut self, page_index: usize, ram: &mut Ram) -> bool {
        let page = page_index >> PAGE_SHIFT;
        if self.pages.len() <= page {
            self.pages.resize_with(ram.pages().max(page + 1), || None);
        }
        let new = self.pages[page].is_none();
        if new {
            let slots: Result<Box<Page>, _> =
                vec![Slot::EMPTY; SLOTS].into_boxed_slice().try_into();
            self.pages[page] = slots.ok().map(|slots| Opened { slots, filled: 0 });
            ram.set_has_code(page, true);
        }
        new
    }

    /// Decodes the instruction at an index of RAM into its slot.
    pub(crate) fn decode(&mut self, index: usize, ram: &Ram) -> Decoded {
        let low = ram.read::<2>(index) as u32;
        if !is_compressed(low) && index % PAGE_SIZE == PAGE_SIZE - 2 {
            return Decoded::Straddles;
        }
        let word = if is_compressed(low) { low } else { ram.read::<4>(index) as u32 };
        let Some(insn) = Insn::decode(word) else { return Decoded::Illegal(word) };
        let insn = runnable(insn);
        if let Some(Some(page)) = self.pages.get_mut(index >> PAGE_SHIFT) {
            let slot = &mut page.slots[index % PAGE_SIZE / 2];
            page.filled += usize::from(slot.insn.is_none());
            *slot = Slot { insn: Some(insn), kind: insn.kind() };
        }
        Decoded::Insn
    }

    /// Empties the slots that a write may have changed. A page with no slot left
    /// becomes plain memory again, so that writing to it is fast.
    pub(crate) fn forget(&mut self, write: CodeWrite, ram: &mut Ram) {
        let end = write.start + write.len;
        // A 32-bit instruction that begins two bytes before may reach in.
        let mut at = write.start.saturating_sub(2) & !1;
        while at < end {
            let stop = end.min((at | (PAGE_SIZE - 1)) + 1);
            let page = at >> PAGE_SHIFT;
            if let Some(Some(opened)) = self.pages.get_mut(page) {
                for slot in &mut opened.slots[at % PAGE_SIZE / 2..=(stop - 1) % PAGE_SIZE / 2] {
                    opened.filled -= usize::from(slot.insn.is_some());
                    *slot = Slot::EMPTY;
                }
                if opened.filled == 0 {
                    self.pages[page] = None;
                    ram.set_has_code(page, false);
                }
            }
            at = stop;
        }
    }
}

/// The instruction as the engine runs it: results for `x0` go to the sink.
pub(crate) const fn runnable(mut insn: Insn) -> Insn {
    if insn.rd == 0 && writes_integer(insn.op) {
        insn.rd = SINK;
    }
    insn
}

/// Whether the destination field, if there is one, names an integer register.
const fn writes_integer(op: Op) -> bool {
    use ichnos_isa_rv64::Format as F;
    let row = op.row();
    !matches!(row.class, Class::Csr)
        && !matches!(
            row.format,
            F::FL
                | F::FR4
                | F::FRRm
                | F::FR
                | F::FR1Rm
                | F::FR1Exact
                | F::XtoFRm
                | F::XtoFExact
                | F::XtoF
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_empties_the_slots_it_reaches() {
        let mut ram = Ram::new(2);
        let mut code = Code::default();
        for page in [0, PAGE_SIZE] {
            assert!(code.open(page, &mut ram));
            assert!(!code.open(page, &mut ram));
        }
        // addi x1, x0, 1 four times at the page end, and in the next page.
        for index in (PAGE_SIZE - 8..PAGE_SIZE + 8).step_by(4) {
            ram.write::<4>(index, 0x0010_0093);
            assert!(matches!(code.decode(index, &ram), Decoded::Insn));
        }
        let filled = |code: &Code, index: usize| {
            code.page(index & !(PAGE_SIZE - 1))
                .is_some_and(|p| p[index % PAGE_SIZE / 2].insn.is_some())
        };
        code.forget(CodeWrite { start: PAGE_SIZE - 2, len: 4 }, &mut ram);
        assert!(filled(&code, PAGE_SIZE - 8));
        assert!(!filled(&code, PAGE_SIZE - 4));
        assert!(!filled(&code, PAGE_SIZE));
        assert!(filled(&code, PAGE_SIZE + 4));
        code.forget(CodeWrite { start: 0, len: PAGE_SIZE }, &mut ram);
        assert!(!ram.has_code(0) && ram.has_code(1));
    }
}
