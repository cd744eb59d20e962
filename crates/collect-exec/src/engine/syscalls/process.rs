//! Calls that make and end threads and processes, and `arch_prctl`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ichnos_tap::Life;

use super::{Answer, args, direct, finish, judged};
use crate::engine::ctx::{Ctx, reg};
use crate::engine::lock::{self, Lock};
use crate::engine::maps::{self, Changed, Table};
use crate::engine::thread::Seed;
use crate::engine::{alloc, count, gates, glue, sieved, state, sync, sys, tap, thread, trace};
use crate::words;

const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_VFORK: u64 = libc::CLONE_VFORK as u64;
const CLONE_SIGHAND: u64 = libc::CLONE_SIGHAND as u64;
const CLONE_SETTLS: u64 = libc::CLONE_SETTLS as u64;
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;
const CLONE_NEWPID: u64 = libc::CLONE_NEWPID as u64;
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;

/// Does one of them.
pub fn run(ctx: &mut Ctx, number: i64) -> Answer {
    let a = args(ctx);
    match number {
        libc::SYS_clone => {
            let [flags, stack, parent_tid, child_tid, tls, _] = a;
            let stack = (stack != 0).then_some(stack);
            clone(
                ctx,
                &Request {
                    flags,
                    stack,
                    tls,
                    native: [flags, 0, parent_tid, child_tid, 0, 0],
                    extended: None,
                },
            )
        }
        libc::SYS_fork => clone(ctx, &Request::simple(libc::SIGCHLD as u64)),
        libc::SYS_vfork => {
            clone(ctx, &Request::simple(CLONE_VFORK | CLONE_VM | libc::SIGCHLD as u64))
        }
        libc::SYS_clone3 => clone3(ctx, &a),
        libc::SYS_arch_prctl => arch_prctl(ctx, &a),
        libc::SYS_exit_group => {
            statistics();
            trace::time(ctx);
            trace::event(ctx, words::END_ALL, a[0]);
            tap::header().ends.fetch_add(1, Ordering::Relaxed);
            trace::close(ctx);
            sys::exit_group(a[0])
        }
        _ => exit(ctx, a[0]),
    }
}

struct Request {
    flags: u64,
    /// The child's stack pointer, if it gets one.
    stack: Option<u64>,
    tls: u64,
    /// The call's arguments as clone has them, without stack and thread area.
    native: [u64; 6],
    /// clone3's structure and its size.
    extended: Option<([u64; 11], u64)>,
}

impl Request {
    fn simple(flags: u64) -> Self {
        Self { flags, stack: None, tls: 0, native: [flags, 0, 0, 0, 0, 0], extended: None }
    }
}

fn clone3(ctx: &mut Ctx, a: &[u64; 6]) -> Answer {
    let [at, size, ..] = *a;
    if !(64..=4096).contains(&size) {
        return Answer::Value(-i64::from(libc::EINVAL));
    }
    let mut words = [0u64; 11];
    let known = size.min(88);
    // SAFETY: a slice of the array's own bytes.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), known as usize) };
    if !sys::copy_in(at, bytes) {
        return Answer::Value(-i64::from(libc::EFAULT));
    }
    if size > 88 {
        return Answer::Value(-i64::from(libc::E2BIG));
    }
    let (flags, stack, stack_len, tls) = (words[0], words[5], words[6], words[7]);
    let stack = (stack != 0).then_some(stack.wrapping_add(stack_len));
    let request = Request { flags, stack, tls, native: [0; 6], extended: Some((words, known)) };
    clone(ctx, &request)
}

fn clone(ctx: &mut Ctx, request: &Request) -> Answer {
    // What comes before the child is told before the child is.
    trace::hand_in(ctx);
    if request.flags & CLONE_VM != 0 { clone_sharing(ctx, request) } else { fork(ctx, request) }
}

/// Makes the kernel's arguments for a child that starts on an engine stack; with `stack` zero the
/// child goes on where the parent is.
fn native_args(request: &Request, engine_sp: u64, structure: &mut [u64; 11]) -> [u64; 7] {
    // The child sets its thread area itself, when it enters the cache.
    let flags = request.flags & !CLONE_SETTLS;
    match request.extended {
        None => {
            let n = request.native;
            [libc::SYS_clone as u64, flags, engine_sp, n[2], n[3], 0, 0]
        }
        Some((words, size)) => {
            *structure = words;
            structure[0] = flags;
            structure[7] = 0;
            // A stack is given by its lowest address and length; any nonzero length will do.
            (structure[5], structure[6]) =
                if engine_sp == 0 { (0, 0) } else { (engine_sp - 4096, 4096) };
            [libc::SYS_clone3 as u64, structure.as_ptr() as u64, size, 0, 0, 0, 0]
        }
    }
}

/// The trace's numbers of what a clone makes.
struct Numbers {
    process: u32,
    thread: u32,
    life: Option<&'static Life>,
}

impl Numbers {
    /// Numbers for a new thread of the caller's process, or for a new process. `None` if there are too
    /// many processes.
    fn new(ctx: &Ctx, flags: u64) -> Option<Self> {
        let header = tap::header();
        // SAFETY: the thread's data lives as long as its context.
        let mut process = unsafe { &*ctx.thread }.process;
        let mut life = None;
        if flags & CLONE_THREAD == 0 {
            process = header.processes.fetch_add(1, Ordering::Relaxed);
            life = Some(header.claim_life(sys::own_numbers().0, process)?);
        }
        let thread = header.threads.fetch_add(1, Ordering::Relaxed);
        Some(Self { process, thread, life })
    }

    /// In the maker: nothing was made. Numbers go back if nobody took any since, so that they
    /// have no holes.
    fn give_back(&self) {
        let header = tap::header();
        let back = |counter: &AtomicU32, number: u32| {
            let _ =
                counter.compare_exchange(number + 1, number, Ordering::Relaxed, Ordering::Relaxed);
        };
        back(&header.threads, self.thread);
        if let Some(life) = self.life {
            back(&header.processes, self.process);
            life.end();
        }
    }

    /// In the maker: tells of what was made. The child of a new name space does not know its
    /// own number as the collector sees it.
    fn tell(&self, ctx: &mut Ctx, flags: u64, os: i64) {
        if let Some(life) = self.life.filter(|_| flags & CLONE_NEWPID != 0) {
            life.begin(os as u32);
        }
        trace::event(ctx, words::CREATE, u64::from(self.thread));
    }

    /// In a child: the place to begin its life in.
    fn own_life(&self, flags: u64) -> Option<&'static Life> {
        self.life.filter(|_| flags & CLONE_NEWPID == 0)
    }
}

/// A new thread, or a process that shares the address space.
fn clone_sharing(ctx: &mut Ctx, request: &Request) -> Answer {
    // SAFETY: the thread's data lives as long as its context.
    let parent = unsafe { &*ctx.thread };
    let actions = if request.flags & CLONE_SIGHAND != 0 {
        Arc::clone(&parent.actions)
    } else {
        Arc::new(Lock::new(*parent.actions.lock()))
    };
    let Some(numbers) = Numbers::new(ctx, request.flags) else {
        return Answer::Value(-i64::from(libc::EAGAIN));
    };
    let maps = match numbers.life {
        None => Arc::clone(&parent.maps),
        Some(_) => Arc::new(Lock::new(Table::default())),
    };
    if request.flags & (CLONE_THREAD | CLONE_VFORK) == 0 {
        maps::share();
    }
    let life = numbers.own_life(request.flags);
    let (process, creator, engine_fs) = (numbers.process, ctx.id, ctx.engine_fs);
    let seed = Seed { actions, maps, engine_fs, process, creator, life };
    let Some(child) = thread::create(seed) else {
        numbers.give_back();
        return Answer::Value(-i64::from(libc::EAGAIN));
    };
    inherit(ctx, child, request);
    // SAFETY: the thread's data lives as long as its context.
    unsafe { &mut *child.thread }.borrowed = request.flags & CLONE_VFORK != 0;
    child.id = numbers.thread;
    sieved::adopt(child);
    if state::get().traced && numbers.life.is_none() {
        sync::activate((child.fs, child.id));
    }
    let mut structure = [0; 11];
    let args = native_args(request, child.engine_sp, &mut structure);
    lock::no_longer_alone();
    // SAFETY: the child runs on its own engine stack with its own context.
    let result = unsafe { glue::ichnos_clone(&args, child) };
    if sys::failed(result) {
        numbers.give_back();
        thread::discard(child);
        return Answer::Value(result);
    }
    numbers.tell(ctx, request.flags, result);
    if request.flags & CLONE_VFORK != 0 {
        // The child has ended or replaced its program: its context is free again. It may have
        // changed the memory that it borrowed.
        thread::discard(child);
        maps::refresh(ctx, Changed::Anything);
    }
    Answer::Value(result)
}

fn inherit(ctx: &Ctx, child: &mut Ctx, request: &Request) {
    child.regs = ctx.regs;
    child.rip = ctx.rip;
    child.rflags = ctx.rflags;
    child.gs = ctx.gs;
    child.fs = if request.flags & CLONE_SETTLS != 0 { request.tls } else { ctx.fs };
    child.xsave.0 = ctx.xsave.0;
    finish(child, 0);
    if let Some(sp) = request.stack {
        child.regs[reg::RSP] = sp;
    }
    // SAFETY: both threads' data live as long as their contexts.
    let (parent, thread) = unsafe { (&*ctx.thread, &mut *child.thread) };
    thread.mask = parent.mask;
    // A child that shares memory but is no vfork begins without an alternate stack.
    if request.flags & (CLONE_VM | CLONE_VFORK) != CLONE_VM {
        thread.alt = parent.alt;
    }
    if request.flags & CLONE_CLEAR_SIGHAND != 0 {
        clear_handlers(&mut thread.actions.lock());
    }
}

fn clear_handlers(actions: &mut crate::engine::signals::Actions) {
    for signal in 1..65 {
        if actions.get(signal).handler > 1 {
            actions.forget(signal);
        }
    }
}

/// A new process with an address space of its own.
fn fork(ctx: &mut Ctx, request: &Request) -> Answer {
    let mut structure = [0; 11];
    let args = native_args(request, 0, &mut structure);
    let state = state::get();
    let call = [args[1], args[2], args[3], args[4], args[5], args[6]];
    let Some(numbers) = Numbers::new(ctx, request.flags) else {
        return Answer::Value(-i64::from(libc::EAGAIN));
    };
    // Nobody else may be in the middle of a change, because the child would never see its end.
    let mut cache = state.cache.lock();
    let Some(copies) = cache.copies() else {
        numbers.give_back();
        return Answer::Value(-i64::from(libc::ENOMEM));
    };
    let threads = state.threads.lock();
    // SAFETY: the thread's data lives as long as its context.
    let actions = unsafe { &*ctx.thread }.actions.lock();
    let result = trace::held(|| {
        thread::held(|| sync::held(|| gates::held(|| alloc::held(|| judged(args[0] as i64, call)))))
    });
    drop((threads, actions));
    if result != 0 {
        drop(cache);
        if sys::failed(result) {
            numbers.give_back();
        } else {
            numbers.tell(ctx, request.flags, result);
        }
        return Answer::Value(result);
    }
    trace::disown(ctx);
    cache.replace(&copies);
    drop((cache, copies));
    thread::only(ctx);
    thread::adopt(ctx);
    if request.flags & CLONE_SETTLS != 0 {
        ctx.fs = request.tls;
    }
    become_process(ctx, &numbers, request.flags);
    if let Some(sp) = request.stack {
        ctx.regs[reg::RSP] = sp;
    }
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    if request.flags & CLONE_CLEAR_SIGHAND != 0 {
        clear_handlers(&mut thread.actions.lock());
    }
    Answer::Born
}

/// In the child of a fork: a process of its own begins, and all is told anew.
fn become_process(ctx: &mut Ctx, numbers: &Numbers, flags: u64) {
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    state::get().process.store(numbers.process, Ordering::Relaxed);
    thread.process = numbers.process;
    thread.creator = std::mem::replace(&mut ctx.id, numbers.thread);
    sieved::adopt(ctx);
    thread.maps = Arc::new(Lock::new(Table::default()));
    count::begin(ctx);
    trace::begin(ctx);
    if let Some(life) = numbers.own_life(flags) {
        life.begin(sys::own_numbers().0);
    }
    maps::refresh(ctx, Changed::Anything);
    trace::event(ctx, words::FS_BASE, ctx.fs);
    trace::event(ctx, words::GS_BASE, ctx.gs);
}

fn exit(ctx: &mut Ctx, status: u64) -> Answer {
    let tid = direct(libc::SYS_gettid, [0; 6]) as u64;
    let pid = direct(libc::SYS_getpid, [0; 6]) as u64;
    if tid == pid {
        statistics();
    }
    // Nothing may be delivered to a thread whose books are closed.
    let all = u64::MAX;
    direct(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as u64, &raw const all as u64, 0, 8, 0, 0]);
    // The end has a time of its own: whether it was before another's beginning says who could have had whose caches.
    trace::time(ctx);
    trace::event(ctx, words::END, status);
    thread::retire(ctx, tid);
    loop {
        direct(libc::SYS_exit, [status, 0, 0, 0, 0, 0]);
    }
}

fn arch_prctl(ctx: &mut Ctx, a: &[u64; 6]) -> Answer {
    const ARCH_SET_GS: u64 = 0x1001;
    const ARCH_SET_FS: u64 = 0x1002;
    const ARCH_GET_FS: u64 = 0x1003;
    const ARCH_GET_GS: u64 = 0x1004;
    const TOP: u64 = 0x7fff_ffff_f000;
    let perm = -i64::from(libc::EPERM);
    let fault = -i64::from(libc::EFAULT);
    Answer::Value(match a[0] {
        ARCH_SET_FS | ARCH_SET_GS if a[1] >= TOP => perm,
        ARCH_SET_FS => {
            ctx.fs = a[1];
            trace::event(ctx, words::FS_BASE, a[1]);
            0
        }
        ARCH_SET_GS => {
            ctx.gs = a[1];
            trace::event(ctx, words::GS_BASE, a[1]);
            0
        }
        ARCH_GET_FS => {
            if sys::write_value(a[1], &ctx.fs) {
                0
            } else {
                fault
            }
        }
        ARCH_GET_GS => {
            if sys::write_value(a[1], &ctx.gs) {
                0
            } else {
                fault
            }
        }
        _ => direct(libc::SYS_arch_prctl, *a),
    })
}

fn statistics() {
    let state = state::get();
    if state.debug & 1 != 0 {
        let (fragments, bytes) = state.cache.lock().size();
        let exits = state.exits.load(Ordering::Relaxed);
        let heap = alloc::taken();
        sys::say(&format!(
            "ichnos: {fragments} fragments, {bytes} bytes of code, {exits} exits, {heap} bytes of heap\n"
        ));
    }
}
