//! Numbers as people read them.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// With a comma before each third digit: `1,234,567`.
#[must_use]
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// In decimal units: `950`, `1.23 M`, `45.6 G`.
#[must_use]
pub fn si(n: f64) -> String {
    scaled(n, 1000.0, &["", " k", " M", " G", " T", " P", " E"])
}

/// In binary units of bytes: `950 B`, `1.23 MiB`.
#[must_use]
pub fn bytes(n: u64) -> String {
    scaled(n as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// As a share of a hundred with two digits after the point; nothing of nothing
/// is a dash.
#[must_use]
pub fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 { "-".into() } else { format!("{:.2}%", 100.0 * part / whole) }
}

/// Three digits and the largest unit that leaves at least one before the point.
fn scaled(n: f64, step: f64, units: &[&str]) -> String {
    let mut value = n;
    let mut unit = 0;
    // Rounding must not bring a fourth digit: 999.6 is one of the next unit.
    while value.abs() >= if unit == 0 { step } else { step - 0.5 } && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = match value.abs() {
        _ if unit == 0 && value.fract() == 0.0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1000), "1,000");
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(si(950.0), "950");
        assert_eq!(si(1234567.0), "1.23 M");
        assert_eq!(si(999_600.0), "1.00 M");
        assert_eq!(si(45.6e9), "45.6 G");
        assert_eq!(si(0.5), "0.50");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(3 << 30), "3.00 GiB");
        assert_eq!(percent(1.0, 8.0), "12.50%");
        assert_eq!(percent(1.0, 0.0), "-");
    }
}
