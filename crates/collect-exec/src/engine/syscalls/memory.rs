//! Calls that change the address space: the engine's part of it is not the program's to
//! change, and code that changes must be translated anew.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Answer, args, direct};
use crate::engine::ctx::Ctx;
use crate::engine::{places, state, sys};

const PAGE: u64 = 4096;

/// Does one of them.
pub fn run(ctx: &mut Ctx, number: i64) -> Answer {
    let args = args(ctx);
    if harms(number, &args) {
        return Answer::Value(-i64::from(libc::ENOMEM));
    }
    let (start, len) = (args[0], args[1]);
    let touches = |start, len| state::get().cache.lock().pages.touches(start, len);
    // Code goes before its memory does, so that nobody is led into it in between.
    let removes = matches!(
        number,
        libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_mremap
    ) || fixed(number, &args)
        || number == libc::SYS_madvise && args[2] == libc::MADV_DONTNEED as u64;
    if removes && len != 0 && touches(start, round(len)) {
        state::get().invalidate(start, round(len));
    }
    let result = direct(number, args);
    let changes = match number {
        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
            removes || args[2] & libc::PROT_EXEC as u64 != 0
        }
        libc::SYS_madvise => false,
        _ => true,
    };
    if changes && !sys::failed(result) {
        state::get().cache.lock().pages.forget();
    }
    Answer::Value(result)
}

fn round(len: u64) -> u64 {
    len.saturating_add(PAGE - 1) & !(PAGE - 1)
}

fn fixed(number: i64, args: &[u64; 6]) -> bool {
    number == libc::SYS_mmap && args[3] & libc::MAP_FIXED as u64 != 0
}

/// Whether a call would change the engine's memory.
fn harms(number: i64, args: &[u64; 6]) -> bool {
    let engine = |start, len| places::is_engine(start, round(len));
    match number {
        libc::SYS_mmap => {
            let exact = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
            args[3] & exact as u64 != 0 && engine(args[0], args[1])
        }
        libc::SYS_mremap => {
            let fixed = args[3] & libc::MREMAP_FIXED as u64 != 0;
            engine(args[0], args[1]) || fixed && engine(args[4], args[2])
        }
        libc::SYS_shmat => args[1] != 0 && engine(args[1], PAGE),
        _ => engine(args[0], args[1]),
    }
}
