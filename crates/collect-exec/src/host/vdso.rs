//! Hides the vdso from a program that has not begun.
//!
//! Its stack holds the count of its arguments, their addresses, a zero, its environment's addresses, a zero,
//! and then pairs of a kind and a value, up to a pair of kind zero. The pair that tells the vdso's place gets a
//! kind that means nothing. The engine is told by a vector of its own, and keeps it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::remote::{Remote, read};
use crate::Error;

/// The longest vector that is believed; the kernel's has about twenty pairs.
const MOST_PAIRS: u64 = 256;

/// Hides the vdso from a stopped process.
pub fn hide(remote: &Remote, pid: i32) -> Result<(), Error> {
    let word = |at: u64| {
        let mut bytes = [0; 8];
        read(pid, at, &mut bytes).map(|()| u64::from_le_bytes(bytes))
    };
    let stack = remote.regs().rsp;
    let mut at = stack.wrapping_add(word(stack)?.wrapping_add(2).wrapping_mul(8));
    while word(at)? != 0 {
        at = at.wrapping_add(8);
    }
    for pair in (0..MOST_PAIRS).map(|n| at.wrapping_add(8 + 16 * n)) {
        match word(pair)? {
            libc::AT_NULL => break,
            libc::AT_SYSINFO_EHDR => remote.write(pair, &libc::AT_IGNORE.to_le_bytes())?,
            _ => {}
        }
    }
    Ok(())
}
