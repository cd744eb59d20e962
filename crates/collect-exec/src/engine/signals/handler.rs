//! The kernel's entry for all signals: queues them and brings the thread to a safe place.
//!
//! Runs on the thread's signal stack with everything blocked that can be. The interrupted
//! code may be translated code, the glue, or the engine; only in the first case may this
//! take the engine's lock, because then this thread does not hold it.
//!
//! In translated code the thread is single-stepped to the next fragment entry, where every
//! register of the program is in place: no linked code has to be changed, and a loop
//! without exits ends its round at its own entry.
// SPDX-License-Identifier: MIT OR Apache-2.0

use libc::{
    REG_CR2, REG_EFL, REG_ERR, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14,
    REG_R15, REG_RAX, REG_RBP, REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP,
    REG_TRAPNO, c_int, siginfo_t, ucontext_t,
};

use super::action::native_mask;
use super::queue::Pending;
use crate::engine::ctx::{Ctx, exit, reg};
use crate::engine::fragment::{Fragment, Part, Site, Spills};
use crate::engine::thread::{Stepping, Thread};
use crate::engine::{count, fallback, glue, native, places, state, sync, sys, tell, trace};

/// Trap flag.
const TF: i64 = 0x100;
/// Alignment-check flag.
const AC: i64 = 0x4_0000;
/// The flags that arithmetic sets.
const ARITHMETIC: u64 = 0x8d5;
/// Length of the `syscall` instruction.
const SYSCALL_LEN: u64 = 2;
/// The frame's registers in the context's order.
const ORDER: [c_int; 16] = [
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9,
    REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
];

/// What the kernel calls.
pub unsafe extern "C" fn on_signal(number: c_int, info: *mut siginfo_t, uc: *mut ucontext_t) {
    let this = native::context();
    // SAFETY: the interrupted code of this thread does not run meanwhile; what it was doing with
    // its context is respected by where the thread is sent.
    let (ctx, uc) = unsafe { (&mut *(this as *mut Ctx), &mut *uc) };
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    // SAFETY: the kernel passes a whole structure.
    let code = unsafe { (*info).si_code };
    if number == libc::SIGTRAP && code == libc::TRAP_TRACE && thread.stepping != Stepping::No {
        if thread.stepping == Stepping::InPlace {
            native::back(ctx, uc, false);
        } else {
            step(ctx, thread, uc);
        }
        return;
    }
    let mut pending = Pending {
        number,
        fault: false,
        // SAFETY: a siginfo is 128 bytes.
        info: unsafe { *info.cast() },
        trap: [greg(uc, REG_ERR), greg(uc, REG_TRAPNO), greg(uc, REG_CR2)],
    };
    // Positive codes come from the kernel; these signals then mean a fault.
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
    if code > 0 && faults.contains(&number) {
        pending.fault = true;
        fault(ctx, thread, uc, pending);
        return;
    }
    if fallback::is_call(number, &pending.info) {
        called(ctx, thread, uc);
        return;
    }
    if number == libc::SIGSYS && code > 0 {
        // A filter stopped the call at which the program stands.
        pending.info[2] = ctx.rip + SYSCALL_LEN;
    }
    if !thread.queue.push(pending) {
        sys::die("too many signals wait");
    }
    ctx.pending = 1;
    block_all(uc);
    divert(ctx, thread, uc);
}

/// Not for the program: another thread calls this one out of the engine.
fn called(ctx: &mut Ctx, thread: &mut Thread, uc: &mut ucontext_t) {
    let rip = greg(uc, REG_RIP);
    ctx.pending = 1;
    if thread.stepping != Stepping::InPlace {
        block_all(uc);
        divert(ctx, thread, uc);
    } else if rip != thread.stepped_from && !places::is_engine(rip, 1) {
        // The trap behind the instruction came while the call waited, and was taken for the same.
        block_all(uc);
        native::back(ctx, uc, false);
    }
}

/// Brings the interrupted thread to a place at which signals can be delivered.
fn divert(ctx: &mut Ctx, thread: &mut Thread, uc: &mut ucontext_t) {
    let rip = greg(uc, REG_RIP);
    let label = glue::address;
    if places::is_cache(rip) || in_miss(rip) {
        if matches!(thread.stepping, Stepping::No | Stepping::Unaligned) {
            thread.stepping = Stepping::ToEntry;
        }
        if !arrived(ctx, thread, uc) {
            thread.stepped_from = rip;
            set_greg(uc, REG_EFL, greg(uc, REG_EFL) as i64 | TF);
        }
    } else if (label(glue::ichnos_enter_checked)..label(glue::ichnos_enter_end)).contains(&rip) {
        set_greg(uc, REG_RIP, label(glue::ichnos_enter_back) as i64);
    } else if (label(glue::ichnos_syscall_check)..=label(glue::ichnos_syscall_insn)).contains(&rip)
    {
        set_greg(uc, REG_RIP, label(glue::ichnos_syscall_abort) as i64);
    }
}

/// Whether a thread is on its way from translated code to translated code.
fn in_miss(rip: u64) -> bool {
    let miss = glue::address(glue::ichnos_miss_jump_pad)..glue::address(glue::ichnos_glue_end);
    miss.contains(&rip) || tell::holds(rip)
}

/// One step further towards a fragment entry.
fn step(ctx: &mut Ctx, thread: &mut Thread, uc: &mut ucontext_t) {
    undo_visible_trap_flag(thread, uc);
    let rip = greg(uc, REG_RIP);
    if thread.unchecked && check_again(ctx, thread, uc) {
        return;
    }
    if arrived(ctx, thread, uc) || out_of_changed(ctx, thread, uc) {
        return;
    }
    let on = places::is_cache(rip) || in_miss(rip);
    let flags = greg(uc, REG_EFL) as i64;
    if on {
        thread.stepped_from = rip;
        set_greg(uc, REG_EFL, flags | TF);
    } else {
        // On its way to the dispatcher, which will look.
        thread.stepping = Stepping::No;
        set_greg(uc, REG_EFL, flags & !TF);
    }
}

/// Words of the trace are not aligned: the program's alignment checks are off until they are written.
fn uncheck(thread: &mut Thread, uc: &mut ucontext_t) {
    thread.unchecked = true;
    if thread.stepping == Stepping::No {
        thread.stepping = Stepping::Unaligned;
    }
    thread.stepped_from = greg(uc, REG_RIP);
    set_greg(uc, REG_EFL, greg(uc, REG_EFL) as i64 & !AC | TF);
}

/// Behind a save point the program's alignment checks are switched on again; whether there is nothing else to do.
fn check_again(ctx: &Ctx, thread: &mut Thread, uc: &mut ucontext_t) -> bool {
    let rip = greg(uc, REG_RIP);
    let site = state::get().cache.lock().holding(rip).and_then(|f| f.site(rip));
    if tell::holds(rip) || places::is_cache(rip) && site.is_some_and(|site| site.probe) {
        thread.stepped_from = rip;
        return true;
    }
    thread.unchecked = false;
    set_greg(uc, REG_EFL, greg(uc, REG_EFL) as i64 | AC);
    if thread.stepping != Stepping::Unaligned {
        return false;
    }
    thread.stepping = if ctx.pending == 0 { Stepping::No } else { Stepping::ToEntry };
    if ctx.pending == 0 {
        set_greg(uc, REG_EFL, greg(uc, REG_EFL) as i64 & !TF);
    }
    ctx.pending == 0
}

/// A `pushfq` under the trap flag has pushed it.
fn undo_visible_trap_flag(thread: &Thread, uc: &ucontext_t) {
    let from = thread.stepped_from;
    if !places::is_cache(from) {
        return;
    }
    // SAFETY: the cache is readable.
    if unsafe { *(from as *const u8) } == 0x9c {
        let sp = greg(uc, REG_RSP);
        if let Some(flags) = sys::read_value::<u64>(sp) {
            sys::write_value(sp, &(flags & !(TF as u64)));
        }
    }
}

/// If the thread stands at a fragment entry, takes it out of the cache there.
fn arrived(ctx: &mut Ctx, thread: &mut Thread, uc: &mut ucontext_t) -> bool {
    let rip = greg(uc, REG_RIP);
    if !places::is_cache(rip) {
        return false;
    }
    let cache = state::get().cache.lock();
    let at_entry = |f: &&Fragment| f.start == rip || f.inner == rip;
    let Some(site) = cache.holding(rip).filter(at_entry).and_then(|f| f.site(rip)) else {
        return false;
    };
    drop(cache);
    thread.stepping = Stepping::No;
    take_out(ctx, uc, site, exit::PENDING);
    true
}

/// If the thread has done the instruction that changed the code behind it, takes it out of the cache:
/// what follows there is no longer what the program has.
fn out_of_changed(ctx: &mut Ctx, thread: &mut Thread, uc: &mut ucontext_t) -> bool {
    let rip = greg(uc, REG_RIP);
    // A string instruction stays where it is until it is through.
    if thread.stepping != Stepping::OutOfChanged || rip == thread.stepped_from {
        return false;
    }
    let cache = state::get().cache.lock();
    let Some(fragment) = cache.holding(rip) else { return false };
    let Some(site) = fragment.site(rip) else { return false };
    let whole = fragment.base + u64::from(site.offset) == rip && site.spills == Spills::NONE;
    let again = site.pc == fragment.pc;
    let part = fragment.part(site);
    drop(cache);
    if !whole {
        return false;
    }
    thread.stepping = Stepping::No;
    ctx.undo_used = 0;
    // At its beginning again, the fragment has been recorded rightly to its end.
    take_out(ctx, uc, site, if again { exit::PENDING } else { exit::FAULT });
    take_back(ctx, site, part);
    true
}

/// Moves the interrupted state into the context and sends the thread to the dispatcher.
fn take_out(ctx: &mut Ctx, uc: &mut ucontext_t, site: Site, why: u64) {
    for (i, (to, from)) in ctx.regs.iter_mut().zip(ORDER).enumerate() {
        if site.lost >> i & 1 == 0 {
            *to = greg(uc, from);
        }
    }
    if let Some(pointer) = site.home.register() {
        ctx.buffer = greg(uc, ORDER[usize::from(pointer.0)]);
    }
    if site.spills.rax() {
        ctx.regs[reg::RAX] = ctx.spill_rax;
    }
    if site.spills.rcx() {
        ctx.regs[reg::RCX] = ctx.spill_rcx;
    }
    if let Some(far) = site.spills.far_register() {
        ctx.regs[far] = ctx.spill_far;
    }
    ctx.rflags = (greg(uc, REG_EFL) as i64 & !TF) as u64;
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    if std::mem::take(&mut thread.unchecked) {
        ctx.rflags |= AC as u64;
    }
    sync::has_run(&mut thread.begun);
    if site.flags {
        ctx.rflags = ctx.rflags & !ARITHMETIC | saved_flags(ctx.spill_flags);
    }
    ctx.undone = (site.block, u32::from(site.rest));
    ctx.rip = site.pc;
    ctx.exit = why;
    count::put_back(ctx, u64::from(site.rest));
    to_dispatcher(ctx, uc, glue::address(glue::ichnos_exit_saved));
}

/// Sends a thread, whose state is in the context, to the dispatcher by a way of the glue.
pub fn to_dispatcher(ctx: &Ctx, uc: &mut ucontext_t, way: u64) {
    set_greg(uc, REG_EFL, 0x202);
    set_greg(uc, REG_RSP, ctx.engine_sp as i64);
    set_greg(uc, REG_RIP, way as i64);
}

/// Keeps all general registers in the context.
pub fn keep_registers(ctx: &mut Ctx, uc: &ucontext_t) {
    for (to, from) in ctx.regs.iter_mut().zip(ORDER) {
        *to = greg(uc, from);
    }
}

/// Arithmetic flags as `lahf` and `seto` leave them in ax.
fn saved_flags(ax: u64) -> u64 {
    const OVERFLOW: u64 = 1 << 11;
    let overflow = if ax & 0xff != 0 { OVERFLOW } else { 0 };
    ax >> 8 & ARITHMETIC & !OVERFLOW | overflow
}

/// An instruction faulted.
fn fault(ctx: &mut Ctx, thread: &mut Thread, uc: &mut ucontext_t, mut pending: Pending) {
    let rip = greg(uc, REG_RIP);
    if thread.stepping == Stepping::InPlace {
        fault_in_place(ctx, thread, uc, pending);
        return;
    }
    if rip == glue::address(glue::ichnos_copy_insn) {
        set_greg(uc, REG_RIP, glue::address(glue::ichnos_copy_failed) as i64);
        return;
    }
    if tell::holds(rip) && trace::is_guard(pending.info[2]) {
        trace::overflow(ctx, 0, None);
        set_greg(uc, REG_RIP, tell::again(rip) as i64);
        return;
    }
    if tell::holds(rip) && pending.number == libc::SIGBUS && greg(uc, REG_EFL) as i64 & AC != 0 {
        uncheck(thread, uc);
        return;
    }
    if pending.number == libc::SIGSEGV
        && places::is_cache(rip)
        && code_changes(thread, uc, &pending)
    {
        return;
    }
    let found = if places::is_cache(rip) {
        let cache = state::get().cache.lock();
        let found = cache.holding(rip).and_then(|f| Some((f.site(rip)?, f)));
        found.map(|(site, f)| (site, f.part(site), f.base, (f.item(site), f.renew)))
    } else {
        None
    };
    let Some((site, part, base, (item, renew))) = found else { lost(rip, &pending) };
    if pending.number == libc::SIGFPE || pending.number == libc::SIGILL {
        pending.info[2] = site.pc;
    }
    if site.probe && trace::is_guard(pending.info[2]) {
        // The buffer is full: the save point begins again with the next one.
        let pointer = site.home.register().map(|reg| ORDER[usize::from(reg.0)]);
        if let Some(pointer) = pointer {
            ctx.buffer = greg(uc, pointer);
        }
        match renew {
            Some(_) => trace::renew(ctx, item),
            None => trace::overflow(ctx, u64::from(site.begun), item),
        }
        if let Some(pointer) = pointer {
            set_greg(uc, pointer, ctx.buffer as i64);
        }
        let again = base + u64::from(site.offset);
        set_greg(uc, REG_RIP, renew.unwrap_or(again) as i64);
        return;
    }
    let flags = greg(uc, REG_EFL) as i64;
    if site.probe && pending.number == libc::SIGBUS && flags & AC != 0 {
        uncheck(thread, uc);
        return;
    }
    thread.stepping = Stepping::No;
    if !thread.queue.push(pending) {
        sys::die("too many signals wait");
    }
    ctx.pending = 1;
    block_all(uc);
    ctx.undo_used = 1;
    take_out(ctx, uc, site, exit::FAULT);
    take_back(ctx, site, part);
}

/// What was begun to be stored at a site is not gone on with. If it is a path, nothing behind this part of it was run.
fn take_back(ctx: &mut Ctx, site: Site, part: Option<Part>) {
    trace::settle(ctx, u64::from(site.begun));
    let Some(Part { identifier, whole, behind }) = part else { return };
    if let Some(record) = trace::last(ctx, usize::from(whole)) {
        record[..size_of::<u32>()].copy_from_slice(&identifier.to_le_bytes());
        record[usize::from(whole - behind)..].fill(0);
        ctx.buffer -= u64::from(behind);
    }
}

/// An instruction faulted that runs in its own place. A store to translated code is made again.
fn fault_in_place(ctx: &mut Ctx, thread: &mut Thread, uc: &mut ucontext_t, pending: Pending) {
    if pending.number == libc::SIGSEGV && state::get().open(pending.info[2], 1) {
        return;
    }
    if !thread.queue.push(pending) {
        sys::die("too many signals wait");
    }
    ctx.pending = 1;
    block_all(uc);
    ctx.undo_used = 1;
    native::back(ctx, uc, true);
}

/// Whether a store hit code that has been translated: the translation goes, and the store is
/// made again.
fn code_changes(thread: &mut Thread, uc: &mut ucontext_t, pending: &Pending) -> bool {
    /// In the kernel's error code; whether the page is there does not matter, because a view that
    /// was never touched is not yet.
    const WRITE: u64 = 2;
    const MOST_TRIES: u32 = 8;
    let (rip, addr, state) = (greg(uc, REG_RIP), pending.info[2], state::get());
    if pending.trap[0] & WRITE == 0 {
        return false;
    }
    if state.open(addr, 1) {
        thread.retried = (0, 0, 0);
        if state.cache.lock().holding(rip).is_some_and(|f| !f.live) {
            thread.stepping = Stepping::OutOfChanged;
            thread.stepped_from = rip;
            set_greg(uc, REG_EFL, greg(uc, REG_EFL) as i64 | TF);
        }
        return true;
    }
    // Another thread may have opened the page since.
    if !state.cache.lock().pages.guards.opened_lately(addr >> 12) {
        return false;
    }
    let (last_rip, last_addr, tries) = thread.retried;
    let tries = if (last_rip, last_addr) == (rip, addr) { tries + 1 } else { 0 };
    thread.retried = (rip, addr, tries);
    tries < MOST_TRIES
}

/// A fault in the engine itself: nothing can be saved but a message.
fn lost(rip: u64, pending: &Pending) -> ! {
    sys::die(&format!(
        "the engine failed: signal {} at {:#x} (engine + {:#x}), address {:#x}",
        pending.number,
        rip,
        rip.wrapping_sub(crate::window::IMAGE),
        pending.info[2],
    ))
}

fn block_all(uc: &mut ucontext_t) {
    let mask = native_mask(u64::MAX);
    // SAFETY: the kernel's part of the set is its first eight bytes.
    unsafe { (&raw mut uc.uc_sigmask).cast::<u64>().write(mask) };
}

/// A register of the interrupted state.
pub fn greg(uc: &ucontext_t, which: c_int) -> u64 {
    uc.uc_mcontext.gregs[which as usize] as u64
}

fn set_greg(uc: &mut ucontext_t, which: c_int, value: i64) {
    uc.uc_mcontext.gregs[which as usize] = value;
}
