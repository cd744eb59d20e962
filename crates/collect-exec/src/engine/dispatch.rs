//! What happens each time the cache is left: finds out why, does it, finds the fragment to go
//! on with.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::Ordering;

use super::ctx::{Ctx, JUMP_TABLE, RET_TABLE, exit, reg};
use super::fragment::{Exit, ExitKind, Kind, PadKind};
use super::state::{self, State};
use super::translate::Failure;
use super::{
    count, fallback, flexible, gates, halfway, native, nowhere, sieved, signals, sync, sys,
    syscalls, trace,
};
use crate::words;

/// Called by the glue, on the engine's stack, with the program's state in the context.
pub unsafe extern "C" fn dispatch(ctx: *mut Ctx) {
    // SAFETY: the glue passes the calling thread's own context, which no other thread uses.
    let ctx = unsafe { &mut *ctx };
    let state = state::get();
    state.exits.fetch_add(1, Ordering::Relaxed);
    let way = reason(ctx, state);
    if way == Way::Resume {
        return;
    }
    // SAFETY: the thread's data lives as long as its context.
    sync::has_run(unsafe { &mut (*ctx.thread).begun });
    ctx.outside.store(1, Ordering::Release);
    let mut same_stack = way != Way::Plain;
    loop {
        if ctx.pending != 0 {
            if fallback::is_called() {
                fallback::follow(ctx);
            }
            signals::deliver(ctx);
            same_stack = false;
        }
        if go_on(ctx, state, way) {
            break;
        }
    }
    if !same_stack {
        trace::event(ctx, words::STACK, ctx.regs[reg::RSP]);
    }
}

/// How the next fragment was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By its address alone.
    Plain,
    /// The context already says where to go on.
    Resume,
    /// Through an exit that can be linked.
    Exit(u64, u64),
    /// By an indirect jump, call or return to this address.
    Indirect(PadKind, u64),
}

fn reason(ctx: &mut Ctx, state: &State) -> Way {
    match ctx.exit {
        exit::JUMP_MISS => {
            ctx.rip = ctx.wanted;
            Way::Indirect(PadKind::Jump, ctx.rip)
        }
        exit::RET_MISS => {
            ctx.rip = ctx.wanted;
            Way::Indirect(PadKind::Ret, ctx.rip)
        }
        why @ (exit::PENDING | exit::FAULT) => {
            if why == exit::PENDING {
                sync::put_off(ctx);
            }
            // What was recorded of the present block and did not run is taken back.
            if state.sieve.is_some() {
                taken_back(ctx, why);
            } else if why == exit::FAULT && ctx.undo_used != 0 && halfway::tell(ctx) {
                trace::event(ctx, words::LEFT, ctx.rip);
            } else if why == exit::FAULT || ctx.resumed != 0 {
                trace::event(ctx, words::CUT, ctx.rip);
            }
            if why == exit::PENDING && ctx.resumed == ctx.rip {
                count::put_back(ctx, 1);
            }
            ctx.resumed = 0;
            Way::Plain
        }
        exit::IN_PLACE => {
            tell_place(ctx);
            tell_bases(ctx);
            Way::Plain
        }
        number => {
            let exit = state.cache.lock().exit(number);
            let Some(exit) = exit else { sys::die("an exit that does not exist was taken") };
            left_by(ctx, exit, number)
        }
    }
}

/// Behind a sieve, what was counted of the present piece and did not run is taken back.
fn taken_back(ctx: &mut Ctx, why: u64) {
    if why == exit::FAULT && ctx.undone.1 == 1 && sieved::is_halfway(ctx) {
        sieved::forget(ctx);
    } else if why == exit::FAULT && ctx.undone.1 != 0 {
        sieved::undone(ctx, ctx.undone, ctx.undo_used != 0);
    } else if ctx.resumed == ctx.rip && ctx.resumed != 0 {
        // It will be counted again.
        sieved::undone(ctx, (ctx.resumed_block, 1), false);
    }
}

fn left_by(ctx: &mut Ctx, exit: Exit, number: u64) -> Way {
    ctx.rip = exit.target;
    ctx.resumed = 0;
    match exit.kind {
        ExitKind::Direct => return Way::Exit(number, exit.target),
        // A signal that already waits comes before the call.
        ExitKind::Syscall | ExitKind::OldSyscall | ExitKind::InPlace if ctx.pending != 0 => {
            if state::get().sieve.is_some() {
                sieved::undone(ctx, (exit.block, 1), false);
            } else {
                trace::event(ctx, words::CUT, ctx.rip);
                count::put_back(ctx, 1);
            }
        }
        ExitKind::Syscall | ExitKind::OldSyscall => {
            if state::get().sieve.is_some() && syscalls::may_be_last(ctx) {
                sieved::flush(ctx);
            }
            ctx.outside.store(1, Ordering::Release);
            if exit.kind == ExitKind::Syscall {
                syscalls::run(ctx);
            } else {
                syscalls::run_old(ctx);
            }
            count::look(ctx);
        }
        ExitKind::InPlace if native::aborts(ctx) => tell_place(ctx),
        ExitKind::InPlace => {
            ctx.outside.store(1, Ordering::Release);
            ctx.undone = (exit.block, 1);
            native::run(ctx);
        }
        ExitKind::Flexible if ctx.pending != 0 => count::put_back(ctx, 1),
        ExitKind::Mark if ctx.pending != 0 => {}
        ExitKind::Count => count::expired(ctx),
        ExitKind::Flexible => {
            tell_accesses(ctx, &exit);
            ctx.target = exit.stub;
            (ctx.resumed, ctx.resumed_block) = (exit.target, exit.block);
            return Way::Resume;
        }
        ExitKind::Mark => {
            if gates::is_gate(exit.target) && gates::at(ctx, exit.target) {
                return Way::Plain;
            }
            if ctx.recorded != 0 && sync::is_mark(exit.target) {
                sync::at(ctx, exit.target);
            }
            ctx.target = exit.stub;
            return Way::Resume;
        }
        ExitKind::Base => tell_bases(ctx),
        ExitKind::Unsupported => {
            let why = format!("cannot run the instruction at {:#x}", exit.target);
            fallback::give_up(ctx, &why);
        }
    }
    Way::Plain
}

/// Tells where the thread is behind an instruction that may have been a jump.
fn tell_place(ctx: &mut Ctx) {
    if state::get().sieve.is_none() {
        trace::event(ctx, words::LEFT, ctx.rip);
    }
}

fn tell_bases(ctx: &mut Ctx) {
    trace::event(ctx, words::FS_BASE, ctx.fs);
    trace::event(ctx, words::GS_BASE, ctx.gs);
}

/// Records a block that is one flexible instruction.
fn tell_accesses(ctx: &mut Ctx, exit: &Exit) {
    // SAFETY: set once to a box that lives as long as the thread, which alone uses it.
    let decoded = unsafe { &mut (*ctx.thread).decoded };
    match decoded.inst_at(exit.target) {
        Ok(inst) if state::get().sieve.is_some() => {
            let runs = flexible::runs(ctx, &inst);
            sieved::note(ctx, &inst, &runs);
        }
        Ok(inst) => flexible::record(ctx, &inst, exit.block),
        Err(error) => sys::die(&error.to_string()),
    }
}

/// Finds the fragment for the context's address; false if a signal must be delivered instead.
fn go_on(ctx: &mut Ctx, state: &State, way: Way) -> bool {
    let pc = ctx.rip;
    let mut cache = state.cache.lock();
    let wants = match way {
        Way::Indirect(PadKind::Jump, target) if target == pc => Some(PadKind::Jump),
        _ => None,
    };
    let kind = if ctx.recorded == 0 { Kind::Plain } else { Kind::Recorded };
    let id = loop {
        let signal = match cache.find(pc, wants, kind) {
            Ok(id) => break id,
            Err(Failure::Full) => {
                cache = state.refill(cache);
                continue;
            }
            Err(Failure::NotExecutable) => libc::SIGSEGV,
            Err(Failure::Invalid) => libc::SIGILL,
        };
        drop(cache);
        signals::raise_fault(ctx, signal, pc);
        if let (false, Way::Indirect(PadKind::Jump, _)) = (signals::is_canonical(pc), way) {
            nowhere::take_back_call(ctx, pc);
        }
        return false;
    };
    // What was linked or looked up in an earlier filling of the cache is gone, and what was in
    // fragments of the other kind leads to those.
    let filling = cache.filling() * Kind::COUNT as u64 + kind as u64;
    let same = ctx.filling == filling;
    if !same {
        ctx.forget_targets();
        ctx.filling = filling;
    }
    match way {
        Way::Exit(number, target) if target == pc && same => cache.link(number, id),
        Way::Indirect(pad, target) if target == pc => {
            let (table, pad) = match pad {
                PadKind::Jump => (JUMP_TABLE, cache.jump_pad(id)),
                PadKind::Ret => {
                    let known = cache.book(kind).rets.get(pc);
                    (RET_TABLE, known.or_else(|| cache.ret_pad(id)))
                }
            };
            if let Some(pad) = pad {
                // SAFETY: the context stands at the head of its thread's block.
                unsafe { *ctx.table_slot(table, pc) = pad };
            }
        }
        _ => {}
    }
    ctx.jump_index = cache.book(kind).jumps.address();
    ctx.ret_index = cache.book(kind).rets.address();
    ctx.target = cache.fragment(id).start;
    ctx.outside.store(0, Ordering::Release);
    true
}
