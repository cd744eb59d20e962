//! What happens where the engine cannot go on: a message and the end, or, if the user asked for that, the program goes on
//! without it.
//!
//! A process leaves the engine as a whole, because the kernel knows one set of signal handlers only: the thread that gives up
//! calls all others out of the cache and out of their system calls (by a signal that the program does not see); when all
//! have come, the kernel gets the program's own handlers, and each thread goes on where it stands. What was recorded is
//! kept, and the trace says that the rest is missing. A call of another thread that no signal may interrupt unseen ends with
//! `EINTR`.
//!
//! A thread is called again and again until it comes, so one that has come may have been called once more. From then on
//! it blocks such calls, and takes them off before it leaves: the program's handler must not get them, and the default
//! action would end the program.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicU32, Ordering};

use super::ctx::Ctx;
use super::signals::{bit, set_native_mask};
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
/// How often others are called, a thousandth of a second apart or more, while none comes. They may wait for the collector to
/// empty a buffer, which may have much to do.
const TRIES: u32 = 30_000;
const PAUSE: u64 = 1_000_000;
/// The signal by which others are called.
const CALL: i32 = libc::SIGTRAP;

/// A `siginfo_t`, word by word: number, code, sender, value.
type Info = [u64; 16];

/// Whether the process is about to leave the engine.
pub fn is_called() -> bool {
    STEP.load(Ordering::Acquire) != STAY
}

/// Whether a signal is a call of [`give_up`]'s, which nobody else can have sent: its value is an address of the engine's.
pub fn is_call(number: i32, info: &Info) -> bool {
    let [_, code, sender, value, ..] = *info;
    let (pid, _) = sys::own_numbers();
    number == CALL
        && code as i32 == libc::SI_QUEUE
        && sender as u32 == pid
        && value == STEP.as_ptr() as u64
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
    block_all();
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

/// Calls the other threads of the process until all have come; false if none of the rest comes.
fn call_others(ctx: &Ctx) -> bool {
    let (pid, _) = sys::own_numbers();
    let (mut come, mut left) = (0, TRIES);
    while left > 0 {
        let others = others(ctx);
        let arrived = ARRIVED.load(Ordering::Acquire);
        if arrived as usize >= others.len() {
            return true;
        }
        if arrived != come {
            (come, left) = (arrived, TRIES);
        }
        left -= 1;
        // One that has no number yet is on its way.
        for tid in others.into_iter().filter(|&tid| tid != 0) {
            call(pid, tid);
        }
        sys::nap(PAUSE);
    }
    false
}

/// The operating system's numbers of the process's other threads, zero for one that has not begun.
fn others(ctx: &Ctx) -> Vec<u32> {
    // SAFETY: the thread's data lives as long as its context.
    let own = unsafe { &*ctx.thread }.process;
    // Held so that none of them goes meanwhile.
    let threads = state::get().threads.lock();
    let of = |&at: &u64| {
        // SAFETY: registered contexts stay mapped, and their threads' data with them.
        let thread = unsafe { &*(*(at as *const Ctx)).thread };
        (thread.process == own && at != ctx.this).then_some(thread.os.1)
    };
    threads.iter().filter_map(of).collect()
}

fn call(pid: u32, tid: u32) {
    let mut info: Info = [0; 16];
    info[0] = CALL as u64;
    info[1] = u64::from(libc::SI_QUEUE as u32);
    info[2] = u64::from(pid);
    info[3] = STEP.as_ptr() as u64;
    let args = [u64::from(pid), u64::from(tid), CALL as u64, info.as_ptr() as u64, 0, 0];
    // SAFETY: the information is live; the handler is ours, and knows why it is called.
    unsafe { sys::call(libc::SYS_rt_tgsigqueueinfo, args) };
}

/// Nothing is delivered to the calling thread from here on.
fn block_all() {
    let all = u64::MAX;
    let args = [libc::SIG_SETMASK as u64, &raw const all as u64, 0, 8, 0, 0];
    // SAFETY: the set is live.
    unsafe { sys::call(libc::SYS_rt_sigprocmask, args) };
}

/// Signals that the engine holds go back to the kernel; then the thread leaves.
fn depart(ctx: &mut Ctx) -> ! {
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    let (pid, tid) = sys::own_numbers();
    let send = |number: i32, info: &Info| {
        let args = [u64::from(pid), u64::from(tid), number as u64, info.as_ptr() as u64, 0, 0];
        // SAFETY: the information is live. What only the kernel may say is said by a plain signal.
        unsafe {
            if sys::failed(sys::call(libc::SYS_rt_tgsigqueueinfo, args)) {
                sys::call(libc::SYS_tgkill, args);
            }
        }
    };
    block_all();
    // Nobody calls any more.
    if let Some(other) = take_off_call() {
        send(CALL, &other);
    }
    while let Some(pending) = thread.queue.take(|_| true) {
        // What an instruction caused it will cause again.
        if !pending.fault {
            send(pending.number, &pending.info);
        }
    }
    native::leave(ctx)
}

/// Takes off a call that still waits for the calling thread; gives back what is of the call's number and is none.
fn take_off_call() -> Option<Info> {
    let (set, mut info, at_once) = (bit(CALL), [0; 16], [0u64; 2]);
    let args = [&raw const set as u64, &raw mut info as u64, &raw const at_once as u64, 8, 0, 0];
    // SAFETY: all three are live, and the information is as large as the kernel writes.
    let got = unsafe { sys::call(libc::SYS_rt_sigtimedwait, args) };
    (got == i64::from(CALL) && !is_call(CALL, &info)).then_some(info)
}
