//! The integer implementation against the host's arithmetic, which rounds to
//! nearest, and the host's short cuts against the integer implementation.
// SPDX-License-Identifier: MIT OR Apache-2.0

use proptest::prelude::*;

use super::*;

/// Bits of doubles, often near each other or at an edge of the format.
fn double() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        any::<f64>().prop_map(f64::to_bits),
        (0x3fe_u64..0x402, any::<u64>()).prop_map(|(e, f)| e << 52 | f >> 12),
        (0u64..3, any::<u64>()).prop_map(|(e, f)| e << 52 | f >> 12),
        (0x7fd_u64..0x800, any::<u64>(), any::<bool>())
            .prop_map(|(e, f, s)| u64::from(s) << 63 | e << 52 | f >> 12),
    ]
}

fn single() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u32>(),
        any::<f32>().prop_map(f32::to_bits),
        (0x7e_u32..0x82, any::<u32>()).prop_map(|(e, f)| e << 23 | f >> 9),
        (0u32..3, any::<u32>()).prop_map(|(e, f)| e << 23 | f >> 9),
    ]
    .prop_map(u64::from)
}

/// Asks the bits, not the number, whether it is one: to Rust all NaNs are equal, so
/// an optimised build may leave out a choice between two.
fn canonical_double(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits << 1 > f64::INFINITY.to_bits() << 1 { Double::NAN } else { bits }
}

/// As `canonical_double`.
fn canonical_single(value: f32) -> u64 {
    let bits = value.to_bits();
    if bits << 1 > f32::INFINITY.to_bits() << 1 { Single::NAN } else { bits.into() }
}

fn nearest() -> Env {
    Env::new(Rounding::NearestEven)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn doubles_are_the_hosts(a in double(), b in double(), c in double()) {
        let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
        prop_assert_eq!(add::<Double>(a, b, &mut nearest()), canonical_double(x + y));
        prop_assert_eq!(mul::<Double>(a, b, &mut nearest()), canonical_double(x * y));
        prop_assert_eq!(div::<Double>(a, b, &mut nearest()), canonical_double(x / y));
        prop_assert_eq!(sqrt::<Double>(a, &mut nearest()), canonical_double(x.sqrt()));
        prop_assert_eq!(mul_add::<Double>(a, b, c, &mut nearest()), canonical_double(x.mul_add(y, z)));
        prop_assert_eq!(reformat::<Double, Single>(a, &mut nearest()), canonical_single(x as f32));
        prop_assert_eq!(less::<Double>(a, b, &mut nearest()), x < y);
        prop_assert_eq!(less_equal::<Double>(a, b, &mut nearest()), x <= y);
        prop_assert_eq!(equal::<Double>(a, b, &mut nearest()), x == y);
    }

    #[test]
    fn singles_are_the_hosts(a in single(), b in single(), c in single()) {
        let f = |bits: u64| f32::from_bits(bits as u32);
        let (x, y, z) = (f(a), f(b), f(c));
        prop_assert_eq!(add::<Single>(a, b, &mut nearest()), canonical_single(x + y));
        prop_assert_eq!(mul::<Single>(a, b, &mut nearest()), canonical_single(x * y));
        prop_assert_eq!(div::<Single>(a, b, &mut nearest()), canonical_single(x / y));
        prop_assert_eq!(sqrt::<Single>(a, &mut nearest()), canonical_single(x.sqrt()));
        prop_assert_eq!(mul_add::<Single>(a, b, c, &mut nearest()), canonical_single(x.mul_add(y, z)));
        prop_assert_eq!(reformat::<Single, Double>(a, &mut nearest()), canonical_double(x.into()));
    }

    #[test]
    fn integers_are_the_hosts(a in double(), n in any::<i64>()) {
        let x = f64::from_bits(a);
        prop_assert_eq!(from_i64::<Double>(n, &mut nearest()), (n as f64).to_bits());
        prop_assert_eq!(from_u64::<Single>(n as u64, &mut nearest()), u64::from((n as u64 as f32).to_bits()));
        let mut env = Env::new(Rounding::TowardZero);
        // Rust's casts saturate as RISC-V does, but for NaNs.
        let expected = if x.is_nan() { i64::MAX } else { x as i64 };
        prop_assert_eq!(to_i64::<Double>(a, &mut env), expected as u64);
        let outside = x.is_nan() || x.trunc() < -(2f64.powi(63)) || x >= 2f64.powi(63);
        prop_assert_eq!(env.flags & flag::INVALID != 0, outside);
        prop_assert_eq!(env.flags & flag::INEXACT != 0, !outside && x.fract() != 0.0);
    }

    #[test]
    fn short_cuts_change_nothing(a in double(), b in double(), c in double(), flags in 0u8..32) {
        let before = Env { rounding: Rounding::NearestEven, flags };
        let (mut fast, mut slow) = (before, before);
        prop_assert_eq!(host::add_d(a, b, &mut fast), add::<Double>(a, b, &mut slow));
        prop_assert_eq!(fast, slow);
        let (mut fast, mut slow) = (before, before);
        prop_assert_eq!(host::mul_d(a, b, &mut fast), mul::<Double>(a, b, &mut slow));
        prop_assert_eq!(fast, slow);
        let (mut fast, mut slow) = (before, before);
        prop_assert_eq!(host::div_d(a, b, &mut fast), div::<Double>(a, b, &mut slow));
        prop_assert_eq!(fast, slow);
        let (mut fast, mut slow) = (before, before);
        prop_assert_eq!(host::mul_add_d(a, b, c, &mut fast), mul_add::<Double>(a, b, c, &mut slow));
        prop_assert_eq!(fast, slow);
    }

    /// Directed rounding brackets the exact result, and nearest is one of both.
    #[test]
    fn directed_rounding_brackets(a in double(), b in double()) {
        let with = |rounding| add::<Double>(a, b, &mut Env::new(rounding));
        let (down, up) = (f64::from_bits(with(Rounding::Down)), f64::from_bits(with(Rounding::Up)));
        let near = f64::from_bits(with(Rounding::NearestEven));
        if near.is_nan() {
            prop_assert!(down.is_nan() && up.is_nan());
        } else {
            prop_assert!(down <= near && near <= up && (near == down || near == up));
            let zero = f64::from_bits(with(Rounding::TowardZero));
            prop_assert_eq!(zero, if near > 0.0 { down } else { up });
        }
    }
}
