//! Signal calls.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rustix::io::Errno;

use super::{Answer, Call};
use crate::user::kernel::News;
use crate::user::process::{SignalStack, Wait};
use crate::user::signal::{self, Action, SIGKILL, SIGNALS, SignalSet};

const SIGSTOP: u64 = 19;
const SS_DISABLE: u32 = 2;

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
        let set = self.view().read_u64(va)?;
        let t = &mut self.kernel.threads[self.thread];
        t.blocked = SignalSet(set);
        t.cpu.set_x(10, -i64::from(Errno::INTR.raw_os_error()) as u64);
        Ok(Answer::WaitThen(Wait::Until(None)))
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

    pub(super) fn kill(&mut self) -> Result<u64, Errno> {
        let [pid, number, ..] = self.args;
        let signal = Self::signal_number(number)?;
        let own = self.kernel.threads[self.thread].process;
        let target = match pid as i32 {
            0 | -1 => Some(own),
            pid => {
                self.kernel.processes.iter().position(|p| p.pid == pid.unsigned_abs() && !p.reaped)
            }
        };
        let target = target.ok_or(Errno::SRCH)?;
        if signal != 0 {
            self.kernel.signal_process(target, signal);
            interrupt(self, |t| t.process == target);
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

    fn signal_tid(&mut self, tid: u64, number: u64) -> Result<u64, Errno> {
        let signal = Self::signal_number(number)?;
        let target = self
            .kernel
            .threads
            .iter()
            .position(|t| u64::from(t.tid) == tid && t.wait != Wait::Ended);
        let target = target.ok_or(Errno::SRCH)?;
        if signal != 0 {
            self.kernel.signal_thread(target, signal);
            interrupt(self, |t| u64::from(t.tid) == tid);
        }
        Ok(0)
    }
}

/// Ends the waits of threads that now have a signal to deal with.
fn interrupt(call: &mut Call<'_>, of: impl Fn(&crate::user::process::Thread) -> bool) {
    let interrupted = -i64::from(Errno::INTR.raw_os_error()) as u64;
    for t in call.kernel.threads.iter_mut().filter(|t| of(t)) {
        let waits = !matches!(t.wait, Wait::Runnable | Wait::Ended | Wait::Vfork { .. });
        if waits && t.pending.first_outside(t.blocked).is_some() {
            t.wait = Wait::Runnable;
            t.in_call = None;
            t.cpu.set_x(10, interrupted);
        }
    }
}
