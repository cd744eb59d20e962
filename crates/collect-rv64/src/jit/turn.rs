//! Shared code that brings a page into a TLB that is replaced in turn: what the models'
//! `translate` does, and what `Profiler::hide_page` and `show_page` do after it, in code
//! that calls nobody.
//!
//! It answers by flags: equal if the page was absent and is there now, else nothing was
//! done. It does nothing where the page that has to go is that of the instruction itself,
//! which would be fetched anew, or one of code that the interpreter has lines of.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::mem::offset_of;

use ichnos_base::CacheAddr;

use crate::jit::state::{
    MISS_PAGE, MISS_PLACE, TURN_CAPACITY, TURN_CODE_PAGES, TURN_DATA_PAGES, TURN_RECENT, TURN_SEEN,
    TURN_SPACE, TURN_TAG, TURN_WORDS,
};
use crate::jit::thunks::{LOST, address};
use crate::jit::x86::{
    Alu, Code, Cond, Hole, Mem, Operand, R8, R9, R10, R11, R12, R14, R15, RAX, RBP, RCX, RDI, RDX,
    RSI, Reg, Shift, W32, W64,
};
use crate::profile::{
    ABSENT, CLEAN, HIDDEN, HIDDEN_FRAME, LINE_ENTRIES, LINE_SHIFT, Line, PAGE_RECORD_SHIFT, PAGES,
    PAGES_SEEN, Page, RECENT, Recent, Ring,
};
use crate::ram::PAGE_SHIFT;

/// Registers that are saved besides those which whoever calls has saved.
const USED: [Reg; 4] = [RBP, R12, RSI, RCX];

/// Bytes of a line, as a power of two.
const LINE: u32 = 6;

/// Flags of a page's word, and bits of its number.
const FLAGS: u8 = 3;
const NUMBER: u8 = 55;

/// A field of the record of a page.
pub(crate) const fn page(record: Reg, offset: usize) -> Mem {
    Mem::at(record, offset as i32)
}

const fn word(ring: Reg, number: usize) -> Mem {
    Mem::at(ring, 8 * number as i32)
}

/// The count of pages whose numbers have these lowest bits.
const fn count(ring: Reg, bits: Reg) -> Mem {
    Mem::indexed(ring, bits, 8 * Ring::COUNTS as i32)
}

/// Puts the place of a page's record into `to`; its number is in `number`.
pub(crate) fn find_record(code: &mut Code, (to, number): (Reg, Reg), records: Mem) {
    code.mov(W32, to, Operand::Reg(number));
    code.alu_imm(W32, Alu::And, Operand::Reg(to), PAGES as i32 - 1);
    code.shift_imm(W32, Shift::Left, to, PAGE_RECORD_SHIFT as u8);
    code.alu(W64, Alu::Add, to, Operand::Mem(records));
}

/// Puts into `to` what the record of an absent page has for its number.
fn as_absent(code: &mut Code, to: Reg, number: Reg) {
    code.mov_imm(to, ABSENT);
    code.alu(W64, Alu::Or, to, Operand::Reg(number));
}

/// Called with the number of a page in `rdi`, whose misses are counted where
/// [`MISS_PLACE`] says. Spoils `rdx` and `r9` to `r11`.
pub(crate) fn bring_page(code: &mut Code) -> CacheAddr {
    let at = address(code);
    for reg in USED {
        code.push(reg);
    }
    let mut failed = find_departing(code);
    hide_code(code, &mut failed);
    hide_data(code);
    replace(code);
    code.mov(W64, RDX, Operand::Mem(MISS_PLACE));
    code.alu_imm(W64, Alu::Add, Operand::Mem(Mem::indexed(R14, RDX, 8)), 1);
    code.alu(W64, Alu::Cmp, RDX, Operand::Reg(RDX));
    let done = code.jump();
    for hole in failed {
        code.fill_here(hole);
    }
    code.mov_imm(RDX, 1);
    code.test(RDX);
    code.fill_here(done);
    for reg in USED.into_iter().rev() {
        code.pop(reg);
    }
    code.ret();
    at
}

/// Puts the words into `r9`, the place of the one to fill into `r12` and the number of the
/// page that has to go into `r11`. Fails unless the page is absent for sure, and the TLB
/// full.
fn find_departing(code: &mut Code) -> Vec<Hole> {
    code.mov(W64, R9, Operand::Mem(TURN_WORDS));
    code.test(R9);
    let mut failed = vec![code.jump_if(Cond::Equal)];
    code.mov_rr(RDX, RDI);
    code.alu(W64, Alu::Xor, RDX, Operand::Mem(TURN_SPACE));
    code.alu_imm(W32, Alu::And, Operand::Reg(RDX), Ring::COUNTED as i32 - 1);
    code.load(1, false, RDX, Operand::Mem(count(R9, RDX)));
    code.test(RDX);
    failed.push(code.jump_if(Cond::NotEqual));
    code.mov(W64, R12, Operand::Mem(word(R9, Ring::NEXT)));
    code.eightfold(R12, R12, 0);
    code.mov(W64, R11, Operand::Mem(Mem::indexed(R9, R12, 0)));
    code.test(R11);
    failed.push(code.jump_if(Cond::Equal));
    code.shift_imm(W64, Shift::Left, R11, 64 - NUMBER - FLAGS);
    code.shift_imm(W64, Shift::Right, R11, 64 - NUMBER);
    code.alu(W64, Alu::Xor, R11, Operand::Mem(TURN_SPACE));
    code.alu(W32, Alu::Cmp, R11, Operand::Mem(MISS_PAGE));
    failed.push(code.jump_if(Cond::Equal));
    failed
}

/// If the page in `r11` is one of code, its lines pass no longer. Fails if it has lines
/// that the interpreter passes, or is none of the recent ones.
fn hide_code(code: &mut Code, failed: &mut Vec<Hole>) {
    find_record(code, (R10, R11), TURN_CODE_PAGES);
    let number = page(R10, offset_of!(Page, number));
    code.alu(W64, Alu::Cmp, R11, Operand::Mem(number));
    let unknown = code.jump_if(Cond::NotEqual);
    code.alu_imm(W64, Alu::Cmp, Operand::Mem(page(R10, offset_of!(Page, lines))), 0);
    failed.push(code.jump_if(Cond::NotEqual));
    code.fill_here(unknown);
    code.mov(W32, RBP, Operand::Reg(R11));
    code.alu_imm(W32, Alu::And, Operand::Reg(RBP), RECENT as i32 - 1);
    code.shift_imm(W32, Shift::Left, RBP, size_of::<Recent>().trailing_zeros() as u8);
    code.alu(W64, Alu::Add, RBP, Operand::Mem(TURN_RECENT));
    code.alu(W64, Alu::Cmp, R11, Operand::Mem(page(RBP, offset_of!(Recent, page))));
    let recent = code.jump_if(Cond::Equal);
    code.mov(W32, RDX, Operand::Reg(R11));
    code.alu_imm(W32, Alu::And, Operand::Reg(RDX), PAGES_SEEN as i32 - 1);
    code.mov(W32, RBP, Operand::Reg(RDX));
    code.shift_imm(W32, Shift::Right, RBP, 6);
    code.eightfold(RBP, RBP, 0);
    code.alu(W64, Alu::Add, RBP, Operand::Mem(TURN_SEEN));
    code.mov(W64, RBP, Operand::Mem(Mem::at(RBP, 0)));
    code.test_bit(RBP, RDX);
    failed.push(code.jump_if(Cond::Below));
    let no_frame = code.jump();
    code.fill_here(recent);
    code.mov(W32, RBP, Operand::Mem(page(RBP, offset_of!(Recent, word))));
    code.eightfold(RBP, RBP, 0);
    code.mov_imm(RDX, HIDDEN_FRAME);
    code.store(8, Mem::indexed(R14, RBP, 0), RDX);
    code.fill_here(no_frame);
    code.alu(W64, Alu::Cmp, R11, Operand::Mem(number));
    let unknown = code.jump_if(Cond::NotEqual);
    as_absent(code, RDX, R11);
    code.store(8, number, RDX);
    code.fill_here(unknown);
}

/// If the page in `r11` is one of data, its lines are hidden. Spoils `r11`.
fn hide_data(code: &mut Code) {
    find_record(code, (R10, R11), TURN_DATA_PAGES);
    let number = page(R10, offset_of!(Page, number));
    code.alu(W64, Alu::Cmp, R11, Operand::Mem(number));
    let unknown = code.jump_if(Cond::NotEqual);
    as_absent(code, RDX, R11);
    code.store(8, number, RDX);
    let lines = page(R10, offset_of!(Page, lines));
    code.mov(W64, RBP, Operand::Mem(lines));
    code.store_imm(lines, 0);
    // The lines of a page stand together in the table.
    code.shift_imm(W64, Shift::Left, R11, PAGE_SHIFT as u8);
    code.mov(W32, R10, Operand::Reg(R11));
    code.shift_imm(W32, Shift::Right, R10, (LINE - LINE_SHIFT) as u8);
    let mask = ((LINE_ENTRIES - 1) << LINE_SHIFT) as i32;
    code.alu_imm(W32, Alu::And, Operand::Reg(R10), mask);
    code.alu(W64, Alu::Add, R10, Operand::Reg(R15));
    code.test(RBP);
    let none = code.jump_if(Cond::Equal);
    let again = code.here();
    code.lowest_bit(RDX, RBP);
    code.clear_bit(RBP, RDX);
    code.mov_rr(RCX, RDX);
    code.shift_imm(W64, Shift::Left, RCX, LINE as u8);
    code.alu(W64, Alu::Add, RCX, Operand::Reg(R11));
    code.shift_imm(W64, Shift::Left, RDX, LINE_SHIFT as u8);
    for tag in [offset_of!(Line, read), offset_of!(Line, write)] {
        let tag = Operand::Mem(Mem::indexed(R10, RDX, tag as i32));
        code.mov(W64, RSI, tag);
        code.alu(W64, Alu::Xor, RSI, Operand::Reg(RCX));
        code.alu_imm(W64, Alu::And, Operand::Reg(RSI), !(HIDDEN | CLEAN) as i32);
        let other = code.jump_if(Cond::NotEqual);
        code.alu_imm(W64, Alu::Or, tag, HIDDEN as i32);
        code.fill_here(other);
    }
    code.test(RBP);
    let more = code.jump_if(Cond::NotEqual);
    code.fill(more, again);
    code.fill_here(none);
    code.fill_here(unknown);
}

/// The page in `rdi` takes the place in `r12`.
fn replace(code: &mut Code) {
    let place = Mem::indexed(R9, R12, 0);
    code.mov(W64, R11, Operand::Mem(place));
    code.shift_imm(W64, Shift::Right, R11, FLAGS);
    code.alu_imm(W32, Alu::And, Operand::Reg(R11), Ring::COUNTED as i32 - 1);
    code.add_byte(count(R9, R11), -1);
    code.mov_rr(RDX, RDI);
    code.alu(W64, Alu::Xor, RDX, Operand::Mem(TURN_SPACE));
    code.mov(W32, R11, Operand::Reg(RDX));
    code.alu_imm(W32, Alu::And, Operand::Reg(R11), Ring::COUNTED as i32 - 1);
    code.add_byte(count(R9, R11), 1);
    code.shift_imm(W64, Shift::Left, RDX, FLAGS);
    code.alu(W64, Alu::Or, RDX, Operand::Mem(TURN_TAG));
    code.store(8, place, RDX);
    code.shift_imm(W64, Shift::Right, R12, 3);
    code.alu_imm(W64, Alu::Add, Operand::Reg(R12), 1);
    code.mov_imm(RDX, 0);
    code.alu(W64, Alu::Cmp, R12, Operand::Mem(TURN_CAPACITY));
    code.cmov(Cond::AboveEqual, R12, RDX);
    code.store(8, word(R9, Ring::NEXT), R12);
}

/// Brings the page of the number in `rdi` in, if its record, whose number's place is given, says that it left the TLB: where to
/// jump to if not. `rdx` is lost.
pub(crate) fn bring_absent(code: &mut Code, number: Mem, bring_page: CacheAddr) -> [Hole; 2] {
    as_absent(code, RDX, RDI);
    code.alu(W64, Alu::Cmp, RDX, Operand::Mem(number));
    let other = code.jump_if(Cond::NotEqual);
    let call = code.call();
    code.fill(call, bring_page.0 as usize);
    let failed = code.jump_if(Cond::NotEqual);
    code.store(8, number, RDI);
    [other, failed]
}

/// Called with the address of a line of code in `rax` that is known to hit and whose page
/// left the TLB, and the place of its frame's word in `rcx`: brings the page in.
pub(crate) fn bring_code(code: &mut Code, bring_page: CacheAddr) -> CacheAddr {
    let at = address(code);
    for reg in LOST {
        code.push(reg);
    }
    code.alu_imm(W64, Alu::Cmp, Operand::Mem(TURN_WORDS), 1);
    let mut failed = vec![code.jump_if(Cond::Below)];
    code.mov_rr(RDI, RAX);
    code.shift_imm(W64, Shift::Right, RDI, PAGE_SHIFT as u8);
    find_record(code, (R8, RDI), TURN_CODE_PAGES);
    let number = page(R8, offset_of!(Page, number));
    failed.extend(bring_absent(code, number, bring_page));
    code.store_imm(Mem::indexed(R14, RCX, 0), 0);
    code.alu(W64, Alu::Cmp, RDX, Operand::Reg(RDX));
    // A comparison with one, which is below, is not equal either.
    for hole in failed {
        code.fill_here(hole);
    }
    for reg in LOST.into_iter().rev() {
        code.pop(reg);
    }
    code.ret();
    at
}
