//! The program's system calls.
//!
//! Most are passed on as they are. Those that would touch the engine (its memory, its
//! threads, its signals) are done by it instead, each group in a file of its own.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod confine;
mod exec;
mod files;
mod memory;
mod old;
mod process;
mod signal;

pub use old::run as run_old;

use super::ctx::{Ctx, reg};
use super::{glue, maps, state, sync, sys, trace};
use crate::words;

/// The call must be made again after a signal: the kernel's own number for it.
const RESTART: i64 = -512;
/// Length of the `syscall` instruction.
const INSN_LEN: u64 = 2;

/// What the engine answers to a call.
pub enum Answer {
    /// This, in rax.
    Value(i64),
    /// Zero: this is the child.
    Born,
    /// It must be made again, after a signal: the context stands at the instruction.
    Again,
    /// A handler has returned: the context has been set to what it interrupted.
    Elsewhere,
    /// A fault, which waits for delivery.
    Fault,
}

/// Whether the thread, or its program, may end with the call at which it stands.
pub fn may_be_last(ctx: &Ctx) -> bool {
    let last = [libc::SYS_exit, libc::SYS_exit_group, libc::SYS_execve, libc::SYS_execveat];
    last.contains(&(ctx.regs[reg::RAX] as i64))
}

/// Does the system call at which the context stands, and tells what comes of it.
pub fn run(ctx: &mut Ctx) {
    let number = ctx.regs[reg::RAX] as i64;
    let args = args(ctx);
    let [a, b, c, d, e, f] = args;
    trace::numbers(ctx, words::SYSCALL, &[number as u64, a, b, c, d, e, f]);
    sync::before_call(ctx, number, &args);
    match answer(ctx, number) {
        Answer::Value(value) => {
            sync::after_call(ctx, number, &args, value);
            tell_return(ctx, number, told_result(ctx, number, value));
            finish(ctx, value);
            maps::refresh(ctx, maps::changed(number, &args, value));
            reaped(ctx, number, &args, value);
        }
        Answer::Born => finish(ctx, 0),
        Answer::Again => tell_return(ctx, number, RESTART),
        Answer::Elsewhere => trace::event(ctx, words::SIGNAL_RETURN, ctx.rip),
        Answer::Fault => {}
    }
}

fn tell_return(ctx: &mut Ctx, number: i64, result: i64) {
    trace::time(ctx);
    trace::numbers(ctx, words::RETURN, &[number as u64, result as u64]);
}

/// What the kernel itself says of a call that a signal has ended, as far as the number tells: the program
/// sees `EINTR`.
fn told_result(ctx: &Ctx, number: i64, value: i64) -> i64 {
    const NO_HAND: i64 = -514;
    const RESTART_BLOCK: i64 = -516;
    if value != -i64::from(libc::EINTR) || ctx.pending == 0 {
        return value;
    }
    match number {
        libc::SYS_pause
        | libc::SYS_rt_sigsuspend
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_ppoll => NO_HAND,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_poll => RESTART_BLOCK,
        // These give it by themselves.
        libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_semop
        | libc::SYS_semtimedop
        | libc::SYS_io_getevents => value,
        _ => RESTART,
    }
}

/// Tells how a child ended that the program has waited for: nobody else can see it.
fn reaped(ctx: &mut Ctx, number: i64, args: &[u64; 6], value: i64) {
    if number != libc::SYS_wait4 || value <= 0 || args[1] == 0 {
        return;
    }
    if let Some(status) = sys::read_value::<u32>(args[1]) {
        trace::event(ctx, words::REAPED, value as u64 & 0xffff_ffff | u64::from(status) << 32);
    }
}

fn answer(ctx: &mut Ctx, number: i64) -> Answer {
    confine::enforce(number);
    match number {
        libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mprotect
        | libc::SYS_mremap
        | libc::SYS_pkey_mprotect
        | libc::SYS_remap_file_pages
        | libc::SYS_madvise
        | libc::SYS_shmat => memory::run(ctx, number),
        libc::SYS_rt_sigaction
        | libc::SYS_rt_sigprocmask
        | libc::SYS_rt_sigreturn
        | libc::SYS_rt_sigpending
        | libc::SYS_sigaltstack
        | libc::SYS_rt_sigsuspend => signal::run(ctx, number),
        libc::SYS_clone
        | libc::SYS_clone3
        | libc::SYS_fork
        | libc::SYS_vfork
        | libc::SYS_exit
        | libc::SYS_exit_group
        | libc::SYS_arch_prctl => process::run(ctx, number),
        libc::SYS_execve | libc::SYS_execveat => exec::run(ctx, number),
        libc::SYS_seccomp | libc::SYS_prctl => confine::run(ctx, number),
        libc::SYS_getrlimit | libc::SYS_setrlimit | libc::SYS_prlimit64 => {
            confine::limit(ctx, number)
        }
        libc::SYS_open | libc::SYS_openat => files::open(ctx, number),
        libc::SYS_read => files::read(ctx),
        // The engine moves code, which restartable sequences do not survive; and what
        // io_uring does to memory nobody sees.
        libc::SYS_rseq | libc::SYS_io_uring_setup => Answer::Value(-i64::from(libc::ENOSYS)),
        _ => pass(ctx),
    }
}

/// Passes the call on to the kernel.
pub fn pass(ctx: &mut Ctx) -> Answer {
    trace::rest(ctx);
    open_buffer(ctx);
    let r = &ctx.regs;
    let args =
        [r[reg::RAX], r[reg::RDI], r[reg::RSI], r[reg::RDX], r[reg::R10], r[reg::R8], r[reg::R9]];
    // SAFETY: it is the program's own call, on the program's memory; calls that could reach the
    // engine's do not come here.
    let mut result = unsafe { glue::ichnos_syscall(&args) };
    if result == -i64::from(libc::EFAULT) && state::get().open(0, u64::MAX) {
        // The kernel may have met a page that only the engine keeps closed.
        // SAFETY: as above.
        result = unsafe { glue::ichnos_syscall(&args) };
    }
    if result == RESTART {
        // The program stands at the instruction, as if the signal had come just before.
        return Answer::Again;
    }
    Answer::Value(result)
}

/// Opens what the engine keeps closed to writing of a buffer that the kernel is to fill: it would fill
/// less of it.
fn open_buffer(ctx: &Ctx) {
    let number = ctx.regs[reg::RAX] as i64;
    if matches!(number, libc::SYS_read | libc::SYS_pread64 | libc::SYS_recvfrom) {
        state::get().open(ctx.regs[reg::RSI], ctx.regs[reg::RDX]);
    }
}

/// Arguments in order.
fn args(ctx: &Ctx) -> [u64; 6] {
    let r = &ctx.regs;
    [r[reg::RDI], r[reg::RSI], r[reg::RDX], r[reg::R10], r[reg::R8], r[reg::R9]]
}

/// Leaves the call with a result: what the kernel does to the registers.
pub fn finish(ctx: &mut Ctx, value: i64) {
    ctx.regs[reg::RAX] = value as u64;
    ctx.rip += INSN_LEN;
    ctx.regs[reg::RCX] = ctx.rip;
    ctx.regs[reg::R11] = ctx.rflags;
}

/// A system call with the program's number that a filter of the program's may judge, and which no signal
/// interrupts.
fn judged(number: i64, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: callers have checked that the arguments do not reach the engine's memory.
    unsafe { glue::ichnos_judged(&[number as u64, a, b, c, d, e, f]) }
}

/// A plain system call of the engine's on the program's behalf, which no signal interrupts.
fn direct(number: i64, args: [u64; 6]) -> i64 {
    // SAFETY: callers have checked that the arguments do not reach the engine's memory.
    unsafe { sys::call(number, args) }
}
