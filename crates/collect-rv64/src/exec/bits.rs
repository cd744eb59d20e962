//! Bit-manipulation semantics: Zba, Zbb, Zbs and Zicond.
// SPDX-License-Identifier: MIT OR Apache-2.0

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident($a:ident, $b:ident) = $result:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) const fn $name($a: u64, $b: u64) -> u64 {
            $result
        }
    )*};
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident($a:ident) = $result:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) const fn $name($a: u64) -> u64 {
            $result
        }
    )*};
}

#[inline(always)]
const fn low(a: u64) -> u64 {
    a as u32 as u64
}

binary! {
    add_uw(a, b) = low(a).wrapping_add(b);
    sh1add(a, b) = (a << 1).wrapping_add(b);
    sh2add(a, b) = (a << 2).wrapping_add(b);
    sh3add(a, b) = (a << 3).wrapping_add(b);
    sh1add_uw(a, b) = (low(a) << 1).wrapping_add(b);
    sh2add_uw(a, b) = (low(a) << 2).wrapping_add(b);
    sh3add_uw(a, b) = (low(a) << 3).wrapping_add(b);
    slli_uw(a, b) = low(a) << (b & 63);
    andn(a, b) = a & !b;
    orn(a, b) = a | !b;
    xnor(a, b) = !(a ^ b);
    max(a, b) = if (a as i64) < b as i64 { b } else { a };
    maxu(a, b) = if a < b { b } else { a };
    min(a, b) = if (a as i64) < b as i64 { a } else { b };
    minu(a, b) = if a < b { a } else { b };
    rol(a, b) = a.rotate_left(b as u32 & 63);
    ror(a, b) = a.rotate_right(b as u32 & 63);
    rolw(a, b) = (a as u32).rotate_left(b as u32 & 31) as i32 as u64;
    rorw(a, b) = (a as u32).rotate_right(b as u32 & 31) as i32 as u64;
    bclr(a, b) = a & !(1 << (b & 63));
    bext(a, b) = a >> (b & 63) & 1;
    binv(a, b) = a ^ 1 << (b & 63);
    bset(a, b) = a | 1 << (b & 63);
    czero_eqz(a, b) = if b == 0 { 0 } else { a };
    czero_nez(a, b) = if b == 0 { a } else { 0 };
}

unary! {
    clz(a) = a.leading_zeros() as u64;
    ctz(a) = a.trailing_zeros() as u64;
    cpop(a) = a.count_ones() as u64;
    clzw(a) = (a as u32).leading_zeros() as u64;
    ctzw(a) = (a as u32).trailing_zeros() as u64;
    cpopw(a) = (a as u32).count_ones() as u64;
    sext_b(a) = a as i8 as u64;
    sext_h(a) = a as i16 as u64;
    zext_h(a) = a as u16 as u64;
    rev8(a) = a.swap_bytes();
    /// Every byte that is not zero becomes all ones: the carry of adding 0x7f to
    /// the low seven bits, or the top bit itself, tells.
    orc_b(a) = {
        let tops = (((a & 0x7f7f_7f7f_7f7f_7f7f) + 0x7f7f_7f7f_7f7f_7f7f) | a) & 0x8080_8080_8080_8080;
        (tops >> 7) * 0xff
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_in_words_end_at_the_word() {
        assert_eq!((ctzw(1 << 52), clzw(1 << 52), cpopw(u64::MAX)), (32, 32, 32));
        assert_eq!((ctz(0), clz(0)), (64, 64));
    }

    #[test]
    fn orc_b_fills_bytes() {
        assert_eq!(orc_b(0x0100_8000_0000_7f01), 0xff00_ff00_0000_ffff);
        assert_eq!(orc_b(0), 0);
        assert_eq!(orc_b(u64::MAX), u64::MAX);
    }
}
