//! What profiled blocks do besides: touch lines of code, reach data by line
//! instead of by page, and count arcs. Whatever the tables do not answer calls a
//! helper from cold code and goes on.
//!
//! Times of use are four times an instruction's number, so that its fetch and its data
//! have different ones; `r13` holds that of the block's first instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::CacheAddr;

use crate::jit::block::Block;
use crate::jit::cold::{Area, Open};
use crate::jit::held::Held;
use crate::jit::state::{INDIRECT, KEY, MISS_PAGE, MISS_PLACE, mapped};
use crate::jit::x86::{
    Alu, Cond, Mem, Operand, R13, R14, R15, RAX, RCX, RDX, Reg, Shift, W32, W64,
};
use crate::profile::{
    INDIRECT_ENTRIES, Indirect, LINE_ENTRIES, LINE_SHIFT, Line, ReferenceKind, site_mix,
};
use crate::ram::PAGE_SHIFT;
use crate::tlb::WRITE_TAG;
use std::mem::offset_of;

const READ: i32 = offset_of!(Line, read) as i32;
const WRITE: i32 = offset_of!(Line, write) as i32;
const ADDEND: i32 = offset_of!(Line, addend) as i32;
const STAMP: i32 = offset_of!(Line, stamp) as i32;
/// Times of use by instruction.
pub(crate) const TICKS: u64 = 4;
const INDIRECT_SHIFT: u32 = size_of::<Indirect>().trailing_zeros();

/// A helper's arguments that are known when code is translated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Helper {
    /// Memory at a displacement from a base, which is a host register or, if there is
    /// none, in `rax`; then what must be added to the base's is there, or in the base's
    /// place the host's.
    Data { pc: u64, site: u32, retired: usize, base: Option<Reg>, displacement: i32 },
    /// A line of code. It is looked up at an offset, by its word and its frame's.
    Fetch { pc: u64, at: u64, site: u32, looked_up: usize, words: (u32, u32) },
}

/// A site as a helper takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed {
    /// Bytes accessed or fetched.
    pub(crate) size: u8,
    pub(crate) store: bool,
    /// The length of the instruction if the next one follows in the same line of
    /// the same block, else 0.
    pub(crate) follows: u8,
    /// Instructions of the block before this one.
    pub(crate) index: u16,
}

impl Packed {
    pub(crate) const fn pack(self) -> u32 {
        self.size as u32
            | (self.store as u32) << 7
            | (self.follows as u32) << 8
            | (self.index as u32) << 16
    }

    #[inline]
    pub(crate) const fn unpack(bits: u32) -> Self {
        Self {
            size: bits as u8 & 0x7f,
            store: bits >> 7 & 1 != 0,
            follows: (bits >> 8) as u8,
            index: (bits >> 16) as u16,
        }
    }
}

impl Block<'_> {
    /// Where the time of the present instruction is from the clock, and a bit more.
    fn time(&self, more: i32) -> Mem {
        Mem::at(R13, TICKS as i32 * self.index as i32 + more)
    }

    /// Touches the lines of the present instruction that the one before did not
    /// lie in.
    pub(crate) fn touch_code(&mut self) {
        let Some(book) = &self.book else { return };
        let shift = book.code_shift;
        let last = self.behind().wrapping_sub(1);
        let second = last >> shift << shift;
        let crosses = last >> shift != self.pc >> shift;
        if self.line != Some(self.pc >> shift) {
            let end = if crosses { second } else { self.behind() };
            self.touch_line(self.pc, end.wrapping_sub(self.pc) as u8);
        }
        if crosses {
            self.touch_line(second, self.behind().wrapping_sub(second) as u8);
        }
        self.line = Some(last >> shift);
    }

    fn touch_line(&mut self, at: u64, size: u8) {
        let Some(book) = &mut self.book else { return };
        let word = book.line(at);
        let frame = book.frame(at).unwrap_or(word);
        let site = Packed { size, store: false, follows: 0, index: self.index as u16 }.pack();
        let looked_up = self.code.here();
        let helper = Helper::Fetch { pc: self.pc, at, site, looked_up, words: (word, frame) };
        self.code.mov(W64, RCX, Operand::Mem(Mem::at(R14, 8 * word as i32)));
        // Zero is an unknown line, a negative sum one whose page left the TLB.
        self.code.alu(W64, Alu::Add, RCX, Operand::Mem(Mem::at(R14, 8 * frame as i32)));
        let number = self.help_if(Cond::LessEqual, helper);
        if self.index == 0 {
            self.code.store(8, Mem::at(RCX, 0), R13);
        } else {
            self.code.lea(RDX, self.time(0));
            self.code.store(8, Mem::at(RCX, 0), RDX);
        }
        self.back_here(number);
    }

    /// Finds bytes at a displacement from a base register, by line: where they are.
    pub(crate) fn reach_line(
        &mut self,
        (base, displacement): (u8, i32),
        bytes: u8,
        page_tag: i32,
    ) -> Mem {
        let Some(book) = &self.book else { return Mem::at(RAX, 0) };
        let code_shift = book.code_shift;
        let store = page_tag == WRITE_TAG;
        let follows = self.more && self.behind() >> code_shift == self.line.unwrap_or(u64::MAX);
        let site = Packed {
            size: bytes,
            store,
            follows: if follows { self.len } else { 0 },
            index: self.index as u16,
        };
        let (register, base) = (self.source(base, RAX), mapped(base));
        self.find_aligned((register, displacement), (bytes.into(), page_tag));
        let (pc, retired, site) = (self.pc, self.index, site.pack());
        let helper = Helper::Data { pc, site, retired, base, displacement };
        let number = self.help_if(Cond::NotEqual, helper);
        self.code.mov(W64, RDX, Operand::Mem(Mem::indexed(R15, RCX, STAMP)));
        let addend = Operand::Mem(Mem::indexed(R15, RCX, ADDEND));
        match base {
            Some(_) => self.code.mov(W64, RAX, addend),
            None => self.code.alu(W64, Alu::Add, RAX, addend),
        }
        self.code.lea(RCX, self.time(1));
        self.code.store(8, Mem::at(RDX, 0), RCX);
        self.back_here(number);
        match base {
            Some(base) => Mem::indexed(RAX, base, displacement),
            None => Mem::at(RAX, displacement),
        }
    }

    /// Finds the entry of the line of an address: equal if bytes pass that are aligned.
    /// Its place in the table is in `rcx` then; spoils `rdx`.
    fn find_aligned(&mut self, (base, displacement): (Reg, i32), (bytes, page_tag): (i32, i32)) {
        let Some(book) = &self.book else { return };
        let shift = book.data_shift;
        if displacement == 0 {
            self.code.mov_rr(RDX, base);
        } else {
            self.code.lea(RDX, Mem::at(base, displacement));
        }
        self.find_entry(if displacement == 0 { base } else { RDX }, shift);
        self.code.alu_imm(W64, Alu::And, Operand::Reg(RDX), -(1 << shift) | (bytes - 1));
        let tag = if page_tag == WRITE_TAG { WRITE } else { READ };
        self.code.alu(W64, Alu::Cmp, RDX, Operand::Mem(Mem::indexed(R15, RCX, tag)));
    }

    /// Puts the place of the entry of the line of an address into `rcx`.
    fn find_entry(&mut self, at: Reg, shift: u32) {
        match shift.checked_sub(LINE_SHIFT) {
            Some(by) if by > 0 && self.thunks.turns_right => {
                self.code.turn_right(RCX, at, by as u8);
            }
            Some(by) => {
                self.code.mov(W32, RCX, Operand::Reg(at));
                if by > 0 {
                    self.code.shift_imm(W32, Shift::Right, RCX, by as u8);
                }
            }
            None => {
                self.code.mov(W32, RCX, Operand::Reg(at));
                self.code.shift_imm(W32, Shift::Left, RCX, (LINE_SHIFT - shift) as u8);
            }
        }
        let mask = ((LINE_ENTRIES - 1) << LINE_SHIFT) as i32;
        self.code.alu_imm(W32, Alu::And, Operand::Reg(RCX), mask);
    }

    /// Finds the entry of the line of the guest address `at`: equal if all bytes
    /// that begin there pass. Its place in the table is in `rcx` then; spoils `scratch`.
    pub(crate) fn find_line(&mut self, (at, scratch): (Reg, Reg), (bytes, page_tag): (i32, i32)) {
        let Some(book) = &self.book else { return };
        let shift = book.data_shift;
        self.find_entry(at, shift);
        if bytes > 1 {
            self.code.lea(scratch, Mem::at(at, bytes - 1));
        } else {
            self.code.mov_rr(scratch, at);
        }
        self.code.alu_imm(W64, Alu::And, Operand::Reg(scratch), -(1 << shift));
        let tag = if page_tag == WRITE_TAG { WRITE } else { READ };
        self.code.alu(W64, Alu::Cmp, scratch, Operand::Mem(Mem::indexed(R15, RCX, tag)));
    }

    /// Takes note that the present instruction uses the line that was found, and turns
    /// the guest address `at` into the host's; spoils `rcx` and `scratch`.
    pub(crate) fn use_line(&mut self, (at, scratch): (Reg, Reg)) {
        self.code.mov(W64, scratch, Operand::Mem(Mem::indexed(R15, RCX, STAMP)));
        self.code.alu(W64, Alu::Add, at, Operand::Mem(Mem::indexed(R15, RCX, ADDEND)));
        self.code.lea(RCX, self.time(1));
        self.code.store(8, Mem::at(scratch, 0), RCX);
    }

    /// Calls a helper and goes back; or goes on behind the look-up, in front of what
    /// takes note of the line's use, if the line could be brought in without.
    pub(crate) fn write_help(&mut self, helper: Helper, held: Held, (open, back): (Open, usize)) {
        let (found, back) = ((open.0, open.1.0 + 4), (open.0, back));
        match helper {
            Helper::Fetch { pc, at, site, looked_up, words } => {
                self.code.mov_imm(RAX, at);
                self.bring_page((pc, at), words, (open.0, looked_up));
                self.call_help(self.thunks.fetch, (pc, site), held);
                let hole = self.code.jump();
                self.connect((self.area, hole), back);
            }
            Helper::Data { pc, site, retired, base, displacement } => {
                match base {
                    Some(base) => self.code.lea(RAX, Mem::at(base, displacement)),
                    None => self.add_to_rax(displacement),
                }
                let undone = if base.is_none() { displacement } else { 0 };
                self.bring((pc, site), undone, found);
                self.call_help(self.thunks.data, (pc, site), held);
                self.code.test(RAX);
                let slowly = self.code.jump_if(Cond::Equal);
                if let Some(base) = base {
                    self.code.alu(W64, Alu::Sub, RAX, Operand::Reg(base));
                }
                self.add_to_rax(displacement.wrapping_neg());
                let hole = self.code.jump();
                self.connect((self.area, hole), back);
                self.code.fill_here(slowly);
                self.leave_to_interpreter(retired, pc);
            }
        }
    }

    fn call_help(&mut self, thunk: CacheAddr, (pc, site): (u64, u32), held: Held) {
        self.code.mov_imm(RDX, pc);
        self.code.mov_imm(RCX, site.into());
        let hole = self.code.call();
        self.fill_shared(hole, thunk);
        self.reload(held);
    }

    fn add_to_rax(&mut self, displacement: i32) {
        if displacement != 0 {
            self.code.lea(RAX, Mem::at(RAX, displacement));
        }
    }

    /// Takes note of who brings something in.
    fn note_miss(&mut self, word: u32, pc: u64) {
        self.code.store_imm(MISS_PLACE, 8 * word as i32);
        self.code.store_imm(MISS_PAGE, (pc >> PAGE_SHIFT) as i32);
    }

    /// Brings the page of a line of code, which is in `rax` and known to hit, into the
    /// TLB, and looks the line up again; or goes on here if that cannot be.
    fn bring_page(
        &mut self,
        (pc, at): (u64, u64),
        (word, frame): (u32, u32),
        looked_up: (Area, usize),
    ) {
        let Some(book) = &mut self.book else { return };
        let count = book.miss(pc, ReferenceKind::Fetch);
        let known = Operand::Mem(Mem::at(R14, 8 * word as i32));
        self.code.alu_imm(W64, Alu::Cmp, known, 0);
        let unknown = self.code.jump_if(Cond::Equal);
        self.note_miss(count, at);
        self.code.mov_imm(RCX, 8 * u64::from(frame));
        let hole = self.code.call();
        self.fill_shared(hole, self.thunks.bring_code);
        let hole = self.code.jump_if(Cond::Equal);
        self.connect((self.area, hole), looked_up);
        self.code.fill_here(unknown);
    }

    /// Marks a clean line that is stored to, or brings an absent one in, and goes on with
    /// its entry, and with what was added to `rax` undone; or goes on here if neither can
    /// be.
    fn bring(&mut self, (pc, site): (u64, u32), undone: i32, found: (Area, usize)) {
        let Some(book) = &mut self.book else { return };
        let Packed { store, size, .. } = Packed::unpack(site);
        let kind = if store { ReferenceKind::Store } else { ReferenceKind::Load };
        let (word, shift) = (book.miss(pc, kind), book.data_shift);
        self.code.lea(RDX, Mem::at(RAX, i32::from(size) - 1));
        let mut done = Vec::new();
        if store {
            self.code.alu_imm(W64, Alu::And, Operand::Reg(RDX), -(1 << shift));
            let hole = self.code.call();
            self.fill_shared(hole, self.thunks.mark);
            done.push(self.code.jump_if(Cond::Equal));
        }
        self.note_miss(word, pc);
        let hole = self.code.call();
        self.fill_shared(hole, if store { self.thunks.bring_written } else { self.thunks.bring });
        let failed = self.code.jump_if(Cond::Above);
        done.push(self.code.jump_if(Cond::Equal));
        let count = Operand::Mem(Mem::at(R14, 8 * word as i32));
        self.code.alu_imm(W64, Alu::Add, count, 1);
        for hole in done {
            self.code.fill_here(hole);
        }
        self.add_to_rax(undone.wrapping_neg());
        let hole = self.code.jump();
        self.connect((self.area, hole), found);
        self.code.fill_here(failed);
    }

    /// Counts a transfer of control.
    pub(crate) fn count_arc(&mut self, from: u64, to: u64) {
        let Some(book) = &mut self.book else { return };
        let word = book.arc(from, to);
        let place = Operand::Mem(Mem::at(R14, 8 * word as i32));
        self.code.alu_imm(W64, Alu::Add, place, 1);
    }

    /// Counts what has retired, counts the computed transfer to the address in
    /// `rax`, and goes there.
    pub(crate) fn go_counted(&mut self, retired: usize) {
        let from = self.behind();
        self.retire(retired);
        let Some(book) = &mut self.book else { return };
        let site = book.indirect(from);
        let mix = site_mix(site) << INDIRECT_SHIFT;
        let mask = (INDIRECT_ENTRIES - 1) << INDIRECT_SHIFT;
        self.code.mov(W32, RCX, Operand::Reg(RAX));
        self.code.shift_imm(W32, Shift::Left, RCX, INDIRECT_SHIFT as u8 - 1);
        self.code.alu_imm(W32, Alu::Xor, Operand::Reg(RCX), mix as i32);
        self.code.alu_imm(W32, Alu::And, Operand::Reg(RCX), mask as i32);
        self.code.alu(W64, Alu::Add, RCX, Operand::Mem(INDIRECT));
        self.code.mov_rr(RDX, RAX);
        self.code.alu(W64, Alu::Xor, RDX, Operand::Mem(KEY));
        let at = |offset: usize| Mem::at(RCX, offset as i32);
        self.code.alu(W64, Alu::Cmp, RDX, Operand::Mem(at(offset_of!(Indirect, tag))));
        let other_target = self.code.jump_if(Cond::NotEqual);
        let known_site = Operand::Mem(at(offset_of!(Indirect, site)));
        self.code.alu_imm(W32, Alu::Cmp, known_site, site as i32);
        let other_site = self.code.jump_if(Cond::NotEqual);
        let count = Operand::Mem(at(offset_of!(Indirect, count)));
        self.code.alu_imm(W64, Alu::Add, count, 1);
        self.code.jump_mem(at(offset_of!(Indirect, code)));
        self.code.fill_here(other_target);
        self.code.fill_here(other_site);
        self.code.mov_imm(RCX, site.into());
        self.jump_to(self.thunks.uncounted);
    }
}
