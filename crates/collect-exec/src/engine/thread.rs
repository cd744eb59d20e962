//! One thread of the program: its block of memory, and what the engine knows about it.
//!
//! Layout of a block: context and tables as `ctx` says, then a guard page, the engine's stack, a
//! guard page, the stack for signals, the counters of a sieve. Blocks are reused when their thread has ended.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ichnos_tap::Life;

use super::ctx::{Ctx, SIEVE_END};
use super::decoded::Decoded;
use super::glue;
use super::lock::Lock;
use super::maps::{self, Changed, Table};
use super::native::Leaving;
use super::signals::{Actions, AltStack, Queue};
use super::state;
use super::sync::Begun;
use super::sys;
use super::{count, gates, trace, xstate};
use crate::sieve::COUNTERS_LEN;
use crate::{window, words};

const PAGE: u64 = 4096;
const STACK_LEN: u64 = 252 << 10;
const SIGNAL_STACK_LEN: u64 = 188 << 10;
const TABLES: u64 = SIEVE_END as u64;
const STACK_AT: u64 = TABLES + PAGE;
const SIGNAL_STACK_AT: u64 = STACK_AT + STACK_LEN + PAGE;
/// Where a thread's counters appear, if it runs behind a sieve.
pub const COUNTERS_AT: u64 = (SIGNAL_STACK_AT + SIGNAL_STACK_LEN).next_multiple_of(64 << 10);
const BLOCK: u64 = COUNTERS_AT + COUNTERS_LEN;

/// What the engine knows about a thread.
pub struct Thread {
    /// Blocked signals as the program sees them.
    pub mask: u64,
    /// The program's alternate signal stack.
    pub alt: AltStack,
    /// Signals that wait for delivery.
    pub queue: Queue,
    /// What the program wants done with signals, shared like the kernel's.
    pub actions: Arc<Lock<Actions>>,
    /// Whether and how far the thread is being stepped: not, to a fragment's entry, out of changed code.
    pub stepping: Stepping,
    /// Whether the program's alignment checks are off for a save point.
    pub unchecked: bool,
    /// Where the last step began.
    pub stepped_from: u64,
    /// The store that was made again last because its page had just been opened, and how often.
    pub retried: (u64, u64, u32),
    /// Whether the maker waits for this thread's end and gives back its block.
    pub borrowed: bool,
    /// The trace's number of the process.
    pub process: u32,
    /// The trace's number of the thread that made this one.
    pub creator: u32,
    /// Synchronisation that the thread has begun.
    pub begun: Begun,
    /// What was told about the process's memory.
    pub maps: Arc<Lock<Table>>,
    /// Whether it has entered the function that begins what is recorded, and not yet the one that ends it.
    pub inside: bool,
    /// Instructions that are looked at each time they run.
    pub decoded: Decoded,
    /// Behind a sieve: the repeated string that runs, and its count before.
    pub repeats: (u64, u64),
    /// The place of the process that begins with this thread.
    pub life: Option<&'static Life>,
    /// The operating system's numbers of its process and of itself.
    pub os: (u32, u32),
    /// Room for the state with which the thread leaves the engine.
    pub leaving: Option<Box<Leaving>>,
}

/// How far a thread is stepped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stepping {
    /// Not at all.
    No,
    /// To the entry of a fragment.
    ToEntry,
    /// Behind the present instruction, which changes the code that follows.
    OutOfChanged,
    /// Behind an instruction of the program in its own place.
    InPlace,
    /// Behind a save point, whose words are not aligned while the program wants that.
    Unaligned,
}

/// What a new thread begins with.
pub struct Seed {
    /// What the program wants done with signals.
    pub actions: Arc<Lock<Actions>>,
    /// What was told about the process's memory.
    pub maps: Arc<Lock<Table>>,
    /// The engine's own fs base.
    pub engine_fs: u64,
    /// The trace's number of the process.
    pub process: u32,
    /// The trace's number of the thread that made it.
    pub creator: u32,
    /// The place of a process that begins with the thread.
    pub life: Option<&'static Life>,
}

static NEXT: AtomicU64 = AtomicU64::new(window::THREADS);
static FREE: Lock<Vec<(u64, u64)>> = Lock::new(Vec::new());

/// Makes the context of a new thread. `None` if there is no memory.
pub fn create(seed: Seed) -> Option<&'static mut Ctx> {
    let at = take_block()?;
    let ctx = at as *mut Ctx;
    let thread = Box::new(Thread {
        mask: 0,
        alt: AltStack::NONE,
        queue: Queue::new(),
        actions: seed.actions,
        stepping: Stepping::No,
        unchecked: false,
        stepped_from: 0,
        retried: (0, 0, 0),
        borrowed: false,
        process: seed.process,
        creator: seed.creator,
        begun: Begun::default(),
        maps: seed.maps,
        inside: gates::begins_inside(),
        decoded: Decoded::default(),
        repeats: (0, 0),
        life: seed.life,
        os: (0, 0),
        leaving: None,
    });
    // SAFETY: the block is mapped, aligned, zero or left by a thread that has ended.
    let ctx = unsafe {
        ctx.write_bytes(0, 1);
        &mut *ctx
    };
    ctx.this = at;
    ctx.outside.store(1, Ordering::Relaxed);
    ctx.forget_targets();
    ctx.miss_jump = glue::address(glue::ichnos_miss_jump_pad);
    ctx.miss_ret = glue::address(glue::ichnos_miss_ret_pad);
    ctx.engine_sp = at + STACK_AT + STACK_LEN - 64;
    ctx.engine_fs = seed.engine_fs;
    ctx.xmask = xstate::engine_mask();
    ctx.rflags = 0x202;
    ctx.buffer_index = u32::MAX;
    ctx.thread = Box::into_raw(thread);
    xstate::init(&mut ctx.xsave);
    count::begin(ctx);
    state::get().threads.lock().push(at);
    Some(ctx)
}

/// The block that holds an address.
pub fn block_of(addr: u64) -> u64 {
    addr - (addr - window::THREADS) % BLOCK
}

/// The stack on which a thread's signals arrive.
pub fn signal_stack(ctx: &Ctx) -> AltStack {
    AltStack { sp: ctx.this + SIGNAL_STACK_AT, flags: 0, size: SIGNAL_STACK_LEN }
}

/// Sets up what the kernel must know about the calling thread.
pub fn adopt(ctx: &Ctx) {
    let AltStack { sp, flags, size } = signal_stack(ctx);
    let stack = [sp, flags, size];
    // SAFETY: the stack is this thread's own, and used for nothing else.
    let done = unsafe { sys::call(libc::SYS_sigaltstack, [stack.as_ptr() as u64, 0, 0, 0, 0, 0]) };
    if sys::failed(done) {
        sys::die("the kernel refuses the engine's signal stack");
    }
    // SAFETY: the thread's data lives as long as its context, and is this thread's own.
    unsafe { (*ctx.thread).os = sys::own_numbers() };
}

/// First thing that a new thread does on its engine stack.
pub unsafe extern "C" fn thread_main(ctx: *mut Ctx) {
    // SAFETY: the glue passes the new thread's own context.
    let ctx = unsafe { &mut *ctx };
    // The child begins with the program's thread area; the engine needs its own.
    // SAFETY: the engine's fs base is valid for all threads.
    unsafe { std::arch::asm!("wrfsbase {}", in(reg) ctx.engine_fs, options(nostack)) };
    adopt(ctx);
    // SAFETY: the thread's data lives as long as its context.
    let life = unsafe { &mut *ctx.thread }.life.take();
    trace::begin(ctx);
    if let Some(life) = life {
        life.begin(sys::own_numbers().0);
        maps::refresh(ctx, Changed::Anything);
    }
    trace::event(ctx, words::FS_BASE, ctx.fs);
    trace::event(ctx, words::GS_BASE, ctx.gs);
}

/// The calling thread is about to end: its block can be reused once the kernel says that
/// thread `tid` is gone.
pub fn retire(ctx: &mut Ctx, tid: u64) {
    trace::close(ctx);
    // SAFETY: the thread's data lives as long as its context.
    if unsafe { &*ctx.thread }.borrowed {
        return;
    }
    forget(ctx);
    FREE.lock().push((ctx.this, tid));
}

/// Takes a thread off the books.
pub fn forget(ctx: &mut Ctx) {
    state::get().threads.lock().retain(|&t| t != ctx.this);
    if !ctx.thread.is_null() {
        // SAFETY: made by `create` and not used again.
        drop(unsafe { Box::from_raw(ctx.thread) });
        ctx.thread = std::ptr::null_mut();
    }
}

/// For a fork: nobody changes the books while `during` runs.
pub fn held<T>(during: impl FnOnce() -> T) -> T {
    let _free = FREE.lock();
    during()
}

/// In the child of a fork only the calling thread is left.
pub fn only(ctx: &Ctx) {
    let mut threads = state::get().threads.lock();
    let others = std::mem::take(&mut *threads);
    threads.push(ctx.this);
    let mut free = FREE.lock();
    free.iter_mut().for_each(|(_, tid)| *tid = 0);
    free.extend(others.into_iter().filter(|&t| t != ctx.this).map(|t| (t, 0)));
}

fn take_block() -> Option<u64> {
    let mut free = FREE.lock();
    let gone = |&(_, tid): &(u64, u64)| tid == 0 || !exists(tid);
    if let Some(i) = free.iter().position(gone) {
        return Some(free.swap_remove(i).0);
    }
    drop(free);
    let at = NEXT.fetch_add(BLOCK, Ordering::Relaxed);
    if at + BLOCK > window::THREADS_END {
        return None;
    }
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    sys::map_at(at, TABLES, rw).ok()?;
    sys::map_at(at + STACK_AT, STACK_LEN, rw).ok()?;
    sys::map_at(at + SIGNAL_STACK_AT, SIGNAL_STACK_LEN, rw).ok()?;
    Some(at)
}

/// Gives back a block whose thread could not be started, or has ended without its own doing. A buffer
/// that it left is the collector's.
pub fn discard(ctx: &mut Ctx) {
    forget(ctx);
    FREE.lock().push((ctx.this, 0));
}

/// Whether a thread is there, of whatever process: it may have shared memory and nothing else.
fn exists(tid: u64) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { sys::call(libc::SYS_tkill, [tid, 0, 0, 0, 0, 0]) != -i64::from(libc::ESRCH) }
}
