//! `execve` and `execveat`: the host is asked to follow into the new program.
//!
//! The host takes hold of the calling thread and puts a new engine into the new program. If it
//! cannot (or nobody answers) the new program runs untraced; if the call fails, a stop tells the host
//! to let go, and the old program goes on.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_tap::{ExecSlot, ExecState};

use super::{Answer, args, direct, pass};
use crate::engine::ctx::Ctx;
use crate::engine::signals::{native_mask, set_native_mask};
use crate::engine::{tap, trace};

/// How often, and how long each time, to wait for the host's answer.
const TRIES: u32 = 50;
const WAIT_NANOSECONDS: u64 = 100_000_000;

/// Replaces the program.
pub fn run(ctx: &mut Ctx, number: i64) -> Answer {
    // SAFETY: the thread's data lives as long as its context.
    let (mask, process) = unsafe { ((*ctx.thread).mask, (*ctx.thread).process) };
    let slot = if may_work(number, &args(ctx)) { ask(process, ctx.id) } else { None };
    // What was recorded so far must be out: there is no later.
    trace::close(ctx);
    // The new program inherits the whole mask, without what the engine keeps open.
    set_mask(mask);
    let answer = pass(ctx);
    // Still here: it has failed, or must be made again after a signal.
    if let Some(slot) = slot {
        set_mask(native_mask(u64::MAX));
        let pid = direct(libc::SYS_getpid, [0; 6]) as u64;
        let tid = direct(libc::SYS_gettid, [0; 6]) as u64;
        direct(libc::SYS_tgkill, [pid, tid, libc::SIGSTOP as u64, 0, 0, 0]);
        wait_while(slot, ExecState::GRANTED);
    }
    set_native_mask(mask);
    trace::open(ctx);
    answer
}

fn set_mask(mask: u64) {
    let args = [libc::SIG_SETMASK as u64, &raw const mask as u64, 0, 8, 0, 0];
    direct(libc::SYS_rt_sigprocmask, args);
}

/// Whether the call has a chance: shells try many paths, and most are not there.
fn may_work(number: i64, a: &[u64; 6]) -> bool {
    const X_OK: u64 = 1;
    if number != libc::SYS_execve {
        return true;
    }
    direct(libc::SYS_faccessat, [libc::AT_FDCWD as u64, a[0], X_OK, 0, 0, 0]) == 0
}

/// Asks the host to follow; `None` if it does not.
fn ask(process: u32, traced: u32) -> Option<&'static ExecSlot> {
    let header = tap::header();
    let tid = direct(libc::SYS_gettid, [0; 6]) as u32;
    // The host must be allowed to take hold of us, also where only ancestors may.
    direct(libc::SYS_prctl, [libc::PR_SET_PTRACER as u64, u64::from(header.collector), 0, 0, 0, 0]);
    let slot = header.post_exec(tid, process, traced)?;
    tap::wake(&header.requests);
    for state in [ExecState::POSTED, ExecState::SEEN] {
        wait_while(slot, state);
    }
    match slot.state() {
        ExecState::GRANTED => Some(slot),
        _ => {
            slot.set(ExecState::FREE);
            None
        }
    }
}

fn wait_while(slot: &ExecSlot, state: ExecState) {
    for _ in 0..TRIES {
        if slot.state() != state {
            return;
        }
        tap::wait(&slot.state, state.0, WAIT_NANOSECONDS);
    }
}
