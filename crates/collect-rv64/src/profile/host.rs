//! The bytes of a line that passes, at the host's address that the table of lines
//! gives: what generated code does with an entry, done by the interpreter.
//!
//! By an index into RAM and one into the times of use, both checked, the same takes
//! twenty more instructions of the host for each access, a third of a handler.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(unsafe_code, reason = "entries name bytes by their addresses")]

use std::sync::atomic::Ordering::Relaxed;

use super::line::{Geometry, LINE_SHIFT, Line};
use super::lines::LINE_ENTRIES;

/// Bytes of lines that are found, as a power of two. It is known when this is compiled,
/// so that finding one takes no register for a shift, of which handlers have few.
pub(super) const FOUND_SHIFT: u32 = Geometry::USUAL.line;
const FOUND_MASK: u64 = !0 << FOUND_SHIFT;

/// A bank of a table of lines of the usual size.
///
/// Invariant: `bank` is one of a table that outlives the run of the hart it was
/// made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    bank: *const Line,
}

/// What an access needs besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    /// What the time of an access and what is left of the run add up to.
    pub(super) epoch: u64,
}

impl Data {
    /// Finds lines of the usual size.
    pub(super) const fn new(bank: &[Line; LINE_ENTRIES]) -> Self {
        Self { bank: bank.as_ptr() }
    }

    /// The entry of the line of an address.
    #[inline(always)]
    fn entry(&self, va: u64) -> &Line {
        let at = (va >> (FOUND_SHIFT - LINE_SHIFT)) as usize & ((LINE_ENTRIES - 1) << LINE_SHIFT);
        // SAFETY: the type's invariant; a bank has so many entries of this size; and while
        // a hart runs in a handler nobody holds a reference to change the bank.
        unsafe { &*self.bank.byte_add(at) }
    }

    /// `N` bytes, if a load of them passes; then takes note of its time.
    #[inline(always)]
    pub(super) fn read<const N: usize>(&self, va: u64, rest: &Rest, left: u64) -> Option<u64> {
        let entry = self.entry(va);
        let passes = entry.read == va.wrapping_add(N as u64 - 1) & FOUND_MASK;
        passes.then(|| read::<N>(entry, va, rest.epoch.wrapping_sub(left)))
    }

    /// Writes the low `N` bytes of a value, if a store to them passes; then takes
    /// note of its time.
    #[inline(always)]
    pub(super) fn write<const N: usize>(
        &self,
        (va, value): (u64, u64),
        rest: &Rest,
        left: u64,
    ) -> Option<()> {
        let entry = self.entry(va);
        let passes = entry.write == va.wrapping_add(N as u64 - 1) & FOUND_MASK;
        passes.then(|| write::<N>(entry, va, value, rest.epoch.wrapping_sub(left)))
    }
}

/// The same for lines of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched(Data);

impl Fetched {
    pub(super) const fn new(lines: Data) -> Self {
        Self(lines)
    }

    /// Whether a fetch of four bytes passes; then takes note of its time. One of two
    /// bytes at the end of a line is not known to.
    #[inline(always)]
    pub(super) fn fetch(&self, pc: u64, now: u64) -> bool {
        let entry = self.0.entry(pc);
        let passes = entry.read == pc.wrapping_add(3) & FOUND_MASK;
        if passes {
            touch(entry, now);
        }
        passes
    }
}

/// Reads `N` bytes, zero-extended, at an address of a line whose tag for loads is
/// that of the last byte and which was found by the first.
#[inline(always)]
fn read<const N: usize>(line: &Line, va: u64, now: u64) -> u64 {
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
fn touch(line: &Line, now: u64) {
    // SAFETY: as in `read`: an entry with a tag has a time of use.
    unsafe { (*line.stamp).store(now, Relaxed) };
}

/// Writes the low `N` bytes of a value; otherwise as [`read`], with the tag for
/// stores.
#[inline(always)]
fn write<const N: usize>(line: &Line, va: u64, value: u64, now: u64) {
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
