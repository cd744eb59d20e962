//! Numbers and texts as bytes, and back: the one place that knows how a varint
//! looks. Reading never panics and never reads past the end it was given.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Flaw;

/// The result of parsing a piece of payload, before the place is attached.
pub(crate) type Parse<T> = Result<T, Flaw>;

/// Appends a number in groups of seven bits, lowest first.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number: zigzag, then varint.
#[inline]
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, zigzag(value));
}

/// Appends a length and that many bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Small magnitudes of either sign to small numbers.
#[inline]
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A place in a slice of bytes that moves as things are read.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// How many bytes are left.
    pub(crate) const fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Parse<u8> {
        let (first, rest) = self.rest.split_first().ok_or(Flaw("it ends too early"))?;
        self.rest = rest;
        Ok(*first)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Parse<u64> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return Err(Flaw("a number is longer than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
            if shift > 63 {
                return Err(Flaw("a number is longer than 64 bits"));
            }
        }
    }

    #[inline]
    pub(crate) fn signed(&mut self) -> Parse<i64> {
        Ok(unzigzag(self.varint()?))
    }

    pub(crate) fn u32(&mut self) -> Parse<u32> {
        u32::try_from(self.varint()?).map_err(|_| Flaw("a number is longer than 32 bits"))
    }

    pub(crate) fn i32(&mut self) -> Parse<i32> {
        i32::try_from(self.signed()?).map_err(|_| Flaw("a number is longer than 32 bits"))
    }

    /// A count of things of which each takes at least one byte of what is left:
    /// a larger count is a lie and never becomes an allocation.
    pub(crate) fn count(&mut self) -> Parse<usize> {
        let count = self.varint()?;
        if count > self.left() as u64 {
            return Err(Flaw("a count exceeds the bytes that follow it"));
        }
        Ok(count as usize)
    }

    pub(crate) fn take(&mut self, len: usize) -> Parse<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Flaw("it ends too early"))?;
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Parse<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Flaw("it ends too early"))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn bytes(&mut self) -> Parse<&'a [u8]> {
        let len = self.count()?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Parse<&'a str> {
        str::from_utf8(self.bytes()?).map_err(|_| Flaw("a text is not UTF-8"))
    }

    /// Everything must have been read.
    pub(crate) fn end(&self) -> Parse<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Flaw("bytes are left over")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_overlong_ones_are_refused() {
        let mut out = Vec::new();
        for value in [0, 1, 127, 128, 1 << 35, u64::MAX] {
            put_varint(&mut out, value);
            put_signed(&mut out, value as i64);
        }
        let mut cursor = Cursor::new(&out);
        for value in [0, 1, 127, 128, 1 << 35, u64::MAX] {
            assert_eq!(cursor.varint(), Ok(value));
            assert_eq!(cursor.signed(), Ok(value as i64));
        }
        assert_eq!(cursor.end(), Ok(()));
        assert!(Cursor::new(&[0xff; 11]).varint().is_err());
        assert!(Cursor::new(&[0x80]).varint().is_err());
        assert!(Cursor::new(&[5, 1]).bytes().is_err());
    }
}
