//! Synchronisation as events: from libc's functions where they can be found, and from futex calls
//! always.
//!
//! A function is watched by a mark at its entry and one at each address that it returns to: a fragment
//! that begins at a mark leaves the cache first, so that the event has its place in the thread's
//! stream. While a process has one thread its functions are not watched, because nobody could wait for
//! it; so a release is told only of what was seen to be acquired.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod begun;
mod futex;
mod marks;

pub use begun::Begun;
pub use futex::{after as after_call, before as before_call};
pub use marks::{activate, held, is_entry, is_mark, learn};

use ichnos_base::{LockKind, LockOp};
use ichnos_sync::{Call, Operation, Told, What};

use self::begun::{Entered, Pending};
use super::ctx::{Ctx, reg};
use super::{sys, trace};
use crate::words::{self, sync};

/// A thread stands at a mark.
pub fn at(ctx: &mut Ctx, pc: u64) {
    // SAFETY: the thread's data lives as long as its context.
    let begun = unsafe { &mut (*ctx.thread).begun };
    let sp = ctx.regs[reg::RSP];
    let returned = begun.end(pc, sp);
    let is_told = begun.ahead.take_if(|told| *told == Entered { pc, sp }).is_some();
    trace::event(ctx, words::LEFT, pc);
    if let Some(pending) = returned {
        leave(ctx, &pending.call);
    }
    if let Some(operation) = marks::function(pc).filter(|_| !is_told) {
        enter(ctx, operation, Entered { pc, sp });
    }
}

/// A thread was about to enter translated code, and goes on to a signal's handler instead.
pub fn put_off(ctx: &mut Ctx) {
    // SAFETY: the thread's data lives as long as its context.
    let begun = unsafe { &mut (*ctx.thread).begun };
    let here = Entered { pc: ctx.rip, sp: ctx.regs[reg::RSP] };
    if begun.last.take() == Some(here) {
        begun.ahead = Some(here);
    }
}

/// What a thread does next does not follow at once what was told of it last.
pub fn has_run(begun: &mut Begun) {
    begun.last = None;
}

fn enter(ctx: &mut Ctx, operation: Operation, entered: Entered) {
    let Some(back) = sys::read_value::<u64>(entered.sp) else { return };
    let (object, second) = (ctx.regs[reg::RDI], ctx.regs[reg::RSI]);
    // SAFETY: the thread's data lives as long as its context.
    let begun = unsafe { &mut (*ctx.thread).begun };
    let operation = begun.held.meant(operation, object);
    let call = Call { operation, object, second };
    begun.last = Some(entered);
    let is_told = begun.begin(Pending { call, entered, back });
    if operation.returns() {
        marks::watch_return(back);
    }
    if is_told {
        let said = begun.held.enter(&call);
        trace::time(ctx);
        said.iter().flatten().for_each(|told| tell(ctx, *told));
    }
}

fn leave(ctx: &mut Ctx, call: &Call) {
    let result = ctx.regs[reg::RAX] as i32;
    // SAFETY: the thread's data lives as long as its context.
    let said = unsafe { (*ctx.thread).begun.held.leave(call, result) };
    trace::time(ctx);
    said.iter().flatten().for_each(|told| tell(ctx, *told));
}

fn tell(ctx: &mut Ctx, Told { what, object }: Told) {
    let what = match what {
        What::Lock(op, kind) => sync::lock(op, kind),
        What::Cond(op) => sync::cond(op),
        What::Barrier(phase) => sync::barrier(phase),
        What::Join => {
            if let Some(child) = marks::thread_of(object) {
                trace::event(ctx, words::JOIN, u64::from(child));
            }
            return;
        }
    };
    trace::numbers(ctx, words::SYNC, &[what, object]);
}

fn tell_lock(ctx: &mut Ctx, op: LockOp, kind: LockKind, object: u64) {
    tell(ctx, Told { what: What::Lock(op, kind), object });
}
