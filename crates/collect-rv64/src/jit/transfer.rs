//! Translates loads, stores and jumps.
//!
//! A memory access looks its page up in the hart's translation table right
//! here; if it is not there, or the access leaves the page, the instruction
//! goes to the interpreter, which does it the slow way and enters the page.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{Insn, Op};

use crate::cpu::SINK;
use crate::jit::block::{Block, Step};
use crate::jit::state::{mapped, operand};
use crate::jit::x86::{Alu, Cond, Mem, Operand, R14, R15, RAX, RCX, RDX, Reg, Shift, W32, W64};
use crate::ram::{PAGE_SHIFT, PAGE_SIZE};
use crate::tlb::{ADDEND, ENTRIES, ENTRY_SHIFT, READ_TAG, WRITE_TAG};

/// Translates an instruction if it touches memory or jumps.
pub(crate) fn translate(b: &mut Block<'_>, i: &Insn) -> Step {
    match i.op {
        Op::Lb | Op::Lh | Op::Lw | Op::Ld | Op::Lbu | Op::Lhu | Op::Lwu => load(b, i),
        Op::Sb => store(b, i, 1),
        Op::Sh => store(b, i, 2),
        Op::Sw => store(b, i, 4),
        Op::Sd => store(b, i, 8),
        Op::Beq => branch(b, i, Cond::Equal),
        Op::Bne => branch(b, i, Cond::NotEqual),
        Op::Blt => branch(b, i, Cond::Less),
        Op::Bge => branch(b, i, Cond::GreaterEqual),
        Op::Bltu => branch(b, i, Cond::Below),
        Op::Bgeu => branch(b, i, Cond::AboveEqual),
        Op::Jal => {
            let target = b.pc.wrapping_add(i.imm as i64 as u64);
            b.write_number(i.rd, b.pc.wrapping_add(i.len.into()));
            b.count_arc(b.behind(), target);
            b.go(b.index + 1, target, b.door(target));
            return Step::End;
        }
        Op::Jalr => {
            b.code.mov(W64, RAX, operand(i.rs1));
            if i.imm != 0 {
                b.code.alu_imm(W64, Alu::Add, Operand::Reg(RAX), i.imm);
            }
            b.code.alu_imm(W64, Alu::And, Operand::Reg(RAX), -2);
            b.write_number(i.rd, b.pc.wrapping_add(i.len.into()));
            b.go_indirect(b.index + 1);
            return Step::End;
        }
        _ => return Step::Unknown,
    }
    Step::Next
}

/// Puts a guest address into a register.
pub(crate) fn address(b: &mut Block<'_>, (to, base): (Reg, u8), displacement: i32) {
    match mapped(base) {
        Some(base) if displacement == 0 => b.code.mov_rr(to, base),
        Some(base) => b.code.lea(to, Mem::at(base, displacement)),
        None => {
            b.code.mov(W64, to, operand(base));
            if displacement != 0 {
                b.code.alu_imm(W64, Alu::Add, Operand::Reg(to), displacement);
            }
        }
    }
}

/// Finds the entry of the page of the guest address `at`: equal if all bytes that
/// begin there lie in it. Its place in the table is in `rcx` then; spoils `scratch`.
pub(crate) fn find_page(b: &mut Block<'_>, (at, scratch): (Reg, Reg), (bytes, tag): (i32, i32)) {
    b.code.mov(W32, RCX, Operand::Reg(at));
    b.code.shift_imm(W32, Shift::Right, RCX, (PAGE_SHIFT - ENTRY_SHIFT) as u8);
    b.code.alu_imm(W32, Alu::And, Operand::Reg(RCX), ((ENTRIES - 1) << ENTRY_SHIFT) as i32);
    if bytes > 1 {
        b.code.lea(scratch, Mem::at(at, bytes - 1));
    } else {
        b.code.mov_rr(scratch, at);
    }
    b.code.alu_imm(W64, Alu::And, Operand::Reg(scratch), -(PAGE_SIZE as i32));
    b.code.alu(W64, Alu::Cmp, scratch, Operand::Mem(Mem::indexed(R15, RCX, tag)));
}

/// Finds the bytes of an access, or leaves for the interpreter. Uses `rcx` and `rdx`;
/// where the bytes are needs `rax`.
pub(crate) fn reach(b: &mut Block<'_>, i: &Insn, bytes: u8, tag: i32) -> Mem {
    if b.book.is_some() {
        return b.reach_line((i.rs1, i.imm), bytes, tag);
    }
    address(b, (RAX, i.rs1), i.imm);
    find_page(b, (RAX, RDX), (bytes.into(), tag));
    b.interpret_if(Cond::NotEqual);
    b.code.alu(W64, Alu::Add, RAX, Operand::Mem(Mem::indexed(R15, RCX, ADDEND)));
    Mem::indexed(R14, RAX, 0)
}

fn load(b: &mut Block<'_>, i: &Insn) {
    let at = reach(b, i, shape(i.op).0, READ_TAG);
    load_from(b, i, at);
}

/// How many bytes a load reads, and whether it extends their sign.
const fn shape(op: Op) -> (u8, bool) {
    match op {
        Op::Lb => (1, true),
        Op::Lh => (2, true),
        Op::Lw => (4, true),
        Op::Lbu => (1, false),
        Op::Lhu => (2, false),
        Op::Lwu => (4, false),
        _ => (8, true),
    }
}

/// Loads from a place; leaves `rax` and `rdx` alone.
pub(crate) fn load_from(b: &mut Block<'_>, i: &Insn, at: Mem) {
    let (bytes, signed) = shape(i.op);
    let to = mapped(i.rd).unwrap_or(RCX);
    b.code.load(bytes, signed, to, Operand::Mem(at));
    if i.rd != SINK {
        b.write(i.rd, to);
    }
}

fn store(b: &mut Block<'_>, i: &Insn, bytes: u8) {
    let at = reach(b, i, bytes, WRITE_TAG);
    store_to(b, i, (bytes, at));
}

/// Stores to a place; leaves `rax` and `rdx` alone.
pub(crate) fn store_to(b: &mut Block<'_>, i: &Insn, (bytes, at): (u8, Mem)) {
    if i.rs2 == 0 {
        return b.code.store_zero(bytes, at);
    }
    let from = b.source(i.rs2, RCX);
    b.code.store(bytes, at, from);
}

fn branch(b: &mut Block<'_>, i: &Insn, cond: Cond) {
    let target = b.pc.wrapping_add(i.imm as i64 as u64);
    // The zero register comes second where that is the same.
    let (first, second, cond) = match (i.rs1, cond) {
        (0, Cond::Less) => (i.rs2, 0, Cond::Greater),
        (0, Cond::GreaterEqual) => (i.rs2, 0, Cond::LessEqual),
        (0, Cond::Equal | Cond::NotEqual) => (i.rs2, 0, cond),
        _ => (i.rs1, i.rs2, cond),
    };
    match (mapped(first), mapped(second)) {
        (Some(first), _) if second == 0 => b.code.test(first),
        (None, _) if second == 0 => b.code.alu_imm(W64, Alu::Cmp, operand(first), 0),
        (None, Some(second)) => b.code.alu_into(Alu::Cmp, operand(first), second),
        _ => {
            let first = b.source(first, RAX);
            b.code.alu(W64, Alu::Cmp, first, operand(second));
        }
    }
    b.branch_if(cond, target);
}
