//! `timerfd`: a timer is a counter of the host (an eventfd), to which expirations
//! are added when the guest's clock, which counts instructions, has come to them.
//! Reading, polling and closing it are the host's then.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::{Rc, Weak};

use rustix::event::{EventfdFlags, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::Call;
use super::transfer::ready;
use crate::user::kernel::Kernel;
use crate::user::process::{OpenFile, Wait};

const NONBLOCK: u64 = 0x800;
const CLOEXEC: u64 = 0x8_0000;
const ABSOLUTE: u64 = 1;
const CANCEL_ON_SET: u64 = 2;

/// A timer that somebody has open.
#[derive(Debug)]
pub(crate) struct Timer {
    file: Weak<OwnedFd>,
    /// The clock it follows.
    clock: u64,
    /// When it expires next, and how long after that again.
    armed: Option<(u64, u64)>,
}

/// Counts the expirations of timers whose time has come.
pub(crate) fn tick(kernel: &mut Kernel) {
    let now = kernel.now;
    kernel.timers.retain(|timer| timer.file.strong_count() > 0);
    for timer in &mut kernel.timers {
        let (Some((at, interval)), Some(file)) = (timer.armed, timer.file.upgrade()) else {
            continue;
        };
        if at > now {
            continue;
        }
        let more = (now - at).checked_div(interval).unwrap_or(0);
        timer.armed = (interval > 0)
            .then(|| (at.saturating_add(interval.saturating_mul(more + 1)), interval));
        // A counter that is full stays so.
        let _full = rustix::io::write(&*file, &(more + 1).to_ne_bytes());
    }
}

/// When the next timer expires, if somebody waits who may wait for it.
pub(super) fn next(kernel: &Kernel) -> Option<u64> {
    let files = |wait: &Wait| matches!(wait, Wait::File { .. } | Wait::Poll { .. });
    let awaited = kernel.threads.iter().any(|thread| files(&thread.wait));
    let open = kernel.timers.iter().filter(|timer| timer.file.strong_count() > 0);
    open.filter_map(|timer| timer.armed).map(|(at, _)| at).min().filter(|_| awaited)
}

impl Call<'_> {
    pub(super) fn timerfd_create(&mut self) -> Result<u64, Errno> {
        let [clock, flags, ..] = self.args;
        // Real time, monotonic time, time since boot, and the two that would wake it.
        if !matches!(clock, 0 | 1 | 7 | 8 | 9) || flags & !(NONBLOCK | CLOEXEC) != 0 {
            return Err(Errno::INVAL);
        }
        let mut host = EventfdFlags::CLOEXEC;
        if flags & NONBLOCK != 0 {
            host |= EventfdFlags::NONBLOCK;
        }
        let fd = Rc::new(rustix::event::eventfd(0, host)?);
        self.kernel.timers.push(Timer { file: Rc::downgrade(&fd), clock, armed: None });
        Ok(self.process().install(OpenFile { fd, close_on_exec: flags & CLOEXEC != 0 }, 0))
    }

    /// The timer behind a descriptor.
    fn timer(&mut self, fd: u64) -> Result<(Rc<OwnedFd>, usize), Errno> {
        let file = self.host_file(fd)?;
        let mut timers = self.kernel.timers.iter();
        let place = timers.position(|timer| timer.file.as_ptr() == Rc::as_ptr(&file));
        Ok((file, place.ok_or(Errno::INVAL)?))
    }

    pub(super) fn timerfd_settime(&mut self) -> Result<u64, Errno> {
        let [fd, flags, new, old, ..] = self.args;
        let (file, place) = self.timer(fd)?;
        if flags & !(ABSOLUTE | CANCEL_ON_SET) != 0 {
            return Err(Errno::INVAL);
        }
        let (interval, first) = (self.read_time(new)?, self.read_time(new + 16)?);
        if old != 0 {
            self.write_timer_left(place, old)?;
        }
        let now = self.kernel.now;
        let passed = if flags & ABSOLUTE != 0 { self.clock_of(place) } else { 0 };
        let at = now.saturating_add(first.saturating_sub(passed));
        if ready(&file, PollFlags::IN) {
            rustix::io::read(&*file, &mut [0u8; 8])?;
        }
        if let Some(timer) = self.kernel.timers.get_mut(place) {
            timer.armed = (first > 0).then_some((at, interval));
        }
        tick(self.kernel);
        Ok(0)
    }

    pub(super) fn timerfd_gettime(&mut self) -> Result<u64, Errno> {
        let [fd, va, ..] = self.args;
        let (_, place) = self.timer(fd)?;
        self.write_timer_left(place, va)
    }

    fn clock_of(&self, place: usize) -> u64 {
        self.clock(self.kernel.timers.get(place).map_or(1, |timer| timer.clock))
    }

    /// Writes a timer's interval, and how long it has until it expires.
    fn write_timer_left(&mut self, place: usize, va: u64) -> Result<u64, Errno> {
        let armed = self.kernel.timers.get(place).and_then(|timer| timer.armed);
        let now = self.kernel.now;
        let (at, interval) = armed.unwrap_or((now, 0));
        self.write_time(va, interval)?;
        self.write_time(va + 16, at.saturating_sub(now))
    }
}
