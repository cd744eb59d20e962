//! Decoded code: for each page of RAM that is executed, one slot per halfword,
//! filled when execution first gets there. Slots are found by place in RAM, so
//! all harts and address spaces share them.
//!
//! A slot names the handler that runs it (`exec`), alone or together with the
//! instruction that follows it ([`number`]). At the start of each line of code the
//! handler for those who come from the instruction before leads out of the chain.
//!
//! Invariant: a slot names a pair only while the slot of its second instruction is filled
//! with that and is not the first of a line.
//!
//! Invariant: a slot is filled only while the RAM page's code flag is set, and
//! every write to such a page passes by [`Code::forget`] before the next
//! instruction of any hart.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub(crate) mod guess;
pub(crate) mod number;

use ichnos_isa_rv64::{Class, Format as F, Insn, Op, TABLE, is_compressed};

use number::{FIRST_SHORT, LEAVE, NUMBERS, SHORT, first, joined, number};

use crate::cpu::SINK;
use crate::ram::{CodeWrite, PAGE_SHIFT, PAGE_SIZE, Ram};

/// Halfwords of a page.
pub(crate) const SLOTS: usize = PAGE_SIZE / 2;

/// Bytes of a line of code, as a power of two, unless someone cares.
const LINE_SHIFT: u32 = 6;

/// What the last four bytes of a slot hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// The immediate.
    Immediate,
    /// The second source register, and above it the immediate.
    Both,
    /// The second and third source register, and the mode.
    Registers,
    /// The second source register, the ordinal, and 13 bits of distance.
    Branch,
    /// The ordinal, and 21 bits of distance.
    Jump,
}

impl Rest {
    pub(crate) const fn of(op: Op) -> Self {
        match op.row().format {
            F::I | F::L | F::Jalr | F::Sh6 | F::Sh5 | F::U | F::Csr | F::CsrI => Self::Immediate,
            F::Fence | F::Ignored | F::FL => Self::Immediate,
            F::S | F::FS => Self::Both,
            F::B => Self::Branch,
            F::J => Self::Jump,
            _ => Self::Registers,
        }
    }
}

/// What a slot's number has besides where a line begins.
const BEGINS: u16 = NUMBERS as u16;

/// Handlers that slots may call: each number, with and without [`BEGINS`].
pub(crate) const HANDLERS: usize = 2 * NUMBERS;

/// A decoded instruction, ready to run. Small, because much of what a program runs
/// should fit a fast cache of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The handler, and [`BEGINS`] if those who come from the instruction before must
    /// not go to it at once. [`LEAVE`] until decoded; stays so for illegal instructions
    /// and for those that reach into the next page.
    number: u16,
    rd: u8,
    rs1: u8,
    rest: u32,
}

const _: () = assert!(size_of::<Slot>() == 8);

impl Slot {
    const EMPTY: Self = Self { number: LEAVE | BEGINS, rd: 0, rs1: 0, rest: 0 };

    /// No instruction, and no page.
    pub(crate) const NONE: [Self; 1 + BEHIND] = [Self::EMPTY; 1 + BEHIND];

    /// An instruction that has no page.
    pub(crate) fn alone(insn: Insn) -> [Self; 1 + BEHIND] {
        [Self::new(insn, 0), Self::EMPTY, Self::EMPTY]
    }

    /// An instruction that nothing leads to but jumps.
    fn new(insn: Insn, ordinal: u16) -> Self {
        let ordinal = u32::from(ordinal);
        let rest = match Rest::of(insn.op) {
            Rest::Immediate => insn.imm as u32,
            Rest::Both => (insn.imm << 8) as u32 | u32::from(insn.rs2),
            Rest::Registers => u32::from_le_bytes([insn.rs2, insn.rs3, insn.mode, 0]),
            Rest::Branch => (insn.imm << 19) as u32 | ordinal << 8 | u32::from(insn.rs2),
            Rest::Jump => (insn.imm << 11) as u32 | ordinal,
        };
        let number = number(insn.op, insn.len) | BEGINS;
        Self { number, rd: insn.rd, rs1: insn.rs1, rest }
    }

    /// The handler for those who jump here.
    #[inline(always)]
    pub(crate) const fn entered(&self) -> u16 {
        self.number & !BEGINS
    }

    /// The handler for those who come from the instruction before: less than
    /// [`HANDLERS`].
    #[inline(always)]
    pub(crate) const fn chained(&self) -> u16 {
        self.number
    }

    /// Whether those who come from the instruction before must not go to it at once.
    #[inline(always)]
    pub(crate) const fn begins_line(&self) -> bool {
        self.number >= BEGINS
    }

    /// The number of the instruction by itself.
    #[inline(always)]
    const fn single(&self) -> u16 {
        first(self.entered())
    }

    #[inline(always)]
    pub(crate) const fn is_filled(&self) -> bool {
        self.entered() != LEAVE
    }

    /// The instruction's length in bytes.
    #[inline(always)]
    pub(crate) const fn len(&self) -> u8 {
        if self.single() as usize >= FIRST_SHORT { 2 } else { 4 }
    }

    /// The instruction of an operation and a length.
    #[inline(always)]
    pub(crate) const fn insn_of(&self, (op, len): (Op, u8), rest: Rest) -> Insn {
        let [rs2, rs3, mode, _] = self.rest.to_le_bytes();
        let plain = Insn { rd: self.rd, rs1: self.rs1, len, ..Insn::new(op) };
        match rest {
            Rest::Immediate => Insn { imm: self.rest as i32, ..plain },
            Rest::Both => Insn { rs2, imm: self.rest as i32 >> 8, ..plain },
            Rest::Registers => Insn { rs2, rs3, mode, ..plain },
            Rest::Branch => Insn { rs2, imm: self.rest as i32 >> 19, ..plain },
            Rest::Jump => Insn { imm: self.rest as i32 >> 11, ..plain },
        }
    }

    /// Which one it is among its page's instructions that say where they jump to; less
    /// than [`SLOTS`].
    #[inline(always)]
    pub(crate) const fn ordinal(&self, rest: Rest) -> usize {
        let low = if matches!(rest, Rest::Branch) { self.rest >> 8 } else { self.rest };
        low as usize & (SLOTS - 1)
    }

    pub(crate) fn insn(&self) -> Option<Insn> {
        let number = usize::from(self.single());
        let long = TABLE.get(number).map(|row| row.op);
        let op = long.or_else(|| SHORT.get(number - FIRST_SHORT).copied())?;
        Some(self.insn_of((op, self.len()), Rest::of(op)))
    }

    /// Ends chains here if the instruction, which stands at `offset` of its page,
    /// has bytes in another line than the byte before it.
    fn chain(&mut self, offset: usize, line_shift: u32) {
        let last = offset + usize::from(self.len()) - 1;
        let same = offset > 0 && (offset - 1) >> line_shift == last >> line_shift;
        self.number = self.entered() | if same { 0 } else { BEGINS };
    }

    /// Makes this and the instruction behind it a pair, if they are one.
    fn join(&mut self, behind: &Self) {
        let single = self.single();
        let pairs = behind.is_filled() && behind.number & BEGINS == 0;
        let number = if pairs { joined(single, behind.single()) } else { single };
        self.number = self.number & BEGINS | number;
    }
}

/// Slots behind an instruction that are never filled, so that those who come from
/// an instruction before always find one.
pub(crate) const BEHIND: usize = 2;

/// The decoded instructions of one page, and slots behind them that stay empty.
pub(crate) type Page = [Slot; SLOTS + BEHIND];

/// Joins what stands at a place of a page with what follows it, and what stands before
/// it with it.
fn join_around(page: &mut Page, at: usize) {
    for at in [at, at.wrapping_sub(1), at.wrapping_sub(2)] {
        let Some(slot) = page.get(at).filter(|slot| slot.is_filled()) else { continue };
        let Some(&behind) = page.get(at + usize::from(slot.len() / 2)) else { continue };
        page[at].join(&behind);
    }
}

/// The instructions of a page that say where they jump to, or once did, in the order in
/// which they were first decoded: what is counted of them stands close together. A place
/// keeps its ordinal.
#[derive(Debug)]
struct Ordinals {
    /// One more than the ordinal, by halfword; zero if there is none.
    of: Box<[u16; SLOTS]>,
    given: u16,
}

impl Default for Ordinals {
    fn default() -> Self {
        Self { of: Box::new([0; SLOTS]), given: 0 }
    }
}

impl Ordinals {
    fn of(&mut self, at: usize) -> u16 {
        let of = &mut self.of[at & (SLOTS - 1)];
        if *of == 0 {
            self.given += 1;
            *of = self.given;
        }
        *of - 1
    }
}

/// A page with how many of its slots are filled, and which filling was the last.
#[derive(Debug)]
struct Opened {
    slots: Box<Page>,
    filled: usize,
    version: u64,
}

/// All decoded code, by page of RAM.
#[derive(Debug)]
pub(crate) struct Code {
    pages: Vec<Option<Opened>>,
    /// Also of pages that hold no code any more.
    ordinals: Vec<Option<Ordinals>>,
    /// Bytes of a line of code as a power of two.
    line_shift: u32,
    /// How many slots were ever filled.
    fillings: u64,
}

impl Default for Code {
    fn default() -> Self {
        Self { pages: Vec::new(), ordinals: Vec::new(), line_shift: LINE_SHIFT, fillings: 0 }
    }
}

/// An instruction that stands somewhere: its bytes, and its ordinal if it says where it
/// jumps to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stood {
    pub(crate) word: u32,
    pub(crate) ordinal: u16,
}

/// What stands at a place in memory.
pub(crate) enum Decoded {
    /// An instruction, now in its slot: its bytes.
    Insn(u32),
    /// Not an instruction of this machine.
    Illegal(u32),
    /// The second half lies in the next page.
    Straddles,
}

impl Code {
    /// Chains end where lines of so many bytes, as a power of two, begin.
    #[inline]
    pub(crate) fn set_line(&mut self, shift: u32) {
        if self.line_shift != shift {
            self.line_shift = shift;
            for page in self.pages.iter_mut().flatten() {
                for (at, slot) in page.slots.iter_mut().enumerate() {
                    slot.chain(2 * at, shift);
                }
                (0..SLOTS).for_each(|at| join_around(&mut page.slots, at));
            }
        }
    }

    /// The decoded page that starts at this index of RAM.
    #[inline]
    pub(crate) fn page(&self, page_index: usize) -> Option<&Page> {
        self.pages.get(page_index >> PAGE_SHIFT)?.as_ref().map(|p| &*p.slots)
    }

    /// Tells apart what the page at this index held at different times.
    pub(crate) fn version(&self, page_index: usize) -> u64 {
        let page = self.pages.get(page_index >> PAGE_SHIFT).and_then(Option::as_ref);
        page.map_or(0, |page| page.version)
    }

    /// The decoded instructions of a page: their offsets, bytes, and ordinals.
    pub(crate) fn words<'a>(
        &'a self,
        page_index: usize,
        ram: &'a Ram,
    ) -> impl Iterator<Item = (u64, Stood)> + 'a {
        let slots = self.page(page_index).map_or(&[][..], |page| &page[..SLOTS]);
        let filled = slots.iter().enumerate().filter(|(_, slot)| slot.is_filled());
        filled.map(move |(at, slot)| {
            let index = page_index + 2 * at;
            let word = if slot.len() == 2 { ram.read::<2>(index) } else { ram.read::<4>(index) };
            let stood = Stood { word: word as u32, ordinal: self.ordinal(index) };
            (2 * at as u64, stood)
        })
    }

    /// The ordinal of what stands at an index of RAM; zero if it has none.
    pub(crate) fn ordinal(&self, index: usize) -> u16 {
        let page = self.ordinals.get(index >> PAGE_SHIFT).and_then(Option::as_ref);
        page.map_or(0, |page| page.of[index % PAGE_SIZE / 2].saturating_sub(1))
    }

    /// Makes room for decoded code from this page, and says whether it is new:
    /// then every hart must stop writing to it unseen.
    pub(crate) fn open(&mut self, page_index: usize, ram: &mut Ram) -> bool {
        let page = page_index >> PAGE_SHIFT;
        if self.pages.len() <= page {
            self.pages.resize_with(ram.pages().max(page + 1), || None);
            self.ordinals.resize_with(self.pages.len(), || None);
        }
        let new = self.pages[page].is_none();
        if new {
            let slots: Result<Box<Page>, _> =
                vec![Slot::EMPTY; SLOTS + BEHIND].into_boxed_slice().try_into();
            self.pages[page] = slots.ok().map(|slots| Opened { slots, filled: 0, version: 0 });
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
            page.filled += usize::from(!slot.is_filled());
            self.fillings += 1;
            page.version = self.fillings;
            let ordinals = self.ordinals[index >> PAGE_SHIFT].get_or_insert_default();
            let ordinal = match Rest::of(insn.op) {
                Rest::Branch | Rest::Jump => ordinals.of(index % PAGE_SIZE / 2),
                _ => 0,
            };
            *slot = Slot::new(insn, ordinal);
            slot.chain(index % PAGE_SIZE, self.line_shift);
            join_around(&mut page.slots, index % PAGE_SIZE / 2);
        }
        Decoded::Insn(word)
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
                    opened.filled -= usize::from(slot.is_filled());
                    *slot = Slot::EMPTY;
                }
                join_around(&mut opened.slots, at % PAGE_SIZE / 2);
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
    fn slots_keep_what_was_decoded() {
        // Every operation with all of its own bits clear, then all set.
        for row in TABLE {
            for word in [row.bits, row.bits | !row.mask] {
                let Some(insn) = Insn::decode(word).map(runnable) else { continue };
                let slot = Slot::new(insn, 1234);
                assert_eq!(slot.insn(), Some(insn), "{word:#x}");
                if let rest @ (Rest::Branch | Rest::Jump) = Rest::of(insn.op) {
                    assert_eq!(slot.ordinal(rest), 1234);
                }
            }
        }
        let short = Insn::decode(0x0505).map(runnable).expect("c.addi a0, 1");
        assert_eq!(Slot::new(short, 0).insn(), Some(short));
        assert_eq!(Slot::EMPTY.insn(), None);
    }

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
            assert!(matches!(code.decode(index, &ram), Decoded::Insn(_)));
        }
        let filled = |code: &Code, index: usize| {
            code.page(index & !(PAGE_SIZE - 1))
                .is_some_and(|p| p[index % PAGE_SIZE / 2].is_filled())
        };
        code.forget(CodeWrite { start: PAGE_SIZE - 2, len: 4 }, &mut ram);
        assert!(filled(&code, PAGE_SIZE - 8));
        assert!(!filled(&code, PAGE_SIZE - 4));
        assert!(!filled(&code, PAGE_SIZE));
        assert!(filled(&code, PAGE_SIZE + 4));
        code.forget(CodeWrite { start: 0, len: PAGE_SIZE }, &mut ram);
        assert!(!ram.has_code(0) && ram.has_code(1));
    }

    #[test]
    fn instructions_are_pairs_while_both_are_there_and_in_one_line() {
        let mut ram = Ram::new(1);
        let mut code = Code::default();
        assert!(code.open(0, &mut ram));
        // addi x1, x0, 1 and c.mv a0, a1, the first decoded last.
        for index in [8, 60] {
            ram.write::<4>(index, 0x0010_0093);
            ram.write::<2>(index + 4, 0x852e);
            assert!(matches!(code.decode(index + 4, &ram), Decoded::Insn(_)));
            assert!(matches!(code.decode(index, &ram), Decoded::Insn(_)));
        }
        let pairs = |code: &Code, index: usize| {
            let slot = code.page(0).map(|page| page[index / 2]).expect("the page is open");
            assert_eq!(slot.insn().map(|insn| insn.op), Some(Op::Addi));
            slot.entered() != slot.single()
        };
        assert!(pairs(&code, 8));
        assert!(!pairs(&code, 60), "a line begins between them");
        code.set_line(7);
        assert!(pairs(&code, 60));
        code.forget(CodeWrite { start: 12, len: 1 }, &mut ram);
        assert!(!pairs(&code, 8));
        assert!(matches!(code.decode(12, &ram), Decoded::Insn(_)));
        assert!(pairs(&code, 8), "the second was decoded again");
    }
}
