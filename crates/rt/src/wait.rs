//! What happens to traced threads.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;

use crate::Thread;

/// A change of a traced thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It stopped and waits to be resumed.
    Stopped(Stop),
    /// It is gone, with this status.
    Exited(i32),
    /// It is gone, killed by this signal.
    Killed(i32),
}

/// Why a thread stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Stop {
    /// A signal is about to be delivered.
    Signal(i32),
    /// It enters or leaves a system call.
    Syscall,
    /// It made a thread or a process, whose number is the message.
    Clone,
    /// It made a process that borrows its memory.
    Vfork,
    /// The process that borrowed its memory gave it back.
    VforkDone,
    /// It runs a new program.
    Exec,
    /// It is about to end; the message is its wait status.
    Exit,
    /// It is new, was asked to stop, or its group was stopped by this signal.
    Group(i32),
}

/// Processor time of this process's children that were waited for, theirs included: in their own
/// code, and in the system; microseconds.
#[must_use]
pub fn times_of_children() -> (u64, u64) {
    // SAFETY: all-zero bytes are a valid value of this structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives across the call, which fills it. It fails for no other reason
    // than a wrong first argument; then all is zero.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let micros = |t: libc::timeval| t.tv_sec.unsigned_abs() * 1_000_000 + t.tv_usec.unsigned_abs();
    (micros(usage.ru_utime), micros(usage.ru_stime))
}

/// Waits for the next change of a thread, or of any. `None` if there is none left.
pub fn wait(thread: Option<Thread>) -> io::Result<Option<(Thread, Change)>> {
    loop {
        let mut status = 0;
        let who = thread.map_or(-1, |t| t.0);
        // Only what this thread traces: others may have children of their own.
        let flags = libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: `status` is a live integer.
        let tid = unsafe { libc::waitpid(who, &raw mut status, flags) };
        if tid > 0 {
            return Ok(Some((Thread(tid), change(status))));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(error),
        }
    }
}

fn change(status: i32) -> Change {
    if libc::WIFEXITED(status) {
        return Change::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Change::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    Change::Stopped(match status >> 16 {
        libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK => Stop::Clone,
        libc::PTRACE_EVENT_VFORK => Stop::Vfork,
        libc::PTRACE_EVENT_VFORK_DONE => Stop::VforkDone,
        libc::PTRACE_EVENT_EXEC => Stop::Exec,
        libc::PTRACE_EVENT_EXIT => Stop::Exit,
        libc::PTRACE_EVENT_STOP => Stop::Group(signal),
        _ if signal == libc::SIGTRAP | 0x80 => Stop::Syscall,
        _ => Stop::Signal(signal),
    })
}
