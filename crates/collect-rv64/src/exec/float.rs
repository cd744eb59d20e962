//! Floating-point semantics: F and D. Operands are unboxed, the rounding mode
//! resolved, and flags accrued here; the arithmetic is in [`crate::float`].
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::Insn;

use crate::cpu::{BOX, Cpu};
use crate::float::{self, Double, Env, Format, Rounding, Single};
use crate::trap::Stop;

/// A format as registers hold it.
pub(crate) trait Held: Format {
    /// The operand in a register.
    fn get(cpu: &Cpu, register: u8) -> u64;
    /// A result as a register keeps it.
    fn boxed(bits: u64) -> u64;
}

impl Held for Single {
    #[inline(always)]
    fn get(cpu: &Cpu, register: u8) -> u64 {
        cpu.f_single(register)
    }
    #[inline(always)]
    fn boxed(bits: u64) -> u64 {
        bits | BOX
    }
}

impl Held for Double {
    #[inline(always)]
    fn get(cpu: &Cpu, register: u8) -> u64 {
        cpu.f(register)
    }
    #[inline(always)]
    fn boxed(bits: u64) -> u64 {
        bits
    }
}

fn env(cpu: &Cpu, mode: u8) -> Result<Env, Stop> {
    cpu.need_float()?;
    // The flags so far go in: sticky ones need not be found out again.
    Ok(Env { rounding: cpu.rounding(mode)?, flags: cpu.fflags })
}

/// `fd = op(fs1, fs2)` with rounding.
#[inline(always)]
pub(crate) fn binary<F: Held>(
    cpu: &mut Cpu,
    i: &Insn,
    op: impl Fn(u64, u64, &mut Env) -> u64,
) -> Result<(), Stop> {
    let mut env = env(cpu, i.mode)?;
    let result = op(F::get(cpu, i.rs1), F::get(cpu, i.rs2), &mut env);
    cpu.raise(env.flags);
    cpu.set_f(i.rd, F::boxed(result));
    Ok(())
}

/// `fd = op(fs1)` with rounding.
#[inline(always)]
pub(crate) fn unary<F: Held>(
    cpu: &mut Cpu,
    i: &Insn,
    op: impl Fn(u64, &mut Env) -> u64,
) -> Result<(), Stop> {
    let mut env = env(cpu, i.mode)?;
    let result = op(F::get(cpu, i.rs1), &mut env);
    cpu.raise(env.flags);
    cpu.set_f(i.rd, F::boxed(result));
    Ok(())
}

/// Which sides of a fused multiply-add are negated.
#[derive(Clone, Copy)]
pub(crate) struct Negated {
    pub(crate) product: bool,
    pub(crate) addend: bool,
}

/// `fd = ±(fs1 * fs2) ± fs3`, rounded once.
#[inline(always)]
pub(crate) fn fused<F: Held>(
    cpu: &mut Cpu,
    i: &Insn,
    negated: Negated,
    op: impl Fn(u64, u64, u64, &mut Env) -> u64,
) -> Result<(), Stop> {
    let mut env = env(cpu, i.mode)?;
    let flip = |negate: bool, bits: u64| bits ^ if negate { F::SIGN } else { 0 };
    let a = flip(negated.product, F::get(cpu, i.rs1));
    let c = flip(negated.addend, F::get(cpu, i.rs3));
    let result = op(a, F::get(cpu, i.rs2), c, &mut env);
    cpu.raise(env.flags);
    cpu.set_f(i.rd, F::boxed(result));
    Ok(())
}

/// `fd = op(fs1, fs2)` without rounding, flags possible.
#[inline(always)]
pub(crate) fn select<F: Held>(
    cpu: &mut Cpu,
    i: &Insn,
    op: impl Fn(u64, u64, &mut Env) -> u64,
) -> Result<(), Stop> {
    cpu.need_float()?;
    let mut env = Env::new(Rounding::NearestEven);
    let result = op(F::get(cpu, i.rs1), F::get(cpu, i.rs2), &mut env);
    cpu.raise(env.flags);
    cpu.set_f(i.rd, F::boxed(result));
    Ok(())
}

/// `rd = op(fs1, fs2)`.
#[inline(always)]
pub(crate) fn compare<F: Held>(
    cpu: &mut Cpu,
    i: &Insn,
    op: impl Fn(u64, u64, &mut Env) -> bool,
) -> Result<(), Stop> {
    cpu.need_float()?;
    let mut env = Env::new(Rounding::NearestEven);
    let operands = (F::get(cpu, i.rs1), F::get(cpu, i.rs2), 0);
    let result = float::apart(move |a, b, _, env| op(a, b, env).into(), operands, &mut env);
    cpu.raise(env.flags);
    cpu.set_decoded(i.rd, result);
    Ok(())
}

/// `rd = op(fs1)` with rounding.
#[inline(always)]
pub(crate) fn to_integer<F: Held>(
    cpu: &mut Cpu,
    i: &Insn,
    op: impl Fn(u64, &mut Env) -> u64,
) -> Result<(), Stop> {
    let mut env = env(cpu, i.mode)?;
    let operand = (F::get(cpu, i.rs1), 0, 0);
    let result = float::apart(move |a, _, _, env| op(a, env), operand, &mut env);
    cpu.raise(env.flags);
    cpu.set_decoded(i.rd, result);
    Ok(())
}

/// `fd = op(rs1)` with rounding.
#[inline(always)]
pub(crate) fn from_integer<F: Held>(
    cpu: &mut Cpu,
    i: &Insn,
    op: impl Fn(u64, &mut Env) -> u64,
) -> Result<(), Stop> {
    let mut env = env(cpu, i.mode)?;
    let operand = (cpu.x(i.rs1), 0, 0);
    let result = float::apart(move |a, _, _, env| op(a, env), operand, &mut env);
    cpu.raise(env.flags);
    cpu.set_f(i.rd, F::boxed(result));
    Ok(())
}

/// Between the formats.
#[inline(always)]
pub(crate) fn reformat<F: Held, T: Held>(cpu: &mut Cpu, i: &Insn) -> Result<(), Stop> {
    let mut env = env(cpu, i.mode)?;
    let operand = (F::get(cpu, i.rs1), 0, 0);
    let result =
        float::apart(move |a, _, _, env| float::reformat::<F, T>(a, env), operand, &mut env);
    cpu.raise(env.flags);
    cpu.set_f(i.rd, T::boxed(result));
    Ok(())
}

/// `fclass`.
#[inline(always)]
pub(crate) fn classify<F: Held>(cpu: &mut Cpu, i: &Insn) -> Result<(), Stop> {
    cpu.need_float()?;
    let class = float::classify::<F>(F::get(cpu, i.rs1));
    cpu.set_decoded(i.rd, class);
    Ok(())
}

/// `fmv.x.w` and `fmv.x.d`: the register's bits as they are.
#[inline(always)]
pub(crate) fn to_bits<const N: usize>(cpu: &mut Cpu, i: &Insn) -> Result<(), Stop> {
    cpu.need_float()?;
    let bits = cpu.f(i.rs1);
    cpu.set_decoded(i.rd, if N == 4 { bits as i32 as u64 } else { bits });
    Ok(())
}

/// `fmv.w.x` and `fmv.d.x`.
#[inline(always)]
pub(crate) fn from_bits<const N: usize>(cpu: &mut Cpu, i: &Insn) -> Result<(), Stop> {
    cpu.need_float()?;
    let bits = cpu.x(i.rs1);
    cpu.set_f(i.rd, if N == 4 { bits | BOX } else { bits });
    Ok(())
}

/// `fsgnj`: the first operand with the second's sign.
pub(crate) fn sgnj<F: Held>(a: u64, b: u64, _: &mut Env) -> u64 {
    a & !F::SIGN & F::MASK | b & F::SIGN
}

/// `fsgnjn`: the first operand with the opposite of the second's sign.
pub(crate) fn sgnjn<F: Held>(a: u64, b: u64, _: &mut Env) -> u64 {
    a & !F::SIGN & F::MASK | !b & F::SIGN
}

/// `fsgnjx`: the first operand with both signs multiplied.
pub(crate) fn sgnjx<F: Held>(a: u64, b: u64, _: &mut Env) -> u64 {
    a ^ b & F::SIGN
}
