//! Calls that change the address space: the engine's part of it is not the program's to
//! change, and code that changes must be translated anew.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Answer, args, judged};
use crate::engine::ctx::Ctx;
use crate::engine::pages::{Pages, Stretch};
use crate::engine::{places, state, sys};

const PAGE: u64 = 4096;
const EXEC: u64 = libc::PROT_EXEC as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
/// `MAP_SHARED`, and in `MAP_SHARED_VALIDATE`; never in `MAP_PRIVATE`.
const SHARED: u64 = libc::MAP_SHARED as u64;

/// Does one of them.
pub fn run(ctx: &mut Ctx, number: i64) -> Answer {
    let mut args = args(ctx);
    if number == libc::SYS_mmap && !exact(&args) && places::is_engine(args[0], round(args[1])) {
        // A mere wish for a place in the window: it is as if the place were taken.
        args[0] = 0;
    }
    if harms(number, &args) {
        return Answer::Value(-i64::from(libc::ENOMEM));
    }
    let (start, len) = (args[0], round(args[1]));
    let state = state::get();
    let touches = |start, len| state.cache.lock().pages.touches(start, len);
    // Code goes before its memory does, so that nobody is led into it in between.
    let removes = matches!(
        number,
        libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_mremap
    ) || fixed(number, &args)
        || number == libc::SYS_madvise && args[2] == libc::MADV_DONTNEED as u64;
    if removes && len != 0 {
        state.open(start, len);
        if touches(start, len) {
            state.invalidate(start, len);
        }
    }
    if number == libc::SYS_mremap && args[3] & libc::MREMAP_FIXED as u64 != 0 {
        state.open(args[4], round(args[2]));
        state.invalidate(args[4], round(args[2]));
    }
    if number == libc::SYS_shmat && args[2] & libc::SHM_REMAP as u64 != 0 {
        // How much it replaces only the kernel knows.
        state.open(0, u64::MAX);
        state.invalidate(args[1], u64::MAX);
    }
    let result = judged(number, args);
    note(&mut state.cache.lock().pages, number, &args, result);
    if number == libc::SYS_mmap && args[3] & SHARED != 0 && !sys::failed(result) {
        // It may be another view of code: that is found out when the code is translated again.
        let mut cache = state.cache.lock();
        cache.pages.add_shared(result as u64, len);
        let shared = cache.pages.shared_code();
        drop(cache);
        shared.iter().for_each(|s| state.invalidate(s.start, s.end - s.start));
    }
    Answer::Value(result)
}

/// Keeps the books of what can be executed.
fn note(pages: &mut Pages, number: i64, args: &[u64; 6], result: i64) {
    let (start, len, at) = (args[0], round(args[1]), result as u64);
    if sys::failed(result) {
        // Some of it may have been done.
        if number == libc::SYS_mprotect || number == libc::SYS_pkey_mprotect {
            pages.forget();
        }
        return;
    }
    match number {
        libc::SYS_mmap if args[2] & EXEC != 0 => {
            let (writable, shared) = (args[2] & WRITE != 0, args[3] & SHARED != 0);
            pages.add(Stretch { start: at, end: at + len, writable, shared });
        }
        libc::SYS_mmap => pages.remove(at, len),
        libc::SYS_munmap => pages.remove(start, len),
        libc::SYS_mprotect | libc::SYS_pkey_mprotect if args[2] & EXEC != 0 => {
            pages.allow(start, len, args[2] & WRITE != 0);
        }
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => pages.remove(start, len),
        libc::SYS_mremap => {
            if pages.touches(start, len.max(PAGE)) {
                pages.forget();
            }
            pages.remove(at, round(args[2]));
        }
        libc::SYS_madvise => {}
        _ => pages.forget(),
    }
}

fn round(len: u64) -> u64 {
    len.saturating_add(PAGE - 1) & !(PAGE - 1)
}

fn fixed(number: i64, args: &[u64; 6]) -> bool {
    number == libc::SYS_mmap && args[3] & libc::MAP_FIXED as u64 != 0
}

/// Whether a mapping comes to lie where it is asked for, or nowhere.
fn exact(args: &[u64; 6]) -> bool {
    args[3] & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) as u64 != 0
}

/// Whether a call would change the engine's memory.
fn harms(number: i64, args: &[u64; 6]) -> bool {
    let engine = |start, len| places::is_engine(start, round(len));
    match number {
        libc::SYS_mmap => exact(args) && engine(args[0], args[1]),
        libc::SYS_mremap => {
            let fixed = args[3] & libc::MREMAP_FIXED as u64 != 0;
            engine(args[0], args[1]) || fixed && engine(args[4], args[2])
        }
        libc::SYS_shmat => args[1] != 0 && engine(args[1], PAGE),
        _ => engine(args[0], args[1]),
    }
}
