//! What the program wants to happen on `SIGTRAP`, kept against the kernel.
//!
//! A step ends in a forced `SIGTRAP`. When the program blocks or ignores that
//! signal (inside its own handler, say), the kernel unblocks it and resets its
//! disposition to the default, as it would for any fault. So the disposition is
//! remembered when the program sets it, and given back by a call in the
//! program's name before the kernel, or the program, looks at it again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Sink, ThreadId};

use crate::engine::{Engine, Fail};
use crate::stop::Stop;
use crate::sys::{self, Patience, Resume, Tid, UserRegs};

/// The kernel's `struct sigaction` as words: handler, flags, restorer, mask.
pub(crate) type Action = [u64; 4];

const SIG_IGN: u64 = 1;
const SA_RESETHAND: u64 = 0x8000_0000;

/// The wishes of one process about `SIGTRAP`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Disposition {
    /// What it set; `None` for the default.
    action: Option<Action>,
    /// Whether the kernel may have forgotten it.
    lost: bool,
    /// Where a system-call instruction was last executed.
    pub(crate) call_site: Option<u64>,
}

impl Disposition {
    /// The program set it.
    pub(crate) fn set(&mut self, action: Action) {
        self.action = (action[0] != 0).then_some(action);
        self.lost = action[0] == SIG_IGN;
    }

    /// A step was made while the signal was blocked.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    /// Whether the program has a handler.
    pub(crate) fn catches(&self) -> bool {
        self.action.is_some_and(|action| action[0] != SIG_IGN)
    }

    /// The handler is about to be entered.
    pub(crate) fn enter(&mut self) {
        if self.action.is_some_and(|action| action[1] & SA_RESETHAND != 0) {
            self.action = None;
        }
    }

    /// A new program keeps only what is ignored.
    pub(crate) fn exec(&mut self) {
        self.action = self.action.filter(|action| action[0] == SIG_IGN);
        self.call_site = None;
    }

    fn wanted(&self) -> Option<(Action, u64)> {
        self.action.filter(|_| self.lost).zip(self.call_site)
    }
}

/// Whether a system call looks at dispositions, or hands them on.
pub(crate) fn concerns(number: u64) -> bool {
    const CALLS: [libc::c_long; 11] = [
        libc::SYS_rt_sigaction,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
    ];
    CALLS.iter().any(|call| *call as u64 == number)
}

/// Reads the structure that a program passes to `rt_sigaction`.
pub(crate) fn read_action(tid: Tid, addr: u64) -> Option<Action> {
    let mut action = [0; 4];
    for (word, at) in action.iter_mut().zip((0..).step_by(8)) {
        *word = sys::peek(tid, addr.wrapping_add(at))?;
    }
    Some(action)
}

impl<S: Sink> Engine<'_, S> {
    /// Gives the program its disposition back, if it was lost. The thread must
    /// be stopped in user code; a signal it is stopped at is withheld.
    ///
    /// Answers whether a call was made in the program's name.
    pub(crate) fn restore_disposition(&mut self, id: ThreadId) -> Result<bool, Fail<S>> {
        let tracee = &self.tracees[id.index()];
        let (tid, regs) = (tracee.tid, tracee.regs);
        let disposition = &mut self.processes[tracee.process.index()].disposition;
        let Some((action, site)) = disposition.wanted() else { return Ok(false) };
        disposition.lost = action[0] == SIG_IGN;
        // Below the 128 bytes that leaf functions may use without saying so.
        let place = regs.rsp.wrapping_sub(256) & !15;
        let Some(saved) = read_action(tid, place) else { return Ok(false) };
        write_action(tid, place, &action);
        let call = UserRegs {
            rip: site,
            rax: libc::SYS_rt_sigaction as u64,
            orig_rax: u64::MAX,
            rdi: libc::SIGTRAP as u64,
            rsi: place,
            rdx: 0,
            r10: 8,
            ..regs
        };
        let made = sys::set_regs(tid, &call).is_ok()
            && self.pass_stop(id, Stop::Syscall)?
            && self.pass_stop(id, Stop::Syscall)?;
        write_action(tid, place, &saved);
        self.attempt(tid, "restoring registers", sys::set_regs(tid, &regs))?;
        Ok(made)
    }

    /// Lets a thread run to a stop that must come next.
    fn pass_stop(&mut self, id: ThreadId, expected: Stop) -> Result<bool, Fail<S>> {
        let tid = self.tracees[id.index()].tid;
        if !self.attempt(tid, "resuming", sys::resume(tid, Resume::Syscall, 0))? {
            return Ok(false);
        }
        match self.ask(id, Patience::Sleep)? {
            Some(stop) if stop == expected => Ok(true),
            Some(stop) => self.handle_stop(id, stop).map(|_| false),
            None => Ok(false),
        }
    }
}

fn write_action(tid: Tid, addr: u64, action: &Action) {
    for (word, at) in action.iter().zip((0..).step_by(8)) {
        // The words were just read there; nobody else runs.
        let _ = sys::poke(tid, addr.wrapping_add(at), *word);
    }
}
