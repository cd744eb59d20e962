//! Handlers: an operation each, and the way from one to the next.
//!
//! Coarse handlers do the common case only, without calling anything but the next
//! handler; what is not common they leave, undone, to the operation's slow handler,
//! by a call in tail position as well. What they need most is passed on in
//! registers: the slot, what is left, and how the observer finds data.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(unsafe_code, reason = "handlers go from slot to slot unchecked: see `place`")]

use ichnos_base::GuestVa;
use ichnos_isa_rv64::{Insn, Op, TABLE};

use super::Exit;
use super::handlers::Handlers;
use super::place::{At, InPage, Known};
use super::step::{COARSE, FINE, Flow, SLOW, step};
use super::unit::Unit;
use crate::code::{Code, Rest};
use crate::cpu::Cpu;
use crate::memory::World;
use crate::observe::{Here, How, Observer};
use crate::trap::Stop;

/// What a program counter has besides unless a jump led there: it is even
/// otherwise.
pub(super) const NO_JUMP: u64 = 1;

/// What handlers share and seldom need.
pub(super) struct Context<'a, W, O: Observer> {
    pub(super) page: InPage<'a>,
    /// A chain ends at a jump or a line when no more is left than this.
    pub(super) stop: u64,
    pub(super) watch: &'a mut O,
    /// What else the observer needs to find data.
    pub(super) rest: O::Rest,
    pub(super) known: &'a mut Known,
    pub(super) world: &'a mut W,
    pub(super) code: &'a Code,
    /// The end of the instruction that jumped.
    pub(super) from: u64,
    /// Why to stop, if a handler says so; [`Exit::Fetch`] if not.
    pub(super) exit: Exit,
    /// Where to go on, and what is left, when [`slowly`] says that a chain ends.
    pub(super) onward: Onward,
}

/// Where to go on, and what is left.
pub(super) type Onward = (u64, u64);

/// An instruction less is left.
const ONE: u64 = 4;

/// `fn(hart, context, slot, how data is found, what is left)`: four for each
/// instruction, of which at least one is left. The slot is filled unless the handler is [`enter_line`].
pub(super) type Handler<W, O> =
    for<'a> fn(&mut Cpu, &mut Context<'a, W, O>, At<'a>, <O as Observer>::Data, u64) -> Onward;

/// The operation with a number; any if there is none.
pub(super) const fn operation(number: u8) -> Op {
    if (number as usize) < TABLE.len() { TABLE[number as usize].op } else { Op::Ebreak }
}

/// One instruction, then the next.
pub(super) fn handle<'a, const OP: u8, const LEN: u8, const MODE: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    data: O::Data,
    left: u64,
) -> Onward {
    if MODE == COARSE {
        match common::<OP, LEN, W, O>(cpu, context, at, data, left) {
            Flow::Next => {}
            flow => return otherwise::<OP, LEN, W, O>(cpu, context, at, data, (left, flow)),
        }
    } else {
        let (op, shape) = const { (operation(OP), Rest::of(operation(OP))) };
        let insn = at.slot().insn_of((op, LEN), shape);
        let here = Here { pc: context.page.pc(at), left, len: insn.len };
        context.watch.insn(GuestVa(here.pc), insn.len, insn.kind());
        let how = How { data, rest: &context.rest };
        match step::<OP, MODE, W, O>(cpu, context.world, context.watch, &insn, (&here, how)) {
            Flow::Next => {}
            flow => return end::<MODE, W, O>(context, &here, (&insn, flow)),
        }
        if context.watch.is_full() {
            context.exit = Exit::Look;
            return (here.next() | NO_JUMP, left - ONE);
        }
    }
    // SAFETY: handlers of operations are those of filled slots.
    let next = unsafe { at.next(const { LEN as usize / 2 }) };
    if MODE == COARSE {
        return Unit::<OP, LEN, 0, 0, W, O>::follow(cpu, context, next, data, left - ONE);
    }
    follow::<MODE, W, O>(cpu, context, next, data, left - ONE)
}

/// Two instructions that stand in succession, then the next.
pub(super) fn pair<
    'a,
    const A: u8,
    const AL: u8,
    const B: u8,
    const BL: u8,
    W: World,
    O: Observer,
>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    data: O::Data,
    left: u64,
) -> Onward {
    if left == ONE {
        return handle::<A, AL, COARSE, W, O>(cpu, context, at, data, left);
    }
    match common::<A, AL, W, O>(cpu, context, at, data, left) {
        Flow::Next => {}
        flow => return otherwise::<A, AL, W, O>(cpu, context, at, data, (left, flow)),
    }
    // SAFETY: as in `handle`.
    let (at, left) = (unsafe { at.next(const { AL as usize / 2 }) }, left - ONE);
    match common::<B, BL, W, O>(cpu, context, at, data, left) {
        Flow::Next => {}
        flow => return otherwise::<B, BL, W, O>(cpu, context, at, data, (left, flow)),
    }
    // SAFETY: the second slot of a pair is filled, too.
    let next = unsafe { at.next(const { BL as usize / 2 }) };
    Unit::<A, AL, B, BL, W, O>::follow(cpu, context, next, data, left - ONE)
}

/// One instruction, if it is the common case.
#[inline(always)]
fn common<'a, const OP: u8, const LEN: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    data: O::Data,
    left: u64,
) -> Flow {
    let (op, shape) = const { (operation(OP), Rest::of(operation(OP))) };
    let insn = at.slot().insn_of((op, LEN), shape);
    let here = Here { pc: context.page.pc(at), left, len: LEN };
    let how = How { data, rest: &context.rest };
    step::<OP, COARSE, W, O>(cpu, context.world, context.watch, &insn, (&here, how))
}

/// What comes of an instruction that the next does not simply follow.
#[inline(always)]
fn otherwise<'a, const OP: u8, const LEN: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    data: O::Data,
    (left, flow): (u64, Flow),
) -> Onward {
    match flow {
        Flow::Jump(_) if OP != Op::Jalr as u8 => {
            jump::<OP, LEN, W, O>(cpu, context, at, data, left)
        }
        Flow::Jump(target) => {
            context.from = context.page.pc(at).wrapping_add(LEN.into());
            leap(cpu, context, target, data, left - ONE)
        }
        _ => slow::<OP, LEN, W, O>(cpu, context, at, data, left),
    }
}

/// Goes on with the next slot, which nothing need be asked about unless a line begins.
#[inline(always)]
pub(super) fn follow<'a, const MODE: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    next: At<'a>,
    data: O::Data,
    left: u64,
) -> Onward {
    if left == 0 {
        return leave(cpu, context, next, data, left);
    }
    let handlers = &Handlers::<MODE, W, O>::ALL;
    // SAFETY: slots name no handlers but these.
    let handler = unsafe { handlers.get_unchecked(usize::from(next.slot().chained())) };
    handler(cpu, context, next, data, left)
}

/// A jump, which is taken, to where its instruction says. By itself, so that those
/// that are not taken do not pay for it.
#[inline(never)]
fn jump<'a, const OP: u8, const LEN: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    data: O::Data,
    left: u64,
) -> Onward {
    let (op, shape) = const { (operation(OP), Rest::of(operation(OP))) };
    let distance = at.slot().insn_of((op, LEN), shape).imm as i64 as u64;
    let left = left - ONE;
    if left <= context.stop {
        let pc = context.page.pc(at);
        context.from = pc.wrapping_add(LEN.into());
        return (pc.wrapping_add(distance), left);
    }
    if O::COUNTS {
        // SAFETY: chains go on behind jumps in whole pages only, see `run_in`.
        unsafe { context.page.count(at.slot().ordinal(shape)) };
    }
    // SAFETY: the same.
    match unsafe { context.page.at_distance(at, distance) } {
        Some(to) => arrive(cpu, context, to, data, left),
        None => go(cpu, context, context.page.pc(at).wrapping_add(distance), data, left),
    }
}

/// A jump, from [`Context::from`], to where a register said.
#[inline(never)]
fn leap<W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'_, W, O>,
    target: u64,
    data: O::Data,
    left: u64,
) -> Onward {
    if left <= context.stop {
        return (target, left);
    }
    if !O::COUNTS {
        return go(cpu, context, target, data, left);
    }
    let Some(beyond) = context.watch.count_at_once(context.from, target) else {
        return leap_newly(cpu, context, target, data, left);
    };
    // SAFETY: `code` is borrowed for as long, so nothing in it changes.
    if !unsafe { context.known.recall(beyond, &mut context.page, target) } {
        return (target | NO_JUMP, left);
    }
    // SAFETY: it is the whole page of this address now.
    let to = unsafe { context.page.at_offset(target) };
    arrive(cpu, context, to, data, left)
}

#[cold]
#[inline(never)]
fn leap_newly<W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'_, W, O>,
    target: u64,
    data: O::Data,
    left: u64,
) -> Onward {
    context.watch.count(context.from, target);
    go(cpu, context, target, data, left)
}

/// Goes on at an address, after a jump that has been counted.
#[inline(always)]
fn go<W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'_, W, O>,
    target: u64,
    data: O::Data,
    left: u64,
) -> Onward {
    let to = match context.page.at(target) {
        Some(to) => to,
        None => {
            // SAFETY: `code` is borrowed for as long, so nothing in it changes.
            let page = unsafe { context.known.find(target) };
            let Some((page, to)) = page.and_then(|page| Some((page, page.at(target)?))) else {
                return (target | NO_JUMP, left);
            };
            context.page = page;
            to
        }
    };
    arrive(cpu, context, to, data, left)
}

/// Goes on at a slot, filled or not, that may lie in another line than the last.
#[inline(always)]
fn arrive<'a, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    data: O::Data,
    left: u64,
) -> Onward {
    if !at.slot().is_filled() {
        return leave(cpu, context, at, data, left);
    }
    if !context.watch.arrive(context.page.pc(at), left) {
        return arrive_slowly(cpu, context, at, data, left);
    }
    enter(cpu, context, at, data, left)
}

/// Goes on at a filled slot whose line was entered.
#[inline(always)]
fn enter<'a, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    data: O::Data,
    left: u64,
) -> Onward {
    let handlers = &Handlers::<COARSE, W, O>::ALL;
    // SAFETY: slots name no handlers but these.
    let handler = unsafe { handlers.get_unchecked(usize::from(at.slot().entered())) };
    handler(cpu, context, at, data, left)
}

#[cold]
#[inline(never)]
fn arrive_slowly<'a, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    _: O::Data,
    left: u64,
) -> Onward {
    context.watch.enter(&Here { pc: context.page.pc(at), left, len: at.slot().len() });
    let data = context.watch.data();
    enter(cpu, context, at, data, left)
}

/// What stands where a line begins, for those who come from the instruction before.
pub(super) fn enter_line<'a, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    data: O::Data,
    left: u64,
) -> Onward {
    if left <= context.stop {
        return leave(cpu, context, at, data, left);
    }
    arrive(cpu, context, at, data, left)
}

/// One instruction that is not the common case, then the next.
#[cold]
#[inline(never)]
fn slow<'a, const OP: u8, const LEN: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    _: O::Data,
    left: u64,
) -> Onward {
    if !slowly::<OP, LEN, W, O>(cpu, context, at, left) {
        return context.onward;
    }
    // What was not common may have moved what the observer finds data in.
    let (data, left) = (context.watch.data(), left - ONE);
    // SAFETY: as in `handle`.
    let next = unsafe { at.next(const { LEN as usize / 2 }) };
    follow::<COARSE, W, O>(cpu, context, next, data, left)
}

/// One instruction that is not the common case: whether the next follows. By itself:
/// what it lends to others would stay on the stack of a handler, whose call of the next
/// handler were no jump then.
#[inline(never)]
fn slowly<'a, const OP: u8, const LEN: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    left: u64,
) -> bool {
    let (op, shape) = const { (operation(OP), Rest::of(operation(OP))) };
    let insn = at.slot().insn_of((op, LEN), shape);
    let here = Here { pc: context.page.pc(at), left, len: insn.len };
    let rest = context.rest;
    let how = How { data: context.watch.data(), rest: &rest };
    match step::<OP, SLOW, W, O>(cpu, context.world, context.watch, &insn, (&here, how)) {
        Flow::Next => true,
        other => {
            context.onward = end::<SLOW, W, O>(context, &here, (&insn, other));
            false
        }
    }
}

/// Ends a chain at an instruction that the next does not follow.
fn end<const MODE: u8, W: World, O: Observer>(
    context: &mut Context<'_, W, O>,
    here: &Here,
    (insn, flow): (&Insn, Flow),
) -> Onward {
    match flow {
        Flow::Stop(stop) => stopped::<MODE, W, O>(context, here, stop),
        Flow::Jump(target) => {
            context.from = here.next();
            (target, here.left - ONE)
        }
        Flow::Next => (here.next() | NO_JUMP, here.left - ONE),
        Flow::Uncommon | Flow::System => {
            abandon::<MODE, W, O>(context, here);
            context.exit = Exit::System(*insn);
            (here.pc | NO_JUMP, here.left)
        }
    }
}

/// Ends a chain before an instruction.
#[inline(never)]
pub(super) fn leave<'a, W: World, O: Observer>(
    _: &mut Cpu,
    context: &mut Context<'a, W, O>,
    at: At<'a>,
    _: O::Data,
    left: u64,
) -> Onward {
    (context.page.pc(at) | NO_JUMP, left)
}

fn stopped<const MODE: u8, W: World, O: Observer>(
    context: &mut Context<'_, W, O>,
    here: &Here,
    stop: Stop,
) -> Onward {
    match stop {
        Stop::Trap(trap) => {
            abandon::<MODE, W, O>(context, here);
            context.exit = Exit::Trap(trap);
            (here.pc | NO_JUMP, here.left)
        }
        Stop::Completed => {
            context.exit = Exit::Look;
            (here.next() | NO_JUMP, here.left - ONE)
        }
    }
}

fn abandon<const MODE: u8, W: World, O: Observer>(context: &mut Context<'_, W, O>, here: &Here) {
    if MODE != FINE {
        context.watch.locate(here);
    }
    context.watch.abandon();
}
