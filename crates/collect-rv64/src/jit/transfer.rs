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
use crate::jit::x86::{Alu, Cond, Mem, Operand, R14, R15, RAX, RCX, RDX, Shift, W32, W64};
use crate::ram::{PAGE_SHIFT, PAGE_SIZE};
use crate::tlb::{ADDEND, ENTRIES, ENTRY_SHIFT, READ_TAG, WRITE_TAG};

/// Translates an instruction if it touches memory or jumps.
pub(crate) fn translate(b: &mut Block<'_>, i: &Insn) -> Step {
    match i.op {
        Op::Lb => load(b, i, 1, true),
        Op::Lh => load(b, i, 2, true),
        Op::Lw => load(b, i, 4, true),
        Op::Ld => load(b, i, 8, true),
        Op::Lbu => load(b, i, 1, false),
        Op::Lhu => load(b, i, 2, false),
        Op::Lwu => load(b, i, 4, false),
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

/// Puts the access's offset into RAM into `rax`, or leaves for the interpreter.
/// Uses `rcx` and `rdx`.
pub(crate) fn reach(b: &mut Block<'_>, i: &Insn, bytes: u8, tag: i32) {
    match mapped(i.rs1) {
        Some(base) => b.code.lea(RAX, Mem::at(base, i.imm)),
        None => {
            b.code.mov(W64, RAX, operand(i.rs1));
            if i.imm != 0 {
                b.code.alu_imm(W64, Alu::Add, Operand::Reg(RAX), i.imm);
            }
        }
    }
    if b.book.is_some() {
        return b.reach_line(bytes, tag);
    }
    b.code.mov(W32, RCX, Operand::Reg(RAX));
    b.code.shift_imm(W32, Shift::Right, RCX, (PAGE_SHIFT - ENTRY_SHIFT) as u8);
    b.code.alu_imm(W32, Alu::And, Operand::Reg(RCX), ((ENTRIES - 1) << ENTRY_SHIFT) as i32);
    if bytes > 1 {
        b.code.lea(RDX, Mem::at(RAX, i32::from(bytes) - 1));
    } else {
        b.code.mov_rr(RDX, RAX);
    }
    b.code.alu_imm(W64, Alu::And, Operand::Reg(RDX), -(PAGE_SIZE as i32));
    b.code.alu(W64, Alu::Cmp, RDX, Operand::Mem(Mem::indexed(R15, RCX, tag)));
    b.interpret_if(Cond::NotEqual);
    b.code.alu(W64, Alu::Add, RAX, Operand::Mem(Mem::indexed(R15, RCX, ADDEND)));
}

/// The bytes that [`reach`] found.
pub(crate) const fn reached(b: &Block<'_>) -> Mem {
    if b.book.is_some() { Mem::at(RAX, 0) } else { Mem::indexed(R14, RAX, 0) }
}

fn load(b: &mut Block<'_>, i: &Insn, bytes: u8, signed: bool) {
    reach(b, i, bytes, READ_TAG);
    let to = mapped(i.rd).unwrap_or(RCX);
    b.code.load(bytes, signed, to, Operand::Mem(reached(b)));
    if i.rd != SINK {
        b.write(i.rd, to);
    }
}

fn store(b: &mut Block<'_>, i: &Insn, bytes: u8) {
    reach(b, i, bytes, WRITE_TAG);
    let from = b.source(i.rs2, RDX);
    b.code.store(bytes, reached(b), from);
}

fn branch(b: &mut Block<'_>, i: &Insn, cond: Cond) {
    let target = b.pc.wrapping_add(i.imm as i64 as u64);
    let first = b.source(i.rs1, RAX);
    if i.rs2 == 0 {
        b.code.test(first);
    } else {
        b.code.alu(W64, Alu::Cmp, first, operand(i.rs2));
    }
    b.branch_if(cond, target);
}
