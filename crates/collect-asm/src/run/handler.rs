//! Signals on their way to the program's handlers, and back.
//!
//! A handler gets a context of its own, so that what it stores does not come between the words of
//! the block that it interrupts. While one runs, the thread stops at system calls: that
//! is how its return is seen. The signal frame shows the program's own instruction, not
//! its copy; on the return the copy goes on.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, SignalInfo};
use ichnos_rt::{Change, Regs, Resume, Stop, Thread as Task, wait};

use super::buffers::{Full, Returns};
use super::follow::Tracer;
use super::message::{Message, Where};
use super::process::{Frame, general, handles};
use crate::Error;

const SIGSEGV: i32 = 11;
const SIGTRAP: i32 = 5;
/// SIGSEGV in a mask.
const SEGV_BIT: u64 = 1 << (SIGSEGV - 1);
/// Signals that instructions cause: SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV.
const FAULTS: [i32; 5] = [4, 5, 7, 8, 11];
const SYS_RT_SIGRETURN: u64 = 15;
const SYSCALL_LEN: u64 = 2;
/// The instruction that pushes the flags, and the one of them that makes a thread step.
const PUSHFQ: u8 = 0x9c;
const TRAP_FLAG: u64 = 0x100;
/// Where in a signal frame, counted from the handler's stack pointer, the interrupted
/// instruction's address lies: after the return address and the first 21 words of `ucontext`.
const FRAME_RIP: u64 = 8 + 21 * 8;

impl Tracer<'_> {
    /// A signal is about to be delivered.
    pub(super) fn signal(&mut self, task: Task, signal: i32) -> Result<(), Error> {
        if signal == SIGSEGV
            && let Some(full) = self.buffer_full(task)?
        {
            return match full {
                Full::Later if self.listened => {
                    self.later.push_back((task, Change::Stopped(Stop::Signal(signal))));
                    Ok(())
                }
                _ => self.go_on(task, 0),
            };
        }
        if signal == SIGTRAP && (self.at_loader(task)? || self.at_beginning(task)?) {
            return self.go_on(task, 0);
        }
        if signal == SIGTRAP && self.stray_step(task)? {
            return self.go_on(task, 0);
        }
        if !self.is_traced(task) || !handles(task.0, signal) {
            // One that is gone by now has nothing to correct.
            if let (Ok(regs), Ok(source)) = (task.regs(), task.signal_source()) {
                let fault = source.code > 0 && FAULTS.contains(&signal);
                self.interrupted(task, &regs, if fault { Returns::Seen } else { Returns::Unseen });
            }
            return self.go_on(task, signal);
        }
        self.deliver(task, signal)
    }

    /// Whether a trap is one of a step that somebody took for the program's own: the kernel leaves the flag set if a
    /// signal comes where flags are about to be popped. It is cleared then.
    fn stray_step(&self, task: Task) -> Result<bool, Error> {
        const TRAP_TRACE: i32 = 2;
        let failed = |source| Error::Process { pid: task.0, what: "going on after a step", source };
        let code = task.signal_source().map_err(failed)?.code;
        if code != TRAP_TRACE || !self.is_traced(task) || handles(task.0, SIGTRAP) {
            return Ok(false);
        }
        let mut regs = task.regs().map_err(failed)?;
        regs.eflags &= !TRAP_FLAG;
        task.set_regs(&regs).map_err(failed)?;
        Ok(true)
    }

    fn deliver(&mut self, task: Task, signal: i32) -> Result<(), Error> {
        let failed = |source| Error::Process { pid: task.0, what: "delivering a signal", source };
        let source = task.signal_source().map_err(failed)?;
        let mut before = task.regs().map_err(failed)?;
        // What a tool does is not the program's: its function returns first, and a stack pointer comes back. A fault is its own, though.
        let fault = source.code > 0 && FAULTS.contains(&signal);
        if !fault && self.is_astray(task, &before) {
            let info = task.signal_info().map_err(failed)?;
            if !self.come_back(task)? {
                return Ok(());
            }
            task.set_signal_info(&info).map_err(failed)?;
            before = task.regs().map_err(failed)?;
        }
        self.forget_left(task, |frame| frame.is_left(before.rsp));
        if signal == SIGSEGV && self.block_again(task).map_err(failed)? {
            // A fault comes again, and then the kernel does what it does if it is blocked; what was sent waits.
            if !fault {
                task.send(SIGSEGV).map_err(failed)?;
            }
            return self.go_on(task, 0);
        }
        let kept = if fault { self.raise_stack(task, &before).map_err(failed)? } else { None };
        let lower = |change: &Change| match (kept, change) {
            (Some(_), Change::Stopped(_)) => Self::lower_stack(task, &before).map_err(failed),
            _ => Ok(()),
        };
        // The step ends at the handler's first instruction.
        task.resume(Resume::Step, signal).map_err(failed)?;
        loop {
            match wait(Some(task)).map_err(failed)? {
                Some((_, change @ Change::Stopped(Stop::Signal(SIGTRAP)))) => {
                    lower(&change)?;
                    break;
                }
                // It was asked to stop before.
                Some((_, Change::Stopped(Stop::Group(SIGTRAP)))) => {
                    task.resume(Resume::Step, 0).map_err(failed)?;
                }
                Some((task, change)) => {
                    lower(&change)?;
                    return self.change(task, change);
                }
                None => return Ok(()),
            }
        }
        let mut regs = task.regs().map_err(failed)?;
        let Some(at) = self.place(task, &before) else { return self.go_on(task, 0) };
        let place = regs.rsp + FRAME_RIP;
        // A system call that will be repeated is the interrupted instruction.
        let in_frame = task.word(place).unwrap_or(0);
        if in_frame != before.rip && in_frame + SYSCALL_LEN != before.rip {
            // No handler began: it was taken away in the meantime.
            return self.go_on(task, 0);
        }
        let seen = self.place(task, &Regs { rip: in_frame, ..before });
        let interrupted = match seen {
            Some(Where::Copy { pc, .. } | Where::Exec(pc)) => pc,
            _ => GuestVa(in_frame),
        };
        task.write(place, &interrupted.0.to_le_bytes()).map_err(failed)?;
        let ahead = self.interrupted(task, &before, Returns::Seen);
        self.flush(task)?;
        let pc = (interrupted.0, in_frame);
        let (registers, blocks) = (general(&before), Self::unblock(task).map_err(failed)?);
        let (stack, outer) = (regs.rsp, before.rsp);
        let frame = Frame { stack, outer, pc, ahead, kept, registers, blocks };
        let info = SignalInfo {
            number: signal,
            code: source.code,
            interrupted,
            handler: GuestVa(regs.rip),
        };
        let Some((thread, outer, inner)) = self.push_lane(task, frame)? else { return Ok(()) };
        self.inherit(inner, outer);
        let mode = self.mode(inner);
        self.tell(Message::Signal { thread, at, outer, inner, info, mode });
        regs.gs_base = self.context_address(inner);
        task.set_regs(&regs).map_err(failed)?;
        self.go_on(task, 0)
    }

    /// Lets a handler that has just begun have SIGSEGV, if it blocks that: a full buffer is such a fault, and one that is blocked would
    /// make the kernel forget the program's handler. Whether it was blocked.
    fn unblock(task: Task) -> std::io::Result<bool> {
        let mask = task.signal_mask()?;
        if mask & SEGV_BIT != 0 {
            task.set_signal_mask(mask & !SEGV_BIT)?;
        }
        Ok(mask & SEGV_BIT != 0)
    }

    /// Lets the kernel know that a thread is in a handler that blocks SIGSEGV; whether it is, and the kernel did not.
    fn block_again(&mut self, task: Task) -> std::io::Result<bool> {
        let thread = self.threads.get_mut(&task.0);
        let frame = thread.and_then(|t| t.lanes.last_mut()?.frame.as_mut());
        let is_blocked = frame.is_some_and(|frame| std::mem::take(&mut frame.blocks));
        if is_blocked {
            task.set_signal_mask(task.signal_mask()? | SEGV_BIT)?;
        }
        Ok(is_blocked)
    }

    /// Steps until a thread has left the functions of a tool and has its own stack pointer; whether it is still there and stopped.
    /// Signals that come meanwhile are sent again.
    fn come_back(&mut self, task: Task) -> Result<bool, Error> {
        let failed = |source| Error::Process {
            pid: task.0,
            what: "stepping to where a signal can come",
            source,
        };
        let mut later = Vec::new();
        loop {
            let pushes = Self::pushes_flags(task).map_err(failed)?;
            task.resume(Resume::Step, 0).map_err(failed)?;
            match wait(Some(task)).map_err(failed)? {
                Some((_, Change::Stopped(Stop::Signal(SIGTRAP) | Stop::Group(SIGTRAP)))) => {
                    let regs = task.regs().map_err(failed)?;
                    if pushes {
                        // What was pushed says that somebody steps.
                        let flags = task.word(regs.rsp).map_err(failed)? & !TRAP_FLAG;
                        task.write(regs.rsp, &flags.to_le_bytes()).map_err(failed)?;
                    }
                    if !self.is_astray(task, &regs) {
                        later.into_iter().try_for_each(|s| task.send(s)).map_err(failed)?;
                        return Ok(true);
                    }
                }
                Some((_, Change::Stopped(Stop::Signal(other)))) => later.push(other),
                Some((task, change)) => {
                    self.change(task, change)?;
                    return Ok(false);
                }
                None => return Ok(false),
            }
        }
    }

    /// Whether a thread is about to push its flags.
    fn pushes_flags(task: Task) -> std::io::Result<bool> {
        let mut code = [0];
        task.read(task.regs()?.rip, &mut code)?;
        Ok(code == [PUSHFQ])
    }

    /// A thread that handles a signal enters or leaves a system call.
    pub(super) fn system_call(&mut self, task: Task) -> Result<(), Error> {
        let failed =
            |source| Error::Process { pid: task.0, what: "a return of a signal handler", source };
        let mut regs = task.regs().map_err(failed)?;
        let Some(thread) = self.threads.get_mut(&task.0) else { return self.go_on(task, 0) };
        thread.in_call = !thread.in_call;
        if thread.in_call {
            let matches = |frame: &Frame| frame.returning() == regs.rsp;
            let asked = regs.orig_rax == SYS_RT_SIGRETURN;
            thread.returns =
                asked && thread.lanes.iter().filter_map(|l| l.frame).any(|f| matches(&f));
            if thread.returns {
                self.forget_left(task, |frame| !matches(frame));
            } else if !asked {
                self.forget_left(task, |frame| frame.is_left(regs.rsp));
            }
            return self.go_on(task, 0);
        }
        if !std::mem::take(&mut thread.returns) {
            return self.go_on(task, 0);
        }
        let Some((id, inner, outer, frame)) = self.pop_lane(task) else {
            return self.go_on(task, 0);
        };
        let (pc, changed) = (GuestVa(regs.rip), frame.changed(&regs));
        if regs.rip == frame.pc.0 {
            regs.rip = frame.pc.1;
            self.goes_on(outer, frame.ahead);
        }
        if let Some(kept) = frame.kept {
            kept.restore(task).map_err(failed)?;
        }
        regs.gs_base = self.context_address(outer);
        task.set_regs(&regs).map_err(failed)?;
        let at = Where::Outside(GuestVa(0));
        self.tell(Message::SignalReturn { thread: id, at, inner, outer, pc, changed });
        self.go_on(task, 0)
    }

    /// Forgets contexts that were interrupted by handlers which were left by a jump.
    fn forget_left(&mut self, task: Task, is_left: impl Fn(&Frame) -> bool) {
        while let Some((thread, outer, buffer)) = self.left_lane(task, &is_left) {
            self.tell_last(thread, outer, buffer);
            self.tell(Message::Left { thread, outer });
            self.free_context(outer);
        }
    }
}
