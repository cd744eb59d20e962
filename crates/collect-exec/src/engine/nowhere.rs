//! Calls to addresses that the processor cannot have: they fault themselves, before they have pushed anything.
//!
//! The cache notices only when it looks for the target. Which call it was follows from what it pushed: the call before
//! that address whose operand is the target. Of a jump or a return nothing is left that would tell its place; those
//! fault at their target.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::OpKind;
use ichnos_isa_x86::{Flow, Inst};

use super::ctx::{Ctx, reg};
use super::decoded::inst_at;
use super::fragment::Kind;
use super::{count, flexible, mangle, state, sys, trace};
use crate::words;

/// If the thread has come to `target` by a call, takes that back.
pub fn take_back_call(ctx: &mut Ctx, target: u64) {
    let sp = ctx.regs[reg::RSP];
    let Some(after) = sys::read_value::<u64>(sp) else { return };
    let Some(call) = call_before(ctx, after) else { return };
    ctx.regs[reg::RSP] = sp.wrapping_add(8);
    if operand(ctx, &call) != Some(target) {
        ctx.regs[reg::RSP] = sp;
        return;
    }
    ctx.rip = call.pc().0;
    if state::get().sieve.is_none() {
        trace::event(ctx, words::CUT, ctx.rip);
    }
    count::put_back(ctx, 1);
}

/// The indirect call that has been translated and returns to an address.
fn call_before(ctx: &Ctx, after: u64) -> Option<Inst> {
    let kind = if ctx.recorded == 0 { Kind::Plain } else { Kind::Recorded };
    let cache = state::get().cache.lock();
    let pad = cache.book(kind).rets.get(after)?;
    let places: Vec<u64> = cache.holding(pad)?.sites().map(|site| site.pc).collect();
    drop(cache);
    let calls = places.into_iter().filter_map(|pc| inst_at(pc).ok());
    calls.into_iter().find(|i| i.flow() == Flow::CallIndirect && i.next_pc().0 == after)
}

/// Where an indirect call leads.
fn operand(ctx: &Ctx, call: &Inst) -> Option<u64> {
    let raw = call.raw();
    if raw.op0_kind() == OpKind::Register {
        return Some(ctx.regs[usize::from(mangle::number(raw.op0_register())?.0)]);
    }
    sys::read_value(flexible::address_of(ctx, call.memory().first()?))
}
