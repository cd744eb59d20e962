//! Asks the host for large pages under memory that is used all over: the
//! simulated machine's RAM, and the tables that every access looks into. It is
//! advice, and what becomes of it changes speed alone.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(unsafe_code, reason = "the host takes advice by address")]

use rustix::mm::{Advice, madvise};

/// The host's small pages, to which an advised range is cut.
const PAGE: usize = 4096;
/// Less is not worth a large page.
const LEAST: usize = 2 << 20;

/// Asks for large pages under these bytes.
pub(crate) fn prefer_large<T>(memory: &mut [T]) {
    let bytes = size_of_val(memory);
    if bytes < LEAST {
        return;
    }
    let start = memory.as_mut_ptr().addr().next_multiple_of(PAGE);
    let end = (memory.as_mut_ptr().addr() + bytes) / PAGE * PAGE;
    let from = memory.as_mut_ptr().cast::<u8>().with_addr(start).cast();
    // SAFETY: the range lies inside `memory`, which is borrowed for the call, and
    // this advice changes neither contents nor rights of any page. If the host
    // refuses it, pages stay small.
    let _refused = unsafe { madvise(from, end - start, Advice::LinuxHugepage) };
}
