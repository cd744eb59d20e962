//! Translates computation on integers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{Insn, Op};

use crate::cpu::SINK;
use crate::jit::block::{Block, Step};
use crate::jit::state::{mapped, operand};
use crate::jit::x86::{Alu, Cond, Mem, Operand, RAX, RCX, RDX, Reg, Shift, W32, W64, Width};

/// Translates an instruction if it computes on integers.
pub(crate) fn translate(b: &mut Block<'_>, i: &Insn) -> Step {
    let imm = i.imm;
    match i.op {
        Op::Lui => b.write_number(i.rd, imm as i64 as u64),
        Op::Auipc => b.write_number(i.rd, b.pc.wrapping_add(imm as i64 as u64)),
        Op::Fence => {}
        _ if i.rd == SINK && computes(i.op) => {}
        Op::Addi => add_immediate(b, i),
        Op::Xori => immediate(b, i, Alu::Xor),
        Op::Ori => immediate(b, i, Alu::Or),
        Op::Andi => immediate(b, i, Alu::And),
        Op::Addiw => add_word_immediate(b, i),
        Op::Slti => compare_immediate(b, i, Cond::Less),
        Op::Sltiu => compare_immediate(b, i, Cond::Below),
        Op::Slt => compare(b, i, Cond::Less),
        Op::Sltu => compare(b, i, Cond::Below),
        Op::Add => binary(b, i, Alu::Add),
        Op::Sub => binary(b, i, Alu::Sub),
        Op::And => binary(b, i, Alu::And),
        Op::Or => binary(b, i, Alu::Or),
        Op::Xor => binary(b, i, Alu::Xor),
        Op::Addw => binary_word(b, i, Alu::Add),
        Op::Subw => binary_word(b, i, Alu::Sub),
        Op::Slli => shift_immediate(b, i, W64, Shift::Left),
        Op::Srli => shift_immediate(b, i, W64, Shift::Right),
        Op::Srai => shift_immediate(b, i, W64, Shift::Arithmetic),
        Op::Rori => shift_immediate(b, i, W64, Shift::RotateRight),
        Op::Slliw => shift_immediate(b, i, W32, Shift::Left),
        Op::Srliw => shift_immediate(b, i, W32, Shift::Right),
        Op::Sraiw => shift_immediate(b, i, W32, Shift::Arithmetic),
        Op::Roriw => shift_immediate(b, i, W32, Shift::RotateRight),
        Op::Sll => shift(b, i, W64, Shift::Left),
        Op::Srl => shift(b, i, W64, Shift::Right),
        Op::Sra => shift(b, i, W64, Shift::Arithmetic),
        Op::Rol => shift(b, i, W64, Shift::RotateLeft),
        Op::Ror => shift(b, i, W64, Shift::RotateRight),
        Op::Sllw => shift(b, i, W32, Shift::Left),
        Op::Srlw => shift(b, i, W32, Shift::Right),
        Op::Sraw => shift(b, i, W32, Shift::Arithmetic),
        Op::Rolw => shift(b, i, W32, Shift::RotateLeft),
        Op::Rorw => shift(b, i, W32, Shift::RotateRight),
        Op::Mul => multiply(b, i, W64),
        Op::Mulw => multiply(b, i, W32),
        Op::Mulh => multiply_high(b, i, 5),
        Op::Mulhu => multiply_high(b, i, 4),
        Op::Div => divide(b, i, &Division { width: W64, signed: true, remainder: false }),
        Op::Divu => divide(b, i, &Division { width: W64, signed: false, remainder: false }),
        Op::Rem => divide(b, i, &Division { width: W64, signed: true, remainder: true }),
        Op::Remu => divide(b, i, &Division { width: W64, signed: false, remainder: true }),
        Op::Divw => divide(b, i, &Division { width: W32, signed: true, remainder: false }),
        Op::Divuw => divide(b, i, &Division { width: W32, signed: false, remainder: false }),
        Op::Remw => divide(b, i, &Division { width: W32, signed: true, remainder: true }),
        Op::Remuw => divide(b, i, &Division { width: W32, signed: false, remainder: true }),
        Op::Sh1add | Op::Sh2add | Op::Sh3add | Op::AddUw => shift_add(b, i),
        Op::SextB => extend(b, i, 1, true),
        Op::SextH => extend(b, i, 2, true),
        Op::ZextH => extend(b, i, 2, false),
        Op::Andn => negated(b, i, Alu::And),
        Op::Orn => negated(b, i, Alu::Or),
        Op::Max => choose(b, i, Cond::Less),
        Op::Maxu => choose(b, i, Cond::Below),
        Op::Min => choose(b, i, Cond::GreaterEqual),
        Op::Minu => choose(b, i, Cond::AboveEqual),
        Op::Rev8 => {
            b.code.mov(W64, RAX, operand(i.rs1));
            b.code.byte_swap(RAX);
            b.write(i.rd, RAX);
        }
        _ => return Step::Unknown,
    }
    Step::Next
}

/// Whether an operation does nothing but compute its result.
fn computes(op: Op) -> bool {
    use ichnos_isa_rv64::{Class, Format};
    let row = op.row();
    row.class == Class::Alu
        && matches!(row.format, Format::R | Format::R1 | Format::I | Format::Sh6 | Format::Sh5)
}

/// A 32-bit result in `rax`, sign-extended.
fn word_result(b: &mut Block<'_>, rd: u8) {
    word(b, rd, Operand::Reg(RAX));
}

/// The low half of an operand, sign-extended.
fn word(b: &mut Block<'_>, rd: u8, from: Operand) {
    let to = mapped(rd).unwrap_or(RAX);
    b.code.load(4, true, to, from);
    b.write(rd, to);
}

fn add_word_immediate(b: &mut Block<'_>, i: &Insn) {
    match operand(i.rs1) {
        from if i.imm == 0 => word(b, i.rd, from),
        Operand::Reg(from) => {
            b.code.lea_word(RAX, Mem::at(from, i.imm));
            word_result(b, i.rd);
        }
        from => {
            b.code.mov(W32, RAX, from);
            b.code.alu_imm(W32, Alu::Add, Operand::Reg(RAX), i.imm);
            word_result(b, i.rd);
        }
    }
}

/// A shift left by 32 and one right of its result: both are one zero-extension and
/// one shift. False if they are something else.
pub(crate) fn translate_pair(b: &mut Block<'_>, i: &Insn, next: &Insn) -> bool {
    let pair = i.op == Op::Slli
        && next.op == Op::Srli
        && (i.imm, next.rs1, next.rd) == (32, i.rd, i.rd)
        && (1..=32).contains(&next.imm)
        && i.rd != SINK;
    if pair {
        let to = mapped(i.rd).unwrap_or(RAX);
        b.code.mov(W32, to, operand(i.rs1));
        if next.imm != 32 {
            b.code.shift_imm(W64, Shift::Left, to, (32 - next.imm) as u8);
        }
        b.write(i.rd, to);
    }
    pair
}

fn add_immediate(b: &mut Block<'_>, i: &Insn) {
    if i.rs1 == 0 {
        return b.write_number(i.rd, i.imm as i64 as u64);
    }
    if i.imm == 0 {
        return copy(b, i.rd, i.rs1);
    }
    if let Some(place) = in_place(i.rd, i.rs1) {
        return b.code.alu_imm(W64, Alu::Add, place, i.imm);
    }
    let to = b.target(i.rd, i.rs1, i.rs1);
    match operand(i.rs1) {
        Operand::Reg(from) if from != to => b.code.lea(to, Mem::at(from, i.imm)),
        from => {
            if from != Operand::Reg(to) {
                b.code.mov(W64, to, from);
            }
            b.code.alu_imm(W64, Alu::Add, Operand::Reg(to), i.imm);
        }
    }
    b.write(i.rd, to);
}

fn load_into(b: &mut Block<'_>, to: Reg, register: u8) {
    let from = operand(register);
    if from != Operand::Reg(to) {
        b.code.mov(W64, to, from);
    }
}

/// Where a register is, if an operation changes that alone and it is in memory.
fn in_place(rd: u8, rs1: u8) -> Option<Operand> {
    (rd == rs1 && mapped(rd).is_none()).then(|| operand(rd))
}

/// Makes a register's value another's.
fn copy(b: &mut Block<'_>, rd: u8, from: u8) {
    if from == 0 {
        return b.write_number(rd, 0);
    }
    if rd == from {
        return;
    }
    match mapped(rd) {
        Some(to) => b.code.mov(W64, to, operand(from)),
        None => {
            let from = b.source(from, RAX);
            b.write(rd, from);
        }
    }
}

fn immediate(b: &mut Block<'_>, i: &Insn, op: Alu) {
    if let Some(place) = in_place(i.rd, i.rs1) {
        return b.code.alu_imm(W64, op, place, i.imm);
    }
    let to = b.target(i.rd, i.rs1, i.rs1);
    load_into(b, to, i.rs1);
    b.code.alu_imm(W64, op, Operand::Reg(to), i.imm);
    b.write(i.rd, to);
}

fn binary(b: &mut Block<'_>, i: &Insn, op: Alu) {
    match (op, i.rs1, i.rs2) {
        (Alu::Add | Alu::Or | Alu::Xor, 0, from)
        | (Alu::Add | Alu::Or | Alu::Xor | Alu::Sub, from, 0) => return copy(b, i.rd, from),
        _ => {}
    }
    // What is to change comes first if that makes no difference.
    let swapped = op != Alu::Sub && i.rd == i.rs2;
    let (first, second) = if swapped { (i.rs2, i.rs1) } else { (i.rs1, i.rs2) };
    if let (Some(place), Some(second)) = (in_place(i.rd, first), mapped(second)) {
        return b.code.alu_into(op, place, second);
    }
    let to = b.target(i.rd, first, second);
    match (op, mapped(first), mapped(second)) {
        (Alu::Add, Some(first), Some(second)) if first != to => {
            b.code.lea(to, Mem::indexed(first, second, 0));
        }
        _ => {
            load_into(b, to, first);
            b.code.alu(W64, op, to, operand(second));
        }
    }
    b.write(i.rd, to);
}

fn binary_word(b: &mut Block<'_>, i: &Insn, op: Alu) {
    match (op, mapped(i.rs1), mapped(i.rs2)) {
        (Alu::Add, Some(first), Some(second)) => {
            b.code.lea_word(RAX, Mem::indexed(first, second, 0));
        }
        _ => {
            b.code.mov(W32, RAX, operand(i.rs1));
            b.code.alu(W32, op, RAX, operand(i.rs2));
        }
    }
    word_result(b, i.rd);
}

fn compare(b: &mut Block<'_>, i: &Insn, cond: Cond) {
    let first = b.source(i.rs1, RAX);
    b.code.alu(W64, Alu::Cmp, first, operand(i.rs2));
    b.code.set(cond, RAX);
    b.write(i.rd, RAX);
}

fn compare_immediate(b: &mut Block<'_>, i: &Insn, cond: Cond) {
    b.code.alu_imm(W64, Alu::Cmp, operand(i.rs1), i.imm);
    b.code.set(cond, RAX);
    b.write(i.rd, RAX);
}

fn shift_immediate(b: &mut Block<'_>, i: &Insn, width: Width, op: Shift) {
    if width == W32 {
        b.code.mov(W32, RAX, operand(i.rs1));
        b.code.shift_imm(W32, op, RAX, i.imm as u8);
        return word_result(b, i.rd);
    }
    let to = b.target(i.rd, i.rs1, i.rs1);
    load_into(b, to, i.rs1);
    if i.imm != 0 {
        b.code.shift_imm(W64, op, to, i.imm as u8);
    }
    b.write(i.rd, to);
}

/// The host masks shift counts exactly as the guest does.
fn shift(b: &mut Block<'_>, i: &Insn, width: Width, op: Shift) {
    b.code.mov(W32, RCX, operand(i.rs2));
    b.code.mov(width, RAX, operand(i.rs1));
    b.code.shift(width, op, RAX);
    if width == W32 { word_result(b, i.rd) } else { b.write(i.rd, RAX) }
}

fn multiply(b: &mut Block<'_>, i: &Insn, width: Width) {
    b.code.mov(width, RAX, operand(i.rs1));
    b.code.imul(width, RAX, operand(i.rs2));
    if width == W32 { word_result(b, i.rd) } else { b.write(i.rd, RAX) }
}

fn multiply_high(b: &mut Block<'_>, i: &Insn, number: u8) {
    b.code.mov(W64, RAX, operand(i.rs1));
    b.code.wide(W64, number, operand(i.rs2));
    b.write(i.rd, RDX);
}

struct Division {
    width: Width,
    signed: bool,
    remainder: bool,
}

/// Division by zero and the one overflow have results where the host traps, so
/// both divisors are taken out first.
fn divide(b: &mut Block<'_>, i: &Insn, d: &Division) {
    let width = d.width;
    b.code.load(if width == W64 { 8 } else { 4 }, true, RCX, operand(i.rs2));
    b.code.mov(width, RAX, operand(i.rs1));
    b.code.test(RCX);
    let by_zero = b.code.jump_if(Cond::Equal);
    let mut by_minus_one = None;
    if d.signed {
        b.code.alu_imm(W64, Alu::Cmp, Operand::Reg(RCX), -1);
        by_minus_one = Some(b.code.jump_if(Cond::Equal));
        b.code.extend_dividend(width);
        b.code.wide(width, 7, Operand::Reg(RCX));
    } else {
        b.code.alu(W32, Alu::Xor, RDX, Operand::Reg(RDX));
        b.code.wide(width, 6, Operand::Reg(RCX));
    }
    if d.remainder {
        b.code.mov_rr(RAX, RDX);
    }
    let mut done = vec![b.code.jump()];
    if let Some(hole) = by_minus_one {
        b.code.fill_here(hole);
        if d.remainder {
            b.code.mov_imm(RAX, 0);
        } else {
            b.code.neg(width, RAX);
        }
        done.push(b.code.jump());
    }
    b.code.fill_here(by_zero);
    if !d.remainder {
        b.code.mov_imm(RAX, u64::MAX);
    }
    for hole in done {
        b.code.fill_here(hole);
    }
    if width == W32 { word_result(b, i.rd) } else { b.write(i.rd, RAX) }
}

fn shift_add(b: &mut Block<'_>, i: &Insn) {
    let by = match i.op {
        Op::Sh1add => 1,
        Op::Sh2add => 2,
        Op::Sh3add => 3,
        _ => 0,
    };
    b.code.mov(if by == 0 { W32 } else { W64 }, RAX, operand(i.rs1));
    if by != 0 {
        b.code.shift_imm(W64, Shift::Left, RAX, by);
    }
    b.code.alu(W64, Alu::Add, RAX, operand(i.rs2));
    b.write(i.rd, RAX);
}

fn extend(b: &mut Block<'_>, i: &Insn, bytes: u8, signed: bool) {
    b.code.load(bytes, signed, RAX, operand(i.rs1));
    b.write(i.rd, RAX);
}

fn negated(b: &mut Block<'_>, i: &Insn, op: Alu) {
    b.code.mov(W64, RAX, operand(i.rs2));
    b.code.not(RAX);
    b.code.alu(W64, op, RAX, operand(i.rs1));
    b.write(i.rd, RAX);
}

/// The second operand if the condition holds between the first and it.
fn choose(b: &mut Block<'_>, i: &Insn, cond: Cond) {
    b.code.mov(W64, RAX, operand(i.rs1));
    b.code.mov(W64, RCX, operand(i.rs2));
    b.code.alu(W64, Alu::Cmp, RAX, Operand::Reg(RCX));
    b.code.cmov(cond, RAX, RCX);
    b.write(i.rd, RAX);
}
