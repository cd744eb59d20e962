//! System calls of the engine's own, made without libc: they touch no thread-local
//! state and may be made in a signal handler.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::arch::asm;

use super::glue;

/// Makes a system call and gives what the kernel gave (negative error numbers included).
///
/// # Safety
///
/// The call must not break memory that Rust code relies on; pointers among the
/// arguments must be valid for what the call does with them.
pub unsafe fn call(number: i64, args: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the kernel keeps all registers but rax, rcx and r11; the effect on memory is
    // the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Nanoseconds on the monotonic clock.
pub fn now() -> u64 {
    let mut time = [0u64; 2];
    let args = [libc::CLOCK_MONOTONIC as u64, time.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: the array is as large as the kernel writes.
    unsafe { call(libc::SYS_clock_gettime, args) };
    time[0] * 1_000_000_000 + time[1]
}

/// The operating system's numbers of the calling process and thread.
pub fn own_numbers() -> (u32, u32) {
    // SAFETY: the calls take nothing and change nothing.
    unsafe { (call(libc::SYS_getpid, [0; 6]) as u32, call(libc::SYS_gettid, [0; 6]) as u32) }
}

/// Whether there is a process of this number.
pub fn exists(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { call(libc::SYS_kill, [u64::from(pid), 0, 0, 0, 0, 0]) != -i64::from(libc::ESRCH) }
}

/// Whether a result is an error.
pub const fn failed(result: i64) -> bool {
    result < 0 && result >= -4095
}

/// Maps private anonymous memory at exactly this address, which must be free.
pub fn map_at(at: u64, len: u64, prot: i32) -> Result<(), i64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let flags = (flags | libc::MAP_NORESERVE) as u64;
    // SAFETY: the mapping replaces nothing.
    let got = unsafe { call(libc::SYS_mmap, [at, len, prot as u64, flags, u64::MAX, 0]) };
    if got as u64 == at { Ok(()) } else { Err(got) }
}

/// Copies from the program's memory; false if any of it cannot be read.
pub fn copy_in(from: u64, out: &mut [u8]) -> bool {
    // SAFETY: `out` is live and ours; a fault on the other side is caught.
    unsafe { glue::ichnos_copy(out.as_mut_ptr() as u64, from, out.len() as u64) }
}

/// Copies to the program's memory; false if any of it cannot be written.
pub fn copy_out(to: u64, bytes: &[u8]) -> bool {
    if super::places::is_engine(to, bytes.len() as u64) {
        return false;
    }
    // SAFETY: `bytes` is live; the destination is not the engine's, and a fault there is
    // caught. A page that only the engine keeps closed is opened.
    let copy = || unsafe { glue::ichnos_copy(to, bytes.as_ptr() as u64, bytes.len() as u64) };
    copy() || super::state::get().open(to, bytes.len() as u64) && copy()
}

/// Reads a plain value from the program's memory.
pub fn read_value<T: Plain>(from: u64) -> Option<T> {
    let mut value = T::ZERO;
    // SAFETY: `Plain` types are any bytes.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut((&raw mut value).cast::<u8>(), size_of::<T>()) };
    copy_in(from, bytes).then_some(value)
}

/// Writes a plain value to the program's memory.
pub fn write_value<T: Plain>(to: u64, value: &T) -> bool {
    // SAFETY: `Plain` types have no padding.
    let bytes =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) };
    copy_out(to, bytes)
}

/// Types that are any bytes, without padding.
///
/// # Safety
///
/// Every bit pattern must be valid and the layout must have no padding.
pub unsafe trait Plain: Copy {
    /// All bytes zero.
    const ZERO: Self;
}

// SAFETY: integers and arrays of them.
unsafe impl Plain for u64 {
    const ZERO: Self = 0;
}
// SAFETY: as above.
unsafe impl Plain for u32 {
    const ZERO: Self = 0;
}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u64; N] {
    const ZERO: Self = [0; N];
}

/// Sleeps for so many nanoseconds, less than a second.
pub fn nap(nanoseconds: u64) {
    let time = [0, nanoseconds];
    // SAFETY: the time is live; nothing is written.
    unsafe { call(libc::SYS_nanosleep, [time.as_ptr() as u64, 0, 0, 0, 0, 0]) };
}

/// Writes to standard error, for last words.
pub fn say(text: &str) {
    // SAFETY: the slice is live.
    unsafe {
        call(libc::SYS_write, [2, text.as_ptr() as u64, text.len() as u64, 0, 0, 0]);
    }
}

/// Ends the process with status 2 after a message: what the engine cannot do must never
/// be done wrongly.
pub fn die(text: &str) -> ! {
    say("ichnos: ");
    say(text);
    say("\n");
    exit_group(2)
}

/// Ends the process.
pub fn exit_group(status: u64) -> ! {
    loop {
        // SAFETY: the call does not come back.
        unsafe { call(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) };
    }
}
