//! One instruction: what it will touch, its step, and what came of it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{
    Code, DriveError, Event, GapReason, GuestVa, InsnKind, Record, SignalInfo, Sink, ThreadId,
};
use ichnos_isa_x86::{Gpr, Inst, Regs, accesses};

use crate::code::{Cached, Class, Seen};
use crate::disposition;
use crate::engine::{Engine, Fail, Turn};
use crate::events::TRAP_BIT;
use crate::live::Live;
use crate::stop::Stop;
use crate::sys::{self, Patience, Resume, Tid, UserRegs};
use crate::tracee::{Call, PendingSignal, State};
use crate::{Error, Values};

/// The trap flag, by which the processor single-steps.
const TF: u64 = 1 << 8;

/// `si_code` of our own step, and of the step that ends a system call.
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;

/// The signals that a thread blocks at this moment, be it for one call only.
fn blocked_now(tid: Tid) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", tid.0)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// What a step came to. The larger variant is the usual one.
#[allow(clippy::large_enum_variant, reason = "a box per step would be an allocation per step")]
enum Stepped {
    /// The instruction, or one iteration of it, was executed.
    Done(UserRegs),
    /// It was not, or not yet.
    Not(Turn),
}

impl<S: Sink> Engine<'_, S> {
    /// Lets a ready thread deliver its signal or execute its next instruction.
    #[inline]
    pub(crate) fn advance(&mut self, id: ThreadId) -> Result<Turn, Fail<S>> {
        let tracee = &self.tracees[id.index()];
        if let Some(signal) = tracee.signal
            && self.catches(id, signal.number)
        {
            return self.deliver(id, signal);
        }
        if tracee.call == Call::Interrupted {
            let signal = self.take_signal(id);
            self.go_on(id, Resume::Syscall, signal)?;
            return self.wait_a_little(id);
        }
        let cached = self.fetch(id)?;
        let Some(inst) = cached.inst else { return self.step_unknown(id) };
        match cached.class {
            Class::Syscall => self.enter_call(id),
            Class::Rep => self.step_rep(id, &inst),
            Class::Shadow => self.pass_shadow(id, &inst),
            class => self.step_one(id, &inst, class),
        }
    }

    /// The instruction that a thread will execute next, told to the sink if new.
    #[inline]
    fn fetch(&mut self, id: ThreadId) -> Result<Cached, Fail<S>> {
        let tracee = &self.tracees[id.index()];
        let process = &mut self.processes[tracee.process.index()];
        let pc = tracee.regs.rip;
        let (cached, seen) = process.code.fetch(tracee.tid, pc, &process.maps);
        if seen == Seen::FirstTime && cached.inst.is_some() {
            let code = Code { process: process.id, pc: GuestVa(pc), bytes: cached.bytes() };
            self.out.code(id, &code)?;
        }
        Ok(cached.clone())
    }

    fn take_signal(&mut self, id: ThreadId) -> i32 {
        self.tracees[id.index()].signal.take().map_or(0, |signal| signal.number)
    }

    /// Starts a system call.
    fn enter_call(&mut self, id: ThreadId) -> Result<Turn, Fail<S>> {
        let tracee = &self.tracees[id.index()];
        if tracee.signal.is_none() && disposition::concerns(tracee.regs.rax) {
            self.restore_disposition(id)?;
        }
        self.restore_mask(id)?;
        let (pc, signal) = (self.tracees[id.index()].regs.rip, self.take_signal(id));
        self.go_on(id, Resume::Syscall, signal)?;
        let Some(stop) = self.ask(id, Patience::Sleep)? else { return Ok(Turn::Away) };
        if stop != Stop::Syscall {
            return self.handle_stop(id, stop);
        }
        let tracee = &mut self.tracees[id.index()];
        let tid = tracee.tid;
        let read = sys::get_regs(tid, &mut tracee.regs);
        if !self.attempt(tid, "reading registers", read)? {
            return Ok(Turn::Away);
        }
        self.call_entered(id, pc)
    }

    /// Blocks `SIGTRAP` again if the program has it blocked: the kernel is about
    /// to look at the mask, and our steps have unblocked it.
    ///
    /// Not while a call like sigsuspend lends the thread another mask until a
    /// handler is entered: what the kernel tells then is the mask that it will
    /// put back, and setting that would block the very signal that ended the call.
    fn restore_mask(&mut self, id: ThreadId) -> Result<(), Fail<S>> {
        let tracee = &self.tracees[id.index()];
        if tracee.trap_blocked
            && let Ok(mask) = sys::get_mask(tracee.tid)
            && blocked_now(tracee.tid).is_none_or(|now| now | TRAP_BIT == mask | TRAP_BIT)
        {
            let set = sys::set_mask(tracee.tid, mask | TRAP_BIT);
            self.attempt(tracee.tid, "setting the signal mask", set)?;
        }
        Ok(())
    }

    /// Sends a thread into the handler that it has for a signal.
    fn deliver(&mut self, id: ThreadId, signal: PendingSignal) -> Result<Turn, Fail<S>> {
        if signal.number == libc::SIGTRAP && !self.prepare_trap(id)? {
            return Ok(Turn::Go);
        }
        self.restore_mask(id)?;
        self.tracees[id.index()].signal = None;
        self.go_on(id, Resume::Step, signal.number)?;
        let Some(stop) = self.ask(id, Patience::Sleep)? else { return Ok(Turn::Away) };
        let tid = self.tracees[id.index()].tid;
        // The kernel reports a handler's entry by a trap of its own kind.
        let entered = stop == Stop::Signal(libc::SIGTRAP)
            && sys::signal_code(tid).is_ok_and(|code| code == libc::SIGTRAP);
        if !entered {
            return self.handle_stop(id, stop);
        }
        let turn = self.handle_stop(id, Stop::Trap)?;
        let tracee = &mut self.tracees[id.index()];
        tracee.call = Call::Outside;
        tracee.rep_told = None;
        if let Ok(mask) = sys::get_mask(tid) {
            tracee.trap_blocked = mask & TRAP_BIT != 0;
        }
        let info = SignalInfo {
            number: signal.number,
            code: signal.code,
            interrupted: GuestVa(interrupted_pc(tid, tracee.regs.rsp)),
            handler: GuestVa(tracee.regs.rip),
        };
        self.out.event(id, &Event::Signal(info))?;
        Ok(turn)
    }

    /// Whether the program has a handler for this signal.
    fn catches(&self, id: ThreadId, signal: i32) -> bool {
        let tracee = &self.tracees[id.index()];
        match signal {
            libc::SIGTRAP => self.processes[tracee.process.index()].disposition.catches(),
            _ => tracee.catches(signal),
        }
    }

    /// Makes sure that the handler for `SIGTRAP` is in place, with the thread
    /// still stopped at that signal.
    fn prepare_trap(&mut self, id: ThreadId) -> Result<bool, Fail<S>> {
        let tid = self.tracees[id.index()].tid;
        let info = sys::get_siginfo(tid);
        let process = self.tracees[id.index()].process;
        if self.restore_disposition(id)? {
            // That lost the signal. Sent again, it comes with another origin.
            self.go_on(id, Resume::Syscall, libc::SIGTRAP)?;
            match self.ask(id, Patience::Sleep)? {
                Some(Stop::Signal(libc::SIGTRAP)) => {}
                Some(stop) => return self.handle_stop(id, stop).map(|_| false),
                None => return Ok(false),
            }
            if let Ok(info) = info {
                self.attempt(tid, "setting a signal's origin", sys::set_siginfo(tid, &info))?;
            }
        }
        self.processes[process.index()].disposition.enter();
        Ok(true)
    }

    /// Executes an instruction that needs one step.
    #[inline]
    fn step_one(&mut self, id: ThreadId, inst: &Inst, class: Class) -> Result<Turn, Fail<S>> {
        let evaluated = self.evaluate(id, inst);
        let after = match self.step(id, class)? {
            Stepped::Done(after) => after,
            Stepped::Not(turn) => return Ok(turn),
        };
        evaluated?;
        let tracee = &mut self.tracees[id.index()];
        let before = std::mem::replace(&mut tracee.regs, after);
        if class == Class::PushFlags && before.eflags & TF == 0 {
            hide_trap_flag(tracee.tid, after.rsp);
        }
        let theirs = class == Class::Breakpoint || before.eflags & TF != 0;
        if theirs {
            let code = sys::signal_code(tracee.tid).unwrap_or(0);
            tracee.signal = Some(PendingSignal { number: libc::SIGTRAP, code });
        }
        self.read_stores(id);
        self.out.insn(id, Record::insn(inst.pc(), inst.length(), inst.kind()))?;
        if !self.scratch.records.is_empty() {
            self.out.accesses(&self.scratch.records, &self.scratch.values)?;
        }
        if inst.kind().transfers() {
            self.out.branch(outcome(inst, &before, after.rip));
        }
        if class == Class::LoadFlags && after.eflags & TF == 0 {
            return self.end_stepping(id);
        }
        Ok(Turn::Go)
    }

    /// Takes a thread out of single stepping and stops it before its next instruction.
    ///
    /// Where the flags were loaded in a step, the kernel takes the trap flag of all further steps for the program's own and
    /// shows it in signal frames, until the thread goes on in another way than by a step.
    #[cold]
    fn end_stepping(&mut self, id: ThreadId) -> Result<Turn, Fail<S>> {
        let tid = self.tracees[id.index()].tid;
        if !self.attempt(tid, "interrupting", sys::interrupt(tid))? {
            return Ok(Turn::Away);
        }
        self.go_on(id, Resume::Cont, 0)?;
        match self.ask(id, Patience::Sleep)? {
            Some(stop) => self.handle_stop(id, stop),
            None => Ok(Turn::Away),
        }
    }

    /// Executes a load of `ss` in the processor's place, if it loads what is there
    /// already, as every load that a 64-bit program can sensibly make does.
    #[cold]
    fn pass_shadow(&mut self, id: ThreadId, inst: &Inst) -> Result<Turn, Fail<S>> {
        self.evaluate(id, inst)?;
        let tracee = &mut self.tracees[id.index()];
        let live = Live::new(tracee.tid, &tracee.regs, &self.host);
        let selector = match self.scratch.records.first() {
            Some(Record::Load { addr, .. }) => sys::peek(tracee.tid, addr.0),
            _ => Gpr::of(inst.raw().op1_register()).map(|source| live.gpr(source)),
        };
        if selector.map(|s| s & 0xffff) != Some(tracee.regs.ss) || tracee.signal.is_some() {
            let turn = self.step_one(id, inst, Class::Shadow)?;
            if self.tracees[id.index()].regs.rip != inst.next_pc().0 {
                let gap = Event::Gap { reason: GapReason::Untraced, insns: None, skipped: None };
                self.out.event(id, &gap)?;
            }
            return Ok(turn);
        }
        tracee.regs.rip = inst.next_pc().0;
        let (tid, regs) = (tracee.tid, tracee.regs);
        if !self.attempt(tid, "writing registers", sys::set_regs(tid, &regs))? {
            return Ok(Turn::Away);
        }
        self.out.insn(id, Record::insn(inst.pc(), inst.length(), inst.kind()))?;
        self.out.accesses(&self.scratch.records, &self.scratch.values)?;
        Ok(Turn::Go)
    }

    /// Executes a repeated string instruction: all its iterations, unless a
    /// signal comes between. Those made are told in either case.
    fn step_rep(&mut self, id: ThreadId, inst: &Inst) -> Result<Turn, Fail<S>> {
        let mut told = self.tracees[id.index()].rep_told.take() == Some(inst.pc().0);
        loop {
            let evaluated = self.evaluate(id, inst);
            let after = match self.step(id, Class::Rep)? {
                Stepped::Done(after) => after,
                Stepped::Not(turn) => {
                    self.tracees[id.index()].rep_told = told.then_some(inst.pc().0);
                    return Ok(turn);
                }
            };
            evaluated?;
            self.tracees[id.index()].regs = after;
            self.read_stores(id);
            if !told {
                self.out.insn(id, Record::insn(inst.pc(), inst.length(), InsnKind::OTHER))?;
                told = true;
            }
            self.out.accesses(&self.scratch.records, &self.scratch.values)?;
            if after.rip != inst.pc().0 {
                return Ok(Turn::Go);
            }
        }
    }

    /// Steps over bytes that are no instruction to us. Usually they fault.
    #[cold]
    fn step_unknown(&mut self, id: ThreadId) -> Result<Turn, Fail<S>> {
        match self.step(id, Class::Invalid)? {
            Stepped::Not(turn) => Ok(turn),
            Stepped::Done(after) => {
                self.tracees[id.index()].regs = after;
                let gap = Event::Gap { reason: GapReason::Untraced, insns: None, skipped: None };
                self.out.event(id, &gap)?;
                Ok(Turn::Go)
            }
        }
    }

    /// Computes the accesses of an instruction about to be executed, and reads
    /// what it will load.
    #[inline]
    fn evaluate(&mut self, id: ThreadId, inst: &Inst) -> Result<(), Fail<S>> {
        let tracee = &self.tracees[id.index()];
        let scratch = &mut self.scratch;
        scratch.records.clear();
        let live = Live::new(tracee.tid, &tracee.regs, &self.host);
        accesses(inst, &live, &mut scratch.records).map_err(|source| {
            let pid = self.processes[tracee.process.index()].pid.0;
            DriveError::Source(Error::Instruction { pid, pc: tracee.regs.rip, source })
        })?;
        if self.config.values == Values::Collect {
            scratch.values.clear();
            for record in &scratch.records {
                let from = scratch.values.len();
                scratch.values.resize(from + record.value_len(), 0);
                if let Record::Load { addr, .. } = record {
                    read_bytes(tracee.tid, *addr, &mut scratch.values[from..]);
                }
            }
        }
        Ok(())
    }

    /// Reads what the instruction just executed stored.
    #[inline]
    fn read_stores(&mut self, id: ThreadId) {
        if self.config.values == Values::Omit {
            return;
        }
        let mut at = 0;
        for record in &self.scratch.records {
            let len = record.value_len();
            if let Record::Store { addr, .. } = record {
                let tid = self.tracees[id.index()].tid;
                read_bytes(tid, *addr, &mut self.scratch.values[at..at + len]);
            }
            at += len;
        }
    }

    /// Single-steps, and tells whether that executed anything.
    #[inline]
    fn step(&mut self, id: ThreadId, class: Class) -> Result<Stepped, Fail<S>> {
        let signal = self.take_signal(id);
        let tracee = &self.tracees[id.index()];
        if tracee.trap_blocked {
            self.processes[tracee.process.index()].disposition.lose();
        }
        self.go_on(id, Resume::Step, signal)?;
        let Some(stop) = self.ask(id, Patience::Sleep)? else {
            return Ok(Stepped::Not(Turn::Away));
        };
        if stop != Stop::Signal(libc::SIGTRAP) {
            return self.handle_stop(id, stop).map(Stepped::Not);
        }
        let mut after = sys::zero_regs();
        let tracee = &mut self.tracees[id.index()];
        let tid = tracee.tid;
        let before = tracee.regs;
        tracee.state = State::Ready;
        if !self.attempt(tid, "reading registers", sys::get_regs(tid, &mut after))? {
            return Ok(Stepped::Not(Turn::Away));
        }
        let moved = after.rip != before.rip || class == Class::Rep && after.rcx != before.rcx;
        if moved {
            return Ok(Stepped::Done(after));
        }
        self.still(id, after)
    }

    /// A trap at the same place: a jump to itself, or somebody else's signal.
    #[cold]
    fn still(&mut self, id: ThreadId, after: UserRegs) -> Result<Stepped, Fail<S>> {
        let tracee = &mut self.tracees[id.index()];
        match sys::signal_code(tracee.tid) {
            Ok(TRAP_TRACE) => Ok(Stepped::Done(after)),
            Ok(TRAP_BRKPT) => Ok(Stepped::Not(Turn::Go)),
            Ok(code) => {
                tracee.signal = Some(PendingSignal { number: libc::SIGTRAP, code });
                Ok(Stepped::Not(Turn::Go))
            }
            Err(_) => Ok(Stepped::Not(Turn::Away)),
        }
    }
}

/// What a control transfer did, given where it led.
fn outcome(inst: &Inst, before: &UserRegs, next: u64) -> Record {
    let next = GuestVa(next);
    let target = inst.target().unwrap_or(next);
    if inst.kind() != InsnKind::BRANCH {
        return Record::branch(true, next);
    }
    let taken = if target == inst.next_pc() {
        inst.condition_holds(before.eflags, before.rcx).unwrap_or(false)
    } else {
        next == target
    };
    Record::branch(taken, target)
}

/// The processor stores the flags as they are, with our trap flag in them.
fn hide_trap_flag(tid: Tid, stack_top: u64) {
    if let Some(word) = sys::peek(tid, stack_top) {
        // Failing is impossible: the instruction has just written there.
        let _ = sys::poke(tid, stack_top, word & !TF);
    }
}

/// Reads bytes; what cannot be read stays zero.
fn read_bytes(tid: Tid, addr: GuestVa, into: &mut [u8]) {
    let mut have = sys::read_memory(tid, addr.0, into);
    while have < into.len() {
        let Some(word) = sys::peek(tid, addr.0.wrapping_add(have as u64)) else { break };
        let take = (into.len() - have).min(8);
        into[have..have + take].copy_from_slice(&word.to_le_bytes()[..take]);
        have += take;
    }
}

/// Where the signal frame at the top of a stack says that execution goes on.
///
/// The frame is a return address, then `struct ucontext`: flags, link and stack
/// (40 bytes), then the registers, of which `rip` is the seventeenth.
fn interrupted_pc(tid: Tid, stack_top: u64) -> u64 {
    const RIP: u64 = 8 + 40 + 16 * 8;
    sys::peek(tid, stack_top.wrapping_add(RIP)).unwrap_or(0)
}
