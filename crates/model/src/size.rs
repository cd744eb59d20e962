//! Sizes as people write them: `32K`, `1M`, `64`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::Error;

/// Reads a number of bytes: decimal digits, then nothing, `K`, `M` or `G` in
/// either case, meaning powers of 1024, optionally followed by `B` or `iB`.
///
/// # Errors
///
/// [`Error::Text`] if `text` is anything else or too large for 64 bits.
pub fn parse_size(field: &str, text: &str) -> Result<u64, Error> {
    let bad = || Error::Text {
        field: field.to_owned(),
        got: text.to_owned(),
        expected: "a size such as 64, 32K, 1M or 2G",
    };
    let trimmed = text.trim();
    let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = trimmed.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let unit = suffix.trim_end_matches("iB").trim_end_matches(['B', 'b']);
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return Err(bad()),
    };
    number.checked_mul(1 << shift).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in
            [("64", 64), ("32K", 32 << 10), ("1m", 1 << 20), ("2G", 2 << 30), ("48KiB", 48 << 10)]
        {
            assert_eq!(parse_size("x", text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "1.5K", "-3", "12Q", "99999999999999999999", "18446744073709551615G"]
        {
            assert!(parse_size("x", text).is_err(), "{text}");
        }
    }
}
