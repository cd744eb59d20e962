//! Filters of system calls that the program installs, and limits on its address space.
//!
//! A filter of the program's must judge the program's calls and none of the engine's, which are others
//! than the program makes. Both come from the same thread, but the kernel tells the filter where a
//! call was made: the engine's own places are let through by a few instructions put before the
//! program's filter. The strict mode is kept by the engine itself.
//!
//! A limit on the size of the address space is raised by what the engine may need, and shown lowered by
//! the same.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Answer, args, direct, pass};
use crate::engine::ctx::Ctx;
use crate::engine::{glue, state, sys};
use crate::sieve::{COUNTERS_LEN, MOST_THREADS};
use crate::window;

const FAULT: i64 = -(libc::EFAULT as i64);
const SET_STRICT: u64 = 0;
const SET_FILTER: u64 = 1;
const MODE_STRICT: u64 = 1;
const MODE_FILTER: u64 = 2;
/// The longest filter that the kernel takes.
const MOST: u64 = 4096;
/// Bytes of one of its instructions.
const INSN: u64 = 8;

/// Whether the program has put itself into strict mode.
static STRICT: AtomicBool = AtomicBool::new(false);

/// What the engine may need of the address space: code regions twice, heap, stacks, tap.
const ROOM: u64 = 16 << 30;

/// Ends a thread that does what strict mode forbids, as the kernel would.
pub fn enforce(number: i64) {
    let allowed =
        [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn].contains(&number);
    if STRICT.load(Ordering::Relaxed) && !allowed {
        let pid = direct(libc::SYS_getpid, [0; 6]) as u64;
        direct(libc::SYS_kill, [pid, libc::SIGKILL as u64, 0, 0, 0, 0]);
    }
}

/// `prctl` and `seccomp`.
pub fn run(ctx: &mut Ctx, number: i64) -> Answer {
    let a = args(ctx);
    let (strict, filter) = if number == libc::SYS_seccomp {
        (a[0] == SET_STRICT && a[1] == 0 && a[2] == 0, a[0] == SET_FILTER)
    } else {
        let set = a[0] == libc::PR_SET_SECCOMP as u64;
        (set && a[1] == MODE_STRICT, set && a[1] == MODE_FILTER)
    };
    if strict {
        STRICT.store(true, Ordering::Relaxed);
        return Answer::Value(0);
    }
    if filter { install(ctx, number, a) } else { pass(ctx) }
}

fn install(ctx: &mut Ctx, number: i64, mut a: [u64; 6]) -> Answer {
    let Some([len, code]) = sys::read_value::<[u64; 2]>(a[2]) else {
        return Answer::Value(FAULT);
    };
    let len = len & 0xffff;
    let mut whole = prefix();
    if len == 0 || whole.len() as u64 + len > MOST {
        return pass(ctx);
    }
    let mut own = vec![0; (len * INSN) as usize];
    if !sys::copy_in(code, &mut own) {
        return Answer::Value(FAULT);
    }
    let words = own.chunks_exact(INSN as usize);
    whole.extend(words.map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default())));
    let program = [whole.len() as u64, whole.as_ptr() as u64];
    a[2] = program.as_ptr() as u64;
    Answer::Value(direct(number, a))
}

/// Instructions that let the engine's own calls through and go on to the filter behind them.
fn prefix() -> Vec<u64> {
    const LOAD: u64 = 0x20;
    const JUMP_NOT_LESS: u64 = 0x35;
    const JUMP_EQUAL: u64 = 0x15;
    const LOAD_NUMBER: u64 = 0;
    const RETURN: u64 = 0x06;
    const ALLOW: u64 = 0x7fff_0000;
    /// Offset of the call's address in what a filter sees.
    const WHERE: u64 = 8;
    let insn = |code: u64, yes: u64, no: u64, k: u64| code | yes << 16 | no << 24 | k << 32;
    // The kernel tells the address behind the instruction.
    let low = |label| (glue::address(label) + 2) & 0xffff_ffff;
    vec![
        insn(LOAD, 0, 0, WHERE + 4),
        insn(JUMP_NOT_LESS, 0, 6, window::START >> 32),
        insn(JUMP_NOT_LESS, 5, 0, window::END >> 32),
        insn(LOAD, 0, 0, WHERE),
        insn(JUMP_EQUAL, 3, 0, low(glue::ichnos_syscall_insn)),
        insn(JUMP_EQUAL, 2, 0, low(glue::ichnos_clone_insn)),
        insn(JUMP_EQUAL, 1, 0, low(glue::ichnos_judged_insn)),
        insn(RETURN, 0, 0, ALLOW),
        // The filter begins with an empty accumulator.
        insn(LOAD_NUMBER, 0, 0, 0),
    ]
}

/// The engine's own part of the address space, at most.
fn room() -> u64 {
    // Counters are seen twice, behind the tap and by their threads.
    ROOM + state::get().sieve.map_or(0, |_| 2 * u64::from(MOST_THREADS) * COUNTERS_LEN)
}

/// `getrlimit`, `setrlimit` and `prlimit64`.
pub fn limit(ctx: &mut Ctx, number: i64) -> Answer {
    let mut a = args(ctx);
    let (which, new, old) = match number {
        libc::SYS_prlimit64 => (a[1], a[2], a[3]),
        libc::SYS_setrlimit => (a[0], a[1], 0),
        _ => (a[0], 0, a[1]),
    };
    if which != u64::from(libc::RLIMIT_AS) && which != u64::from(libc::RLIMIT_DATA) {
        return pass(ctx);
    }
    let raised;
    if new != 0 {
        let Some(wanted) = sys::read_value::<[u64; 2]>(new) else { return Answer::Value(FAULT) };
        if wanted[0] > wanted[1] {
            return Answer::Value(-i64::from(libc::EINVAL));
        }
        // The largest number means no limit, and stays.
        raised = wanted.map(|limit| limit.saturating_add(room()));
        a[if number == libc::SYS_prlimit64 { 2 } else { 1 }] = raised.as_ptr() as u64;
    }
    let result = direct(number, a);
    if result == 0 && old != 0 {
        let lowered =
            |limit: u64| if limit == u64::MAX { limit } else { limit.saturating_sub(room()) };
        if let Some(seen) = sys::read_value::<[u64; 2]>(old) {
            sys::write_value(old, &seen.map(lowered));
        }
    }
    Answer::Value(result)
}
