//! A stopped thread, made to execute a system call.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;

use crate::{Change, Resume, Stop, Thread, wait};

/// `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

impl Thread {
    /// Makes the thread execute a system call; answers what that returned. Registers and
    /// code are as before afterwards. The thread must be stopped outside a system
    /// call, and no other thread may run the code at its instruction pointer.
    ///
    /// Signals that come meanwhile are sent to it again: who minds that less is known of them then must hold
    /// them back.
    pub fn syscall(self, number: i64, args: [u64; 6]) -> io::Result<i64> {
        let before = self.regs()?;
        let mut code = [0; 2];
        self.read(before.rip, &mut code)?;
        self.write(before.rip, &SYSCALL)?;
        let mut regs = before;
        regs.rax = number as u64;
        regs.orig_rax = u64::MAX;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        self.set_regs(&regs)?;
        self.resume(Resume::Step, 0)?;
        self.await_step()?;
        let after = self.regs()?;
        self.write(before.rip, &code)?;
        self.set_regs(&before)?;
        Ok(after.rax as i64)
    }

    /// Lets a thread that stopped because it runs a new program come out of the system call
    /// that made it so: until then, what that returns would be put over its registers.
    pub fn leave_exec(self) -> io::Result<()> {
        loop {
            self.resume(Resume::Syscall, 0)?;
            match wait(Some(self))? {
                Some((_, Change::Stopped(Stop::Syscall))) => return Ok(()),
                // It was asked to stop before.
                Some((_, Change::Stopped(Stop::Group(libc::SIGTRAP)))) => {}
                Some((_, Change::Stopped(_))) => {
                    return Err(io::Error::other("it stopped elsewhere"));
                }
                _ => return Err(io::Error::other("it has ended")),
            }
        }
    }

    fn await_step(self) -> io::Result<()> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let mut later = Vec::new();
        loop {
            match wait(Some(self))? {
                Some((_, Change::Stopped(Stop::Signal(libc::SIGTRAP)))) => break,
                Some((_, Change::Stopped(Stop::Signal(signal)))) => later.push(signal),
                Some((_, Change::Stopped(Stop::Exit))) => {
                    self.resume(Resume::Cont, 0)?;
                    return Err(gone());
                }
                Some((_, Change::Stopped(Stop::Group(_)))) => {}
                Some((_, Change::Stopped(_))) => {
                    return Err(io::Error::other("it stopped elsewhere"));
                }
                _ => return Err(gone()),
            }
            self.resume(Resume::Step, 0)?;
        }
        later.into_iter().try_for_each(|signal| self.send(signal))
    }
}
