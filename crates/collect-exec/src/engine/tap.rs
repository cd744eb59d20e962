//! The engine's end of the tap.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::AtomicU32;

use ichnos_tap::Header;

use super::sys;
use crate::window;

/// The shared head.
pub fn header() -> &'static Header {
    // SAFETY: the host has mapped the tap there before the engine began, and it is never unmapped.
    unsafe { &*(window::TAP as *const Header) }
}

/// Waits until a shared word is no longer `seen`, for `nanoseconds` at most.
pub fn wait(word: &AtomicU32, seen: u32, nanoseconds: u64) {
    let limit = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    let args = [
        word.as_ptr() as u64,
        libc::FUTEX_WAIT as u64,
        u64::from(seen),
        limit.as_ptr() as u64,
        0,
        0,
    ];
    // SAFETY: the word is shared memory that stays mapped; the limit is live.
    unsafe { sys::call(libc::SYS_futex, args) };
}

/// Wakes all who wait on a shared word.
pub fn wake(word: &AtomicU32) {
    let all = i32::MAX as u64;
    let args = [word.as_ptr() as u64, libc::FUTEX_WAKE as u64, all, 0, 0, 0];
    // SAFETY: the word is shared memory that stays mapped.
    unsafe { sys::call(libc::SYS_futex, args) };
}
