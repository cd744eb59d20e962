//! Integer semantics: RV64I and M. One function per operation on values; words
//! are kept sign-extended in registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[inline(always)]
const fn word(value: u32) -> u64 {
    value as i32 as u64
}

macro_rules! on_words {
    ($($(#[$doc:meta])* $name:ident($a:ident, $b:ident) = $result:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) const fn $name(a: u64, b: u64) -> u64 {
            let ($a, $b) = (a as u32, b as u32);
            word($result)
        }
    )*};
}

macro_rules! on_doubles {
    ($($(#[$doc:meta])* $name:ident($a:ident, $b:ident) = $result:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) const fn $name($a: u64, $b: u64) -> u64 {
            $result
        }
    )*};
}

on_doubles! {
    add(a, b) = a.wrapping_add(b);
    sub(a, b) = a.wrapping_sub(b);
    and(a, b) = a & b;
    or(a, b) = a | b;
    xor(a, b) = a ^ b;
    sll(a, b) = a << (b & 63);
    srl(a, b) = a >> (b & 63);
    sra(a, b) = ((a as i64) >> (b & 63)) as u64;
    slt(a, b) = ((a as i64) < b as i64) as u64;
    sltu(a, b) = (a < b) as u64;
    mul(a, b) = a.wrapping_mul(b);
    mulh(a, b) = ((a as i64 as i128 * b as i64 as i128) >> 64) as u64;
    mulhsu(a, b) = ((a as i64 as i128 * b as i128) >> 64) as u64;
    mulhu(a, b) = ((a as u128 * b as u128) >> 64) as u64;
    /// Division by zero gives all ones; the one overflow wraps.
    div(a, b) = if b == 0 { u64::MAX } else { (a as i64).wrapping_div(b as i64) as u64 };
    divu(a, b) = match a.checked_div(b) { Some(q) => q, None => u64::MAX };
    /// The remainder of a division by zero is the dividend.
    rem(a, b) = if b == 0 { a } else { (a as i64).wrapping_rem(b as i64) as u64 };
    remu(a, b) = match a.checked_rem(b) { Some(r) => r, None => a };
}

on_words! {
    addw(a, b) = a.wrapping_add(b);
    subw(a, b) = a.wrapping_sub(b);
    sllw(a, b) = a << (b & 31);
    srlw(a, b) = a >> (b & 31);
    sraw(a, b) = ((a as i32) >> (b & 31)) as u32;
    mulw(a, b) = a.wrapping_mul(b);
    divw(a, b) = if b == 0 { u32::MAX } else { (a as i32).wrapping_div(b as i32) as u32 };
    divuw(a, b) = match a.checked_div(b) { Some(q) => q, None => u32::MAX };
    remw(a, b) = if b == 0 { a } else { (a as i32).wrapping_rem(b as i32) as u32 };
    remuw(a, b) = match a.checked_rem(b) { Some(r) => r, None => a };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_has_no_traps() {
        let min = i64::MIN as u64;
        assert_eq!((div(min, u64::MAX), rem(min, u64::MAX)), (min, 0));
        assert_eq!((div(7, 0), rem(7, 0), divu(7, 0), remu(7, 0)), (u64::MAX, 7, u64::MAX, 7));
        let min = i32::MIN as u64;
        assert_eq!((divw(min, u64::MAX), remw(min, u64::MAX)), (min, 0));
        assert_eq!((divuw(1 << 31, 0), remuw(1 << 31, 0)), (u64::MAX, min));
    }

    #[test]
    fn high_products_mind_signs() {
        let minus = u64::MAX;
        assert_eq!(
            (mulh(minus, minus), mulhu(minus, minus), mulhsu(minus, minus)),
            (0, minus - 1, minus)
        );
    }
}
