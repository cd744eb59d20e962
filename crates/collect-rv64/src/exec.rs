//! The interpreter: runs decoded instructions until something else must happen.
//!
//! ```text
//! run:     loop: slot = page[(pc - page start) / 2]   // leaves if outside or empty
//!                handler of the slot's operation ─┐
//! handler: the operation's semantics  <───────────┘  // one line of `step`
//!          taken jump: back to the loop
//!          else: handler of the next slot             // a call in tail position
//! ```
//!
//! Each handler is a function of its own with what it needs in registers, and goes
//! on to the next one without coming back. Compilers make jumps of such calls but
//! need not: a chain ends with its line of code (`code` marks the slots where lines
//! begin), so that the stack stays small in any case, and whoever watches is asked
//! about lines at the beginning of chains only.
//!
//! The program counter is not kept: what is left of the page says where we are.
//! Neither is the number of retired instructions: what is left of the limit says
//! it. A jump out of the page is an index out of bounds, so one check covers page
//! ends, far jumps and undecoded slots. Operations that concern the machine rather
//! than the hart (control registers, environment calls, fences of translations)
//! leave the loop.
//!
//! Two sets of handlers: fine ones announce each instruction to whoever watches,
//! coarse ones only jumps, lines and accesses ([`Observer::is_coarse`]).
//! Translations of code and decoded pages change between two calls of [`run`] only,
//! so a jump to another page that is known need not leave.
//!
//! [`run`] is the reference that generated code is compared with.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod atomic;
mod bits;
mod float;
mod handler;
mod int;
mod step;

use ichnos_isa_rv64::Insn;

use crate::code::{Code, LEAVE, Slot};
use crate::cpu::Cpu;
use crate::memory::World;
use crate::observe::{Here, Observer};
use crate::ram::PAGE_SIZE;
use crate::trap::Trap;
use handler::{Context, Handlers, NO_JUMP};
pub(crate) use step::cache_block;
use step::{COARSE, FINE};

/// Why [`run`] returned. The hart's `pc` names the next instruction to execute,
/// or the one that did not complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// As many instructions retired as were asked for.
    Limit,
    /// The next instruction lies in another page or is not decoded yet.
    Fetch,
    /// The instruction at `pc` trapped.
    Trap(Trap),
    /// The instruction at `pc` is for the machine to carry out.
    System(Insn),
    /// Something outside the hart wants to be looked at.
    Look,
}

/// How far to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// The page's end.
    PageEnd,
    /// The first taken jump: generated code may know what follows.
    Jump,
}

/// Where to run: decoded code, and the part of it that the hart's `pc` is in, with
/// its first slot's address.
pub(crate) type Place<'a> = (&'a Code, &'a [Slot], u64);

/// Runs at most `limit` instructions.
pub(crate) fn run<W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    place: Place<'_>,
    goal: (u64, Until),
) -> Exit {
    if O::COARSE && watch.is_coarse() {
        run_in::<COARSE, W, O>(cpu, world, watch, place, goal)
    } else {
        run_in::<FINE, W, O>(cpu, world, watch, place, goal)
    }
}

fn run_in<const MODE: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &mut W,
    watch: &mut O,
    (code, mut page, mut page_va): Place<'_>,
    (limit, until): (u64, Until),
) -> Exit {
    let (mut pc, mut left) = (cpu.pc, limit);
    if MODE == COARSE {
        watch.begin(cpu, world, limit);
    }
    let end = page_va.wrapping_add(2 * page.len() as u64);
    let mut context = Context { code, world, watch, end, from: 0, exit: Exit::Fetch };
    let exit = loop {
        let at = (pc.wrapping_sub(page_va) >> 1) as usize;
        let Some(rest @ [slot, ..]) = page.get(at..) else {
            let Some(found) = page_at(cpu, context.code, pc) else { break Exit::Fetch };
            (page, page_va) = found;
            context.end = page_va.wrapping_add(2 * page.len() as u64);
            continue;
        };
        if slot.entered == LEAVE {
            // Not decoded, or behind the page's end.
            break Exit::Fetch;
        }
        if left == 0 {
            break Exit::Limit;
        }
        if MODE == COARSE {
            context.watch.enter(&Here { pc, left, len: slot.len() });
        }
        let handlers = &Handlers::<MODE, W, O>::ALL;
        let handler = handlers[usize::from(slot.entered)];
        (pc, left) = handler(cpu, &mut context, rest, left);
        if pc & NO_JUMP != 0 {
            pc &= !NO_JUMP;
            if context.exit != Exit::Fetch {
                break context.exit;
            }
            continue;
        }
        if MODE == COARSE {
            context.watch.jumped(context.from, pc);
        }
        if context.watch.is_full() {
            break Exit::Look;
        }
        if O::GENERATED && until == Until::Jump {
            break Exit::Fetch;
        }
    };
    if MODE == COARSE {
        context.watch.end(pc, left);
    }
    cpu.pc = pc;
    cpu.retired = cpu.retired.wrapping_add(limit - left);
    exit
}

/// The decoded page of an address whose translation is known, and its address.
#[inline]
fn page_at<'a>(cpu: &Cpu, code: &'a Code, pc: u64) -> Option<(&'a [Slot], u64)> {
    let page = code.page(cpu.tlb.exec(pc)?)?;
    Some((page, pc & !(PAGE_SIZE as u64 - 1)))
}
