//! The context of one thread of the program: what `gs` points to.
//!
//! One block of address space per thread: this structure, then the two tables of
//! indirect targets, then the engine's stack for this thread and the stack on which its
//! signals arrive. The code cache reaches the first two by `gs`-relative addressing, so
//! their offsets are the same for all threads.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use super::glue;

/// Bytes of the vector-state area.
pub const XSAVE_LEN: usize = 12 << 10;
/// Entries of a table of indirect targets: the low 16 bits of the address choose.
pub const TABLE_LEN: usize = 1 << 16;
/// Offset of the table for jumps and calls.
pub const JUMP_TABLE: u32 = 64 << 10;
/// Offset of the table for returns.
pub const RET_TABLE: u32 = JUMP_TABLE + (TABLE_LEN as u32) * 8;
/// Offset of the end of the tables.
pub const TABLES_END: u64 = RET_TABLE as u64 + (TABLE_LEN as u64) * 8;

/// As a power of two, the most sets that the tables of a sieve distinguish.
pub const SIEVE_SETS: u32 = 12;
/// How many lines of a set are known at most.
pub const SIEVE_WAYS: u32 = 16;
/// As a power of two, the slots in which translated code looks for lines of data; not fewer than sets.
pub const SIEVE_SLOTS: u32 = 12;
/// What stands for no line of data: no line begins there.
pub const SIEVE_NONE: u64 = u64::MAX;
/// How many lines of code can have a number.
pub const SIEVE_NUMBERS: u32 = 1 << 19;
/// Offset of the slots of a sieve: of each the address of a line, ...
pub const SIEVE_LINES: u32 = TABLES_END as u32;
/// ... and the offset of its way, which is always that of one.
pub const SIEVE_WAY: u32 = SIEVE_LINES + 8;
/// Offset of the sets of the data cache, which follow each other; in each the ways, of each the address of its line.
pub const SIEVE_DATA: u32 = SIEVE_LINES + (16 << SIEVE_SLOTS);
/// Offset, from a way, of when its line was loaded from last; ...
pub const WAY_LOADED: u32 = 8;
/// ... and of when it was stored to last, zero if it was not.
pub const WAY_STORED: u32 = 16;
/// Bytes of a way.
pub const WAY_LEN: u32 = 24;
/// Offset of the sets of the code cache: the lines, and their numbers.
pub const SIEVE_CODE: u32 = SIEVE_DATA + ((WAY_LEN * SIEVE_WAYS) << SIEVE_SETS);
/// Bytes of a row of words, one a way.
pub const SIEVE_ROW: u32 = 8 * SIEVE_WAYS;
/// Bytes of a set of the code cache: two rows.
pub const SIEVE_SET: u32 = 2 * SIEVE_ROW;
/// Offset of the times at which lines of code were fetched from last, by their numbers; zero for those that are not known.
pub const SIEVE_FETCHED: u32 = SIEVE_CODE + (SIEVE_SET << SIEVE_SETS);
/// Offset of the end of these tables.
pub const SIEVE_END: u32 = SIEVE_FETCHED + 8 * SIEVE_NUMBERS;

const _: () = assert!(SIEVE_SLOTS >= SIEVE_SETS);

/// Why the code cache was left: an index of an exit, or one of these.
pub mod exit {
    /// An indirect jump or call to an address that no table knows.
    pub const JUMP_MISS: u64 = 0;
    /// A return to an address that no table knows.
    pub const RET_MISS: u64 = 1;
    /// Nothing but a signal that waits.
    pub const PENDING: u64 = 2;
    /// A fault in translated code; the context holds the program's exact state.
    pub const FAULT: u64 = 3;
    /// An instruction has run in its own place; the context holds the program's state behind it.
    pub const IN_PLACE: u64 = 4;
    /// The first index that stands for an exit of a fragment.
    pub const FIRST: u64 = 16;
}

/// Numbers of the general registers in [`Ctx::regs`].
pub mod reg {
    #![allow(missing_docs, reason = "the processor's own names")]
    pub const RAX: usize = 0;
    pub const RCX: usize = 1;
    pub const RDX: usize = 2;
    pub const RSP: usize = 4;
    pub const RSI: usize = 6;
    pub const RDI: usize = 7;
    pub const R8: usize = 8;
    pub const R9: usize = 9;
    pub const R10: usize = 10;
    pub const R11: usize = 11;
}

/// The context.
#[repr(C, align(64))]
pub struct Ctx {
    /// Its own address.
    pub this: u64,
    /// rax, while translated code uses the register.
    pub spill_rax: u64,
    /// rcx, likewise.
    pub spill_rcx: u64,
    /// rdx, likewise.
    pub spill_rdx: u64,
    /// Flags, likewise (as `lahf` and `seto` leave them).
    pub spill_flags: u64,
    /// Any register, while an unreachable operand needs one.
    pub spill_far: u64,
    /// Why the cache was left.
    pub exit: u64,
    /// Where to leave the cache.
    pub glue_exit: u64,
    /// Where to go last before entering the cache.
    pub glue_enter: u64,
    /// Where a pad for jumps goes that was reached for another target.
    pub miss_jump: u64,
    /// Where a pad for returns goes that was reached for another target.
    pub miss_ret: u64,
    /// The top of the engine's stack.
    pub engine_sp: u64,
    /// The engine's own fs base.
    pub engine_fs: u64,
    /// Where in the cache to go on.
    pub target: u64,
    /// The program's address that a lookup did not find.
    pub wanted: u64,
    /// The shared table of targets of jumps and calls.
    pub jump_index: u64,
    /// The shared table of targets of returns.
    pub ret_index: u64,
    /// Not zero if a signal waits for delivery.
    pub pending: u64,
    /// Which vector state the engine saves.
    pub xmask: u64,
    /// The program's general registers while the engine runs.
    pub regs: [u64; 16],
    /// The program's instruction pointer while the engine runs.
    pub rip: u64,
    /// The program's flags.
    pub rflags: u64,
    /// The program's fs base.
    pub fs: u64,
    /// The program's gs base.
    pub gs: u64,
    /// Where the thread's next word of trace goes.
    pub buffer: u64,
    /// The end of what it stored last that is no plain item, and that the collector must look at.
    pub special: u64,
    /// Which buffer of the tap that is in; `u32::MAX` if none.
    pub buffer_index: u32,
    /// The trace's number of the thread.
    pub id: u32,
    /// How many instructions may run before the thread must ask again, less one.
    pub budget: u64,
    /// How many it has been given so far.
    pub granted: u64,
    /// Not zero if the thread runs recorded fragments.
    pub recorded: u64,
    /// How many it had done when something was told last while it was not recorded.
    pub gap_from: u64,
    /// Not zero while the thread cannot be in translated code: it will ask for a fragment before.
    pub outside: AtomicU64,
    /// Which filling of the cache the thread last asked for a fragment of.
    pub filling: u64,
    /// The instruction, if any, that the thread is about to run and whose block is already recorded.
    pub resumed: u64,
    /// The piece whose last instructions did not run, and how many.
    pub undone: (u32, u32),
    /// Where translated code goes with an access to a line that is in no slot.
    pub glue_tell: u64,
    /// The same for a fetch from a line that is not known.
    pub glue_tell_fetch: u64,
    /// Time behind a sieve: what the last reference of the present piece is stamped with.
    pub clock: u64,
    /// The reference: bits as in [`crate::sieve::line`], its bytes, and how much earlier than the clock it is.
    pub tell_what: u32,
    /// The number of the line of a fetch.
    pub tell_number: u32,
    /// The address.
    pub tell_addr: u64,
    /// The second line of the access, if it has one.
    pub tell_more: u64,
    /// The offset of a fetch's set.
    pub tell_set: u64,
    /// Where translated code goes on then.
    pub tell_back: u64,
    /// Registers meanwhile.
    pub tell_regs: [u64; 10],
    /// Not zero if the instruction that faulted had used lines before.
    pub undo_used: u64,
    /// For the case that an access faults, the time that it has overwritten; all ones if its line was told.
    pub undo: u64,
    /// If it was told, what that has changed.
    pub undo_told: Changed,
    /// The same for a fetch: its time, ...
    pub undo_fetch: u64,
    /// ... the low half of its instruction's address ...
    pub undo_fetch_pc: u64,
    /// ... and what telling it has changed. The third word of a line that had to go is its number.
    pub undo_fetch_told: Changed,
    /// The bits of an address within a line of data.
    pub line_mask: u64,
    /// How an address becomes eight times its set: shifted by this, then these bits.
    pub set_shift: u64,
    /// See above.
    pub set_mask: u64,
    /// The bytes of the lines known of each set of the data cache.
    pub data_set: u64,
    /// An eighth of them.
    pub data_set_eighth: u64,
    /// Eight times the lines known of each set of the code cache.
    pub code_ways: u64,
    /// Not zero if all lines of each set of the data cache are known.
    pub data_whole: u64,
    /// The same for the code cache.
    pub code_whole: u64,
    /// The piece of [`Ctx::resumed`].
    pub resumed_block: u32,
    /// The engine's own per-thread data.
    pub thread: *mut super::thread::Thread,
    /// The program's vector state while the engine runs.
    pub xsave: Xsave,
}

/// What was changed in the tables of a sieve when a line came.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// The offset of the way in which it came.
    pub way: u64,
    /// The line that was there, if any; of code zero stands for none.
    pub gone: u64,
    /// When that was used last.
    pub used: u64,
    /// When it was stored to last, or its number.
    pub stored: u64,
}

/// Room for vector state.
#[repr(C, align(64))]
pub struct Xsave(pub [u8; XSAVE_LEN]);

const _: () = assert!(size_of::<Ctx>() <= JUMP_TABLE as usize);

/// Offsets by which translated code reaches the context.
pub mod at {
    use super::{Ctx, offset_of};
    /// Of [`Ctx::spill_rax`].
    pub const SPILL_RAX: u32 = offset_of!(Ctx, spill_rax) as u32;
    /// Of [`Ctx::spill_rcx`].
    pub const SPILL_RCX: u32 = offset_of!(Ctx, spill_rcx) as u32;
    /// Of [`Ctx::spill_rdx`].
    pub const SPILL_RDX: u32 = offset_of!(Ctx, spill_rdx) as u32;
    /// Of [`Ctx::spill_flags`].
    pub const SPILL_FLAGS: u32 = offset_of!(Ctx, spill_flags) as u32;
    /// Of [`Ctx::fs`].
    pub const FS: u32 = offset_of!(Ctx, fs) as u32;
    /// Of [`Ctx::glue_tell`].
    pub const GLUE_TELL: u32 = offset_of!(Ctx, glue_tell) as u32;
    /// Of [`Ctx::glue_tell_fetch`].
    pub const GLUE_TELL_FETCH: u32 = offset_of!(Ctx, glue_tell_fetch) as u32;
    /// Of [`Ctx::clock`].
    pub const CLOCK: u32 = offset_of!(Ctx, clock) as u32;
    /// Of [`Ctx::undo`].
    pub const UNDO: u32 = offset_of!(Ctx, undo) as u32;
    /// Of [`Ctx::undo_fetch`].
    pub const UNDO_FETCH: u32 = offset_of!(Ctx, undo_fetch) as u32;
    /// Of [`Ctx::undo_fetch_pc`].
    pub const UNDO_FETCH_PC: u32 = offset_of!(Ctx, undo_fetch_pc) as u32;
    /// Of [`Ctx::tell_number`].
    pub const TELL_NUMBER: u32 = offset_of!(Ctx, tell_number) as u32;
    /// Of [`Ctx::tell_set`].
    pub const TELL_SET: u32 = offset_of!(Ctx, tell_set) as u32;
    /// Of [`Ctx::tell_what`].
    pub const TELL_WHAT: u32 = offset_of!(Ctx, tell_what) as u32;
    /// Of [`Ctx::tell_addr`].
    pub const TELL_ADDR: u32 = offset_of!(Ctx, tell_addr) as u32;
    /// Of [`Ctx::tell_back`].
    pub const TELL_BACK: u32 = offset_of!(Ctx, tell_back) as u32;
    /// Of [`Ctx::spill_far`].
    pub const SPILL_FAR: u32 = offset_of!(Ctx, spill_far) as u32;
    /// See [`Ctx::engine_sp`].
    pub const ENGINE_SP: u32 = offset_of!(Ctx, engine_sp) as u32;
    /// Of [`Ctx::exit`].
    pub const EXIT: u32 = offset_of!(Ctx, exit) as u32;
    /// Of [`Ctx::glue_exit`].
    pub const GLUE_EXIT: u32 = offset_of!(Ctx, glue_exit) as u32;
    /// Of [`Ctx::miss_jump`].
    pub const MISS_JUMP: u32 = offset_of!(Ctx, miss_jump) as u32;
    /// Of [`Ctx::miss_ret`].
    pub const MISS_RET: u32 = offset_of!(Ctx, miss_ret) as u32;
    /// Of [`Ctx::buffer`].
    pub const BUFFER: u32 = offset_of!(Ctx, buffer) as u32;
    /// Of [`Ctx::special`].
    pub const SPECIAL: u32 = offset_of!(Ctx, special) as u32;
    /// Of [`Ctx::regs`], of which translated code may use the places of registers that it borrows.
    pub const REGS: u32 = offset_of!(Ctx, regs) as u32;
    /// Of [`Ctx::budget`].
    pub const BUDGET: u32 = offset_of!(Ctx, budget) as u32;
    /// Of [`Ctx::gs`].
    pub const GS: u32 = offset_of!(Ctx, gs) as u32;
}

impl Ctx {
    /// Empties both tables of indirect targets. Their thread may look into them meanwhile: it finds an
    /// old entry or none.
    pub fn forget_targets(&self) {
        let tables = [
            (JUMP_TABLE, glue::address(glue::ichnos_miss_jump)),
            (RET_TABLE, glue::address(glue::ichnos_miss_ret)),
        ];
        for (table, miss) in tables {
            let slots = (self.this + u64::from(table)) as *const AtomicU64;
            // SAFETY: a context stands at the head of a block that holds both tables.
            let slots = unsafe { std::slice::from_raw_parts(slots, TABLE_LEN) };
            slots.iter().for_each(|slot| slot.store(miss, Ordering::Relaxed));
        }
    }

    /// An entry of one of the two tables in this thread's block.
    ///
    /// # Safety
    ///
    /// The context must lie at the start of a block that holds the tables.
    pub unsafe fn table_slot(&self, table: u32, target: u64) -> *mut u64 {
        let offset = u64::from(table) + (target & 0xffff) * 8;
        (self.this + offset) as *mut u64
    }
}
