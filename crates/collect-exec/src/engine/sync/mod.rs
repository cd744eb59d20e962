//! Synchronisation as events: from libc's functions where they can be found, and from futex calls
//! always.
//!
//! A function is watched by a mark at its entry and one at each address that it returns to: a fragment
//! that begins at a mark leaves the cache first, so that the event has its place in the thread's
//! stream. While a process has one thread its functions are not watched, because nobody could wait for
//! it; so a release is told only of what was seen to be acquired.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod futex;
mod marks;

pub use futex::{after as after_call, before as before_call};
pub use marks::{activate, held, is_entry, is_mark, learn};

use ichnos_base::{LockKind, LockOp};
use ichnos_sync::{Call, Held, Operation, Told, What};

use super::ctx::{Ctx, reg};
use super::{sys, trace};
use crate::words::{self, sync};

/// What a thread has begun.
#[derive(Default)]
pub struct Begun {
    calls: Vec<Pending>,
    held: Held,
}

/// A call of a watched function that has not returned.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pending {
    call: Call,
    /// Where it returns to.
    back: u64,
    /// The stack pointer at its entry.
    sp: u64,
}

/// A thread stands at a mark.
pub fn at(ctx: &mut Ctx, pc: u64) {
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    let sp = ctx.regs[reg::RSP];
    // What a long jump has left behind does not return any more.
    thread.begun.calls.retain(|call| call.sp >= sp.saturating_sub(8));
    let mut returned = None;
    if let Some(at) = thread.begun.calls.iter().position(|c| c.back == pc && c.sp + 8 == sp) {
        returned = Some(thread.begun.calls.remove(at));
    }
    trace::event(ctx, words::LEFT, pc);
    if let Some(pending) = returned {
        leave(ctx, &pending.call);
    }
    if let Some(operation) = marks::function(pc) {
        enter(ctx, operation);
    }
}

fn enter(ctx: &mut Ctx, operation: Operation) {
    let sp = ctx.regs[reg::RSP];
    let Some(back) = sys::read_value::<u64>(sp) else { return };
    let (object, second) = (ctx.regs[reg::RDI], ctx.regs[reg::RSI]);
    // SAFETY: the thread's data lives as long as its context.
    let begun = unsafe { &mut (*ctx.thread).begun };
    let operation = begun.held.meant(operation, object);
    let call = Call { operation, object, second };
    let pending = Pending { call, back, sp };
    // A signal may have come between the mark and the function.
    if begun.calls.contains(&pending) {
        return;
    }
    if operation.returns() {
        begun.calls.push(pending);
        marks::watch_return(back);
    }
    let said = begun.held.enter(&call);
    trace::time(ctx);
    said.iter().flatten().for_each(|told| tell(ctx, *told));
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
