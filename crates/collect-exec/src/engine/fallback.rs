//! What happens where the engine cannot go on: a message and the end, or, if the user asked for that, the program goes on
//! without it.
//!
//! A process leaves the engine as a whole, because the kernel knows one set of signal handlers only: the thread that gives up
//! calls all others out of the cache and out of their system calls (by a signal that the program does not see); when all
//! have come, the kernel gets the program's own handlers, and each thread goes on where it stands. What was recorded is
//! kept, and the trace says that the rest is missing. A call of another thread that no signal may interrupt unseen ends with
//! `EINTR`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicU32, Ordering};

use super::ctx::Ctx;
use super::signals::set_native_mask;
use super::{native, state, sys, tap, trace};
use crate::words;

/// Nobody leaves.
const STAY: u32 = 0;
/// All are called.
const CALLED: u32 = 1;
/// All have come, and may leave.
const GO: u32 = 2;

static STEP: AtomicU32 = AtomicU32::new(STAY);
static ARRIVED: AtomicU32 = AtomicU32::new(0);
/// How often others are called, a thousandth of a second apart.
const TRIES: u32 = 5000;
const PAUSE: u64 = 1_000_000;

/// Whether the process is about to leave the engine.
pub fn is_called() -> bool {
    STEP.load(Ordering::Acquire) != STAY
}

/// The engine cannot go on with the program at the context's place.
pub fn give_up(ctx: &mut Ctx, why: &str) -> ! {
    let state = state::get();
    if !state.fallback {
        sys::die(why);
    }
    if STEP.compare_exchange(STAY, CALLED, Ordering::AcqRel, Ordering::Acquire).is_err() {
        follow(ctx);
    }
    sys::say("ichnos: ");
    sys::say(why);
    sys::say("; the program goes on untraced\n");
    set_native_mask(u64::MAX);
    end_stream(ctx);
    if !call_others(ctx) {
        sys::die("other threads do not come out of the engine");
    }
    state.open(0, u64::MAX);
    // SAFETY: the thread's data lives as long as its context.
    unsafe { &*ctx.thread }.actions.lock().hand_over();
    STEP.store(GO, Ordering::Release);
    tap::wake(&STEP);
    depart(ctx)
}

/// Another thread of the process has given up: waits until all are here, and leaves.
pub fn follow(ctx: &mut Ctx) -> ! {
    set_native_mask(u64::MAX);
    end_stream(ctx);
    ARRIVED.fetch_add(1, Ordering::AcqRel);
    while STEP.load(Ordering::Acquire) == CALLED {
        tap::wait(&STEP, CALLED, 100 * PAUSE);
    }
    depart(ctx)
}

fn end_stream(ctx: &mut Ctx) {
    trace::event(ctx, words::LEFT, ctx.rip);
    trace::event(ctx, words::UNTRACED, 0);
    trace::close(ctx);
}

/// Calls the other threads of the process until all have come; false if some do not.
fn call_others(ctx: &Ctx) -> bool {
    let (pid, _) = sys::own_numbers();
    for _ in 0..TRIES {
        let threads = state::get().threads.lock().clone();
        let of = |&at: &u64| {
            // SAFETY: registered contexts stay mapped, and their threads' data with them.
            let thread = unsafe { &*(*(at as *const Ctx)).thread };
            (thread.os.0 == pid && at != ctx.this).then_some(thread.os.1)
        };
        let others: Vec<u32> = threads.iter().filter_map(of).collect();
        if ARRIVED.load(Ordering::Acquire) as usize >= others.len() {
            return true;
        }
        for tid in others {
            let args = [u64::from(pid), u64::from(tid), libc::SIGTRAP as u64, 0, 0, 0];
            // SAFETY: the handler is ours, and knows why it is called.
            unsafe { sys::call(libc::SYS_tgkill, args) };
        }
        sys::nap(PAUSE);
    }
    false
}

/// Signals that the engine holds go back to the kernel; then the thread leaves.
fn depart(ctx: &mut Ctx) -> ! {
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    let (pid, tid) = sys::own_numbers();
    // Nothing may be delivered before the thread is out.
    let all = u64::MAX;
    let args = [libc::SIG_SETMASK as u64, &raw const all as u64, 0, 8, 0, 0];
    // SAFETY: the set is live.
    unsafe { sys::call(libc::SYS_rt_sigprocmask, args) };
    while let Some(pending) = thread.queue.take(|_| true) {
        // What an instruction caused it will cause again.
        if pending.fault {
            continue;
        }
        let info = pending.info.as_ptr() as u64;
        let args = [u64::from(pid), u64::from(tid), pending.number as u64, info, 0, 0];
        // SAFETY: the information is live. What only the kernel may say is said by a plain signal.
        unsafe {
            if sys::failed(sys::call(libc::SYS_rt_tgsigqueueinfo, args)) {
                sys::call(libc::SYS_tgkill, args);
            }
        }
    }
    native::leave(ctx)
}
