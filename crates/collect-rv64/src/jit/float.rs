//! Translates floating point to the host's own, where that gives the guest's
//! bits: rounding to nearest, and results that are no NaNs.
//!
//! The host's sticky flags are the guest's: they are cleared on the way in and
//! gathered on the way out. Both detect tininess after rounding. A NaN result
//! goes to the interpreter, which makes it canonical; so does a rounding mode
//! other than to nearest, and a single that is not boxed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{Format as F, Insn, Op, ROUND_DYNAMIC};

use crate::cpu::FloatState;
use crate::jit::block::{Block, Step};
use crate::jit::cold::Area;
use crate::jit::state::{FLOAT_STATE, FRM, f_high, f_place, operand};
use crate::jit::transfer::reach;
use crate::jit::x86::{Alu, Cond, Mem, Operand, RAX, RCX, Shift, W32, W64, Xmm};
use crate::tlb::{READ_TAG, WRITE_TAG};

const DOUBLE: u8 = 0xf2;
const SINGLE: u8 = 0xf3;
const X0: Xmm = Xmm(0);
const X1: Xmm = Xmm(1);
const ADD: u8 = 0x58;
const MUL: u8 = 0x59;
const SUB: u8 = 0x5c;
const DIV: u8 = 0x5e;
const SQRT: u8 = 0x51;
const LOAD: u8 = 0x10;
const COPY: u8 = 0x28;
const STORE: u8 = 0x11;
const COMPARE_QUIET: u8 = 0x2e;
const COMPARE: u8 = 0x2f;
const FROM_INTEGER: u8 = 0x2a;
const TRUNCATE: u8 = 0x2c;
/// Between the formats: the prefix is that of the source.
const REFORMAT: u8 = 0x5a;

/// Translates a floating-point instruction, if it is a common one.
pub(crate) fn translate(b: &mut Block<'_>, i: &Insn) -> Step {
    match i.op {
        Op::Fld => load(b, i, 8),
        Op::Flw => load(b, i, 4),
        Op::Fsd => store(b, i, 8),
        Op::Fsw => store(b, i, 4),
        Op::FaddD => return arithmetic(b, i, DOUBLE, ADD),
        Op::FsubD => return arithmetic(b, i, DOUBLE, SUB),
        Op::FmulD => return arithmetic(b, i, DOUBLE, MUL),
        Op::FdivD => return arithmetic(b, i, DOUBLE, DIV),
        Op::FsqrtD => return square_root(b, i, DOUBLE),
        Op::FaddS => return arithmetic(b, i, SINGLE, ADD),
        Op::FsubS => return arithmetic(b, i, SINGLE, SUB),
        Op::FmulS => return arithmetic(b, i, SINGLE, MUL),
        Op::FdivS => return arithmetic(b, i, SINGLE, DIV),
        Op::FsqrtS => return square_root(b, i, SINGLE),
        Op::FmaddD => return fused(b, i, DOUBLE, 0xb9),
        Op::FmsubD => return fused(b, i, DOUBLE, 0xbb),
        Op::FnmsubD => return fused(b, i, DOUBLE, 0xbd),
        Op::FnmaddD => return fused(b, i, DOUBLE, 0xbf),
        Op::FmaddS => return fused(b, i, SINGLE, 0xb9),
        Op::FmsubS => return fused(b, i, SINGLE, 0xbb),
        Op::FnmsubS => return fused(b, i, SINGLE, 0xbd),
        Op::FnmaddS => return fused(b, i, SINGLE, 0xbf),
        Op::FcvtDS => return reformat(b, i, SINGLE),
        Op::FcvtSD => return reformat(b, i, DOUBLE),
        Op::FcvtDW | Op::FcvtDL => return from_integer(b, i),
        Op::FcvtWD | Op::FcvtLD => return truncate(b, i),
        Op::FeqD => equal(b, i),
        Op::FltD => compare(b, i, 0x97),
        Op::FleD => compare(b, i, 0x93),
        Op::FsgnjD | Op::FsgnjnD | Op::FsgnjxD if i.rs1 == i.rs2 => sign(b, i),
        Op::FmvXD => {
            check_on(b);
            b.code.mov(W64, RAX, Operand::Mem(f_place(i.rs1)));
            b.write(i.rd, RAX);
        }
        Op::FmvDX => {
            check_on(b);
            b.code.mov(W64, RAX, operand(i.rs1));
            b.code.store(8, f_place(i.rd), RAX);
            b.held.forget(i.rd);
            dirty(b);
        }
        _ => return Step::Unknown,
    }
    Step::Next
}

/// Leaves for the interpreter if floating point is off.
pub(crate) fn check_on(b: &mut Block<'_>) {
    if !std::mem::replace(&mut b.float_checked, true) {
        b.code.load(1, false, RAX, Operand::Mem(FLOAT_STATE));
        b.code.alu_imm(W32, Alu::Cmp, Operand::Reg(RAX), FloatState::Off as i32);
        b.interpret_if(Cond::Equal);
    }
}

/// Leaves for the interpreter unless rounding is to nearest; false if the
/// instruction itself says otherwise.
fn check_rounding(b: &mut Block<'_>, i: &Insn) -> bool {
    check_on(b);
    if i.mode == ROUND_DYNAMIC {
        check_dynamic(b);
    }
    i.mode == ROUND_DYNAMIC || i.mode == 0
}

/// Leaves for the interpreter unless the dynamic rounding mode is to nearest.
fn check_dynamic(b: &mut Block<'_>) {
    if !std::mem::replace(&mut b.rounding_checked, true) {
        b.code.load(1, false, RAX, Operand::Mem(FRM));
        b.code.alu_imm(W32, Alu::Cmp, Operand::Reg(RAX), 0);
        b.interpret_if(Cond::NotEqual);
    }
}

/// Checks for all instructions of a block what they would check for themselves.
pub(crate) fn check_ahead(b: &mut Block<'_>, insns: &[Insn]) {
    let formats = || insns.iter().map(|insn| (insn.op.row().format, insn.mode));
    if formats().any(|(format, _)| matches!(format, F::FL | F::FS | F::FRRm | F::FR4)) {
        check_on(b);
    }
    let rounds = |format| matches!(format, F::FRRm | F::FR4);
    if formats().any(|(format, mode)| rounds(format) && mode == ROUND_DYNAMIC) {
        check_dynamic(b);
    }
}

/// Takes note that floating-point registers changed, once in a block.
fn dirty(b: &mut Block<'_>) {
    if b.area == Area::Near && std::mem::replace(&mut b.float_noted, true) {
        return;
    }
    b.code.store_byte(FLOAT_STATE, FloatState::Dirty as u8);
}

/// A single must be boxed, or it is a NaN.
fn check_boxed(b: &mut Block<'_>, prefix: u8, register: u8) {
    if prefix == SINGLE {
        b.code.alu_imm(W32, Alu::Cmp, Operand::Mem(f_high(register)), -1);
        b.interpret_if(Cond::NotEqual);
    }
}

/// Stores `xmm0` as the result unless it is a NaN.
fn finish(b: &mut Block<'_>, i: &Insn, prefix: u8) {
    let compare_prefix = (prefix == DOUBLE).then_some(0x66);
    b.code.scalar_rr(compare_prefix, COMPARE_QUIET, X0, X0);
    b.interpret_if(Cond::Parity);
    b.code.scalar(prefix, STORE, X0, f_place(i.rd));
    if prefix == SINGLE {
        b.code.mov_imm(RAX, u32::MAX.into());
        b.code.store(4, f_high(i.rd), RAX);
        b.held.forget(i.rd);
    } else if let Some(held) = b.float_target(i.rd) {
        copy(b, held, X0);
    }
    dirty(b);
}

/// Copies a whole vector register.
fn copy(b: &mut Block<'_>, to: Xmm, from: Xmm) {
    b.code.scalar_rr(None, COPY, to, from);
}

/// Puts a number into `xmm0`.
fn first(b: &mut Block<'_>, prefix: u8, register: u8) {
    match b.float_held(register).filter(|_| prefix == DOUBLE) {
        Some(held) => copy(b, X0, held),
        None => b.code.scalar(prefix, LOAD, X0, f_place(register)),
    }
}

fn arithmetic(b: &mut Block<'_>, i: &Insn, prefix: u8, opcode: u8) -> Step {
    if !check_rounding(b, i) {
        return Step::Unknown;
    }
    check_boxed(b, prefix, i.rs1);
    check_boxed(b, prefix, i.rs2);
    first(b, prefix, i.rs1);
    match b.float_held(i.rs2).filter(|_| prefix == DOUBLE) {
        Some(held) => b.code.scalar_rr(Some(prefix), opcode, X0, held),
        None => b.code.scalar(prefix, opcode, X0, f_place(i.rs2)),
    }
    finish(b, i, prefix);
    Step::Next
}

fn square_root(b: &mut Block<'_>, i: &Insn, prefix: u8) -> Step {
    if !check_rounding(b, i) {
        return Step::Unknown;
    }
    check_boxed(b, prefix, i.rs1);
    b.code.scalar(prefix, SQRT, X0, f_place(i.rs1));
    finish(b, i, prefix);
    Step::Next
}

/// Fused multiply-add by the host's own, `xmm0 = ±(xmm1 * fs2) ± xmm0`.
fn fused(b: &mut Block<'_>, i: &Insn, prefix: u8, opcode: u8) -> Step {
    if !std::arch::is_x86_feature_detected!("fma") || !check_rounding(b, i) {
        return Step::Unknown;
    }
    for register in [i.rs1, i.rs2, i.rs3] {
        check_boxed(b, prefix, register);
    }
    first(b, prefix, i.rs3);
    let factor = if prefix == DOUBLE { b.float_source(i.rs1) } else { None };
    if factor.is_none() {
        b.code.scalar(prefix, LOAD, X1, f_place(i.rs1));
    }
    let factors = (X0, factor.unwrap_or(X1));
    match b.float_held(i.rs2).filter(|_| prefix == DOUBLE) {
        Some(held) => b.code.fused_rr(opcode, true, factors, held),
        None => b.code.fused(opcode, prefix == DOUBLE, factors, f_place(i.rs2)),
    }
    finish(b, i, prefix);
    Step::Next
}

fn reformat(b: &mut Block<'_>, i: &Insn, from: u8) -> Step {
    if !check_rounding(b, i) {
        return Step::Unknown;
    }
    check_boxed(b, from, i.rs1);
    b.code.scalar(from, REFORMAT, X0, f_place(i.rs1));
    finish(b, i, if from == SINGLE { DOUBLE } else { SINGLE });
    Step::Next
}

fn from_integer(b: &mut Block<'_>, i: &Insn) -> Step {
    if !check_rounding(b, i) {
        return Step::Unknown;
    }
    let width = if i.op == Op::FcvtDW { W32 } else { W64 };
    b.code.mov(width, RAX, operand(i.rs1));
    // The host's instruction keeps the upper part, which costs a dependency.
    b.code.scalar_rr(None, 0x57, X0, X0);
    b.code.convert(DOUBLE, FROM_INTEGER, width, (X0.0, Operand::Reg(RAX)));
    b.code.scalar(DOUBLE, STORE, X0, f_place(i.rd));
    b.held.forget(i.rd);
    dirty(b);
    Step::Next
}

/// Towards zero only, as C casts are. What does not fit gives the host's one
/// odd number, and the interpreter finds out what the guest wants.
fn truncate(b: &mut Block<'_>, i: &Insn) -> Step {
    if i.mode != 1 {
        return Step::Unknown;
    }
    check_on(b);
    let width = if i.op == Op::FcvtWD { W32 } else { W64 };
    b.code.convert(DOUBLE, TRUNCATE, width, (RAX.0, Operand::Mem(f_place(i.rs1))));
    let odd = if width == W32 { 1 << 31 } else { 1 << 63 };
    b.code.mov_imm(RCX, odd);
    b.code.alu(width, Alu::Cmp, RAX, Operand::Reg(RCX));
    b.interpret_if(Cond::Equal);
    if width == W32 {
        b.code.load(4, true, RAX, Operand::Reg(RAX));
    }
    b.write(i.rd, RAX);
    Step::Next
}

fn equal(b: &mut Block<'_>, i: &Insn) {
    check_on(b);
    b.code.scalar(DOUBLE, LOAD, X0, f_place(i.rs1));
    b.code.scalar(0x66, COMPARE_QUIET, X0, f_place(i.rs2));
    b.interpret_if(Cond::Parity);
    b.code.set(Cond::Equal, RAX);
    b.write(i.rd, RAX);
}

/// `fs1 < fs2` as `fs2 > fs1`, so that a NaN answers no.
fn compare(b: &mut Block<'_>, i: &Insn, set: u8) {
    check_on(b);
    b.code.scalar(DOUBLE, LOAD, X0, f_place(i.rs2));
    b.code.scalar(0x66, COMPARE, X0, f_place(i.rs1));
    let cond = if set == 0x97 { Cond::Above } else { Cond::AboveEqual };
    b.code.set(cond, RAX);
    b.write(i.rd, RAX);
}

/// Sign operations of a number with itself: copy, negate, absolute value.
fn sign(b: &mut Block<'_>, i: &Insn) {
    check_on(b);
    b.code.mov(W64, RAX, Operand::Mem(f_place(i.rs1)));
    if i.op == Op::FsgnjnD {
        b.code.mov_imm(RCX, 1 << 63);
        b.code.alu(W64, Alu::Xor, RAX, Operand::Reg(RCX));
    } else if i.op == Op::FsgnjxD {
        b.code.shift_imm(W64, Shift::Left, RAX, 1);
        b.code.shift_imm(W64, Shift::Right, RAX, 1);
    }
    b.code.store(8, f_place(i.rd), RAX);
    b.held.forget(i.rd);
    dirty(b);
}

fn load(b: &mut Block<'_>, i: &Insn, bytes: u8) {
    check_on(b);
    let at = reach(b, i, bytes, READ_TAG);
    load_from(b, i, (bytes, at));
}

/// Loads from a place; leaves `rdx` alone.
pub(crate) fn load_from(b: &mut Block<'_>, i: &Insn, (bytes, at): (u8, Mem)) {
    match b.float_target(i.rd).filter(|_| bytes == 8) {
        Some(held) => {
            b.code.scalar(DOUBLE, LOAD, held, at);
            b.code.scalar(DOUBLE, STORE, held, f_place(i.rd));
        }
        None => {
            b.code.load(bytes, false, RCX, Operand::Mem(at));
            if bytes == 4 {
                b.code.mov_imm(RAX, 0xffff_ffff_0000_0000);
                b.code.alu(W64, Alu::Or, RCX, Operand::Reg(RAX));
                b.held.forget(i.rd);
            }
            b.code.store(8, f_place(i.rd), RCX);
        }
    }
    dirty(b);
}

fn store(b: &mut Block<'_>, i: &Insn, bytes: u8) {
    check_on(b);
    let at = reach(b, i, bytes, WRITE_TAG);
    store_to(b, i, (bytes, at));
}

/// Stores to a place; leaves `rdx` alone.
pub(crate) fn store_to(b: &mut Block<'_>, i: &Insn, (bytes, at): (u8, Mem)) {
    match b.float_held(i.rs2).filter(|_| bytes == 8) {
        Some(held) => b.code.scalar(DOUBLE, STORE, held, at),
        None => {
            b.code.mov(W64, RCX, Operand::Mem(f_place(i.rs2)));
            b.code.store(bytes, at, RCX);
        }
    }
}
