//! Bytes that another processor has stored, brought near before somebody goes through them item by item.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Bytes of a processor's cache line, and how many are fetched at a time: few enough to stay in its first cache.
const LINE: usize = 64;
const FETCHED: usize = 16 << 10;

/// Looks at some bytes from `at` on: all their lines are on their way at once then, and not one by one when it is known where the
/// next item begins. How far that went.
#[inline(never)]
pub fn fetch(bytes: &[u8], at: usize) -> usize {
    let end = bytes.len().min(at + FETCHED);
    let lines = bytes.get(at..end).unwrap_or_default().iter().step_by(LINE);
    std::hint::black_box(lines.fold(0, |all, byte| all ^ byte));
    end
}
