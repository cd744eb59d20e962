//! Synchronisation as events: from libc's functions where they can be found, and from futex calls
//! always.
//!
//! A function is watched by a mark at its entry and one at each address that it returns to: a fragment
//! that begins at a mark leaves the cache first, so that the event has its place in the thread's
//! stream. While a process has one thread its functions are not watched, because nobody could wait for
//! it; so a release is told only of what was seen to be acquired.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod function;
mod futex;
mod marks;

pub use futex::{after as after_call, before as before_call};
pub use marks::{activate, held, is_entry, is_mark, learn};

use function::Operation;
use ichnos_base::{BarrierPhase, CondOp, LockKind, LockOp};

use super::ctx::{Ctx, reg};
use super::{sys, trace};
use crate::words::{self, sync};

/// What a thread has begun.
#[derive(Default)]
pub struct Begun {
    calls: Vec<Call>,
    held: Vec<(u64, LockKind)>,
}

/// A call of a watched function that has not returned.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Call {
    operation: Operation,
    /// Where it returns to.
    back: u64,
    /// The stack pointer at its entry.
    sp: u64,
    /// What it works on, and the second argument.
    object: u64,
    second: u64,
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
    if let Some(call) = returned {
        leave(ctx, &call);
    }
    if let Some(operation) = marks::function(pc) {
        enter(ctx, operation);
    }
}

fn enter(ctx: &mut Ctx, operation: Operation) {
    let sp = ctx.regs[reg::RSP];
    let Some(back) = sys::read_value::<u64>(sp) else { return };
    let (object, second) = (ctx.regs[reg::RDI], ctx.regs[reg::RSI]);
    let call = Call { operation, back, sp, object, second };
    // SAFETY: the thread's data lives as long as its context.
    let begun = unsafe { &mut (*ctx.thread).begun };
    // A signal may have come between the mark and the function.
    if begun.calls.contains(&call) {
        return;
    }
    if operation.returns() {
        begun.calls.push(call);
        marks::watch_return(back);
    }
    trace::time(ctx);
    match operation {
        Operation::Acquire(kind) => tell_lock(ctx, LockOp::Request, kind, object),
        Operation::Release(kind) => release(ctx, kind, object),
        Operation::Destroy(kind) => tell_lock(ctx, LockOp::Destroy, kind, object),
        Operation::Wait => {
            tell_cond(ctx, CondOp::Wait, object);
            release(ctx, LockKind::Mutex, second);
        }
        Operation::Cond(op @ (CondOp::Signal | CondOp::Broadcast | CondOp::Destroy)) => {
            tell_cond(ctx, op, object);
        }
        Operation::Barrier => tell_barrier(ctx, BarrierPhase::Enter, object),
        Operation::DestroyBarrier => tell_barrier(ctx, BarrierPhase::Destroy, object),
        _ => {}
    }
}

fn leave(ctx: &mut Ctx, call: &Call) {
    const BARRIER_SERIAL_THREAD: i32 = -1;
    let (object, result) = (call.object, ctx.regs[reg::RAX] as i32);
    let done = result == 0 || result == libc::EOWNERDEAD;
    trace::time(ctx);
    match call.operation {
        Operation::Acquire(kind) if done => acquire(ctx, kind, object),
        Operation::Create(kind) if done => tell_lock(ctx, LockOp::Create, kind, object),
        // The mutex is held again whatever the result.
        Operation::Wait => {
            tell_cond(ctx, CondOp::Wake, object);
            acquire(ctx, LockKind::Mutex, call.second);
        }
        Operation::Cond(CondOp::Create) if done => tell_cond(ctx, CondOp::Create, object),
        Operation::Barrier if done || result == BARRIER_SERIAL_THREAD => {
            tell_barrier(ctx, BarrierPhase::Leave, object);
        }
        Operation::CreateBarrier if done => tell_barrier(ctx, BarrierPhase::Create, object),
        Operation::Join if done => {
            if let Some(child) = marks::thread_of(object) {
                trace::event(ctx, words::JOIN, u64::from(child));
            }
        }
        _ => {}
    }
}

fn acquire(ctx: &mut Ctx, kind: LockKind, object: u64) {
    if kind != LockKind::Semaphore {
        // SAFETY: the thread's data lives as long as its context.
        unsafe { (*ctx.thread).begun.held.push((object, kind)) };
    }
    tell_lock(ctx, LockOp::Acquire, kind, object);
}

/// Semaphores have no holder; of locks, what was not seen to be acquired is not told. A read-write lock was
/// held in one of two ways, which its release does not say.
fn release(ctx: &mut Ctx, kind: LockKind, object: u64) {
    if kind == LockKind::Semaphore {
        tell_lock(ctx, LockOp::Release, kind, object);
        return;
    }
    // SAFETY: the thread's data lives as long as its context.
    let held = unsafe { &mut (*ctx.thread).begun.held };
    if let Some(at) = held.iter().rposition(|&(addr, _)| addr == object) {
        let (_, kind) = held.remove(at);
        tell_lock(ctx, LockOp::Release, kind, object);
    }
}

fn tell_lock(ctx: &mut Ctx, op: LockOp, kind: LockKind, object: u64) {
    trace::numbers(ctx, words::SYNC, &[sync::lock(op, kind), object]);
}

fn tell_cond(ctx: &mut Ctx, op: CondOp, object: u64) {
    trace::numbers(ctx, words::SYNC, &[sync::cond(op), object]);
}

fn tell_barrier(ctx: &mut Ctx, phase: BarrierPhase, object: u64) {
    trace::numbers(ctx, words::SYNC, &[sync::barrier(phase), object]);
}
