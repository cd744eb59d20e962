//! Reading the tables' numbers.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A place in bytes that lie at an address.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    base: u64,
}

impl<'a> Cursor<'a> {
    /// Reads bytes that lie at `base`, from an offset on.
    pub(super) const fn new(bytes: &'a [u8], at: usize, base: u64) -> Self {
        Self { bytes, at, base }
    }

    /// The address of what comes next.
    pub(super) const fn address(&self) -> u64 {
        self.base.wrapping_add(self.at as u64)
    }

    /// The offset of what comes next.
    pub(super) const fn offset(&self) -> usize {
        self.at
    }

    /// Whether there is nothing more.
    pub(super) const fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let these = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(these)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    pub(super) fn sleb(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0i64, 0);
        loop {
            let byte = self.u8()?;
            value |= i64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                let sign = byte & 0x40 != 0 && shift < 64;
                return Some(if sign { value | -1 << shift } else { value });
            }
        }
    }
}
