//! Where full buffers wait for whoever makes a trace of them: a file on disk, squeezed, in the order in which they were taken.
//!
//! A spool lives no longer than it takes to make a trace of it, and only the build that wrote it understands it: no format for
//! others. Whose buffers they are, and what is in them, is the collector's business; that it stands back for the program while it reads them is
//! [`aside`]'s.
// SPDX-License-Identifier: MIT OR Apache-2.0

#![forbid(unsafe_code)]

mod aside;
mod spool;
mod squeeze;
mod writers;

pub use aside::aside;
pub use spool::{
    Aligned, Bytes, Found, Hidden, Hurry, Left, Next, PAGE, Pen, Spool, Stored, remove,
};
pub use writers::Writers;

/// What a buffer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// Whatever whoever reads it must know. The first number is not [`u32::MAX`].
    pub numbers: [u32; 3],
    /// Bytes in it.
    pub len: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
