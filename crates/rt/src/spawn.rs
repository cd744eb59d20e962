//! The start of a program under control.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::thread::JoinHandle;

use crate::{Change, Resume, Stop, Thread, wait};

/// Whether the system places a program's memory at random.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Randomize {
    /// As the system is set.
    System,
    /// No: equal runs have equal addresses.
    #[default]
    Off,
}

const OPTIONS: i32 = libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEVFORKDONE;

/// Starts a program and stops it before its first instruction. All that it makes is
/// traced too, and nobody outlives this process.
///
/// # Errors
///
/// If the program cannot be executed or taken hold of.
pub fn spawn(mut command: Command, randomize: Randomize) -> io::Result<Thread> {
    let (gate, opener) = io::pipe()?;
    let (mut numbers, teller) = io::pipe()?;
    let (gate_fd, teller_fd) = (gate.as_raw_fd(), teller.as_raw_fd());
    // SAFETY: the closure makes system calls and touches no memory that another thread
    // could hold.
    unsafe { command.pre_exec(move || prepare(randomize, teller_fd, gate_fd)) };
    // The call returns only after the exec, which waits at the gate for being seized: so
    // another thread makes it, and this one, the tracer, learns the number by a pipe.
    let starter = std::thread::spawn(move || {
        let child = command.spawn();
        drop((gate, teller));
        child.map(drop)
    });
    let joined = |starter: JoinHandle<io::Result<()>>| match starter.join() {
        Ok(done) => done,
        Err(_) => Err(io::Error::other("the program was not started")),
    };
    let mut number = [0; 4];
    if numbers.read_exact(&mut number).is_err() {
        drop(opener);
        joined(starter)?;
        return Err(io::Error::other("the program was not started"));
    }
    let thread = Thread(i32::from_ne_bytes(number));
    let seized = thread.seize(OPTIONS);
    let opened = (&opener).write_all(&[1]);
    drop(opener);
    seized.and(opened)?;
    let stopped = await_exec(thread);
    joined(starter)?;
    stopped.map(|()| thread)
}

fn await_exec(thread: Thread) -> io::Result<()> {
    loop {
        match wait(Some(thread))? {
            Some((_, Change::Stopped(Stop::Exec))) => return Ok(()),
            Some((_, Change::Stopped(Stop::Signal(signal)))) => {
                thread.resume(Resume::Cont, signal)?;
            }
            Some((_, Change::Stopped(_))) => thread.resume(Resume::Cont, 0)?,
            _ => return Err(io::Error::other("it ended before its first instruction")),
        }
    }
}

/// In the child: tells its number and waits until it is seized.
fn prepare(randomize: Randomize, teller: RawFd, gate: RawFd) -> io::Result<()> {
    if randomize == Randomize::Off {
        // SAFETY: the call takes no pointer.
        let old = unsafe { libc::personality(0xffff_ffff) };
        let wanted = old as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
        // SAFETY: as above.
        if unsafe { libc::personality(wanted) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the call takes nothing.
    let number = unsafe { libc::getpid() }.to_ne_bytes();
    let mut byte = 0u8;
    // SAFETY: the bytes live across the calls, which stay within them.
    let done = unsafe {
        libc::write(teller, number.as_ptr().cast(), number.len()) == 4
            && libc::read(gate, ptr::from_mut(&mut byte).cast(), 1) == 1
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
