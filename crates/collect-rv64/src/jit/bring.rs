//! Shared code that brings a line of data into the first-level cache and into the table
//! of lines, where both are of the usual sort: what `Profiler::reach_at_once` does, in
//! code that spoils nothing and calls nobody.
//!
//! It answers by flags, as compares leave them: below if the line was absent and is there
//! now, equal if it was there and only hidden, above if nothing was done. In the first two
//! cases the entry at `rcx` is the line's, and its time of use is still to be written.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::mem::offset_of;

use ichnos_base::CacheAddr;

use crate::jit::state::{OWN_DISTANCE, OWN_MASK, OWN_PAGES, OWN_SPACE, OWN_WORDS};
use crate::jit::thunks::{LOST, address};
use crate::jit::turn::{bring_absent, find_record, page};
use crate::jit::x86::{
    Alu, Code, Cond, Hole, Mem, Operand, R8, R9, R10, R11, R14, R15, RAX, RCX, RDI, RDX, RSI, Reg,
    Shift, W32, W64,
};
use crate::profile::{
    CLEAN, EVICTIONS, HIDDEN, LINE_ENTRIES, LINE_SHIFT, Line, NO_LINE, Page, WRITE_BACKS, WRITTEN,
};
use crate::ram::PAGE_SHIFT;

/// Bytes of a line, and ways of a set, as powers of two.
const LINE: u8 = 6;
const WAYS: i32 = 8;

/// What the line is brought in by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    Load,
    Store,
}

/// A field of the entry at a place of the table of lines.
const fn entry(place: Reg, offset: usize) -> Mem {
    Mem::indexed(R15, place, offset as i32)
}

/// Called with a guest address in `rax`, the place of its line's entry in `rcx`, and in
/// `rdx` the line of its last byte, with whatever below. `mark` marks a clean line, and
/// `bring_page` brings its page into the TLB.
pub(crate) fn bring_line(
    code: &mut Code,
    by: By,
    (mark, bring_page): (CacheAddr, CacheAddr),
) -> CacheAddr {
    let at = address(code);
    for reg in LOST {
        code.push(reg);
    }
    let mut failed = check_page(code, by, bring_page);
    code.mov(W64, RDI, Operand::Mem(entry(RCX, offset_of!(Line, read))));
    code.alu(W64, Alu::Xor, RDI, Operand::Reg(RSI));
    code.alu_imm(W64, Alu::Cmp, Operand::Reg(RDI), HIDDEN as i32);
    let hidden = code.jump_if(Cond::Equal);
    code.test(RDI);
    let present = code.jump_if(Cond::Equal);
    check_absent(code, &mut failed);
    find_oldest(code);
    replace(code, by);
    forget_old(code);
    code.mov_imm(RDX, 0);
    code.alu_imm(W64, Alu::Cmp, Operand::Reg(RDX), 1);
    give_back(code);
    code.ret();
    code.fill_here(present);
    // The bytes are not aligned, or a store found the line clean and marked it.
    if by == By::Store {
        code.alu(W64, Alu::Cmp, RSI, Operand::Mem(entry(RCX, offset_of!(Line, write))));
        failed.push(code.jump_if(Cond::NotEqual));
    }
    code.alu(W64, Alu::Cmp, RSI, Operand::Reg(RSI));
    give_back(code);
    code.ret();
    code.fill_here(hidden);
    show(code, by, mark);
    for hole in failed {
        code.fill_here(hole);
    }
    code.mov_imm(RDX, 1);
    code.alu_imm(W64, Alu::Cmp, Operand::Reg(RDX), 0);
    give_back(code);
    code.ret();
    at
}

fn give_back(code: &mut Code) {
    for reg in LOST.into_iter().rev() {
        code.pop(reg);
    }
}

/// Puts the line into `rsi` and the record of its page into `r8`. Fails unless the bytes
/// are in one line, and in a page whose place is known and that is in the TLB or can be
/// brought into it.
fn check_page(code: &mut Code, by: By, bring_page: CacheAddr) -> Vec<Hole> {
    code.mov_rr(RSI, RAX);
    code.alu_imm(W64, Alu::And, Operand::Reg(RSI), -1 << LINE);
    code.alu_imm(W64, Alu::And, Operand::Reg(RDX), -1 << LINE);
    code.alu(W64, Alu::Cmp, RSI, Operand::Reg(RDX));
    let mut failed = vec![code.jump_if(Cond::NotEqual)];
    code.alu_imm(W64, Alu::Cmp, Operand::Mem(OWN_PAGES), 0);
    failed.push(code.jump_if(Cond::Equal));
    code.mov_rr(RDI, RAX);
    code.shift_imm(W64, Shift::Right, RDI, PAGE_SHIFT as u8);
    find_record(code, (R8, RDI), OWN_PAGES);
    let number = page(R8, offset_of!(Page, number));
    code.alu(W64, Alu::Cmp, RDI, Operand::Mem(number));
    let present = code.jump_if(Cond::Equal);
    failed.extend(bring_absent(code, number, bring_page));
    code.fill_here(present);
    let stores = Operand::Mem(page(R8, offset_of!(Page, stores)));
    match by {
        By::Load => {
            code.alu_imm(W64, Alu::Cmp, stores, 0);
            failed.push(code.jump_if(Cond::Equal));
        }
        By::Store => {
            code.alu_imm(W64, Alu::Cmp, stores, CLEAN as i32);
            failed.push(code.jump_if(Cond::NotEqual));
        }
    }
    failed
}

/// Puts the word of the line into `rdi` and the place of its set into `rdx`. Fails if the
/// set may hold it.
fn check_absent(code: &mut Code, failed: &mut Vec<Hole>) {
    code.mov_rr(RDI, RSI);
    code.alu(W64, Alu::Xor, RDI, Operand::Mem(OWN_SPACE));
    code.shift_imm(W64, Shift::Right, RDI, LINE);
    code.mov_rr(RDX, RDI);
    code.alu(W64, Alu::And, RDX, Operand::Mem(OWN_MASK));
    code.shift_imm(W64, Shift::Left, RDX, LINE);
    code.alu(W64, Alu::Add, RDX, Operand::Mem(OWN_WORDS));
    code.eightfold(RDI, RDI, 1);
    for way in 0..WAYS {
        // Words of the same line differ in their flags at most.
        code.mov(W64, R10, Operand::Mem(Mem::at(RDX, 8 * way)));
        code.alu(W64, Alu::Xor, R10, Operand::Reg(RDI));
        code.alu_imm(W64, Alu::Cmp, Operand::Reg(R10), 8);
        failed.push(code.jump_if(Cond::Below));
    }
}

/// Puts the places of the word and of the time of use of the line that has to go into
/// `rdx` and `r9`. Ways go along in the lowest bits of their times. They are compared two
/// by two first, which do not wait for one another; `rsi` is spoilt meanwhile.
fn find_oldest(code: &mut Code) {
    code.mov_rr(R9, RDX);
    code.alu(W64, Alu::Add, R9, Operand::Mem(OWN_DISTANCE));
    let time = |code: &mut Code, to: Reg, way: i32| {
        code.mov(W64, to, Operand::Mem(Mem::at(R9, 8 * way)));
        code.eightfold(to, to, way);
    };
    let older = |code: &mut Code, one: Reg, other: Reg| {
        code.alu(W64, Alu::Cmp, other, Operand::Reg(one));
        code.cmov(Cond::Below, one, other);
    };
    time(code, R10, 0);
    time(code, RSI, 1);
    older(code, R10, RSI);
    for way in (2..WAYS).step_by(2) {
        time(code, R11, way);
        time(code, RSI, way + 1);
        older(code, R11, RSI);
        older(code, R10, R11);
    }
    code.alu_imm(W32, Alu::And, Operand::Reg(R10), WAYS - 1);
    code.shift_imm(W32, Shift::Left, R10, 3);
    code.alu(W64, Alu::Add, R9, Operand::Reg(R10));
    code.alu(W64, Alu::Add, RDX, Operand::Reg(R10));
    code.mov_rr(RSI, RAX);
    code.alu_imm(W64, Alu::And, Operand::Reg(RSI), -1 << LINE);
}

/// Puts the line into the place of the one that has to go, whose word is in `r11` then,
/// and into the table of lines.
fn replace(code: &mut Code, by: By) {
    code.mov(W64, R11, Operand::Mem(Mem::at(RDX, 0)));
    if by == By::Store {
        code.alu_imm(W64, Alu::Or, Operand::Reg(RDI), WRITTEN as i32);
    }
    code.store(8, Mem::at(RDX, 0), RDI);
    code.store(8, entry(RCX, offset_of!(Line, read)), RSI);
    code.store(8, entry(RCX, offset_of!(Line, stamp)), R9);
    code.mov_rr(R10, RSI);
    if by == By::Load {
        code.alu(W64, Alu::Or, R10, Operand::Mem(page(R8, offset_of!(Page, stores))));
    }
    code.store(8, entry(RCX, offset_of!(Line, write)), R10);
    code.mov(W64, R10, Operand::Mem(page(R8, offset_of!(Page, addend))));
    code.store(8, entry(RCX, offset_of!(Line, addend)), R10);
    name(code);
}

/// The record in `r8` names the line in `rsi`.
fn name(code: &mut Code) {
    code.mov(W64, R10, Operand::Mem(page(R8, offset_of!(Page, lines))));
    code.mov_rr(R9, RSI);
    code.shift_imm(W64, Shift::Right, R9, LINE);
    code.set_bit(R10, R9);
    code.store(8, page(R8, offset_of!(Page, lines)), R10);
}

/// The line of the word in `r11`, if there was one, passes no longer.
fn forget_old(code: &mut Code) {
    code.test(R11);
    let none = code.jump_if(Cond::Equal);
    let count = |word: u32| Mem::at(R14, 8 * word as i32);
    code.alu_imm(W64, Alu::Add, Operand::Mem(count(EVICTIONS)), 1);
    code.mov_rr(R10, R11);
    code.shift_imm(W64, Shift::Right, R10, WRITTEN.trailing_zeros() as u8);
    code.alu_imm(W32, Alu::And, Operand::Reg(R10), 1);
    code.alu(W64, Alu::Add, R10, Operand::Mem(count(WRITE_BACKS)));
    code.store(8, count(WRITE_BACKS), R10);
    // Its address, and its entry.
    code.shift_imm(W64, Shift::Right, R11, 3);
    code.shift_imm(W64, Shift::Left, R11, LINE);
    code.alu(W64, Alu::Xor, R11, Operand::Mem(OWN_SPACE));
    code.mov_rr(R10, R11);
    code.shift_imm(W64, Shift::Right, R10, LINE - LINE_SHIFT as u8);
    let mask = ((LINE_ENTRIES - 1) << LINE_SHIFT) as i32;
    code.alu_imm(W32, Alu::And, Operand::Reg(R10), mask);
    let tags = [offset_of!(Line, read), offset_of!(Line, write)].map(|tag| entry(R10, tag));
    let is_its = |code: &mut Code, tag: Mem, cond| {
        code.mov(W64, R9, Operand::Mem(tag));
        code.alu(W64, Alu::Xor, R9, Operand::Reg(R11));
        code.alu_imm(W64, Alu::And, Operand::Reg(R9), !(HIDDEN | CLEAN) as i32);
        code.jump_if(cond)
    };
    let its = is_its(code, tags[0], Cond::Equal);
    let other = is_its(code, tags[1], Cond::NotEqual);
    code.fill_here(its);
    for tag in tags {
        code.store_imm(tag, NO_LINE as i32);
    }
    code.fill_here(other);
    // Pages that are not in the TLB name no lines.
    code.mov_rr(R9, R11);
    code.shift_imm(W64, Shift::Right, R9, PAGE_SHIFT as u8);
    find_record(code, (R10, R9), OWN_PAGES);
    code.alu(W64, Alu::Cmp, R9, Operand::Mem(page(R10, offset_of!(Page, number))));
    let unnamed = code.jump_if(Cond::NotEqual);
    code.mov(W64, R9, Operand::Mem(page(R10, offset_of!(Page, lines))));
    code.shift_imm(W64, Shift::Right, R11, LINE);
    code.clear_bit(R9, R11);
    code.store(8, page(R10, offset_of!(Page, lines)), R9);
    code.fill_here(none);
    code.fill_here(unnamed);
}

/// Lets the hidden line in `rsi` pass again, and returns. A store marks it if it is clean.
fn show(code: &mut Code, by: By, mark: CacheAddr) {
    let write = entry(RCX, offset_of!(Line, write));
    code.store(8, entry(RCX, offset_of!(Line, read)), RSI);
    code.alu_imm(W64, Alu::And, Operand::Mem(write), !HIDDEN as i32);
    name(code);
    code.mov_rr(RDX, RSI);
    give_back(code);
    if by == By::Load {
        code.alu(W64, Alu::Cmp, RDX, Operand::Reg(RDX));
        return code.ret();
    }
    code.alu(W64, Alu::Cmp, RDX, Operand::Mem(write));
    let clean = code.jump_if(Cond::NotEqual);
    code.ret();
    code.fill_here(clean);
    // What is left of a tag that nothing passes by is less than the line.
    let hole = code.jump();
    code.fill(hole, mark.0 as usize);
}
