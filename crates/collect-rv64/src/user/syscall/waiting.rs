//! Time: sleeping, polling, and what happens when nobody can run.
//!
//! The clock is the count of instructions. When all threads wait for a time it
//! jumps there; when they wait for the host's files, the host is waited for.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use rustix::io::Errno;

use super::transfer::ready;
use super::{Answer, Call, posix_timers, process_files, signal_files, timers};
use crate::error::Error;
use crate::user::kernel::Kernel;
use crate::user::process::Wait;
use crate::user::signal::{Info, SIGALRM, SignalSet};

/// The kernel itself sent it.
const SI_KERNEL: i32 = 0x80;

/// Wakes threads whose time has come.
pub(crate) fn expire(kernel: &mut Kernel) {
    let now = kernel.now;
    for t in &mut kernel.threads {
        match t.wait {
            Wait::Futex { until: Some(until), .. } if until <= now => {
                t.cpu.set_x(10, -i64::from(Errno::TIMEDOUT.raw_os_error()) as u64);
                t.wait = Wait::Runnable;
            }
            Wait::Until(Some(until)) if until <= now => t.wait = Wait::Runnable,
            _ => {}
        }
    }
    ring(kernel);
    posix_timers::ring(kernel);
    timers::tick(kernel);
    signal_files::tick(kernel);
    process_files::tick(kernel);
    wake_files(kernel);
}

/// Sends the alarms whose time has come.
fn ring(kernel: &mut Kernel) {
    for n in 0..kernel.processes.len() {
        let p = &mut kernel.processes[n];
        if let Some((at, interval)) = p.alarm
            && at <= kernel.now
            && p.ended.is_none()
        {
            p.alarm = (interval > 0).then(|| (kernel.now.saturating_add(interval), interval));
            kernel.signal_process(n, Info { code: SI_KERNEL, ..Info::plain(SIGALRM) });
        }
    }
}

/// Lets threads try again whose files are ready.
fn wake_files(kernel: &mut Kernel) {
    for n in 0..kernel.threads.len() {
        let runs = match kernel.threads[n].wait {
            Wait::File { fd, write } => {
                let process = &kernel.processes[kernel.threads[n].process];
                let flags = if write { PollFlags::OUT } else { PollFlags::IN };
                let file = process.files.iter().flatten().find(|f| f.fd.as_raw_fd() == fd);
                file.is_none_or(|f| ready(&f.fd, flags))
            }
            // Somebody has run since, or the time has come.
            Wait::Poll { tried, .. } => tried < kernel.now,
            _ => false,
        };
        if runs {
            kernel.threads[n].wait = Wait::Runnable;
        }
    }
}

/// Nobody can run: moves the clock, or waits for the host.
pub(crate) fn idle(kernel: &mut Kernel) -> Result<(), Error> {
    let living = kernel.processes.iter().filter(|p| p.ended.is_none());
    let alarms = living.filter_map(|p| p.alarm).map(|(at, _)| at);
    let deadline = kernel
        .threads
        .iter()
        .filter_map(|t| match t.wait {
            Wait::Futex { until, .. } | Wait::Until(until) | Wait::Poll { until, .. } => until,
            _ => None,
        })
        .chain(alarms)
        .chain(timers::next(kernel))
        .chain(posix_timers::next(kernel))
        .min();
    let files: Vec<(Rc<OwnedFd>, PollFlags)> = waited_files(kernel);
    if let Some(deadline) = deadline {
        kernel.now = kernel.now.max(deadline);
    } else if !files.is_empty() {
        let mut fds: Vec<_> = files.iter().map(|(fd, flags)| PollFd::new(&**fd, *flags)).collect();
        let tick = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if let Err(e) = poll(&mut fds, Some(&tick))
            && e != Errno::INTR
        {
            return Err(Error::Host { what: "waiting for a file", source: e.into() });
        }
    } else if kernel.threads.iter().any(|t| matches!(t.wait, Wait::Poll { .. })) {
        // Only the outside can end this: look again after a while.
        std::thread::sleep(std::time::Duration::from_millis(1));
        for t in &mut kernel.threads {
            if matches!(t.wait, Wait::Poll { .. }) {
                t.wait = Wait::Runnable;
            }
        }
    } else {
        return Err(Error::Config("all threads of the guest wait for each other".to_owned()));
    }
    expire(kernel);
    Ok(())
}

fn waited_files(kernel: &Kernel) -> Vec<(Rc<OwnedFd>, PollFlags)> {
    let mut files = Vec::new();
    for t in &kernel.threads {
        if let Wait::File { fd, write } = t.wait {
            let open = kernel.processes[t.process].files.iter().flatten();
            let flags = if write { PollFlags::OUT } else { PollFlags::IN };
            files
                .extend(open.filter(|f| f.fd.as_raw_fd() == fd).map(|f| (Rc::clone(&f.fd), flags)));
        }
    }
    files
}

impl Call<'_> {
    /// The time of a clock in nanoseconds.
    pub(super) fn clock(&self, id: u64) -> u64 {
        // Real time and its coarse twin count from 1970, all others from the start.
        if matches!(id, 0 | 5 | 11) {
            self.kernel.start_time_ns + self.kernel.now
        } else {
            self.kernel.now
        }
    }

    pub(super) fn write_time(&mut self, va: u64, ns: u64) -> Result<u64, Errno> {
        self.view().write_u64(va, ns / 1_000_000_000)?;
        self.view().write_u64(va + 8, ns % 1_000_000_000)?;
        Ok(0)
    }

    pub(super) fn clock_gettime(&mut self) -> Result<u64, Errno> {
        let [id, va, ..] = self.args;
        let ns = self.clock(id);
        self.write_time(va, ns)
    }

    pub(super) fn clock_getres(&mut self) -> Result<u64, Errno> {
        let [_, va, ..] = self.args;
        if va == 0 { Ok(0) } else { self.write_time(va, 1) }
    }

    pub(super) fn gettimeofday(&mut self) -> Result<u64, Errno> {
        let [va, ..] = self.args;
        let ns = self.clock(0);
        if va != 0 {
            self.view().write_u64(va, ns / 1_000_000_000)?;
            self.view().write_u64(va + 8, ns % 1_000_000_000 / 1000)?;
        }
        Ok(0)
    }

    pub(super) fn nanosleep(&mut self) -> Result<Answer, Errno> {
        let until = self.kernel.now.saturating_add(self.read_time(self.args[0])?);
        self.sleep(until)
    }

    pub(super) fn clock_nanosleep(&mut self) -> Result<Answer, Errno> {
        let [id, flags, va, ..] = self.args;
        let time = self.read_time(va)?;
        let now = self.kernel.now;
        let until = match flags & 1 != 0 {
            true => now.saturating_add(time.saturating_sub(self.clock(id))),
            false => now.saturating_add(time),
        };
        self.sleep(until)
    }

    fn sleep(&mut self, until: u64) -> Result<Answer, Errno> {
        self.kernel.threads[self.thread].cpu.set_x(10, 0);
        Ok(Answer::WaitThen(Wait::Until(Some(until))))
    }

    /// Nothing was ready: wait on, or give up if the time has come.
    fn poll_again(&mut self, timeout_at: u64) -> Result<Answer, Errno> {
        let timeout = if timeout_at == 0 { None } else { Some(self.read_time(timeout_at)?) };
        Ok(self.wait_again(timeout, Answer::Value(0)))
    }

    /// Waits on, or comes to `end` after so many nanoseconds since the call.
    pub(super) fn wait_again(&mut self, timeout: Option<u64>, end: Answer) -> Answer {
        let now = self.kernel.now;
        let t = &mut self.kernel.threads[self.thread];
        let until = timeout.map(|ns| *t.poll_until.get_or_insert(now.saturating_add(ns)));
        if until.is_some_and(|until| until <= now) {
            t.poll_until = None;
            return end;
        }
        Answer::Wait(Wait::Poll { until, tried: now })
    }

    /// Lets a call run under another mask of signals, until it is over.
    pub(super) fn lend_mask(&mut self, va: u64) -> Result<(), Errno> {
        if va == 0 || self.kernel.threads[self.thread].lent_mask.is_some() {
            return Ok(());
        }
        let mask = SignalSet(self.view().read_u64(va)?);
        let t = &mut self.kernel.threads[self.thread];
        t.lent_mask = Some(std::mem::replace(&mut t.blocked, mask));
        Ok(())
    }

    /// Alarms: only real time has them, and that is the guest's.
    pub(super) fn setitimer(&mut self) -> Result<u64, Errno> {
        let [which, new, old, ..] = self.args;
        if which != 0 {
            return Err(Errno::INVAL);
        }
        let present = self.process().alarm;
        if new != 0 {
            let mut view = self.view();
            let mut time = |at: u64| -> Result<u64, Errno> {
                let (s, us) = (view.read_u64(at)?, view.read_u64(at + 8)?);
                Ok(s.saturating_mul(1_000_000_000).saturating_add(us.saturating_mul(1000)))
            };
            let (interval, first) = (time(new)?, time(new + 16)?);
            let at = self.kernel.now.saturating_add(first);
            self.process().alarm = (first > 0).then_some((at, interval));
        }
        self.write_timer(old, present)
    }

    pub(super) fn getitimer(&mut self) -> Result<u64, Errno> {
        let [_, va, ..] = self.args;
        let present = self.process().alarm;
        self.write_timer(va, present)
    }

    fn write_timer(&mut self, va: u64, timer: Option<(u64, u64)>) -> Result<u64, Errno> {
        let now = self.kernel.now;
        let (left, interval) =
            timer.map_or((0, 0), |(at, i)| (at.saturating_sub(now).max(1000), i));
        if va != 0 {
            for (n, ns) in [interval, left].into_iter().enumerate() {
                let at = va + 16 * n as u64;
                self.view().write_u64(at, ns / 1_000_000_000)?;
                self.view().write_u64(at + 8, ns % 1_000_000_000 / 1000)?;
            }
        }
        Ok(0)
    }

    pub(super) fn ppoll(&mut self) -> Result<Answer, Errno> {
        let [va, count, timeout_at, mask, ..] = self.args;
        if count > 4096 {
            return Err(Errno::INVAL);
        }
        self.lend_mask(mask)?;
        let mut found = 0;
        for n in 0..count {
            let at = va + 8 * n;
            let fd = self.view().read_u32(at)?;
            let events = self.view().read_u32(at + 4)? as u16;
            let got = match fd as i32 {
                ..0 => 0,
                _ => match self.host_file(fd.into()) {
                    Ok(file) => poll_one(&file, events)?,
                    Err(_) => PollFlags::NVAL.bits(),
                },
            };
            self.view().write(at + 6, &got.to_le_bytes())?;
            found += u64::from(got != 0);
        }
        if found > 0 {
            self.kernel.threads[self.thread].poll_until = None;
            return Ok(Answer::Value(found));
        }
        self.poll_again(timeout_at)
    }

    pub(super) fn pselect6(&mut self) -> Result<Answer, Errno> {
        let [count, reads, writes, errors, timeout_at, mask] = self.args;
        if mask != 0 {
            let at = self.view().read_u64(mask)?;
            self.lend_mask(at)?;
        }
        let words = count.min(1024).div_ceil(64);
        let sets = [(reads, PollFlags::IN), (writes, PollFlags::OUT), (errors, PollFlags::PRI)];
        let mut found = 0;
        let mut results = Vec::new();
        for (va, flags) in sets.iter().filter(|(va, _)| *va != 0) {
            for word in 0..words {
                let asked = self.view().read_u64(va + 8 * word)?;
                let mut got = 0u64;
                for bit in (0..64).filter(|bit| asked >> bit & 1 != 0) {
                    let file = self.host_file(64 * word + bit)?;
                    if poll_one(&file, flags.bits())? != 0 {
                        got |= 1 << bit;
                        found += 1;
                    }
                }
                results.push((va + 8 * word, got));
            }
        }
        if found == 0 {
            let answer = self.poll_again(timeout_at)?;
            if matches!(answer, Answer::Wait(_)) {
                return Ok(answer);
            }
        }
        self.kernel.threads[self.thread].poll_until = None;
        for (va, word) in results {
            self.view().write_u64(va, word)?;
        }
        Ok(Answer::Value(found))
    }
}

/// What of `events` is true of a file now.
fn poll_one(file: &OwnedFd, events: u16) -> Result<u16, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::from_bits_retain(events))];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents().bits())
}
