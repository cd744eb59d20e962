//! The call into generated code: the one place that trusts it.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(unsafe_code, reason = "generated code can only be called so")]

use ichnos_base::CacheAddr;

use crate::cpu::{Cpu, FloatState};
use crate::float::flag;
use crate::jit::profiled::{Packed, TICKS};
use crate::jit::{Jit, Reason};
use crate::memory::World;
use crate::observe::Observer;
use crate::profile::Site;
use crate::trap::Access;

/// `fn(hart, ram or arena, table, block, counter) -> counter`
type Enter = unsafe extern "sysv64" fn(*mut Cpu, *mut u8, *const u8, *const u8, u64) -> u64;

/// What helpers work on while generated code runs.
struct Context<W, O> {
    cpu: *mut Cpu,
    world: *mut W,
    watch: *mut O,
}

/// Why generated code returned, and after which computed transfer if that is not
/// counted yet.
pub(crate) type Left = (Reason, Option<u32>);

impl Jit {
    /// Runs the block at `at`, and those it leads to, while at most `limit`
    /// instructions retire. The hart's `pc` and count are right afterwards.
    pub(crate) fn enter<W: World, O: Observer>(
        &self,
        cpu: &mut Cpu,
        world: &mut W,
        watch: &mut O,
        (at, limit): (CacheAddr, u64),
    ) -> Left {
        let thunk = self.memory.address(self.thunks.enter);
        let block = self.memory.address(at);
        let ram = world.ram_mut().start();
        let start = watch.start(cpu, ram);
        let (base, table, counter) = match &start {
            None => (ram, cpu.tlb.bank().cast::<u8>(), limit),
            Some(start) => (start.arena.cast(), start.lines.cast(), TICKS * (start.clock + 1)),
        };
        let mut context = Context { cpu: &raw mut *cpu, world: &raw mut *world, watch };
        if let Some(start) = &start {
            let last = start.clock.saturating_add(limit).saturating_add(1);
            cpu.shared.set_ceiling(last.saturating_mul(TICKS));
            cpu.shared.context = (&raw mut context) as u64;
            cpu.shared.data_helper = data::<W, O> as *const () as u64;
            cpu.shared.fetch_helper = fetch::<W, O> as *const () as u64;
            cpu.shared.indirect = start.indirect as u64;
            cpu.shared.mark_distance = start.mark_distance;
            cpu.shared.own = start.own;
        }
        context.cpu = &raw mut *cpu;
        // SAFETY: `thunk` is the start of the function that `Thunks::generate` wrote
        // for this signature; it saves what the convention wants saved. `block` is
        // the entry of a block in the same memory, which stays mapped while `self`
        // is borrowed. Generated code touches only:
        // - the hart, through a pointer from `&mut Cpu`, at offsets of its fields;
        // - the active bank and the table of jumps, whose boxes the hart owns;
        // - RAM at offsets that the bank's entries give for a page. Entries are
        //   entered only for whole pages inside RAM, which never shrinks, and an
        //   access that does not lie inside its page does not match its entry.
        // The table of jumps holds only entries of blocks, and is emptied or
        // retagged when blocks move (`Engine` watches the generation).
        // Profiled code touches instead of bank and RAM:
        // - the arena, at words that the book gave out, which are fewer than it has;
        // - the table of lines, whose entries hold addresses of bytes in RAM and of
        //   times of use. They are emptied before RAM moves or translations change
        //   (`Lines::follow`), and the stamps live as long as the table. So do the
        //   marks of clean lines, at the same distance from the stamps of all;
        // - the records of pages beside that table, and the words and times of use of the
        //   first-level cache, both of as many slots as its mask says (`Own::new`), which
        //   the tables own a share of;
        // - the records of pages of code, the words of the TLB, which the tables own a
        //   share of and which are as many as `Turn::new` wants, and the book's tables of
        //   frames, whose boxes it keeps;
        // - the table of computed transfers, emptied with the code it leads to.
        // These belong to `watch`, which nobody uses meanwhile but the helpers, and
        // those make their references from `context`, one call at a time.
        let left = unsafe {
            let enter: Enter = std::mem::transmute(thunk);
            enter(context.cpu, base, table, block, counter)
        };
        let watch = context.watch;
        let indirect =
            (cpu.shared.reason == Reason::Indirect as u64).then_some(cpu.shared.site as u32);
        let retired = match &start {
            None => limit - left,
            Some(start) => {
                let clock = left / TICKS - 1;
                // SAFETY: the pointer comes from this function's `&mut O`, which is
                // not used otherwise after `context` was made.
                unsafe { &mut *watch }.stopped(cpu.pc, clock, indirect);
                clock - start.clock
            }
        };
        cpu.retired = cpu.retired.wrapping_add(retired);
        raise(cpu);
        let reason = match cpu.shared.reason {
            0 => Reason::Lookup,
            2 => Reason::Link,
            3 => Reason::Limit,
            4 => Reason::Indirect,
            _ => Reason::Interpret,
        };
        (reason, indirect)
    }
}

/// Generated code's access to memory that it does not know to hit. What is usual is
/// done here; the rest goes on with the same arguments.
extern "sysv64" fn data<W: World, O: Observer>(
    context: *mut Context<W, O>,
    va: u64,
    pc: u64,
    site: u64,
    ticks: u64,
) -> u64 {
    // SAFETY: generated code passes the context that `enter` made and still holds;
    // the three pointers come from distinct `&mut` that `enter` does not use while
    // generated code runs, and generated code waits for this call.
    let (cpu, world, watch) =
        unsafe { (&*(*context).cpu, &mut *(*context).world, &mut *(*context).watch) };
    let ram = world.ram_mut().start() as u64;
    match watch.data_at_once(cpu, ram, &site_of(pc, site, ticks), va) {
        Some(host) => host,
        None => data_told(context, va, pc, site, ticks),
    }
}

/// The rest.
#[inline(never)]
extern "sysv64" fn data_told<W: World, O: Observer>(
    context: *mut Context<W, O>,
    va: u64,
    pc: u64,
    site: u64,
    ticks: u64,
) -> u64 {
    // SAFETY: as in `data`, which has ended its use of them.
    let (cpu, world, watch) =
        unsafe { (&mut *(*context).cpu, &mut *(*context).world, &mut *(*context).watch) };
    watch.data_generated(cpu, world, &site_of(pc, site, ticks), va).unwrap_or(0)
}

#[inline(always)]
fn site_of(pc: u64, site: u64, ticks: u64) -> Site {
    let packed = Packed::unpack(site as u32);
    Site {
        pc,
        size: packed.size.into(),
        access: if packed.store { Access::Store } else { Access::Load },
        next: (packed.follows != 0).then(|| pc.wrapping_add(packed.follows.into())),
        clock: ticks / TICKS + u64::from(packed.index),
    }
}

/// Generated code's step into a line that it does not know to hit.
extern "sysv64" fn fetch<W: World, O: Observer>(
    context: *mut Context<W, O>,
    at: u64,
    pc: u64,
    site: u64,
    ticks: u64,
) -> u64 {
    // SAFETY: as in `data`.
    let watch = unsafe { &mut *(*context).watch };
    let packed = Packed::unpack(site as u32);
    let clock = ticks / TICKS + u64::from(packed.index);
    watch.fetch_generated(pc, (at, packed.size.into()), clock);
    0
}

/// The host's sticky flags become the guest's.
fn raise(cpu: &mut Cpu) {
    let host = cpu.shared.mxcsr;
    if host & 0x3d == 0 {
        return;
    }
    let bit = |n: u32, flag: u8| if host >> n & 1 != 0 { flag } else { 0 };
    let flags = bit(0, flag::INVALID)
        | bit(2, flag::DIVIDE_BY_ZERO)
        | bit(3, flag::OVERFLOW)
        | bit(4, flag::UNDERFLOW)
        | bit(5, flag::INEXACT);
    cpu.raise(flags);
    debug_assert_ne!(cpu.float_state, FloatState::Off);
}
