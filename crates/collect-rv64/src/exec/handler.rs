//! Handlers: an operation each, and the way from one to the next.
//!
//! Coarse handlers do the common case only, without calling anything but the next
//! handler; what is not common they leave, undone, to the operation's slow handler,
//! by a call in tail position as well.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_isa_rv64::{Op, TABLE};

use super::Exit;
use super::step::{COARSE, FINE, Flow, SLOW, step};
use crate::code::{Code, Rest, Slot};
use crate::cpu::Cpu;
use crate::memory::World;
use crate::observe::{Here, Observer};
use crate::trap::Stop;

/// What a program counter has besides unless a jump led there: it is even
/// otherwise.
pub(super) const NO_JUMP: u64 = 1;

/// What handlers share and seldom need.
pub(super) struct Context<'a, W, O> {
    pub(super) code: &'a Code,
    pub(super) world: &'a mut W,
    pub(super) watch: &'a mut O,
    /// The address behind the last slot of the page.
    pub(super) end: u64,
    /// The end of the instruction that jumped.
    pub(super) from: u64,
    /// Why to stop, if a handler says so; [`Exit::Fetch`] if not.
    pub(super) exit: Exit,
}

/// Where to go on, and how many instructions are left.
type Onward = (u64, u64);

/// `fn(hart, context, slots from the instruction's on, instructions left)`, of
/// which at least one is left.
pub(super) type Handler<W, O> = fn(&mut Cpu, &mut Context<'_, W, O>, &[Slot], u64) -> Onward;

impl<W, O> Context<'_, W, O> {
    /// The address of the first of the slots that are left of the page.
    #[inline(always)]
    const fn pc(&self, rest: &[Slot]) -> u64 {
        self.end.wrapping_sub(2 * rest.len() as u64)
    }
}

/// The operation with a number; any if there is none.
const fn operation(number: u8) -> Op {
    if (number as usize) < TABLE.len() { TABLE[number as usize].op } else { Op::Ebreak }
}

/// One instruction, then the next.
fn handle<const OP: u8, const MODE: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'_, W, O>,
    rest: &[Slot],
    left: u64,
) -> Onward {
    let [slot, ..] = rest else { return leave(cpu, context, rest, left) };
    let (op, shape) = const { (operation(OP), Rest::of(operation(OP))) };
    let insn = slot.insn_of(op, shape);
    let here = Here { pc: context.pc(rest), left, len: insn.len };
    if MODE == FINE {
        context.watch.insn(GuestVa(here.pc), insn.len, insn.kind());
    }
    match step::<OP, MODE, W, O>(cpu, context.world, context.watch, &insn, &here) {
        Flow::Next => {}
        Flow::Jump(target) => {
            context.from = here.next();
            return (target, left - 1);
        }
        _ if MODE == COARSE => return slow::<OP, W, O>(cpu, context, rest, left),
        Flow::Stop(stop) => return stopped::<MODE, W, O>(context, &here, stop),
        Flow::Uncommon | Flow::System => {
            abandon::<MODE, W, O>(context, &here);
            context.exit = Exit::System(insn);
            return (here.pc | NO_JUMP, left);
        }
    }
    let left = left - 1;
    if MODE == FINE && context.watch.is_full() {
        context.exit = Exit::Look;
        return (here.next() | NO_JUMP, left);
    }
    // There always is one: `code` keeps slots behind the last.
    let Some(rest @ [next, ..]) = rest.get(slot.halves()..) else {
        return leave(cpu, context, &[], left);
    };
    if left == 0 {
        return leave(cpu, context, rest, left);
    }
    let handlers = &Handlers::<MODE, W, O>::ALL;
    handlers[usize::from(next.chained)](cpu, context, rest, left)
}

/// One instruction that is not the common case, then the next.
#[cold]
#[inline(never)]
fn slow<const OP: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    context: &mut Context<'_, W, O>,
    rest: &[Slot],
    left: u64,
) -> Onward {
    handle::<OP, SLOW, W, O>(cpu, context, rest, left)
}

/// Ends a chain before an instruction.
#[inline(never)]
fn leave<W: World, O: Observer>(
    _: &mut Cpu,
    context: &mut Context<'_, W, O>,
    rest: &[Slot],
    left: u64,
) -> Onward {
    (context.pc(rest) | NO_JUMP, left)
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
            (here.next() | NO_JUMP, here.left - 1)
        }
    }
}

fn abandon<const MODE: u8, W: World, O: Observer>(context: &mut Context<'_, W, O>, here: &Here) {
    if MODE != FINE {
        context.watch.locate(here);
    }
    context.watch.abandon();
}

/// All handlers, by what slots call them.
pub(super) struct Handlers<const MODE: u8, W, O>(std::marker::PhantomData<(W, O)>);

/// A handler for each number: sixteen for each that is given.
macro_rules! sixteens {
    ($all:ident: $($high:literal)*) => {$(sixteens!(@ $all $high
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);)*};
    (@ $all:ident $high:literal $($low:literal)*) => {$(
        $all[16 * $high + $low] = handle::<{ 16 * $high + $low }, MODE, W, O>;
    )*};
}

const _: () = assert!(TABLE.len() <= 16 * 13);

impl<const MODE: u8, W: World, O: Observer> Handlers<MODE, W, O> {
    /// A slow handler is followed by coarse ones.
    pub(super) const ALL: [Handler<W, O>; 256] =
        if MODE == SLOW { Handlers::<COARSE, W, O>::TABLE } else { Self::TABLE };

    const TABLE: [Handler<W, O>; 256] = {
        let mut all: [Handler<W, O>; 256] = [leave::<W, O>; 256];
        sixteens!(all: 0 1 2 3 4 5 6 7 8 9 10 11 12);
        all
    };
}
