//! Addition, multiplication, division, square root and fused multiply-add.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{
    Env, Format, Number, Rounding, Value, flag, infinity, invalid, propagate, round,
    shift_jam_wide, unpack, zero,
};

/// A number with twice the significand: `sig / 2^127 * 2^exp`.
#[derive(Clone, Copy)]
struct Wide {
    sign: bool,
    exp: i32,
    sig: u128,
}

impl Wide {
    fn of(n: Number) -> Self {
        Self { sign: n.sign, exp: n.exp, sig: u128::from(n.sig) << 64 }
    }

    /// The exact product of two numbers, with bit 127 set.
    fn product(a: Number, b: Number) -> Self {
        let sig = u128::from(a.sig) * u128::from(b.sig);
        let shift = sig.leading_zeros();
        Self { sign: a.sign != b.sign, exp: a.exp + b.exp + 1 - shift as i32, sig: sig << shift }
    }

    fn narrow(self) -> Number {
        let sig = (self.sig >> 64) as u64 | u64::from(self.sig as u64 != 0);
        Number { sign: self.sign, exp: self.exp, sig }
    }
}

/// `a + b` for numbers that are not zero, or the exact zero.
///
/// Both significands are halved first to leave room for the carry; no bit is
/// lost, as a product has at most 106 of 128. When the smaller one is shifted
/// by two or more, the difference keeps at least 126 bits above the jam.
fn sum<F: Format>(a: Wide, b: Wide, env: &mut Env) -> u64 {
    let (big, small) = if (a.exp, a.sig) >= (b.exp, b.sig) { (a, b) } else { (b, a) };
    let low = shift_jam_wide(small.sig >> 1, (big.exp - small.exp) as u32);
    let high = big.sig >> 1;
    let sig = if big.sign == small.sign { high + low } else { high - low };
    if sig == 0 {
        return zero::<F>(env.rounding == Rounding::Down);
    }
    let shift = sig.leading_zeros();
    round::<F>(
        Wide { sign: big.sign, exp: big.exp + 1 - shift as i32, sig: sig << shift }.narrow(),
        env,
    )
}

/// `a + b`.
pub(crate) fn add<F: Format>(a: u64, b: u64, env: &mut Env) -> u64 {
    let (x, y) = (unpack::<F>(a), unpack::<F>(b));
    match (x, y) {
        (Value::Nan { .. }, _) | (_, Value::Nan { .. }) => propagate::<F>(&[x, y], env),
        (Value::Infinity { sign: s }, Value::Infinity { sign: t }) if s != t => invalid::<F>(env),
        (Value::Infinity { sign }, _) | (_, Value::Infinity { sign }) => infinity::<F>(sign),
        (Value::Zero { sign: s }, Value::Zero { sign: t }) => {
            zero::<F>(if s == t { s } else { env.rounding == Rounding::Down })
        }
        (Value::Zero { .. }, _) => b,
        (_, Value::Zero { .. }) => a,
        (Value::Finite(m), Value::Finite(n)) => sum::<F>(Wide::of(m), Wide::of(n), env),
    }
}

/// `a * b`.
pub(crate) fn mul<F: Format>(a: u64, b: u64, env: &mut Env) -> u64 {
    let (x, y) = (unpack::<F>(a), unpack::<F>(b));
    let sign = (a ^ b) & F::SIGN != 0;
    match (x, y) {
        (Value::Nan { .. }, _) | (_, Value::Nan { .. }) => propagate::<F>(&[x, y], env),
        (Value::Infinity { .. }, Value::Zero { .. })
        | (Value::Zero { .. }, Value::Infinity { .. }) => invalid::<F>(env),
        (Value::Infinity { .. }, _) | (_, Value::Infinity { .. }) => infinity::<F>(sign),
        (Value::Zero { .. }, _) | (_, Value::Zero { .. }) => zero::<F>(sign),
        (Value::Finite(m), Value::Finite(n)) => round::<F>(Wide::product(m, n).narrow(), env),
    }
}

/// `a / b`.
pub(crate) fn div<F: Format>(a: u64, b: u64, env: &mut Env) -> u64 {
    let (x, y) = (unpack::<F>(a), unpack::<F>(b));
    let sign = (a ^ b) & F::SIGN != 0;
    match (x, y) {
        (Value::Nan { .. }, _) | (_, Value::Nan { .. }) => propagate::<F>(&[x, y], env),
        (Value::Infinity { .. }, Value::Infinity { .. })
        | (Value::Zero { .. }, Value::Zero { .. }) => invalid::<F>(env),
        (Value::Infinity { .. }, _) => infinity::<F>(sign),
        (_, Value::Infinity { .. }) | (Value::Zero { .. }, _) => zero::<F>(sign),
        (Value::Finite(_), Value::Zero { .. }) => {
            env.flags |= flag::DIVIDE_BY_ZERO;
            infinity::<F>(sign)
        }
        (Value::Finite(m), Value::Finite(n)) => {
            let (dividend, divisor) = (u128::from(m.sig) << 63, u128::from(n.sig));
            let quotient = dividend / divisor;
            let sticky = u64::from(quotient * divisor != dividend);
            // The quotient has 63 or 64 bits, so the jam stays below the rounding.
            let shift = (quotient as u64).leading_zeros();
            let sig = (quotient as u64) << shift | sticky;
            round::<F>(Number { sign, exp: m.exp - n.exp - shift as i32, sig }, env)
        }
    }
}

/// The square root of `a`.
pub(crate) fn sqrt<F: Format>(a: u64, env: &mut Env) -> u64 {
    let x = unpack::<F>(a);
    match x {
        Value::Nan { .. } => propagate::<F>(&[x], env),
        Value::Zero { .. } | Value::Infinity { sign: false } => a,
        Value::Infinity { sign: true } | Value::Finite(Number { sign: true, .. }) => {
            invalid::<F>(env)
        }
        Value::Finite(n) => {
            let square = u128::from(n.sig) << (63 + (n.exp & 1));
            let root = square.isqrt();
            let sig = root as u64 | u64::from(root * root != square);
            round::<F>(Number { sign: false, exp: n.exp >> 1, sig }, env)
        }
    }
}

/// `a * b + c`, rounded once.
pub(crate) fn mul_add<F: Format>(a: u64, b: u64, c: u64, env: &mut Env) -> u64 {
    let (x, y, z) = (unpack::<F>(a), unpack::<F>(b), unpack::<F>(c));
    let sign = (a ^ b) & F::SIGN != 0;
    let product = match (x, y) {
        (Value::Infinity { .. }, Value::Zero { .. })
        | (Value::Zero { .. }, Value::Infinity { .. }) => {
            return invalid::<F>(env);
        }
        _ if x.is_nan() || y.is_nan() || z.is_nan() => return propagate::<F>(&[x, y, z], env),
        (Value::Infinity { .. }, _) | (_, Value::Infinity { .. }) => Value::Infinity { sign },
        (Value::Zero { .. }, _) | (_, Value::Zero { .. }) => Value::Zero { sign },
        (Value::Finite(m), Value::Finite(n)) => {
            let p = Wide::product(m, n);
            return match z {
                Value::Infinity { .. } => c,
                Value::Finite(z) => sum::<F>(p, Wide::of(z), env),
                _ => round::<F>(p.narrow(), env),
            };
        }
        _ => return propagate::<F>(&[x, y, z], env),
    };
    match (product, z) {
        (Value::Infinity { sign: s }, Value::Infinity { sign: t }) if s != t => invalid::<F>(env),
        (Value::Infinity { sign }, _) => infinity::<F>(sign),
        (Value::Zero { sign: s }, Value::Zero { sign: t }) => {
            zero::<F>(if s == t { s } else { env.rounding == Rounding::Down })
        }
        _ => c,
    }
}
