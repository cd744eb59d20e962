//! Putting checksums right, for fuzzing: what lies behind a checksum is
//! otherwise out of a fuzzer's reach. No part of reading or salvaging.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::chunk::{HEADER_LEN, MAGIC};
use crate::header::PREFIX_LEN;

/// The same bytes with the checksums of the file header, of every chunk that looks like
/// one, and of the trailer made right.
#[must_use]
pub fn mend_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(len) = bytes.get(12..PREFIX_LEN).map(u32_at) {
        seal(&mut bytes, 0, (PREFIX_LEN as u64 + u64::from(len)) as usize);
    }
    let mut at = 0;
    while at + HEADER_LEN <= bytes.len() {
        if bytes[at..].starts_with(&MAGIC) {
            let packed = u32_at(&bytes[at + 20..at + 24]) as usize;
            let end = (at + HEADER_LEN).saturating_add(packed).min(bytes.len());
            let crc = crc32fast::hash(&bytes[at + HEADER_LEN..end]);
            bytes[at + 108..at + 112].copy_from_slice(&crc.to_le_bytes());
            seal(&mut bytes, at, HEADER_LEN - 4);
        }
        at += 1;
    }
    if let Some(at) = bytes.len().checked_sub(20) {
        seal(&mut bytes, at, 16);
    }
    bytes
}

/// Writes the checksum of `len` bytes from `at` on behind them.
fn seal(bytes: &mut [u8], at: usize, len: usize) {
    let Some(end) = at.checked_add(len) else { return };
    let Some(crc) = bytes.get(at..end).map(crc32fast::hash) else { return };
    if let Some(place) = bytes.get_mut(end..end + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

fn u32_at(bytes: &[u8]) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(bytes);
    u32::from_le_bytes(four)
}
