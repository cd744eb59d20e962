//! An entry of the table of lines, and what may be done to a line without being told.
//!
//! A tag is the line's address, whose lowest three bits are zero, with bits that say
//! why it does not pass after all.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::AtomicU64;

/// The size of an entry as a power of two.
pub(crate) const LINE_SHIFT: u32 = 5;
/// A tag that no line has: lines have at least eight bytes.
pub(crate) const NO_LINE: u64 = 1;
/// What a hidden line's tags have besides: no line's address ends so.
pub(crate) const HIDDEN: u64 = 2;
/// What the tag for stores has besides of a line that may be written, but must be
/// marked as written first, which generated code does.
pub(crate) const CLEAN: u64 = 4;

/// A line that passes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Line {
    /// The line's address if loads pass.
    pub(crate) read: u64,
    /// The same for stores, or with [`CLEAN`].
    pub(crate) write: u64,
    /// Added to a guest address gives the host's.
    pub(crate) addend: u64,
    /// Where its time of use is written.
    pub(crate) stamp: *const AtomicU64,
}

const _: () = assert!(size_of::<Line>() == 1 << LINE_SHIFT);

impl Line {
    pub(super) const EMPTY: Self =
        Self { read: NO_LINE, write: NO_LINE, addend: 0, stamp: std::ptr::null() };

    /// Changes its tags if it is the line that begins at `line`, hidden or not.
    #[inline(always)]
    pub(super) fn retag(&mut self, line: u64, change: &impl Fn(u64) -> u64) {
        let tag = |tag: u64| if same_line(tag, line) { change(tag) } else { tag };
        (self.read, self.write) = (tag(self.read), tag(self.write));
    }
}

/// Whether a tag is the line's that begins at `line`, hidden or clean or neither.
#[inline(always)]
pub(super) const fn same_line(tag: u64, line: u64) -> bool {
    tag & !(HIDDEN | CLEAN) == line
}

/// What may be done to a line without being told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passing {
    pub(crate) loads: bool,
    pub(crate) stores: Stores,
}

/// The same for stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stores {
    /// They are told.
    Told,
    /// The first one marks the line as written, if it can be marked.
    Marked,
    Pass,
}

/// Bytes of lines and of pages of the TLB, as powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) line: u32,
    pub(crate) page: u32,
}

impl Geometry {
    /// What is usual: known when this is compiled, it costs no shift by a variable.
    pub(crate) const USUAL: Self = Self { line: 6, page: 12 };
}
