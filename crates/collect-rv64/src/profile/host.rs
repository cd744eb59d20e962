//! The bytes of a line that passes, at the host's address that the table of lines
//! gives: what generated code does with an entry, done by the interpreter.
//!
//! By an index into RAM and one into the times of use, both checked, the same takes
//! twenty more instructions of the host for each access, a third of a handler.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(unsafe_code, reason = "entries name bytes by their addresses")]

use std::sync::atomic::Ordering::Relaxed;

use super::line::Line;

/// Reads `N` bytes, zero-extended, at an address of a line whose tag for loads is
/// that of the last byte and which was found by the first.
#[inline(always)]
pub(super) fn read<const N: usize>(line: &Line, va: u64, now: u64) -> u64 {
    const { assert!(matches!(N, 1 | 2 | 4 | 8)) };
    let at = va.wrapping_add(line.addend) as *const u8;
    // SAFETY: a tag other than the empty one is entered only by `Lines::enter`, with
    // a stamp that is not null and points into the times of use, which the table
    // owns, and with an addend that maps the line's addresses to bytes of RAM.
    // First and last byte lie in the line. RAM stays where it is, and the page's
    // translation what it is, while the entry exists: whoever runs a hart calls
    // `Lines::follow` before and `follow_changes` after everything that may change
    // either. (Tables without addends belong to profiles whose handlers are fine,
    // which do not come here.) No reference to RAM's bytes exists while an
    // instruction runs.
    unsafe {
        (*line.stamp).store(now, Relaxed);
        match N {
            1 => u64::from(at.read()),
            2 => u64::from(u16::from_le(at.cast::<u16>().read_unaligned())),
            4 => u64::from(u32::from_le(at.cast::<u32>().read_unaligned())),
            _ => u64::from_le(at.cast::<u64>().read_unaligned()),
        }
    }
}

/// Takes note of the time of use of a line that has a tag.
#[inline(always)]
pub(super) fn touch(line: &Line, now: u64) {
    // SAFETY: as in `read`: an entry with a tag has a time of use.
    unsafe { (*line.stamp).store(now, Relaxed) };
}

/// Writes the low `N` bytes of a value; otherwise as [`read`], with the tag for
/// stores.
#[inline(always)]
pub(super) fn write<const N: usize>(line: &Line, va: u64, value: u64, now: u64) {
    const { assert!(matches!(N, 1 | 2 | 4 | 8)) };
    let at = va.wrapping_add(line.addend) as *mut u8;
    // SAFETY: as in `read`. Pages with decoded code have no tag for stores.
    unsafe {
        (*line.stamp).store(now, Relaxed);
        match N {
            1 => at.write(value as u8),
            2 => at.cast::<u16>().write_unaligned((value as u16).to_le()),
            4 => at.cast::<u32>().write_unaligned((value as u32).to_le()),
            _ => at.cast::<u64>().write_unaligned(value.to_le()),
        }
    }
}
