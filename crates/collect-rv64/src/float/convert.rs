//! Between the formats, and between them and integers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Env, Format, Number, Value, flag, infinity, propagate, round, unpack, zero};

/// A value of format `F` in format `T`.
pub(crate) fn reformat<F: Format, T: Format>(a: u64, env: &mut Env) -> u64 {
    let x = unpack::<F>(a);
    match x {
        Value::Nan { .. } => propagate::<T>(&[x], env),
        Value::Infinity { sign } => infinity::<T>(sign),
        Value::Zero { sign } => zero::<T>(sign),
        Value::Finite(n) => round::<T>(n, env),
    }
}

fn from_magnitude<F: Format>(sign: bool, magnitude: u64, env: &mut Env) -> u64 {
    if magnitude == 0 {
        return 0;
    }
    let shift = magnitude.leading_zeros();
    round::<F>(Number { sign, exp: 63 - shift as i32, sig: magnitude << shift }, env)
}

/// A signed integer as a floating-point number.
pub(crate) fn from_i64<F: Format>(value: i64, env: &mut Env) -> u64 {
    from_magnitude::<F>(value < 0, value.unsigned_abs(), env)
}

/// An unsigned integer as a floating-point number.
pub(crate) fn from_u64<F: Format>(value: u64, env: &mut Env) -> u64 {
    from_magnitude::<F>(false, value, env)
}

/// The number rounded to an integer, clamped to `low..=high` with the invalid
/// flag (and then without the inexact one) if it lies outside. NaNs are high.
fn to_integer<F: Format>(a: u64, low: i128, high: i128, env: &mut Env) -> i128 {
    let n = match unpack::<F>(a) {
        Value::Zero { .. } => return 0,
        Value::Nan { .. } => return out_of_range(high, env),
        Value::Infinity { sign } => return out_of_range(if sign { low } else { high }, env),
        Value::Finite(n) => n,
    };
    if n.exp > 63 {
        return out_of_range(if n.sign { low } else { high }, env);
    }
    // The number times 2^64: exact but for far smaller bits, which are jammed.
    let fixed = match n.exp + 1 {
        up @ 0.. => u128::from(n.sig) << up,
        down => u128::from(super::shift_jam(n.sig, down.unsigned_abs())),
    };
    let (whole, rest) = (fixed >> 64, fixed as u64);
    let up = env.rounding.up(n.sign, whole & 1 != 0, rest, 1 << 63);
    let magnitude = whole as i128 + i128::from(up);
    let value = if n.sign { -magnitude } else { magnitude };
    if value < low || value > high {
        return out_of_range(if n.sign { low } else { high }, env);
    }
    if rest != 0 {
        env.flags |= flag::INEXACT;
    }
    value
}

const fn out_of_range(value: i128, env: &mut Env) -> i128 {
    env.flags |= flag::INVALID;
    value
}

/// The number as a signed word, sign-extended.
pub(crate) fn to_i32<F: Format>(a: u64, env: &mut Env) -> u64 {
    to_integer::<F>(a, i32::MIN.into(), i32::MAX.into(), env) as u64
}

/// The number as an unsigned word, sign-extended as RV64 keeps words.
pub(crate) fn to_u32<F: Format>(a: u64, env: &mut Env) -> u64 {
    to_integer::<F>(a, 0, u32::MAX.into(), env) as u32 as i32 as u64
}

/// The number as a signed double word.
pub(crate) fn to_i64<F: Format>(a: u64, env: &mut Env) -> u64 {
    to_integer::<F>(a, i64::MIN.into(), i64::MAX.into(), env) as u64
}

/// The number as an unsigned double word.
pub(crate) fn to_u64<F: Format>(a: u64, env: &mut Env) -> u64 {
    to_integer::<F>(a, 0, u64::MAX.into(), env) as u64
}
