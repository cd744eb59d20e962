//! Numbers in text, by hand: these run once or twice for every line of texts of
//! hundreds of millions of lines.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The value of each hexadecimal digit; 255 for every other byte.
const VALUES: [u8; 256] = {
    let mut table = [255; 256];
    let mut i = 0;
    while i < 10 {
        table[b'0' as usize + i] = i as u8;
        i += 1;
    }
    i = 0;
    while i < 6 {
        table[b'a' as usize + i] = 10 + i as u8;
        table[b'A' as usize + i] = 10 + i as u8;
        i += 1;
    }
    table
};

/// The hexadecimal number at the start of `text` and what follows it; `None`
/// without a digit or with more than 64 bits.
#[inline]
pub(crate) fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let digit = VALUES[usize::from(byte)];
        if digit == 255 {
            break;
        }
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
        at += 1;
    }
    if at == 0 { None } else { Some((value, text.get(at..)?)) }
}

/// The decimal number at the start of `text` and what follows it; `None` without
/// a digit or with more than 32 bits.
#[inline]
pub(crate) fn decimal(text: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0_u32;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.checked_mul(10)?.checked_add(u32::from(digit))?;
        at += 1;
    }
    if at == 0 { None } else { Some((value, text.get(at..)?)) }
}

/// Appends `value` in lower-case hexadecimal with at least `width` digits.
#[inline]
pub(crate) fn push_hex(into: &mut Vec<u8>, value: u64, width: usize) {
    let digits = (16 - value.leading_zeros() as usize / 4).max(width).max(1);
    for place in (0..digits).rev() {
        let digit = if place < 16 { (value >> (4 * place)) as u8 & 15 } else { 0 };
        into.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
    }
}

/// Appends `value` in decimal.
#[inline]
pub(crate) fn push_decimal(into: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 20];
    let mut left = value;
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    into.extend_from_slice(&digits[at..]);
}

/// What stands before the newline, and what after it; a missing newline at the
/// very end is as good.
#[inline]
pub(crate) fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&b| b == b'\n') {
        Some(at) => (text.get(..at).unwrap_or(text), text.get(at + 1..).unwrap_or_default()),
        None => (text, &[]),
    }
}

/// A line for a message: its beginning, with strange bytes made visible.
pub(crate) fn shown(line: &[u8]) -> String {
    let cut = line.get(..60).unwrap_or(line);
    let more = if cut.len() < line.len() { "..." } else { "" };
    format!("\"{}{more}\"", cut.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits() {
        assert_eq!(hex(b"ffffffffffffffff,8"), Some((u64::MAX, &b",8"[..])));
        assert_eq!(hex(b"0000ffffffffffffffff"), Some((u64::MAX, &b""[..])));
        assert_eq!(hex(b"10000000000000000"), None);
        assert_eq!(hex(b"g"), None);
        assert_eq!(decimal(b"4294967295\n"), Some((u32::MAX, &b"\n"[..])));
        assert_eq!(decimal(b"4294967296"), None);
        assert_eq!(decimal(b""), None);
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_standard_library(value: u64, shift in 0..64_u32) {
            let value = value >> shift;
            let mut text = Vec::new();
            push_hex(&mut text, value, 8);
            prop_assert_eq!(&text, &format!("{value:08x}").into_bytes());
            prop_assert_eq!(hex(&text), Some((value, &b""[..])));
            text.clear();
            push_hex(&mut text, value, 0);
            prop_assert_eq!(&text, &format!("{value:x}").into_bytes());
            text.clear();
            push_decimal(&mut text, value);
            prop_assert_eq!(&text, &value.to_string().into_bytes());
            prop_assert_eq!(decimal(&text).map(|d| d.0), u32::try_from(value).ok());
        }
    }
}
