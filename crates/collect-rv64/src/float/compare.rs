//! Comparisons, minimum, maximum and classification.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Env, Format, Value, flag, propagate, unpack};

/// The bits of a number that is not a NaN as an integer of the same order, with
/// -0 just below +0.
const fn ordered<F: Format>(bits: u64) -> i64 {
    let magnitude = (bits & (F::SIGN - 1)) as i64;
    if bits & F::SIGN != 0 { -1 - magnitude } else { magnitude }
}

fn both_zero<F: Format>(a: u64, b: u64) -> bool {
    (a | b) & (F::SIGN - 1) == 0
}

/// Whether a comparison that minds any NaN must answer no.
fn unordered_signaling<F: Format>(a: u64, b: u64, env: &mut Env) -> bool {
    let nan = unpack::<F>(a).is_nan() || unpack::<F>(b).is_nan();
    if nan {
        env.flags |= flag::INVALID;
    }
    nan
}

/// `a == b`; only signaling NaNs are invalid.
pub(crate) fn equal<F: Format>(a: u64, b: u64, env: &mut Env) -> bool {
    let (x, y) = (unpack::<F>(a), unpack::<F>(b));
    if x.is_nan() || y.is_nan() {
        let _ = propagate::<F>(&[x, y], env);
        return false;
    }
    a == b || both_zero::<F>(a, b)
}

/// `a < b`; any NaN is invalid.
pub(crate) fn less<F: Format>(a: u64, b: u64, env: &mut Env) -> bool {
    !unordered_signaling::<F>(a, b, env)
        && ordered::<F>(a) < ordered::<F>(b)
        && !both_zero::<F>(a, b)
}

/// `a <= b`; any NaN is invalid.
pub(crate) fn less_equal<F: Format>(a: u64, b: u64, env: &mut Env) -> bool {
    !unordered_signaling::<F>(a, b, env)
        && (ordered::<F>(a) <= ordered::<F>(b) || both_zero::<F>(a, b))
}

fn choose<F: Format>(a: u64, b: u64, env: &mut Env, first: impl Fn(i64, i64) -> bool) -> u64 {
    let (x, y) = (unpack::<F>(a), unpack::<F>(b));
    if x.is_signaling() || y.is_signaling() {
        env.flags |= flag::INVALID;
    }
    match (x.is_nan(), y.is_nan()) {
        (true, true) => F::NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) if first(ordered::<F>(a), ordered::<F>(b)) => a,
        (false, false) => b,
    }
}

/// The smaller of two numbers, -0 being smaller than +0; a NaN gives way.
pub(crate) fn min<F: Format>(a: u64, b: u64, env: &mut Env) -> u64 {
    choose::<F>(a, b, env, |a, b| a <= b)
}

/// The larger of two numbers, +0 being larger than -0; a NaN gives way.
pub(crate) fn max<F: Format>(a: u64, b: u64, env: &mut Env) -> u64 {
    choose::<F>(a, b, env, |a, b| a >= b)
}

/// The one bit that `fclass` sets.
pub(crate) fn classify<F: Format>(a: u64) -> u64 {
    let negative = a & F::SIGN != 0;
    let subnormal = a >> F::FRACTION & F::EXP_MAX == 0;
    let bit = match unpack::<F>(a) {
        Value::Nan { signaling: true } => 8,
        Value::Nan { signaling: false } => 9,
        Value::Infinity { .. } if negative => 0,
        Value::Infinity { .. } => 7,
        Value::Zero { .. } if negative => 3,
        Value::Zero { .. } => 4,
        Value::Finite(_) if negative => 1 + u64::from(subnormal),
        Value::Finite(_) => 6 - u64::from(subnormal),
    };
    1 << bit
}
