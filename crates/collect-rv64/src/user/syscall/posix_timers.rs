//! `timer_create` and its kin: timers of a process that send a signal when the
//! guest's clock, which counts instructions, has come to them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rustix::io::Errno;

use super::Call;
use crate::user::kernel::Kernel;
use crate::user::process::Wait;
use crate::user::signal::{Info, SIGALRM, SIGNALS};

const ABSOLUTE: u64 = 1;
const SI_TIMER: i32 = -2;
const NOTIFY_SIGNAL: u32 = 0;
const NOTIFY_NONE: u32 = 1;
const NOTIFY_THREAD: u32 = 4;
/// No process has more.
const MOST: usize = 1024;

/// A process's timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PosixTimer {
    /// The clock it follows.
    clock: u64,
    /// What it sends, if anything, and the value that goes with it.
    signal: Option<u32>,
    value: u64,
    /// The thread that gets it; any of the process if none.
    tid: Option<u32>,
    /// When it expires next, and how long after that again.
    armed: Option<(u64, u64)>,
    /// Expirations over the one that was last told.
    overrun: u32,
}

/// Sends the signals of timers whose time has come.
pub(super) fn ring(kernel: &mut Kernel) {
    for n in 0..kernel.processes.len() {
        for id in 0..kernel.processes[n].timers.len() {
            let now = kernel.now;
            let Some(timer) = &mut kernel.processes[n].timers[id] else { continue };
            let Some((at, interval)) = timer.armed.filter(|&(at, _)| at <= now) else { continue };
            let more = (now - at).checked_div(interval).unwrap_or(0);
            timer.armed = (interval > 0)
                .then(|| (at.saturating_add(interval.saturating_mul(more + 1)), interval));
            timer.overrun = u32::try_from(more).unwrap_or(u32::MAX);
            let Some(signal) = timer.signal else { continue };
            let value = id as u64 | u64::from(timer.overrun) << 32;
            let (info, tid) =
                (Info { signal, code: SI_TIMER, value, extra: timer.value }, timer.tid);
            let threads = &kernel.threads;
            let is_it = |tid| threads.iter().position(|t| t.tid == tid && t.wait != Wait::Ended);
            match tid.and_then(is_it) {
                Some(thread) => kernel.signal_thread(thread, info),
                None => kernel.signal_process(n, info),
            }
        }
    }
}

/// When the next timer expires.
pub(super) fn next(kernel: &Kernel) -> Option<u64> {
    let living = kernel.processes.iter().filter(|p| p.ended.is_none());
    let armed = living.flat_map(|p| p.timers.iter().flatten()).filter_map(|timer| timer.armed);
    armed.map(|(at, _)| at).min()
}

impl Call<'_> {
    pub(super) fn timer_create(&mut self) -> Result<u64, Errno> {
        let [clock, event, id_at, ..] = self.args;
        if !matches!(clock, 0 | 1 | 2 | 7 | 8 | 9) {
            return Err(Errno::INVAL);
        }
        let timers = &mut self.process().timers;
        let id = timers.iter().position(Option::is_none).unwrap_or(timers.len());
        if id >= MOST {
            return Err(Errno::AGAIN);
        }
        let mut view = self.view();
        let (value, signal, notify, tid) = if event == 0 {
            (id as u64, SIGALRM, NOTIFY_SIGNAL, 0)
        } else {
            let words = [view.read_u32(event + 8)?, view.read_u32(event + 12)?];
            (view.read_u64(event)?, words[0], words[1], view.read_u32(event + 16)?)
        };
        let sends = match notify {
            NOTIFY_NONE => None,
            NOTIFY_SIGNAL | NOTIFY_THREAD if (1..SIGNALS as u32).contains(&signal) => Some(signal),
            _ => return Err(Errno::INVAL),
        };
        view.write_u32(id_at, id as u32)?;
        let tid = (notify == NOTIFY_THREAD).then_some(tid);
        let timer = PosixTimer { clock, signal: sends, value, tid, armed: None, overrun: 0 };
        let timers = &mut self.process().timers;
        if id == timers.len() {
            timers.push(None);
        }
        timers[id] = Some(timer);
        Ok(0)
    }

    fn posix_timer(&mut self) -> Result<&mut PosixTimer, Errno> {
        let id = usize::try_from(self.args[0]).map_err(|_| Errno::INVAL)?;
        self.process().timers.get_mut(id).and_then(Option::as_mut).ok_or(Errno::INVAL)
    }

    pub(super) fn timer_settime(&mut self) -> Result<u64, Errno> {
        let [_, flags, new, old, ..] = self.args;
        let clock = self.posix_timer()?.clock;
        let (interval, first) = (self.read_time(new)?, self.read_time(new + 16)?);
        if old != 0 {
            self.write_posix_left(old)?;
        }
        let passed = if flags & ABSOLUTE != 0 { self.clock(clock) } else { 0 };
        let at = self.kernel.now.saturating_add(first.saturating_sub(passed));
        let timer = self.posix_timer()?;
        (timer.armed, timer.overrun) = ((first > 0).then_some((at, interval)), 0);
        Ok(0)
    }

    pub(super) fn timer_gettime(&mut self) -> Result<u64, Errno> {
        let [_, va, ..] = self.args;
        self.write_posix_left(va)
    }

    /// Writes a timer's interval, and how long it has until it expires.
    fn write_posix_left(&mut self, va: u64) -> Result<u64, Errno> {
        let now = self.kernel.now;
        let (at, interval) = self.posix_timer()?.armed.unwrap_or((now, 0));
        self.write_time(va, interval)?;
        self.write_time(va + 16, at.saturating_sub(now))
    }

    pub(super) fn timer_getoverrun(&mut self) -> Result<u64, Errno> {
        Ok(self.posix_timer()?.overrun.into())
    }

    pub(super) fn timer_delete(&mut self) -> Result<u64, Errno> {
        self.posix_timer()?;
        let id = self.args[0] as usize;
        self.process().timers[id] = None;
        Ok(0)
    }
}
