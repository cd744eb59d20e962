//! `signalfd`: a file from which signals are read. Behind it is a counter of the
//! host (an eventfd) that can be read while a signal of its set is pending, so
//! that waiting for it and polling it are the host's; what is read are the guest's
//! signals.
//!
//! Whose signals make it readable: those of any process that has it open. A process
//! that reads gets its own only.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::{Rc, Weak};

use rustix::event::{EventfdFlags, PollFlags};
use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::transfer::ready;
use super::{Answer, Call};
use crate::user::kernel::Kernel;
use crate::user::process::{OpenFile, Wait};
use crate::user::signal::{Info, SIGCHLD, SIGKILL, SIGSTOP, SignalSet};

const NONBLOCK: u64 = 0x800;
const CLOEXEC: u64 = 0x8_0000;
/// Bytes of what is read for a signal.
const RECORD: usize = 128;

/// A file of signals that somebody has open.
#[derive(Debug)]
pub(crate) struct SignalFile {
    file: Weak<OwnedFd>,
    /// The signals that are read from it.
    set: SignalSet,
}

/// Makes files readable whose signals have come, and others not.
pub(super) fn tick(kernel: &mut Kernel) {
    kernel.signal_files.retain(|known| known.file.strong_count() > 0);
    for known in &kernel.signal_files {
        let Some(file) = known.file.upgrade() else { continue };
        let due = kernel.processes.iter().enumerate().any(|(n, p)| {
            let threads = kernel.threads.iter().filter(|t| t.process == n);
            let pending = threads.fold(p.pending.set().0, |all, t| all | t.pending.set().0);
            p.ended.is_none()
                && pending & known.set.0 != 0
                && p.files.iter().flatten().any(|open| Rc::ptr_eq(&open.fd, &file))
        });
        match (due, ready(&file, PollFlags::IN)) {
            (true, false) => {
                let _full = rustix::io::write(&*file, &1_u64.to_ne_bytes());
            }
            (false, true) => {
                let _empty = rustix::io::read(&*file, &mut [0_u8; 8]);
            }
            _ => {}
        }
    }
}

/// A signal as it is read: `struct signalfd_siginfo`.
fn record(info: &Info) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    put(0, &info.signal.to_le_bytes());
    put(8, &info.code.to_le_bytes());
    // Who sent it: process and user.
    put(12, &info.value.to_le_bytes());
    if info.signal == SIGCHLD && info.code > 0 {
        put(40, &(info.extra as u32).to_le_bytes());
    } else if info.code < 0 {
        put(44, &(info.extra as u32).to_le_bytes());
        put(48, &info.extra.to_le_bytes());
    }
    bytes
}

impl Call<'_> {
    pub(super) fn signalfd4(&mut self) -> Result<u64, Errno> {
        let [fd, set_at, size, flags, ..] = self.args;
        if size != 8 || flags & !(NONBLOCK | CLOEXEC) != 0 {
            return Err(Errno::INVAL);
        }
        let never = SignalSet::default().with(SIGKILL).with(SIGSTOP);
        let set = SignalSet(self.view().read_u64(set_at)? & !never.0);
        if fd as i32 != -1 {
            let file = self.host_file(fd)?;
            let place = self.signal_file(&file).ok_or(Errno::INVAL)?;
            self.kernel.signal_files[place].set = set;
            return Ok(fd);
        }
        let mut host = EventfdFlags::CLOEXEC;
        if flags & NONBLOCK != 0 {
            host |= EventfdFlags::NONBLOCK;
        }
        let file = Rc::new(rustix::event::eventfd(0, host)?);
        self.kernel.signal_files.push(SignalFile { file: Rc::downgrade(&file), set });
        let file = OpenFile { fd: file, close_on_exec: flags & CLOEXEC != 0 };
        Ok(self.process().install(file, 0))
    }

    /// Which file of signals this is, if it is one.
    pub(super) fn signal_file(&self, file: &Rc<OwnedFd>) -> Option<usize> {
        let mut all = self.kernel.signal_files.iter();
        all.position(|known| known.file.as_ptr() == Rc::as_ptr(file))
    }

    /// Reads as many signals as there are and fit.
    pub(super) fn read_signals(
        &mut self,
        file: &OwnedFd,
        place: usize,
        places: &[(u64, u64)],
    ) -> Result<Answer, Errno> {
        let room: u64 = places.iter().map(|&(_, len)| len / RECORD as u64).sum();
        if room == 0 {
            return Err(Errno::INVAL);
        }
        let others = SignalSet(!self.kernel.signal_files[place].set.0);
        let mut total = 0;
        for &(va, len) in places {
            for n in 0..len / RECORD as u64 {
                let own = self.kernel.threads[self.thread].pending.take_outside(others);
                let taken = own.or_else(|| self.process().pending.take_outside(others));
                let Some(info) = taken else { break };
                self.view().write(va + n * RECORD as u64, &record(&info))?;
                total += RECORD as u64;
            }
        }
        tick(self.kernel);
        if total > 0 {
            return Ok(Answer::Value(total));
        }
        if rustix::fs::fcntl_getfl(file)?.contains(OFlags::NONBLOCK) {
            return Err(Errno::AGAIN);
        }
        Ok(Answer::Wait(Wait::File { fd: file.as_raw_fd(), write: false }))
    }
}
