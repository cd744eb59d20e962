//! Numbers as users type them: `500`, `64K`, `1.5M`, `2G`.
//!
//! Counts use powers of ten (`10M` instructions are ten million); sizes of memory
//! use powers of two (`32K` bytes are 32768), as every tool of the field does.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

/// A count of things: `K`, `M`, `G`, `T` are powers of ten.
pub fn count(text: &str) -> Result<u64, String> {
    scaled(text, 1000)
}

/// A count of at least one thing.
pub fn some(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("must be at least 1".into()),
        count => Ok(count),
    }
}

/// A range of counts: `A..B`, `A..`, `..B` or `A` alone for "from A on".
pub fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").unwrap_or((text, ""));
    let start = if from.is_empty() { 0 } else { count(from)? };
    let end = if to.is_empty() { u64::MAX } else { count(to)? };
    if start > end {
        return Err(format!("the range `{text}` ends before it begins"));
    }
    Ok(start..end)
}

fn scaled(text: &str, unit: u64) -> Result<u64, String> {
    let bad = || format!("`{text}` is not a number like 500, 64K or 1.5M");
    let (digits, power) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1),
        Some('m' | 'M') => (&text[..text.len() - 1], 2),
        Some('g' | 'G') => (&text[..text.len() - 1], 3),
        Some('t' | 'T') => (&text[..text.len() - 1], 4),
        _ => (text, 0),
    };
    let factor = u128::from(unit.pow(power));
    let digits = digits.replace('_', "");
    let (whole, part) = digits.split_once('.').unwrap_or((&digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(part) || part.len() > 12 {
        return Err(bad());
    }
    let whole: u128 = whole.parse().map_err(|_| bad())?;
    let mut value = whole.checked_mul(factor).ok_or_else(bad)?;
    if !part.is_empty() {
        let places = u32::try_from(part.len()).map_err(|_| bad())?;
        let numerator: u128 = part.parse().map_err(|_| bad())?;
        let product = numerator * factor;
        let denominator = 10_u128.pow(places);
        if !product.is_multiple_of(denominator) {
            return Err(bad());
        }
        value += product / denominator;
    }
    u64::try_from(value).map_err(|_| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_and_fractions() {
        assert_eq!(count("500"), Ok(500));
        assert_eq!(count("1.5M"), Ok(1_500_000));
        assert_eq!(count("2_000"), Ok(2000));
        assert_eq!(count("18446744073709551615"), Ok(u64::MAX));
        for bad in ["", "K", "1.5", "-1", "1e3", "0x10", "99999999999999999999", "1..2"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_may_be_open() {
        assert_eq!(range("1K..2K"), Ok(1000..2000));
        assert_eq!(range("..5"), Ok(0..5));
        assert_eq!(range("7.."), Ok(7..u64::MAX));
        assert_eq!(range("7"), Ok(7..u64::MAX));
        assert!(range("5..3").is_err());
    }
}
