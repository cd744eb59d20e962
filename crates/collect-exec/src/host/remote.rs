//! A stopped process, made to execute system calls one at a time.
//!
//! Invariant: between [`Remote::new`] and [`Remote::release`] two bytes at the
//! process's instruction pointer hold a `syscall` instruction; `release` puts the original
//! ones back. The calling thread must be the tracer.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;

use libc::{c_int, c_void, pid_t, user_regs_struct};

use crate::Error;

/// A stopped tracee.
pub struct Remote {
    pid: pid_t,
    regs: user_regs_struct,
    original: u64,
    /// A signal that came meanwhile, to be delivered on release.
    signal: c_int,
}

impl Remote {
    /// Takes hold of a process that is stopped under ptrace.
    pub fn new(pid: pid_t) -> Result<Self, Error> {
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut regs: user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: `regs` is as large as the request writes.
        let got = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut regs) };
        if got != 0 {
            return Err(Error::process("read the registers of", pid));
        }
        let mut original = [0; 8];
        read(pid, regs.rip, &mut original)?;
        let original = u64::from_le_bytes(original);
        let remote = Self { pid, regs, original, signal: 0 };
        remote.poke(regs.rip, (original & !0xffff) | 0x050f)?;
        Ok(remote)
    }

    /// The registers at the stop.
    pub fn regs(&self) -> &user_regs_struct {
        &self.regs
    }

    /// Executes a system call in the process.
    pub fn syscall(&mut self, number: i64, args: &[u64]) -> Result<u64, Error> {
        let arg = |i: usize| args.get(i).copied().unwrap_or(0);
        let mut regs = self.regs;
        regs.rax = number as u64;
        regs.orig_rax = u64::MAX;
        (regs.rdi, regs.rsi, regs.rdx) = (arg(0), arg(1), arg(2));
        (regs.r10, regs.r8, regs.r9) = (arg(3), arg(4), arg(5));
        self.set(&regs)?;
        self.step()?;
        // SAFETY: `regs` is as large as the request writes.
        if unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut regs) } != 0 {
            return Err(Error::process("read the registers of", self.pid));
        }
        let result = regs.rax as i64;
        if (-4095..0).contains(&result) {
            let source = io::Error::from_raw_os_error(-result as i32);
            return Err(Error::Process { what: "make a system call in", pid: self.pid, source });
        }
        Ok(regs.rax)
    }

    /// Writes to the process's memory.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let local = libc::iovec { iov_base: bytes.as_ptr() as *mut c_void, iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: at as *mut c_void, iov_len: bytes.len() };
        // SAFETY: `local` describes a live slice that is only read; the kernel checks the
        // other process's addresses.
        let n = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        if n == bytes.len() as isize {
            return Ok(());
        }
        Err(Error::process("write to the memory of", self.pid))
    }

    /// Lets the process go on untraced at another place with another stack.
    pub fn release(self, rip: u64, rsp: u64) -> Result<(), Error> {
        self.poke(self.regs.rip, self.original)?;
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut regs: user_regs_struct = unsafe { std::mem::zeroed() };
        (regs.rip, regs.rsp, regs.eflags) = (rip, rsp, 0x202);
        (regs.cs, regs.ss, regs.orig_rax) = (self.regs.cs, self.regs.ss, u64::MAX);
        self.set(&regs)?;
        self.detach()
    }

    fn detach(&self) -> Result<(), Error> {
        // SAFETY: no memory is passed.
        let done = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, 0, self.signal as usize) };
        if done == 0 { Ok(()) } else { Err(Error::process("detach from", self.pid)) }
    }

    fn set(&self, regs: &user_regs_struct) -> Result<(), Error> {
        // SAFETY: `regs` is as large as the request reads.
        let done =
            unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, std::ptr::from_ref(regs)) };
        if done == 0 { Ok(()) } else { Err(Error::process("set the registers of", self.pid)) }
    }

    fn poke(&self, at: u64, word: u64) -> Result<(), Error> {
        // SAFETY: the kernel checks the other process's address; no local memory is passed.
        let done = unsafe { libc::ptrace(libc::PTRACE_POKETEXT, self.pid, at, word) };
        if done == 0 { Ok(()) } else { Err(Error::process("write to the code of", self.pid)) }
    }

    fn step(&mut self) -> Result<(), Error> {
        loop {
            // SAFETY: no memory is passed.
            if unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) } != 0 {
                return Err(Error::process("single-step", self.pid));
            }
            let signal = wait_stop(self.pid)?;
            if signal == libc::SIGTRAP {
                return Ok(());
            }
            // Something from outside came first: keep it for later and try again.
            self.signal = signal;
        }
    }
}

/// Waits until a traced process stops and gives the signal (with any ptrace event cut off).
pub fn wait_stop(pid: pid_t) -> Result<c_int, Error> {
    let mut status = 0;
    // SAFETY: `status` lives across the call.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Err(Error::process("wait for", pid));
        }
    }
    if libc::WIFSTOPPED(status) {
        return Ok(libc::WSTOPSIG(status));
    }
    Err(Error::Ended { pid, status })
}

/// Reads a process's memory.
pub fn read(pid: pid_t, at: u64, out: &mut [u8]) -> Result<(), Error> {
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = libc::iovec { iov_base: at as *mut c_void, iov_len: out.len() };
    // SAFETY: `local` describes a live slice; the kernel checks the other addresses.
    let n = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    if n == out.len() as isize { Ok(()) } else { Err(Error::process("read the memory of", pid)) }
}
