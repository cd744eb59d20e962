//! Text put together byte by byte, several times faster than the formatting
//! machinery of the standard library: dumps have one line per record.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{self, Write};

/// Buffered output of lines.
#[derive(Debug)]
pub(crate) struct Lines<W> {
    out: W,
    buffer: Vec<u8>,
}

/// The buffer is written when it has grown to this.
const FULL: usize = 1 << 16;

const HEX: &[u8; 16] = b"0123456789abcdef";

impl<W: Write> Lines<W> {
    pub fn new(out: W) -> Self {
        Self { out, buffer: Vec::with_capacity(FULL + 4096) }
    }

    /// Ends a line.
    #[inline]
    pub fn end(&mut self) -> io::Result<()> {
        self.buffer.push(b'\n');
        if self.buffer.len() >= FULL {
            return self.spill();
        }
        Ok(())
    }

    #[cold]
    fn spill(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Writes all that is left.
    pub fn finish(&mut self) -> io::Result<()> {
        self.spill()?;
        self.out.flush()
    }

    pub fn into_inner(self) -> W {
        self.out
    }

    #[inline]
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.buffer.extend_from_slice(text.as_bytes());
        self
    }

    /// A number.
    #[inline]
    pub fn decimal(&mut self, mut n: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.buffer.extend_from_slice(&digits[at..]);
        self
    }

    pub fn signed(&mut self, n: i64) -> &mut Self {
        if n < 0 {
            self.text("-");
        }
        self.decimal(n.unsigned_abs())
    }

    /// A number in hexadecimal with at least `least` digits and no prefix.
    #[inline]
    pub fn hex(&mut self, n: u64, least: usize) -> &mut Self {
        let used = (16 - n.leading_zeros() as usize / 4).max(least).clamp(1, 16);
        let mut digits = [0; 16];
        for (i, digit) in digits.iter_mut().enumerate() {
            *digit = HEX[(n >> (60 - 4 * i)) as usize & 15];
        }
        self.buffer.extend_from_slice(&digits[16 - used..]);
        self
    }

    /// An address.
    #[inline]
    pub fn address(&mut self, n: u64) -> &mut Self {
        self.text("0x").hex(n, 1)
    }

    /// Bytes, two digits each, in the order of memory.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        for byte in bytes {
            let pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            self.buffer.extend_from_slice(&pair);
        }
        self
    }

    /// A text in quotes, escaped as in JSON.
    pub fn quoted(&mut self, text: &str) -> &mut Self {
        self.text("\"");
        for c in text.chars() {
            match c {
                '"' | '\\' => self.text("\\").push(c),
                '\n' => self.text("\\n"),
                '\r' => self.text("\\r"),
                '\t' => self.text("\\t"),
                c if c < ' ' || c == '\u{7f}' => self.text("\\u").hex(c.into(), 4),
                c => self.push(c),
            };
        }
        self.text("\"")
    }

    fn push(&mut self, c: char) -> &mut Self {
        let mut utf8 = [0; 4];
        self.text(c.encode_utf8(&mut utf8))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Out = Lines<Vec<u8>>;

    fn said(say: impl for<'a> FnOnce(&'a mut Out) -> &'a mut Out) -> String {
        let mut lines = Lines::new(Vec::new());
        say(&mut lines);
        lines.finish().unwrap();
        String::from_utf8(lines.into_inner()).unwrap()
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_standard_library(n: u64, s: i64, least in 0usize..17) {
            let least = least.min(16);
            prop_assert_eq!(said(|l| l.decimal(n)), n.to_string());
            prop_assert_eq!(said(|l| l.decimal(n >> 40)), (n >> 40).to_string());
            prop_assert_eq!(said(|l| l.signed(s)), s.to_string());
            let m = n >> (s & 63);
            prop_assert_eq!(said(|l| l.hex(m, least)), format!("{m:0least$x}"));
        }

        #[test]
        fn quoted_text_is_json(text: String) {
            let json: serde_json::Value = serde_json::from_str(&said(|l| l.quoted(&text))).unwrap();
            prop_assert_eq!(json, serde_json::Value::String(text));
        }
    }

    #[test]
    fn ends_of_the_numbers() {
        assert_eq!(said(|l| l.decimal(0).text(" ").decimal(u64::MAX)), "0 18446744073709551615");
        assert_eq!(said(|l| l.signed(i64::MIN)), i64::MIN.to_string());
        assert_eq!(said(|l| l.address(0).text(" ").address(u64::MAX)), "0x0 0xffffffffffffffff");
        assert_eq!(said(|l| l.bytes(&[0, 0xa5, 255])), "00a5ff");
    }
}
