//! `epoll` and `eventfd`, which are the host's: an event's data is the guest's,
//! and a wait is the thread's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::Rc;

use rustix::event::{EventfdFlags, Timespec, epoll};
use rustix::io::Errno;

use super::{Answer, Call};
use crate::user::process::OpenFile;

const CLOEXEC: u64 = 0x8_0000;
const ADD: u64 = 1;
const DELETE: u64 = 2;
const MODIFY: u64 = 3;
/// Events handed over at once.
const MOST: u64 = 1024;

impl Call<'_> {
    pub(super) fn eventfd2(&mut self) -> Result<u64, Errno> {
        let [initial, flags, ..] = self.args;
        let host = EventfdFlags::from_bits(flags as u32).ok_or(Errno::INVAL)?;
        let fd = rustix::event::eventfd(initial as u32, host | EventfdFlags::CLOEXEC)?;
        let file = OpenFile { fd: Rc::new(fd), close_on_exec: flags & CLOEXEC != 0 };
        Ok(self.process().install(file, 0))
    }

    pub(super) fn epoll_create1(&mut self) -> Result<u64, Errno> {
        let [flags, ..] = self.args;
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let file = OpenFile { fd: Rc::new(fd), close_on_exec: flags & CLOEXEC != 0 };
        Ok(self.process().install(file, 0))
    }

    pub(super) fn epoll_ctl(&mut self) -> Result<u64, Errno> {
        let [set, operation, fd, va, ..] = self.args;
        let (set, file) = (self.host_file(set)?, self.host_file(fd)?);
        if operation == DELETE {
            epoll::delete(&*set, &*file)?;
            return Ok(0);
        }
        let flags = epoll::EventFlags::from_bits_retain(self.view().read_u32(va)?);
        let data = epoll::EventData::new_u64(self.view().read_u64(va + 8)?);
        match operation {
            ADD => epoll::add(&*set, &*file, data, flags)?,
            MODIFY => epoll::modify(&*set, &*file, data, flags)?,
            _ => return Err(Errno::INVAL),
        }
        Ok(0)
    }

    pub(super) fn epoll_pwait(&mut self) -> Result<Answer, Errno> {
        let [set, va, most, timeout, mask, _] = self.args;
        if (most as i32) < 1 {
            return Err(Errno::INVAL);
        }
        let file = self.host_file(set)?;
        self.lend_mask(mask)?;
        let mut events: Vec<epoll::Event> = Vec::with_capacity(most.min(MOST) as usize);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&*file, spare, Some(&now))? == 0 {
            let timeout = u64::try_from(timeout as i32).ok().map(|ms| ms * 1_000_000);
            return Ok(self.wait_again(timeout, Answer::Value(0)));
        }
        self.kernel.threads[self.thread].poll_until = None;
        for (n, event) in events.iter().enumerate() {
            // Copied out, as the host's layout is packed.
            let (flags, data) = (event.flags, event.data);
            let at = va + 16 * n as u64;
            self.view().write_u64(at, u64::from(flags.bits()))?;
            self.view().write_u64(at + 8, data.u64())?;
        }
        Ok(Answer::Value(events.len() as u64))
    }
}
