//! The common case on the host's own arithmetic.
//!
//! The host rounds to nearest even and gives correctly rounded results, so under
//! that mode its result is ours whenever it is an ordinary number. Flags: an
//! ordinary result above the smallest normal number raises none but inexact, and
//! inexact is sticky; so if it is set already, nothing is left to find out. For
//! sums it is found by the error term of Knuth's two-sum, which is exact without
//! overflow. Everything else goes to the integer implementation.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Double, Env, Rounding, Single, apart, flag};

macro_rules! host_arithmetic {
    ($add:ident, $sub:ident, $mul:ident, $div:ident, $sqrt:ident, $mul_add:ident, $float:ty, $bits:ty, $format:ty) => {
        #[inline]
        pub(crate) fn $add(a: u64, b: u64, env: &mut Env) -> u64 {
            let (x, y) = (<$float>::from_bits(a as $bits), <$float>::from_bits(b as $bits));
            let sum = x + y;
            if env.rounding == Rounding::NearestEven
                && ordinary(sum.into(), <$float>::MIN_POSITIVE.into(), <$float>::MAX.into())
            {
                if env.flags & flag::INEXACT == 0 {
                    let part = sum - x;
                    if (x - (sum - part)) + (y - part) != 0.0 {
                        env.flags |= flag::INEXACT;
                    }
                }
                return sum.to_bits().into();
            }
            apart(|a, b, _, env| super::add::<$format>(a, b, env), (a, b, 0), env)
        }

        #[inline]
        pub(crate) fn $sub(a: u64, b: u64, env: &mut Env) -> u64 {
            let y = <$float>::from_bits(b as $bits);
            if y.is_nan() {
                return apart(|a, b, _, env| super::add::<$format>(a, b, env), (a, b, 0), env);
            }
            $add(a, (-y).to_bits().into(), env)
        }

        #[inline]
        pub(crate) fn $mul(a: u64, b: u64, env: &mut Env) -> u64 {
            let product = <$float>::from_bits(a as $bits) * <$float>::from_bits(b as $bits);
            if env.quiet()
                && ordinary(product.into(), <$float>::MIN_POSITIVE.into(), <$float>::MAX.into())
            {
                return product.to_bits().into();
            }
            apart(|a, b, _, env| super::mul::<$format>(a, b, env), (a, b, 0), env)
        }

        #[inline]
        pub(crate) fn $div(a: u64, b: u64, env: &mut Env) -> u64 {
            let (x, y) = (<$float>::from_bits(a as $bits), <$float>::from_bits(b as $bits));
            let quotient = x / y;
            if env.quiet()
                && ordinary(quotient.into(), <$float>::MIN_POSITIVE.into(), <$float>::MAX.into())
            {
                return quotient.to_bits().into();
            }
            apart(|a, b, _, env| super::div::<$format>(a, b, env), (a, b, 0), env)
        }

        #[inline]
        pub(crate) fn $sqrt(a: u64, env: &mut Env) -> u64 {
            let root = <$float>::from_bits(a as $bits).sqrt();
            if env.quiet()
                && ordinary(root.into(), <$float>::MIN_POSITIVE.into(), <$float>::MAX.into())
            {
                return root.to_bits().into();
            }
            apart(|a, _, _, env| super::sqrt::<$format>(a, env), (a, 0, 0), env)
        }

        #[inline]
        pub(crate) fn $mul_add(a: u64, b: u64, c: u64, env: &mut Env) -> u64 {
            if env.quiet() {
                let f = |bits: u64| <$float>::from_bits(bits as $bits);
                let value = f(a).mul_add(f(b), f(c));
                if ordinary(value.into(), <$float>::MIN_POSITIVE.into(), <$float>::MAX.into()) {
                    return value.to_bits().into();
                }
            }
            apart(super::mul_add::<$format>, (a, b, c), env)
        }
    };
}

host_arithmetic!(add_s, sub_s, mul_s, div_s, sqrt_s, mul_add_s, f32, u32, Single);
host_arithmetic!(add_d, sub_d, mul_d, div_d, sqrt_d, mul_add_d, f64, u64, Double);

impl Env {
    /// Whether an ordinary result needs no flag any more.
    #[inline]
    fn quiet(&self) -> bool {
        self.rounding == Rounding::NearestEven && self.flags & flag::INEXACT != 0
    }
}

/// Whether a result is neither NaN, infinite, zero nor near underflow. The
/// smallest normal number itself may have been rounded up to, so it is out.
#[inline]
fn ordinary(value: f64, smallest: f64, largest: f64) -> bool {
    value.abs() > smallest && value.abs() <= largest
}
