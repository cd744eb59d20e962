//! The interpreter: runs decoded instructions until something else must happen.
//!
//! ```text
//! run:     loop: slot = page[(pc - page start) / 2]   // leaves if outside or empty
//!                handler of the slot's operation ─┐
//! handler: the operation's semantics  <───────────┘  // one line of `step`
//!          taken jump: handler of the slot there      // all of these are
//!          line ends:  is the next line known to hit?  // calls in tail
//!          else:       handler of the next slot        // position
//! ```
//!
//! Each handler is a function of its own with what it needs in registers, and goes
//! on to the next one without coming back. Pairs of operations that often follow one
//! another have handlers, too (`code::number`), and a handler asks for those that often
//! follow it by name (`code::guess`). Compilers make jumps of such calls but
//! need not: a chain ends when it has run [`CHAIN`] instructions and a line or a
//! jump comes, so that the stack stays small in any case. `code` marks the slots
//! where lines begin: there, and behind jumps, whoever watches is asked.
//!
//! The program counter is not kept: the place of the slot says where we are.
//! Neither is the number of retired instructions: what is left of the limit says
//! it. Operations that concern the machine rather than the hart (control registers,
//! environment calls, fences of translations) leave the loop.
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
mod handlers;
mod int;
mod place;
mod step;
mod unit;

use ichnos_isa_rv64::Insn;

use crate::code::{BEHIND, Code, Slot};
use crate::cpu::Cpu;
use crate::memory::World;
use crate::observe::{Here, Observer};
use crate::ram::PAGE_SIZE;
use crate::trap::Trap;
use handler::{Context, NO_JUMP};
use handlers::Handlers;
use place::InPage;
pub(crate) use place::{Beyond, Counters, Known};
pub(crate) use step::cache_block;
use step::{COARSE, FINE};

/// Instructions behind which a chain of handlers ends. Each is a frame on the stack
/// where compilers do not make jumps of calls.
const CHAIN: u64 = 2048;
/// Instructions of one call of [`run`].
const MOST: u64 = 1 << 60;

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

/// What to run first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum First<'a> {
    /// What the page at this index of RAM holds at `pc`.
    Page(usize),
    /// An instruction that has no page.
    Alone(&'a [Slot; 1 + BEHIND]),
}

/// Where to run: decoded code, the pages of it that were found lately, and what
/// comes first.
pub(crate) type Place<'a> = (&'a Code, &'a mut Known, First<'a>);

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

fn run_in<'a, const MODE: u8, W: World, O: Observer>(
    cpu: &mut Cpu,
    world: &'a mut W,
    watch: &'a mut O,
    (code, known, first): Place<'a>,
    (limit, until): (u64, Until),
) -> Exit {
    let limit = limit.min(MOST);
    // Four for each instruction.
    let (mut pc, mut left) = (cpu.pc, 4 * limit);
    if MODE == COARSE {
        watch.begin(cpu, world, (limit, until));
    }
    known.begin();
    // An instruction that has no page is a chain of its own.
    let (alone, mut chain) = match first {
        First::Alone(slots) => (slots, 0),
        First::Page(_) => (&Slot::NONE, CHAIN),
    };
    let page = InPage::alone(alone, pc);
    let exit = Exit::Fetch;
    let rest = watch.rest();
    let mut context =
        Context { page, stop: 0, watch, rest, known, world, code, from: 0, exit, onward: (0, 0) };
    if let First::Page(index) = first {
        enter_page::<MODE, W, O>(&mut context, (pc, index), until);
    }
    let exit = loop {
        let Some(at) = context.page.at(pc) else {
            let index = cpu.tlb.exec(pc);
            if !index.is_some_and(|i| enter_page::<MODE, W, O>(&mut context, (pc, i), until)) {
                break Exit::Fetch;
            }
            chain = CHAIN;
            continue;
        };
        let slot = at.slot();
        if !slot.is_filled() {
            break Exit::Fetch;
        }
        if left == 0 {
            break Exit::Limit;
        }
        if MODE == COARSE {
            context.watch.enter(&Here { pc, left, len: slot.len() });
        }
        context.stop = match until {
            Until::PageEnd if chain > 0 => left.saturating_sub(4 * chain),
            _ => u64::MAX,
        };
        let handlers = &Handlers::<MODE, W, O>::ALL;
        let handler = handlers[usize::from(slot.entered())];
        let data = context.watch.data();
        (pc, left) = handler(cpu, &mut context, at, data, left);
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
    cpu.retired = cpu.retired.wrapping_add(limit - left / 4);
    exit
}

/// Goes on in the decoded page of an address, which is at an index of RAM; false if
/// there is none.
fn enter_page<const MODE: u8, W: World, O: Observer>(
    context: &mut Context<'_, W, O>,
    (pc, index): (u64, usize),
    until: Until,
) -> bool {
    let code = context.code;
    let Some(page) = code.page(index) else { return false };
    let va = pc & !(PAGE_SIZE as u64 - 1);
    let counters = if MODE == COARSE && O::COUNTS && until == Until::PageEnd {
        let words = code.words(index, context.world.ram());
        context.watch.counters((va, index), code.version(index), words)
    } else {
        std::ptr::null_mut()
    };
    context.page = InPage::new(page, va, counters);
    context.known.enter(page, &context.page);
    true
}
