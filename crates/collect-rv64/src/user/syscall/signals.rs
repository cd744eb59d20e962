//! Signal calls.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rustix::io::Errno;

use super::{Answer, Call};
use crate::user::kernel::News;
use crate::user::process::{Process, SignalStack, Thread, Wait};
use crate::user::signal::{self, Action, Info, SIGKILL, SIGNALS, SignalSet};

const SIGSTOP: u64 = 19;
const SS_DISABLE: u32 = 2;
const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;

impl Call<'_> {
    pub(super) fn rt_sigaction(&mut self) -> Result<u64, Errno> {
        let [number, new, old, ..] = self.args;
        let index = usize::try_from(number)
            .ok()
            .filter(|n| (1..SIGNALS).contains(n))
            .ok_or(Errno::INVAL)?;
        let present = self.process().actions[index];
        if new != 0 {
            if number == u64::from(SIGKILL) || number == SIGSTOP {
                return Err(Errno::INVAL);
            }
            let mut view = self.view();
            let action = Action {
                handler: view.read_u64(new)?,
                flags: view.read_u64(new + 8)?,
                mask: view.read_u64(new + 16)?,
            };
            self.process().actions[index] = action;
        }
        if old != 0 {
            let mut view = self.view();
            view.write_u64(old, present.handler)?;
            view.write_u64(old + 8, present.flags)?;
            view.write_u64(old + 16, present.mask)?;
        }
        Ok(0)
    }

    pub(super) fn rt_sigprocmask(&mut self) -> Result<u64, Errno> {
        let [how, new, old, ..] = self.args;
        let present = self.kernel.threads[self.thread].blocked;
        if new != 0 {
            let set = self.view().read_u64(new)?;
            let blocked = match how {
                0 => present.0 | set,
                1 => present.0 & !set,
                2 => set,
                _ => return Err(Errno::INVAL),
            };
            let unblockable = SignalSet::default().with(SIGKILL).with(SIGSTOP as u32);
            self.kernel.threads[self.thread].blocked = SignalSet(blocked & !unblockable.0);
        }
        if old != 0 {
            self.view().write_u64(old, present.0)?;
        }
        Ok(0)
    }

    /// Waits for a signal; delivery to its handler ends the wait.
    pub(super) fn rt_sigsuspend(&mut self) -> Result<Answer, Errno> {
        let [va, ..] = self.args;
        self.lend_mask(va)?;
        Ok(self.wait_again(None, Answer::Error(Errno::INTR)))
    }

    /// Signals that are blocked and have come.
    pub(super) fn rt_sigpending(&mut self) -> Result<u64, Errno> {
        let [va, ..] = self.args;
        let own = self.kernel.threads[self.thread].pending.set();
        let all = SignalSet(own.0 | self.process().pending.set().0);
        self.view().write_u64(va, all.0)?;
        Ok(0)
    }

    /// Takes a signal of a set without a handler.
    pub(super) fn rt_sigtimedwait(&mut self) -> Result<Answer, Errno> {
        let [set, info_at, timeout_at, ..] = self.args;
        let others = SignalSet(!self.view().read_u64(set)?);
        let t = &mut self.kernel.threads[self.thread];
        let taken = t.pending.take_outside(others);
        let shared = &mut self.process().pending;
        let Some(info) = taken.or_else(|| shared.take_outside(others)) else {
            let timeout = if timeout_at == 0 { None } else { Some(self.read_time(timeout_at)?) };
            return Ok(self.wait_again(timeout, Answer::Error(Errno::AGAIN)));
        };
        self.kernel.threads[self.thread].poll_until = None;
        if info_at != 0 {
            self.view().write(info_at, &signal::info_bytes(&info))?;
        }
        Ok(Answer::Value(info.signal.into()))
    }

    /// Sends a signal with a value.
    pub(super) fn rt_sigqueueinfo(&mut self) -> Result<u64, Errno> {
        let [pid, number, va, ..] = self.args;
        let info = self.queued(number, va)?;
        let found = |p: &Process| u64::from(p.pid) == pid && !p.reaped;
        let target = self.kernel.processes.iter().position(found).ok_or(Errno::SRCH)?;
        if info.signal != 0 {
            self.kernel.signal_process(target, info);
        }
        Ok(0)
    }

    /// The same to a thread.
    pub(super) fn rt_tgsigqueueinfo(&mut self) -> Result<u64, Errno> {
        let [_, tid, number, va, ..] = self.args;
        let info = self.queued(number, va)?;
        let target = self.living(tid)?;
        if info.signal != 0 {
            self.kernel.signal_thread(target, info);
        }
        Ok(0)
    }

    fn queued(&mut self, number: u64, va: u64) -> Result<Info, Errno> {
        let signal = Self::signal_number(number)?;
        let mut view = self.view();
        let code = view.read_u32(va + 8)? as i32;
        if code >= 0 {
            return Err(Errno::PERM);
        }
        Ok(Info { signal, code, value: view.read_u64(va + 16)?, extra: view.read_u64(va + 24)? })
    }

    pub(super) fn rt_sigreturn(&mut self) -> Result<Answer, Errno> {
        let (t, mut world) = self.kernel.hart(self.thread);
        t.blocked = signal::leave(&mut t.cpu, &mut world.0)?;
        let news = News::Returned { thread: t.id, pc: t.cpu.pc };
        self.kernel.news.push(news);
        Ok(Answer::Set)
    }

    pub(super) fn sigaltstack(&mut self) -> Result<u64, Errno> {
        let [new, old, ..] = self.args;
        let present = self.kernel.threads[self.thread].signal_stack;
        if new != 0 {
            let mut view = self.view();
            let stack = SignalStack {
                start: view.read_u64(new)?,
                flags: view.read_u32(new + 8)? & SS_DISABLE,
                size: view.read_u64(new + 16)?,
            };
            self.kernel.threads[self.thread].signal_stack = stack;
        }
        if old != 0 {
            let mut view = self.view();
            view.write_u64(old, present.start)?;
            view.write_u64(old + 8, present.flags.into())?;
            view.write_u64(old + 16, present.size)?;
        }
        Ok(0)
    }

    fn signal_number(raw: u64) -> Result<u32, Errno> {
        if raw < SIGNALS as u64 { Ok(raw as u32) } else { Err(Errno::INVAL) }
    }

    /// Who sends, as `siginfo` says it.
    fn sender(&mut self, signal: u32, code: i32) -> Info {
        let user = u64::from(rustix::process::getuid().as_raw());
        Info { signal, code, value: u64::from(self.process().pid) | user << 32, extra: 0 }
    }

    pub(super) fn kill(&mut self) -> Result<u64, Errno> {
        let [pid, number, ..] = self.args;
        let signal = Self::signal_number(number)?;
        let (own, group) = (self.process().pid, self.process().group);
        let wanted = pid as i32;
        let meant = |p: &Process| match wanted {
            0 => p.group == group,
            -1 => p.pid != own,
            ..-1 => p.group == wanted.unsigned_abs(),
            _ => p.pid == wanted as u32,
        };
        let processes = self.kernel.processes.iter().enumerate();
        let targets: Vec<usize> =
            processes.filter(|(_, p)| !p.reaped && meant(p)).map(|(n, _)| n).collect();
        if targets.is_empty() {
            return Err(Errno::SRCH);
        }
        let info = self.sender(signal, SI_USER);
        for target in targets {
            if signal != 0 && self.kernel.processes[target].ended.is_none() {
                self.kernel.signal_process(target, info);
            }
        }
        Ok(0)
    }

    pub(super) fn tkill(&mut self) -> Result<u64, Errno> {
        let [tid, number, ..] = self.args;
        self.signal_tid(tid, number)
    }

    pub(super) fn tgkill(&mut self) -> Result<u64, Errno> {
        let [_, tid, number, ..] = self.args;
        self.signal_tid(tid, number)
    }

    fn living(&self, tid: u64) -> Result<usize, Errno> {
        let is_it = |t: &Thread| u64::from(t.tid) == tid && t.wait != Wait::Ended;
        self.kernel.threads.iter().position(is_it).ok_or(Errno::SRCH)
    }

    fn signal_tid(&mut self, tid: u64, number: u64) -> Result<u64, Errno> {
        let signal = Self::signal_number(number)?;
        let target = self.living(tid)?;
        if signal != 0 {
            let info = self.sender(signal, SI_TKILL);
            self.kernel.signal_thread(target, info);
        }
        Ok(0)
    }
}
