//! `pidfd`: a file that stands for a process. Behind it is a counter of the host
//! (an eventfd) that can be read once the process has ended, so that waiting for it
//! is the host's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::{Rc, Weak};

use rustix::event::{EventfdFlags, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::Call;
use super::transfer::ready;
use crate::user::kernel::Kernel;
use crate::user::process::OpenFile;

const NONBLOCK: u64 = 0x800;

/// A file that stands for a process.
#[derive(Debug)]
pub(crate) struct ProcessFile {
    file: Weak<OwnedFd>,
    pid: u32,
}

/// Makes the files of processes readable that have ended.
pub(super) fn tick(kernel: &mut Kernel) {
    kernel.process_files.retain(|known| known.file.strong_count() > 0);
    for known in &kernel.process_files {
        let lives = kernel.processes.iter().any(|p| p.pid == known.pid && p.ended.is_none());
        if let Some(file) = known.file.upgrade().filter(|_| !lives)
            && !ready(&file, PollFlags::IN)
        {
            let _full = rustix::io::write(&*file, &1_u64.to_ne_bytes());
        }
    }
}

impl Call<'_> {
    pub(super) fn pidfd_open(&mut self) -> Result<u64, Errno> {
        let [pid, flags, ..] = self.args;
        if flags & !NONBLOCK != 0 || pid as i32 <= 0 {
            return Err(Errno::INVAL);
        }
        let pid = pid as u32;
        if !self.kernel.processes.iter().any(|p| p.pid == pid && !p.reaped) {
            return Err(Errno::SRCH);
        }
        let mut host = EventfdFlags::CLOEXEC;
        if flags & NONBLOCK != 0 {
            host |= EventfdFlags::NONBLOCK;
        }
        let fd = Rc::new(rustix::event::eventfd(0, host)?);
        self.kernel.process_files.push(ProcessFile { file: Rc::downgrade(&fd), pid });
        tick(self.kernel);
        Ok(self.process().install(OpenFile { fd, close_on_exec: true }, 0))
    }

    /// The process that a descriptor stands for.
    pub(super) fn process_of(&mut self, fd: u64) -> Result<u32, Errno> {
        let file = self.host_file(fd)?;
        let mut all = self.kernel.process_files.iter();
        let known = all.find(|known| known.file.as_ptr() == Rc::as_ptr(&file));
        known.map(|known| known.pid).ok_or(Errno::BADF)
    }

    pub(super) fn pidfd_send_signal(&mut self) -> Result<u64, Errno> {
        let [fd, signal, info, flags, ..] = self.args;
        if flags != 0 {
            return Err(Errno::INVAL);
        }
        let pid = u64::from(self.process_of(fd)?);
        if info != 0 {
            self.args = [pid, signal, info, 0, 0, 0];
            return self.rt_sigqueueinfo();
        }
        self.args = [pid, signal, 0, 0, 0, 0];
        self.kill()
    }
}
