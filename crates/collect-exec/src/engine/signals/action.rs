//! What the program wants done with each signal, and what the kernel is told.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::engine::ctx::Ctx;
use crate::engine::{glue, sys};

/// A `sigaction` as the kernel has it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Action {
    /// `SIG_DFL`, `SIG_IGN` or an address.
    pub handler: u64,
    /// `SA_*`.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// What is blocked while it runs.
    pub mask: u64,
}

// SAFETY: four integers.
unsafe impl sys::Plain for Action {
    const ZERO: Self = Self { handler: 0, flags: 0, restorer: 0, mask: 0 };
}

/// One [`Action`] per signal.
#[derive(Clone, Copy)]
pub struct Actions([Action; 65]);

const SA_RESTORER: u64 = 0x0400_0000;
const SA_SIGINFO: u64 = libc::SA_SIGINFO as u64;
const SA_ONSTACK: u64 = libc::SA_ONSTACK as u64;
const SA_RESTART: u64 = libc::SA_RESTART as u64;
const SA_KEEP: u64 = (libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT) as u64;
/// `SIG_IGN`, which is also the largest value that is no address.
const SIG_IGN: u64 = 1;

/// Signals that the engine must see whatever the program wants: faults in translated code,
/// and the steps to a fragment's end.
pub const NATIVE_ALWAYS: [i32; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGTRAP];

/// A set with one signal.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The kernel's mask for a mask of the program's: the engine's own signals stay open.
pub const fn native_mask(mask: u64) -> u64 {
    mask & !(bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGTRAP))
}

/// Sets the calling thread's mask in the kernel.
pub fn set_native_mask(mask: u64) {
    let set = native_mask(mask);
    let args = [libc::SIG_SETMASK as u64, &raw const set as u64, 0, 8, 0, 0];
    // SAFETY: the set is live.
    unsafe { sys::call(libc::SYS_rt_sigprocmask, args) };
}

impl Actions {
    /// What a fresh program has inherited: all default, or ignored.
    pub fn inherited() -> Self {
        let mut actions = Self([Action::default(); 65]);
        for signal in 1..65 {
            let mut old = Action::default();
            let args = [signal as u64, 0, &raw mut old as u64, 8, 0, 0];
            // SAFETY: `old` is as large as the kernel writes.
            unsafe { sys::call(libc::SYS_rt_sigaction, args) };
            actions.0[signal] = old;
        }
        actions
    }

    /// The action for a signal from 1 to 64.
    pub fn get(&self, signal: i32) -> Action {
        self.0.get(signal as usize).copied().unwrap_or_default()
    }

    /// Sets it, and tells the kernel; gives the kernel's answer.
    pub fn set(&mut self, signal: i32, action: Action) -> i64 {
        let result = tell_kernel(signal, &action);
        if !sys::failed(result) {
            self.0[signal as usize] = action;
        }
        result
    }

    /// Tells the kernel all that the program wants, itself.
    pub fn hand_over(&self) {
        for signal in 1..65 {
            let args = [signal as u64, &raw const self.0[signal] as u64, 0, 8, 0, 0];
            // SAFETY: the structure is live; it is the program's own handler.
            unsafe { sys::call(libc::SYS_rt_sigaction, args) };
        }
    }

    /// Notes that the kernel has set the default itself.
    pub fn forget(&mut self, signal: i32) {
        self.0[signal as usize] = Action::default();
        if NATIVE_ALWAYS.contains(&signal) {
            tell_kernel(signal, &Action::default());
        }
    }

    /// Back to the default (`SA_RESETHAND`).
    pub fn reset(&mut self, signal: i32) {
        self.set(signal, Action::default());
    }
}

/// What the kernel is to do for an action of the program's.
fn tell_kernel(signal: i32, action: &Action) -> i64 {
    let ours = action.handler > SIG_IGN || NATIVE_ALWAYS.contains(&signal);
    let native = if ours {
        Action {
            handler: glue::address(glue::ichnos_signal),
            flags: action.flags & (SA_RESTART | SA_KEEP) | SA_RESTORER | SA_SIGINFO | SA_ONSTACK,
            restorer: glue::address(glue::ichnos_restorer),
            mask: native_mask(u64::MAX),
        }
    } else {
        Action { flags: action.flags & SA_KEEP, ..*action }
    };
    let args = [signal as u64, &raw const native as u64, 0, 8, 0, 0];
    // SAFETY: the structure is live; the handler is ours.
    unsafe { sys::call(libc::SYS_rt_sigaction, args) }
}

/// Lets a signal do what the kernel does by default, to the calling thread, now.
pub fn default_now(signal: i32) {
    let native = Action::default();
    let args = [signal as u64, &raw const native as u64, 0, 8, 0, 0];
    // SAFETY: these calls pass a live structure or none; the signal's default action is wanted.
    unsafe {
        sys::call(libc::SYS_rt_sigaction, args);
        let pid = sys::call(libc::SYS_getpid, [0; 6]) as u64;
        let tid = sys::call(libc::SYS_gettid, [0; 6]) as u64;
        sys::call(libc::SYS_tgkill, [pid, tid, signal as u64, 0, 0, 0]);
        let open = !bit(signal);
        let set = [libc::SIG_SETMASK as u64, &raw const open as u64, 0, 8, 0, 0];
        sys::call(libc::SYS_rt_sigprocmask, set);
    }
}

/// Sets up signals in a fresh engine.
pub fn start(ctx: &mut Ctx) {
    let mut mask = 0u64;
    let args = [libc::SIG_BLOCK as u64, 0, &raw mut mask as u64, 8, 0, 0];
    // SAFETY: `mask` is as large as the kernel writes.
    unsafe { sys::call(libc::SYS_rt_sigprocmask, args) };
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    thread.mask = mask;
    let actions = thread.actions.lock();
    for signal in NATIVE_ALWAYS {
        tell_kernel(signal, &actions.get(signal));
    }
    drop(actions);
    set_native_mask(mask);
}
