//! Floating point to the bit: IEEE 754 binary32 and binary64 as RISC-V wants
//! them (canonical NaNs, tininess after rounding, five rounding modes, sticky
//! flags).
//!
//! Every operation has one integer implementation, which is right for all
//! operands and modes. [`host`] short-cuts the common case with the host's own
//! arithmetic where that provably gives the same bits and flags.
//!
//! A finite number is held as `sig / 2^63 * 2^exp` with bit 63 of `sig` set.
//! Bits that fall off the end of a significand are or-ed ("jammed") into its
//! lowest bit; as that bit lies at least two places below the last one kept,
//! rounding sees the truth.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod arith;
mod compare;
mod convert;
pub(crate) mod host;

pub(crate) use arith::{add, div, mul, mul_add, sqrt};
pub(crate) use compare::{classify, equal, less, less_equal, max, min};
pub(crate) use convert::{from_i64, from_u64, reformat, to_i32, to_i64, to_u32, to_u64};

/// Accrued exception flags, as in `fflags`.
pub(crate) mod flag {
    pub(crate) const INEXACT: u8 = 1;
    pub(crate) const UNDERFLOW: u8 = 2;
    pub(crate) const OVERFLOW: u8 = 4;
    pub(crate) const DIVIDE_BY_ZERO: u8 = 8;
    pub(crate) const INVALID: u8 = 16;
}

/// A rounding mode, numbered as in `frm`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounding {
    NearestEven,
    TowardZero,
    Down,
    Up,
    NearestMaxMagnitude,
}

impl Rounding {
    /// The mode with this number, if it is one.
    #[inline]
    pub(crate) const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::NearestEven,
            1 => Self::TowardZero,
            2 => Self::Down,
            3 => Self::Up,
            4 => Self::NearestMaxMagnitude,
            _ => return None,
        })
    }

    /// Whether a magnitude with last kept bit `odd` and dropped bits `rest`, of
    /// which `half` is the middle, goes up.
    const fn up(self, sign: bool, odd: bool, rest: u64, half: u64) -> bool {
        match self {
            Self::NearestEven => rest > half || rest == half && odd,
            Self::TowardZero => false,
            Self::Down => sign && rest != 0,
            Self::Up => !sign && rest != 0,
            Self::NearestMaxMagnitude => rest >= half,
        }
    }

    /// Whether a result too large becomes infinite rather than the largest number.
    const fn overflows_to_infinity(self, sign: bool) -> bool {
        match self {
            Self::NearestEven | Self::NearestMaxMagnitude => true,
            Self::TowardZero => false,
            Self::Down => sign,
            Self::Up => !sign,
        }
    }
}

/// What an operation works under: the rounding mode, and the flags it raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Env {
    pub(crate) rounding: Rounding,
    pub(crate) flags: u8,
}

impl Env {
    pub(crate) const fn new(rounding: Rounding) -> Self {
        Self { rounding, flags: 0 }
    }
}

/// What an operation gives, computed in a function of its own that takes and gives
/// values: an environment that is lent stays on the lender's stack, and an interpreter's
/// handler that has lent something does not jump to the next one, but calls it.
#[inline(always)]
pub(crate) fn apart(
    op: impl Fn(u64, u64, u64, &mut Env) -> u64,
    (a, b, c): (u64, u64, u64),
    env: &mut Env,
) -> u64 {
    let (result, flags) = by_value(op, a, b, c, *env);
    env.flags = flags;
    result
}

#[inline(never)]
fn by_value(
    op: impl Fn(u64, u64, u64, &mut Env) -> u64,
    a: u64,
    b: u64,
    c: u64,
    mut env: Env,
) -> (u64, u8) {
    let result = op(a, b, c, &mut env);
    (result, env.flags)
}

/// A binary interchange format. Values travel in the low bits of a `u64`.
pub(crate) trait Format {
    /// Bits of the fraction field.
    const FRACTION: u32;
    /// Bits of the exponent field.
    const EXPONENT: u32;

    /// The exponent field of infinities and NaNs.
    const EXP_MAX: u64 = (1 << Self::EXPONENT) - 1;
    const BIAS: i32 = (1 << (Self::EXPONENT - 1)) - 1;
    /// The exponent of the smallest normal number.
    const EXP_MIN: i32 = 1 - Self::BIAS;
    const SIGN: u64 = 1 << (Self::FRACTION + Self::EXPONENT);
    const FRACTION_MASK: u64 = (1 << Self::FRACTION) - 1;
    const INFINITY: u64 = Self::EXP_MAX << Self::FRACTION;
    const NAN: u64 = Self::INFINITY | 1 << (Self::FRACTION - 1);
    const MASK: u64 = Self::SIGN | (Self::SIGN - 1);
}

/// binary32.
pub(crate) struct Single;

impl Format for Single {
    const FRACTION: u32 = 23;
    const EXPONENT: u32 = 8;
}

/// binary64.
pub(crate) struct Double;

impl Format for Double {
    const FRACTION: u32 = 52;
    const EXPONENT: u32 = 11;
}

/// A value taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Zero { sign: bool },
    Finite(Number),
    Infinity { sign: bool },
    Nan { signaling: bool },
}

/// A finite number that is not zero: `sig / 2^63 * 2^exp`, negated if `sign`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    pub(crate) sign: bool,
    pub(crate) exp: i32,
    pub(crate) sig: u64,
}

/// Takes a value apart.
pub(crate) const fn unpack<F: Format>(bits: u64) -> Value {
    let sign = bits & F::SIGN != 0;
    let fraction = bits & F::FRACTION_MASK;
    let exponent = bits >> F::FRACTION & F::EXP_MAX;
    if exponent == F::EXP_MAX {
        if fraction == 0 {
            return Value::Infinity { sign };
        }
        return Value::Nan { signaling: fraction >> (F::FRACTION - 1) == 0 };
    }
    if exponent == 0 {
        if fraction == 0 {
            return Value::Zero { sign };
        }
        let shift = fraction.leading_zeros();
        let exp = F::EXP_MIN - (shift as i32 - (63 - F::FRACTION as i32));
        return Value::Finite(Number { sign, exp, sig: fraction << shift });
    }
    let sig = (fraction | 1 << F::FRACTION) << (63 - F::FRACTION);
    Value::Finite(Number { sign, exp: exponent as i32 - F::BIAS, sig })
}

impl Value {
    pub(crate) const fn is_signaling(self) -> bool {
        matches!(self, Self::Nan { signaling: true })
    }

    pub(crate) const fn is_nan(self) -> bool {
        matches!(self, Self::Nan { .. })
    }
}

/// The canonical NaN, as the result of an invalid operation.
pub(crate) const fn invalid<F: Format>(env: &mut Env) -> u64 {
    env.flags |= flag::INVALID;
    F::NAN
}

/// The canonical NaN that follows from operands of which at least one is a NaN.
pub(crate) fn propagate<F: Format>(operands: &[Value], env: &mut Env) -> u64 {
    if operands.iter().any(|v| v.is_signaling()) {
        env.flags |= flag::INVALID;
    }
    F::NAN
}

/// A zero of this sign.
pub(crate) const fn zero<F: Format>(sign: bool) -> u64 {
    if sign { F::SIGN } else { 0 }
}

/// An infinity of this sign.
pub(crate) const fn infinity<F: Format>(sign: bool) -> u64 {
    F::INFINITY | zero::<F>(sign)
}

/// `sig >> by`, with every lost bit jammed into the lowest.
pub(crate) const fn shift_jam(sig: u64, by: u32) -> u64 {
    match by {
        0 => sig,
        1..=63 => sig >> by | (sig << (64 - by) != 0) as u64,
        _ => (sig != 0) as u64,
    }
}

/// `sig >> by`, with every lost bit jammed into the lowest.
pub(crate) const fn shift_jam_wide(sig: u128, by: u32) -> u128 {
    match by {
        0 => sig,
        1..=127 => sig >> by | (sig << (128 - by) != 0) as u128,
        _ => (sig != 0) as u128,
    }
}

/// Rounds a number to the format and puts it together, raising flags.
pub(crate) fn round<F: Format>(n: Number, env: &mut Env) -> u64 {
    let dropped = 63 - F::FRACTION;
    let rest_mask = (1 << dropped) - 1;
    let half = 1 << (dropped - 1);
    let tiny = n.exp < F::EXP_MIN;
    let sig = if tiny { shift_jam(n.sig, (F::EXP_MIN - n.exp) as u32) } else { n.sig };
    let (kept, rest) = (sig >> dropped, sig & rest_mask);
    let up = env.rounding.up(n.sign, kept & 1 != 0, rest, half);
    if rest != 0 {
        env.flags |= flag::INEXACT;
        if tiny && !reaches_normal::<F>(n, env.rounding) {
            env.flags |= flag::UNDERFLOW;
        }
    }
    // The significand's leading bit adds one to the exponent field, and a carry
    // out of it one more: that is why a normal number starts one lower.
    let field = if tiny { 0 } else { (n.exp - F::EXP_MIN) as u64 };
    let magnitude = kept + u64::from(up);
    if field >= F::EXP_MAX || (field << F::FRACTION) + magnitude >= F::INFINITY {
        env.flags |= flag::OVERFLOW | flag::INEXACT;
        let finite = u64::from(!env.rounding.overflows_to_infinity(n.sign));
        return infinity::<F>(n.sign) - finite;
    }
    zero::<F>(n.sign) | ((field << F::FRACTION) + magnitude)
}

/// Whether a tiny number would round up to the smallest normal one if the
/// exponent had no lower end: then it does not count as underflow.
fn reaches_normal<F: Format>(n: Number, rounding: Rounding) -> bool {
    let dropped = 63 - F::FRACTION;
    let (kept, rest) = (n.sig >> dropped, n.sig & ((1 << dropped) - 1));
    n.exp == F::EXP_MIN - 1
        && kept == (1 << (F::FRACTION + 1)) - 1
        && rounding.up(n.sign, true, rest, 1 << (dropped - 1))
}

#[cfg(test)]
mod tests;
