//! The auxiliary vector on a new program's stack: what the kernel tells it of the
//! machine, and the one entry that can be taken out of it, the vdso's address.
//!
//! The stack of a program that has not begun: the count of its arguments, their
//! addresses, a zero, its environment's addresses, a zero, and then pairs of a kind and
//! a value, up to a pair of the kind zero.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;

use crate::sys::{self, Tid};

/// Kinds of entries: the end, one that means nothing, the vdso's place.
const END: u64 = libc::AT_NULL;
const IGNORE: u64 = libc::AT_IGNORE;
const VDSO: u64 = libc::AT_SYSINFO_EHDR;

/// Longest vector believed; the kernel's has about twenty entries.
const ENTRIES: u64 = 256;

/// Hides the vdso from a process that is stopped inside its exec. Its pages stay, and
/// nothing leads a program to them.
pub(crate) fn hide_vdso(tid: Tid) -> io::Result<()> {
    let mut regs = sys::zero_regs();
    sys::get_regs(tid, &mut regs)?;
    let vector = start(tid, regs.rsp).ok_or(io::ErrorKind::UnexpectedEof)?;
    for at in (0..ENTRIES).map(|n| vector + 16 * n) {
        match sys::peek(tid, at).ok_or(io::ErrorKind::UnexpectedEof)? {
            END => break,
            VDSO => sys::poke(tid, at, IGNORE)?,
            _ => {}
        }
    }
    Ok(())
}

/// Where the vector begins.
fn start(tid: Tid, stack: u64) -> Option<u64> {
    let count = sys::peek(tid, stack)?;
    let mut at = stack.checked_add(count.checked_add(2)?.checked_mul(8)?)?;
    while sys::peek(tid, at)? != 0 {
        at = at.checked_add(8)?;
    }
    at.checked_add(8)
}
