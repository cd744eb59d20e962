//! Gives waiting signals to the program.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::action::{bit, default_now, set_native_mask};
use super::queue::Pending;
use super::{AltStack, NATIVE_ALWAYS, frame};
use crate::engine::ctx::Ctx;
use crate::engine::{sys, trace};
use crate::words;

const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SA_NODEFER: u64 = libc::SA_NODEFER as u64;
const SA_RESETHAND: u64 = libc::SA_RESETHAND as u64;
const SS_AUTODISARM: u64 = 1 << 31;

/// Delivers what waits; the context then stands at the program's handler, if there is one.
pub fn deliver(ctx: &mut Ctx) {
    loop {
        // SAFETY: the thread's data lives as long as its context.
        let thread = unsafe { &mut *ctx.thread };
        ctx.pending = 0;
        let mask = thread.mask;
        // The kernel handed a signal over because it was not blocked (or is waited for with
        // another mask); only those that the engine keeps open must be looked at here.
        let open = |p: &Pending| !NATIVE_ALWAYS.contains(&p.number) || mask & bit(p.number) == 0;
        let Some(pending) = thread.queue.take(open) else {
            set_native_mask(mask);
            return;
        };
        one(ctx, &pending);
        // SAFETY: as above.
        if unsafe { &*ctx.thread }.queue.is_empty() {
            return;
        }
    }
}

fn one(ctx: &mut Ctx, pending: &Pending) {
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    let number = pending.number;
    let action = thread.actions.lock().get(number);
    // A fault that is blocked or ignored kills, as the kernel has it.
    let blocked = thread.mask & bit(number) != 0;
    let forced = pending.fault && (blocked || action.handler == SIG_IGN);
    if forced || action.handler == SIG_DFL {
        trace::event(ctx, words::LEFT, ctx.rip);
        trace::event(ctx, words::DEFAULT, number as u64);
        default_now(number);
        // It may have been a stop, or nothing by default.
        let mut actions = thread.actions.lock();
        let again = actions.get(number);
        actions.set(number, again);
        drop(actions);
        set_native_mask(thread.mask);
        return;
    }
    if action.handler == SIG_IGN {
        set_native_mask(thread.mask);
        return;
    }
    let (old_mask, alt) = (thread.mask, thread.alt);
    let interrupted = ctx.rip;
    if action.flags & SA_RESETHAND != 0 {
        thread.actions.lock().reset(number);
    }
    if alt.flags & SS_AUTODISARM != 0 {
        thread.alt = AltStack::NONE;
    }
    let itself = if action.flags & SA_NODEFER == 0 { bit(number) } else { 0 };
    let never = bit(libc::SIGKILL) | bit(libc::SIGSTOP);
    thread.mask = (old_mask | action.mask | itself) & !never;
    set_native_mask(thread.mask);
    trace::event(ctx, words::LEFT, interrupted);
    // Without a place for the frame the handler is never entered.
    if !frame::push(ctx, &action, pending, old_mask, &alt) {
        trace::event(ctx, words::DEFAULT, libc::SIGSEGV as u64);
        default_now(libc::SIGSEGV);
        sys::die("a signal's frame could not be written");
    }
    let code = pending.info[1] & 0xffff_ffff;
    let numbers = number as u64 | code << 32;
    trace::numbers(ctx, words::SIGNAL, &[numbers, interrupted, action.handler]);
}

/// Makes the program see a fault of its own that the engine found before the processor did.
pub fn raise_fault(ctx: &mut Ctx, signal: i32, address: u64) {
    const ILL_ILLOPN: u64 = 2;
    const SI_KERNEL: u64 = 0x80;
    const GENERAL_PROTECTION: u64 = 13;
    let (code, trap) = match signal {
        libc::SIGSEGV if !is_canonical(address) => (SI_KERNEL, [0, GENERAL_PROTECTION, 0]),
        libc::SIGSEGV => not_executable(address),
        _ => (ILL_ILLOPN, [0, 6, 0]),
    };
    let mut info = [0; 16];
    info[0] = signal as u64;
    info[1] = code;
    info[2] = if code == SI_KERNEL { 0 } else { address };
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    if !thread.queue.push(Pending { number: signal, fault: true, info, trap }) {
        sys::die("too many signals wait");
    }
    ctx.pending = 1;
}

/// Whether an address is one that the processor can have.
pub fn is_canonical(address: u64) -> bool {
    const UPPER: u32 = 16;
    (address as i64) << UPPER >> UPPER == address as i64
}

/// What the kernel would say of an attempt to execute at an address: the signal's code, and the trap.
fn not_executable(address: u64) -> (u64, [u64; 3]) {
    const SEGV_MAPERR: u64 = 1;
    const SEGV_ACCERR: u64 = 2;
    const USER_FETCH: u64 = 0x14;
    const PRESENT: u64 = 1;
    let mut told = 0u64;
    let page = address & !0xfff;
    // SAFETY: the kernel writes one byte for one page.
    let there = unsafe { sys::call(libc::SYS_mincore, [page, 1, &raw mut told as u64, 0, 0, 0]) };
    let code = if sys::failed(there) { SEGV_MAPERR } else { SEGV_ACCERR };
    let present = if sys::copy_in(address, &mut [0]) { PRESENT } else { 0 };
    (code, [USER_FETCH | present, 14, address])
}
