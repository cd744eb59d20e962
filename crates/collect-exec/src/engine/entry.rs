//! How the engine begins: its loader runs this before `main`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::arch::asm;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::cache::Cache;
use super::ctx::Ctx;
use super::lock::{self, Lock};
use super::pages::read_file;
use super::places::{self, first_gaps};
use super::signals;
use super::state::{self, State};
use super::thread::Seed;
use super::{alloc, count, gates, glue, maps, sieved, sys, thread, trace};
use crate::boot::{Boot, NAME, Paths};
use crate::words;

type Hook = unsafe extern "C" fn(i32, *const *const u8);

/// Constructors get the program's arguments on this system's libc.
#[used]
#[unsafe(link_section = ".init_array")]
static HOOK: Hook = hook;

/// Makes sure that the linker keeps the hook.
pub fn keep() {
    std::hint::black_box(&HOOK);
}

unsafe extern "C" fn hook(argc: i32, argv: *const *const u8) {
    if argc != 2 || argv.is_null() {
        return;
    }
    // SAFETY: with two arguments both pointers are there, and the first is a string.
    let (name, boot) = unsafe { (*argv, *argv.add(1)) };
    let is_engine = NAME.iter().enumerate().all(|(i, &b)| {
        // SAFETY: bytes are compared in order, so none behind the string's end is read.
        b == unsafe { *name.add(i) }
    });
    if is_engine {
        // SAFETY: only the host starts a program under this name, and puts the structure there.
        run(unsafe { &*boot.cast::<Boot>() });
    }
}

fn run(boot: &Boot) -> ! {
    if boot.size != size_of::<Boot>() as u64 {
        sys::die("host and engine are of different builds");
    }
    if !super::tap::header().is_valid() {
        sys::die("the tap is not of this version");
    }
    alloc::become_engine();
    std::panic::set_hook(Box::new(|info| {
        sys::say("ichnos: the engine failed: ");
        sys::say(&info.to_string());
        sys::say("\n");
        sys::exit_group(2);
    }));
    for &[start, len] in boot.reserved.iter().take(boot.reserved_len as usize) {
        // SAFETY: the host mapped these for the time of loading; nothing lies in them.
        unsafe { sys::call(libc::SYS_munmap, [start, len, 0, 0, 0, 0]) };
    }
    lock::alone();
    let traced = boot.traced != 0;
    let counted = traced && boot.counted != 0;
    let [start, stop, plain, recorded] = boot.plan;
    count::set(count::Plan { start, stop, turns: (plain, recorded) });
    gates::set(boot.gates);
    let sieve = boot.sieve().filter(|_| traced);
    let cache = Cache::new(&first_gaps(&mappings(), boot.cache), counted, sieve);
    state::set(State {
        cache: Lock::new(cache),
        threads: Lock::new(Vec::new()),
        process: AtomicU32::new(boot.ids[0]),
        traced,
        counted,
        sieve,
        fallback: boot.fallback != 0,
        paths: Paths::of(boot.paths),
        debug: boot.debug,
        exits: AtomicU64::new(0),
    });
    let fs: u64;
    // SAFETY: reading the base changes nothing.
    unsafe { asm!("rdfsbase {}", out(reg) fs, options(nomem, nostack)) };
    let actions = Arc::new(Lock::new(signals::Actions::inherited()));
    let maps = Arc::new(Lock::new(maps::Table::default()));
    let (process, creator) = (boot.ids[0], words::NOBODY);
    let seed = Seed { actions, maps, engine_fs: fs, process, creator, life: None };
    let Some(ctx) = thread::create(seed) else { sys::die("no memory for a thread") };
    begin(ctx, boot)
}

fn begin(ctx: &'static mut Ctx, boot: &Boot) -> ! {
    ctx.regs = boot.regs;
    ctx.rip = boot.rip;
    ctx.rflags = boot.rflags | 0x202;
    ctx.id = boot.ids[1];
    sieved::adopt(ctx);
    thread::adopt(ctx);
    signals::start(ctx);
    if boot.traced != 0 {
        trace::start();
        if boot.follows == 0 {
            trace::begin(ctx);
        } else {
            trace::wide(ctx, words::EXEC, &maps::own_path());
        }
        maps::refresh(ctx, maps::Changed::Anything);
        trace::event(ctx, words::FS_BASE, 0);
        trace::event(ctx, words::GS_BASE, 0);
    }
    // SAFETY: the context is complete; this thread runs the program from now on.
    unsafe { glue::ichnos_start(ctx) }
}

fn mappings() -> Vec<(u64, u64, bool)> {
    let mut text = Vec::new();
    if !read_file(b"/proc/self/maps\0", &mut text) {
        sys::die("cannot read /proc/self/maps");
    }
    let parse = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        (!places::is_engine(start, 1)).then_some((start, end, line.ends_with("[stack]")))
    };
    String::from_utf8_lossy(&text).lines().filter_map(parse).collect()
}
