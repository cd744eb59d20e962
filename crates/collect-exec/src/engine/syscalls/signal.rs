//! Calls about signals, done on the engine's own books.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Answer, args, pass};
use crate::engine::ctx::{Ctx, reg};
use crate::engine::signals::{Action, AltStack, native_mask, set_native_mask, sigreturn};
use crate::engine::sys;
use crate::engine::thread::Thread;

const EFAULT: i64 = -(libc::EFAULT as i64);
const EINVAL: i64 = -(libc::EINVAL as i64);
/// SIGKILL and SIGSTOP.
const NEVER: u64 = 1 << 8 | 1 << 18;
const SS_AUTODISARM: u64 = 1 << 31;
const MINSIGSTKSZ: u64 = 2048;

/// Does one of them.
pub fn run(ctx: &mut Ctx, number: i64) -> Answer {
    let args = args(ctx);
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    match number {
        libc::SYS_rt_sigaction => Answer::Value(action(thread, &args)),
        libc::SYS_rt_sigprocmask => {
            let result = mask(thread, &args);
            if !thread.queue.is_empty() {
                ctx.pending = 1;
            }
            Answer::Value(result)
        }
        libc::SYS_sigaltstack => Answer::Value(altstack(thread, &args, ctx.regs[reg::RSP])),
        libc::SYS_rt_sigsuspend => suspend(ctx, &args),
        libc::SYS_rt_sigpending => waiting(ctx, &args),
        _ => {
            if sigreturn(ctx) {
                Answer::Elsewhere
            } else {
                Answer::Fault
            }
        }
    }
}

fn action(thread: &Thread, args: &[u64; 6]) -> i64 {
    let [signal, new, old, size, ..] = *args;
    if size != 8 || !(1..=64).contains(&signal) {
        return EINVAL;
    }
    let signal = signal as i32;
    let wanted = match new {
        0 => None,
        at => match sys::read_value::<Action>(at) {
            Some(action) => Some(action),
            None => return EFAULT,
        },
    };
    if wanted.is_some() && (signal == libc::SIGKILL || signal == libc::SIGSTOP) {
        return EINVAL;
    }
    let mut actions = thread.actions.lock();
    let before = actions.get(signal);
    if let Some(mut action) = wanted {
        action.mask &= !NEVER;
        let result = actions.set(signal, action);
        if sys::failed(result) {
            return result;
        }
    }
    drop(actions);
    if old != 0 && !sys::write_value(old, &before) {
        return EFAULT;
    }
    0
}

fn mask(thread: &mut Thread, args: &[u64; 6]) -> i64 {
    let [how, new, old, size, ..] = *args;
    if size != 8 {
        return EINVAL;
    }
    let before = thread.mask;
    if new != 0 {
        let Some(set) = sys::read_value::<u64>(new) else { return EFAULT };
        let set = set & !NEVER;
        thread.mask = match how as i32 {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return EINVAL,
        };
        set_native_mask(thread.mask);
    }
    if old != 0 && !sys::write_value(old, &before) {
        return EFAULT;
    }
    0
}

fn altstack(thread: &mut Thread, args: &[u64; 6], sp: u64) -> i64 {
    let [new, old, ..] = *args;
    let before = thread.alt;
    let on = before.holds(sp);
    let wanted = match new {
        0 => None,
        at => match sys::read_value::<[u64; 3]>(at) {
            Some(stack) => Some(stack),
            None => return EFAULT,
        },
    };
    if let Some([sp, flags, size]) = wanted {
        let flags = flags & 0xffff_ffff;
        let mode = flags & !SS_AUTODISARM;
        if on {
            return -i64::from(libc::EPERM);
        }
        if mode == libc::SS_DISABLE as u64 {
            thread.alt = AltStack::NONE;
        } else if mode != 0 && mode != libc::SS_ONSTACK as u64 {
            return EINVAL;
        } else if size < MINSIGSTKSZ {
            return -i64::from(libc::ENOMEM);
        } else {
            thread.alt = AltStack { sp, flags: flags & SS_AUTODISARM, size };
        }
    }
    let mode = if before.size == 0 {
        libc::SS_DISABLE
    } else if on {
        libc::SS_ONSTACK
    } else {
        0
    };
    let told = [before.sp, before.flags & SS_AUTODISARM | mode as u64, before.size];
    if old != 0 && !sys::write_value(old, &told) {
        return EFAULT;
    }
    0
}

/// Tells what waits: in the kernel, and what the kernel has handed over too early.
fn waiting(ctx: &mut Ctx, args: &[u64; 6]) -> Answer {
    let answer = pass(ctx);
    // SAFETY: the thread's data lives as long as its context.
    let ours = unsafe { &*ctx.thread }.queue.set();
    if let Answer::Value(0) = answer
        && ours != 0
        && args[1] == 8
        && let Some(set) = sys::read_value::<u64>(args[0])
    {
        sys::write_value(args[0], &(set | ours));
    }
    answer
}

/// Waits with another mask; the engine's own signals stay open in it.
fn suspend(ctx: &mut Ctx, args: &[u64; 6]) -> Answer {
    let Some(set) = sys::read_value::<u64>(args[0]) else { return Answer::Value(EFAULT) };
    let set = native_mask(set & !NEVER);
    let program = ctx.regs[reg::RDI];
    ctx.regs[reg::RDI] = &raw const set as u64;
    let answer = pass(ctx);
    ctx.regs[reg::RDI] = program;
    match answer {
        // The signal that ends the wait arrives inside: the call is over, not to be repeated.
        Answer::Again => Answer::Value(-i64::from(libc::EINTR)),
        value => value,
    }
}
