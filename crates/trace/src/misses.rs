//! Words that no prediction told: written out as differences, byte by byte, into columns where
//! their likes are.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bytes::{Cursor, Parse, unzigzag, zigzag};
use crate::error::Flaw;

/// Written-out words take a column for the first, one for the second and one for all later
/// bytes of a varint, because their distributions differ; and each of these once for every
/// residue of the slot's number, because slots differ, too.
const PLANES: usize = 3;
const GROUPS: usize = 4;
pub(crate) const MISS_COLUMNS: usize = PLANES * GROUPS;

/// Appends a word written out, as its difference from a reference.
pub(crate) fn put_miss(columns: &mut [Vec<u8>], slot: u32, difference: u64) {
    let first = slot as usize % GROUPS * PLANES;
    let mut value = zigzag(difference as i64);
    let mut plane = 0;
    loop {
        let more = value >= 0x80;
        columns[first + plane].push(value as u8 & 0x7f | u8::from(more) << 7);
        value >>= 7;
        plane = (plane + 1).min(PLANES - 1);
        if !more {
            return;
        }
    }
}

/// Words written out, being read.
#[derive(Debug)]
pub(crate) struct Misses<'a> {
    pub(crate) columns: [Cursor<'a>; MISS_COLUMNS],
}

impl Misses<'_> {
    #[inline]
    pub(crate) fn next(&mut self, slot: u32) -> Parse<u64> {
        let first = slot as usize % GROUPS * PLANES;
        let mut value = 0;
        let mut shift = 0;
        let mut plane = 0;
        loop {
            let byte = self.columns[first + plane].u8()?;
            if shift == 63 && byte > 1 {
                return Err(Flaw("a number is longer than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(unzigzag(value) as u64);
            }
            shift += 7;
            plane = (plane + 1).min(PLANES - 1);
        }
    }
}
