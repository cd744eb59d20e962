//! What a stop means and what follows from it: system calls, new threads and
//! programs, signals, stops and ends.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;

use ichnos_base::{
    Code, DriveError, EndStatus, Event, GapReason, GuestVa, InsnKind, Record, Sink, ThreadId,
};

use crate::code::Seen;
use crate::disposition::read_action;
use crate::engine::{Done, Engine, Fail, Turn};
use crate::stop::{Stop, end_of_status};
use crate::sys::{self, Patience, Resume, Tid};
use crate::tracee::{Call, Number, PendingSignal, State, Told};
use crate::{Vdso, auxv, launch};

/// The kernel's own results for calls that it repeats or gives up after a signal
/// (`ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`).
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];

/// The code segment of 32-bit programs.
const CS_32: u64 = 0x23;

pub(crate) const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

impl<S: Sink> Engine<'_, S> {
    /// Takes note of a stop, tells its events, and lets the thread go on if it
    /// has not come to its next instruction yet.
    pub(crate) fn handle_stop(&mut self, id: ThreadId, stop: Stop) -> Result<Turn, Fail<S>> {
        if self.tracees[id.index()].state == State::Free
            && let Some(turn) = self.handle_free(id, stop)?
        {
            return Ok(turn);
        }
        match stop {
            Stop::Exited(code) => self.bury(id, EndStatus::Exited(code)).map(|()| Turn::Away),
            Stop::Killed(signal) => self.bury(id, EndStatus::Killed(signal)).map(|()| Turn::Away),
            Stop::Exiting => self.handle_exiting(id),
            Stop::Cloned(_) => {
                self.adopt(id)?;
                self.go_on(id, Resume::Syscall, 0)
            }
            Stop::VforkDone => {
                // The child ran in this process's memory and may have changed it.
                self.refresh_maps(id)?;
                self.go_on(id, Resume::Syscall, 0)
            }
            Stop::Exec => self.handle_exec(id),
            Stop::Syscall => self.handle_syscall(id),
            Stop::Signal(number) => self.handle_signal(id, number),
            Stop::Group(_) => self.go_on(id, Resume::Listen, 0),
            Stop::Trap => match self.tracees[id.index()].call {
                Call::Outside | Call::Interrupted => self.come_to_rest(id),
                // A thread that was just made stops on its way out of the kernel, behind the end
                // of the call that made it.
                Call::Made => self.handle_syscall(id),
                Call::Inside(_) | Call::Born => self.go_on(id, Resume::Syscall, 0),
            },
        }
    }

    /// The thread is stopped before its next instruction.
    fn come_to_rest(&mut self, id: ThreadId) -> Result<Turn, Fail<S>> {
        let tracee = &mut self.tracees[id.index()];
        let tid = tracee.tid;
        let read = sys::get_regs(tid, &mut tracee.regs);
        if !self.attempt(tid, "reading registers", read)? {
            return Ok(Turn::Away);
        }
        self.tracees[id.index()].state = State::Ready;
        Ok(Turn::Go)
    }

    fn handle_exiting(&mut self, id: ThreadId) -> Result<Turn, Fail<S>> {
        if let Ok(status) = sys::event_message(self.tracees[id.index()].tid) {
            self.tell_end(id, end_of_status(status as i32))?;
        }
        self.go_on(id, Resume::Cont, 0)
    }

    /// A program that cannot be stepped just runs.
    fn handle_free(&mut self, id: ThreadId, stop: Stop) -> Result<Option<Turn>, Fail<S>> {
        match stop {
            Stop::Signal(number) => self.go_on(id, Resume::Cont, number)?,
            Stop::Group(_) => self.go_on(id, Resume::Listen, 0)?,
            Stop::Syscall | Stop::Trap | Stop::VforkDone => self.go_on(id, Resume::Cont, 0)?,
            Stop::Cloned(_) => {
                self.adopt(id)?;
                self.go_on(id, Resume::Cont, 0)?
            }
            _ => return Ok(None),
        };
        self.tracees[id.index()].state = State::Free;
        Ok(Some(Turn::Away))
    }

    /// Takes charge of the thread that `id` just made.
    pub(crate) fn adopt(&mut self, id: ThreadId) -> Done<S> {
        let Ok(message) = sys::event_message(self.tracees[id.index()].tid) else { return Ok(()) };
        let tid = Tid(message as i32);
        let pid = thread_group(tid).unwrap_or(tid);
        let own = self.tracees[id.index()].process;
        let process =
            if self.processes[own.index()].pid == pid { own } else { self.add_process(pid) };
        self.processes[process.index()].disposition = self.processes[own.index()].disposition;
        let child = self.add_thread(tid, process);
        self.tracees[child.index()].creator = Some(id);
        self.tracees[child.index()].call = Call::Made;
        self.out.event(id, &Event::ThreadCreate { child })?;
        // It stops before it does anything.
        match self.ask(child, Patience::Sleep)? {
            Some(Stop::Trap) if self.tracees[id.index()].state == State::Free => {
                self.handle_free(child, Stop::Trap)?;
            }
            Some(stop) if self.handle_stop(child, stop)? == Turn::Go => self.queue(child),
            _ => {}
        }
        Ok(())
    }

    /// The process has a new program. Whichever thread asked for it is the only
    /// one left, and has the number of the first.
    fn handle_exec(&mut self, id: ThreadId) -> Result<Turn, Fail<S>> {
        let tid = self.tracees[id.index()].tid;
        let former = sys::event_message(tid).map_or(tid, |message| Tid(message as i32));
        let survivor = self.survivor(id, former);
        if survivor != id {
            // The first thread is no more; only its number lives on.
            self.tell_end(id, EndStatus::Exited(0))?;
            self.forget(id);
            self.tracees[survivor.index()].tid = tid;
        }
        let tracee = &mut self.tracees[survivor.index()];
        tracee.call = Call::Born;
        let process = tracee.process;
        self.processes[process.index()].renew();
        let path = fs::read_link(format!("/proc/{}/exe", tid.0)).unwrap_or_default();
        self.ensure_started(survivor)?;
        self.out.event(survivor, &Event::Exec { path: &path.to_string_lossy() })?;
        self.refresh_maps(survivor)?;
        let mut regs = sys::zero_regs();
        if sys::get_regs(tid, &mut regs).is_ok() && regs.cs == CS_32 {
            let gap = Event::Gap { reason: GapReason::Untraced, insns: None, skipped: None };
            self.out.event(survivor, &gap)?;
            self.go_on(survivor, Resume::Cont, 0)?;
            self.tracees[survivor.index()].state = State::Free;
            return Ok(Turn::Away);
        }
        if self.config.vdso == Vdso::Hidden
            && let Err(source) = auxv::hide_vdso(tid)
            && sys::get_regs(tid, &mut regs).is_ok()
        {
            return Err(DriveError::Source(launch::hidden(tid, source)));
        }
        self.go_on(survivor, Resume::Syscall, 0)
    }

    /// The thread that had the number `former` before the exec.
    fn survivor(&self, id: ThreadId, former: Tid) -> ThreadId {
        let process = self.tracees[id.index()].process;
        let is = |other: &&ThreadId| {
            let tracee = &self.tracees[other.index()];
            tracee.tid == former && tracee.process == process
        };
        self.alive.iter().find(is).copied().unwrap_or(id)
    }

    fn handle_syscall(&mut self, id: ThreadId) -> Result<Turn, Fail<S>> {
        if self.come_to_rest(id)? == Turn::Away {
            return Ok(Turn::Away);
        }
        match self.tracees[id.index()].call {
            // The kernel repeats a call by going back two bytes, whatever
            // prefixes the instruction had.
            Call::Outside | Call::Interrupted => {
                let pc = self.tracees[id.index()].regs.rip.wrapping_sub(2);
                self.call_entered(id, pc)
            }
            Call::Born | Call::Made => self.call_returned(id, None),
            Call::Inside(number) => self.call_returned(id, Some(number)),
        }
    }

    /// A system-call instruction at `pc` entered the kernel: it has retired.
    pub(crate) fn call_entered(&mut self, id: ThreadId, pc: u64) -> Result<Turn, Fail<S>> {
        let tracee = &mut self.tracees[id.index()];
        let regs = tracee.regs;
        let process = &mut self.processes[tracee.process.index()];
        let (cached, seen) = process.code.fetch(tracee.tid, pc, &process.maps);
        if seen == Seen::FirstTime {
            let code = Code { process: process.id, pc: GuestVa(pc), bytes: cached.bytes() };
            self.out.code(id, &code)?;
        }
        let len = cached.inst.as_ref().map_or(2, |inst| inst.length());
        let compat = cached.bytes().first() == Some(&0xcd);
        self.out.insn(id, Record::insn(GuestVa(pc), len, InsnKind::SYSCALL))?;
        let args = if compat {
            [regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rbp].map(|r| r & 0xffff_ffff)
        } else {
            [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9]
        };
        let number = regs.orig_rax;
        process.disposition.call_site = Some(pc);
        let sets_trap = !compat
            && number == libc::SYS_rt_sigaction as u64
            && args[0] == libc::SIGTRAP as u64
            && args[1] != 0;
        tracee.new_action = if sets_trap { read_action(tracee.tid, args[1]) } else { None };
        tracee.call =
            Call::Inside(if compat { Number::Of32(number) } else { Number::Of64(number) });
        self.out.event(id, &Event::Syscall { number, args })?;
        self.go_on(id, Resume::Syscall, 0)?;
        self.wait_a_little(id)
    }

    /// Most calls come back at once: it is not worth giving the turn away.
    pub(crate) fn wait_a_little(&mut self, id: ThreadId) -> Result<Turn, Fail<S>> {
        for _ in 0..50 {
            if let Some(stop) = self.ask(id, Patience::Ask)? {
                let turn = self.handle_stop(id, stop)?;
                let tracee = &self.tracees[id.index()];
                // Passing through a stop inside the kernel is no end of the wait.
                if turn == Turn::Go || tracee.state != State::Busy || tracee.told == Told::End {
                    return Ok(turn);
                }
            }
            std::thread::yield_now();
        }
        Ok(Turn::Away)
    }

    fn call_returned(&mut self, id: ThreadId, number: Option<Number>) -> Result<Turn, Fail<S>> {
        let tracee = &mut self.tracees[id.index()];
        tracee.call = Call::Outside;
        if let Ok(mask) = sys::get_mask(tracee.tid) {
            tracee.trap_blocked = mask & TRAP_BIT != 0;
        }
        let regs = tracee.regs;
        let Some(number) = number else { return Ok(Turn::Go) };
        if number == Number::Of64(libc::SYS_rt_sigreturn as u64) {
            self.out.event(id, &Event::SignalReturn { pc: GuestVa(regs.rip) })?;
            return Ok(Turn::Go);
        }
        let result = regs.rax.cast_signed();
        if let Some(action) = tracee.new_action.take().filter(|_| result == 0) {
            self.processes[tracee.process.index()].disposition.set(action);
        }
        if RESTARTS.contains(&result) {
            tracee.call = Call::Interrupted;
        }
        let (told, may_change) = match number {
            Number::Of64(number) => (number, may_change_maps(number)),
            // Few make any, so none is told from the others.
            Number::Of32(number) => (number, true),
        };
        self.out.event(id, &Event::SyscallReturn { number: told, result })?;
        if may_change {
            self.refresh_maps(id)?;
        }
        Ok(Turn::Go)
    }

    fn handle_signal(&mut self, id: ThreadId, number: i32) -> Result<Turn, Fail<S>> {
        let turn = self.come_to_rest(id)?;
        let tracee = &mut self.tracees[id.index()];
        let code = sys::signal_code(tracee.tid).unwrap_or(0);
        tracee.signal = Some(PendingSignal { number, code });
        Ok(turn)
    }
}

/// The process that a thread belongs to.
fn thread_group(tid: Tid) -> Option<Tid> {
    let status = fs::read_to_string(format!("/proc/{}/status", tid.0)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok().map(Tid)
}

/// The calls after which the table of mappings may differ.
fn may_change_maps(number: u64) -> bool {
    const CALLS: [libc::c_long; 15] = [
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_munmap,
        libc::SYS_brk,
        libc::SYS_mremap,
        libc::SYS_shmat,
        libc::SYS_shmdt,
        libc::SYS_remap_file_pages,
        libc::SYS_pkey_mprotect,
        libc::SYS_arch_prctl,
        libc::SYS_prctl,
        libc::SYS_setrlimit,
        libc::SYS_prlimit64,
        libc::SYS_io_setup,
        libc::SYS_io_destroy,
    ];
    const MAP_SHADOW_STACK: u64 = 453;
    number == MAP_SHADOW_STACK || CALLS.iter().any(|call| *call as u64 == number)
}
