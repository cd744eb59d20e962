//! The scheduler: threads take turns by instruction count; traps become
//! signals, and `ecall` becomes a system call.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{DriveError, EndStatus, Event, GuestVa, SignalInfo};
use ichnos_isa_rv64::{Class, Insn, Op};

use crate::debug::{Both, Debug};
use crate::engine::Engine;
use crate::error::{Error, RunError};
use crate::exec::{Exit, cache_block};
use crate::gdb::{self, GdbAt, Parting};
use crate::observe::Observer as _;
use crate::tracer::{More, Tracer};
use crate::trap::{Cause, Stop, Trap};
use crate::user::kernel::Kernel;
use crate::user::process::Wait;
use crate::user::signal::{self, Effect, Info, SIGBUS, SIGILL, SIGKILL, SIGSEGV, SIGTRAP};
use crate::user::syscall::{self, Answer};
use crate::user::{Config, Outcome, csr};

/// Instructions that a thread runs at once while no other can.
const ALONE: u64 = 1 << 20;

/// The kernel's own result for a call that it makes again.
const RESTART: i64 = -512;

/// A simulated Linux with its programs.
#[derive(Debug)]
pub(crate) struct Machine<T> {
    pub(super) kernel: Kernel,
    engine: Engine,
    pub(super) tracer: T,
    quantum: u64,
    /// Threads whose start has been told.
    pub(super) started: usize,
    /// Threads whose end has been told.
    finished: Vec<bool>,
    /// The thread whose turn it is.
    pub(super) thread: usize,
    /// What is left of a turn in which the debugger stopped the machine.
    unfinished: Option<u64>,
    /// What a debugger wants.
    pub(super) debug: Option<Debug>,
    gdb: Option<GdbAt>,
}

pub(super) type Flow<T> = Result<More, RunError<<T as Tracer>::Error>>;

impl<T: Tracer> Machine<T> {
    pub(crate) fn new(config: &Config, tracer: T) -> Result<Self, Error> {
        if config.quantum == 0 {
            return Err(Error::Config(
                "a quantum of no instructions lets no thread run".to_owned(),
            ));
        }
        Ok(Self {
            kernel: Kernel::new(config)?,
            engine: Engine::new(config.speed),
            tracer,
            quantum: config.quantum,
            started: 0,
            finished: Vec::new(),
            thread: 0,
            unfinished: None,
            debug: None,
            gdb: config.gdb.clone(),
        })
    }

    /// Runs until the programs it began with have ended, or the sink has seen
    /// enough.
    pub(crate) fn run(&mut self) -> Result<Outcome, RunError<T::Error>> {
        let debugged = match self.gdb.take() {
            Some(at) => {
                let line = gdb::accept(&at).map_err(DriveError::Source)?;
                Some(gdb::serve(self, line)?)
            }
            None => None,
        };
        self.debug = None;
        if debugged == Some(Parting::Killed) {
            self.kill_all()?;
        }
        loop {
            if let Some(outcome) = self.step_on()? {
                return Ok(outcome);
            }
        }
    }

    fn kill_all(&mut self) -> Result<(), RunError<T::Error>> {
        for process in 0..self.kernel.processes.len() {
            if self.kernel.processes[process].ended.is_none()
                && self.end_process(process, EndStatus::Killed(SIGKILL as i32))? == More::Enough
            {
                break;
            }
        }
        Ok(())
    }

    /// One thread's turn, or what is left of it; the outcome if that is the end.
    pub(super) fn step_on(&mut self) -> Result<Option<Outcome>, RunError<T::Error>> {
        let unknown = EndStatus::Unknown;
        if self.tell_news()? == More::Enough {
            return Ok(Some(Outcome { status: unknown, retired: self.retired() }));
        }
        if let Some(status) = self.kernel.verdict() {
            return Ok(Some(Outcome { status, retired: self.retired() }));
        }
        if !self.kernel.can_run(self.thread) {
            self.unfinished = None;
        } else if self.turn(self.thread)? == More::Enough {
            return Ok(Some(Outcome { status: unknown, retired: self.retired() }));
        }
        if self.unfinished.is_none() && self.kernel.verdict().is_none() {
            match self.next_runnable(self.thread) {
                Some(next) => self.thread = next,
                None => syscall::idle(&mut self.kernel).map_err(DriveError::Source)?,
            }
        }
        Ok(None)
    }

    pub(super) fn retired(&self) -> u64 {
        self.kernel.threads.iter().map(|t| t.cpu.retired).sum()
    }

    /// The next thread in turn that can run.
    fn next_runnable(&mut self, after: usize) -> Option<usize> {
        syscall::expire(&mut self.kernel);
        let count = self.kernel.threads.len();
        (1..=count).map(|n| (after + n) % count).find(|&t| self.kernel.can_run(t))
    }

    /// One thread's turn, to its end or to where a debugger stops it.
    fn turn(&mut self, thread: usize) -> Flow<T> {
        let mut left = match self.unfinished.take() {
            Some(left) => left,
            None if self.kernel.is_alone(thread) => ALONE,
            None => self.quantum,
        };
        // A call that had to wait is made again, now that it may succeed.
        if let Some(number) = self.kernel.threads[thread].in_call
            && self.finish_call(thread, number)? == More::Enough
        {
            return Ok(More::Enough);
        }
        while self.kernel.can_run(thread) {
            if self.deliver_signals(thread)? == More::Enough {
                return Ok(More::Enough);
            }
            if !self.kernel.can_run(thread) || left == 0 {
                break;
            }
            let pc = self.kernel.threads[thread].cpu.pc;
            if self.debug.as_mut().is_some_and(|d| d.stops_before(thread, pc)) {
                self.unfinished = Some(left);
                break;
            }
            let exit = self.drive(thread, &mut left);
            let more = match exit {
                Exit::Limit => More::Yes,
                Exit::Fetch | Exit::Look => self.drain(thread)?,
                Exit::Trap(trap) => self.fault(thread, trap)?,
                Exit::System(insn) => self.system(thread, &insn)?,
            };
            if more == More::Enough {
                return Ok(More::Enough);
            }
            if self.kernel.threads[thread].wait != Wait::Ended
                && self.debug.as_mut().is_some_and(|d| d.stops_after(thread))
            {
                self.unfinished = Some(left);
                break;
            }
        }
        self.share_opened(thread);
        self.drain(thread)
    }

    /// Runs a thread under whoever watches it.
    fn drive(&mut self, thread: usize, left: &mut u64) -> Exit {
        let limit = self.debug.as_ref().map_or(*left, |d| d.stride(thread, *left));
        let (t, mut world) = self.kernel.hart(thread);
        let before = t.cpu.retired;
        let watch = self.tracer.watch(t.id);
        let exit = match self.debug.as_mut().and_then(Debug::probe) {
            Some(probe) => {
                self.engine.drive(&mut t.cpu, &mut world, &mut Both(watch, probe), limit)
            }
            None => self.engine.drive(&mut t.cpu, &mut world, watch, limit),
        };
        let ran = t.cpu.retired - before;
        *left -= ran;
        self.kernel.now += ran;
        exit
    }

    /// Tells the other harts which pages now hold decoded code.
    fn share_opened(&mut self, thread: usize) {
        for page in self.engine.take_opened() {
            for (n, t) in self.kernel.threads.iter_mut().enumerate() {
                if n != thread && t.wait != Wait::Ended {
                    t.cpu.tlb.protect(page);
                }
            }
        }
    }

    fn drain(&mut self, thread: usize) -> Flow<T> {
        let id = self.kernel.threads[thread].id;
        self.tracer.drain(id, &mut self.kernel.view(thread)).map_err(DriveError::Sink)
    }

    pub(super) fn event(&mut self, thread: usize, event: &Event<'_>) -> Flow<T> {
        let id = self.kernel.threads[thread].id;
        self.tracer.event(id, event, &mut self.kernel.view(thread)).map_err(DriveError::Sink)
    }

    /// An instruction that the machine carries out.
    fn system(&mut self, thread: usize, insn: &Insn) -> Flow<T> {
        let illegal = Trap::new(Cause::Illegal, 0);
        match insn.op.row().class {
            Class::Ecall => {
                self.retire(thread, insn);
                self.call(thread)
            }
            Class::Ebreak => {
                let pc = self.kernel.threads[thread].cpu.pc;
                self.fault(thread, Trap::new(Cause::Breakpoint, pc))
            }
            Class::Csr => {
                // The clock ticks at 10 MHz.
                let time = self.kernel.now / 100;
                match csr::execute(&mut self.kernel.threads[thread].cpu, insn, time) {
                    Some(()) => self.retire(thread, insn),
                    None => return self.fault(thread, illegal),
                }
                Ok(More::Yes)
            }
            Class::CacheBlock | Class::CacheZero => self.cache_block(thread, insn),
            // Decoded code is never stale, so there is nothing to do.
            Class::Fence if insn.op == Op::FenceI => {
                self.retire(thread, insn);
                Ok(More::Yes)
            }
            _ => self.fault(thread, illegal),
        }
    }

    fn retire(&mut self, thread: usize, insn: &Insn) {
        let t = &mut self.kernel.threads[thread];
        self.tracer.watch(t.id).insn(GuestVa(t.cpu.pc), insn.len, insn.kind());
        t.cpu.pc = t.cpu.pc.wrapping_add(insn.len.into());
        t.cpu.retired += 1;
        self.kernel.now += 1;
    }

    fn cache_block(&mut self, thread: usize, insn: &Insn) -> Flow<T> {
        let (t, mut world) = self.kernel.hart(thread);
        let watch = self.tracer.watch(t.id);
        watch.insn(GuestVa(t.cpu.pc), insn.len, insn.kind());
        match cache_block(&mut t.cpu, &mut world, watch, insn) {
            Err(Stop::Trap(trap)) => {
                watch.abandon();
                self.fault(thread, trap)
            }
            Ok(()) | Err(Stop::Completed) => {
                t.cpu.pc = t.cpu.pc.wrapping_add(insn.len.into());
                t.cpu.retired += 1;
                self.kernel.now += 1;
                Ok(More::Yes)
            }
        }
    }

    /// A trap becomes a signal that cannot be blocked.
    fn fault(&mut self, thread: usize, trap: Trap) -> Flow<T> {
        let pc = self.kernel.threads[thread].cpu.pc;
        let (signal, code, value) = match trap.cause {
            Cause::Illegal => (SIGILL, 1, pc),
            Cause::Breakpoint => (SIGTRAP, 1, pc),
            Cause::LoadMisaligned | Cause::StoreMisaligned => (SIGBUS, 1, trap.value),
            _ => (SIGSEGV, 1, trap.value),
        };
        let t = &mut self.kernel.threads[thread];
        let blocked = t.blocked.0 >> (signal - 1) & 1 != 0;
        t.blocked = t.blocked.without(signal);
        let action = self.kernel.process(thread).actions[signal as usize];
        if blocked || action.effect(signal) != Effect::Handle {
            let process = self.kernel.threads[thread].process;
            return self.end_process(process, EndStatus::Killed(signal as i32));
        }
        self.deliver(thread, Info { signal, code, value, extra: 0 })
    }

    /// Delivers what is pending and not blocked. A call that was interrupted and
    /// then not for a handler's sake goes on.
    fn deliver_signals(&mut self, thread: usize) -> Flow<T> {
        while let Some(info) = self.kernel.take_signal(thread) {
            let signal = info.signal;
            let process = self.kernel.threads[thread].process;
            match self.kernel.processes[process].actions[signal as usize].effect(signal) {
                Effect::Ignore => {}
                Effect::Terminate => {
                    return self.end_process(process, EndStatus::Killed(signal as i32));
                }
                Effect::Stop => {
                    self.kernel.stop(process, signal);
                    return Ok(More::Yes);
                }
                Effect::Handle => {
                    if self.give_up_call(thread, signal)? == More::Enough
                        || self.deliver(thread, info)? == More::Enough
                    {
                        return Ok(More::Enough);
                    }
                }
            }
        }
        match self.kernel.threads[thread].interrupted.take() {
            Some(number) => {
                self.kernel.threads[thread].in_call = Some(number);
                self.finish_call(thread, number)
            }
            None => Ok(More::Yes),
        }
    }

    /// A handler is about to run in the middle of a call: afterwards the call is
    /// made again, or has failed.
    fn give_up_call(&mut self, thread: usize, signal: u32) -> Flow<T> {
        let Some(number) = self.kernel.threads[thread].interrupted.take() else {
            return Ok(More::Yes);
        };
        let action = self.kernel.process(thread).actions[signal as usize];
        let written = std::mem::take(&mut self.kernel.threads[thread].transferred);
        let cpu = &mut self.kernel.threads[thread].cpu;
        let result = if written > 0 {
            cpu.set_x(10, written);
            written as i64
        } else if action.restarts() && syscall::may_restart(number) {
            cpu.pc = cpu.pc.wrapping_sub(4);
            RESTART
        } else {
            let failed = -i64::from(rustix::io::Errno::INTR.raw_os_error());
            cpu.set_x(10, failed as u64);
            failed
        };
        self.event(thread, &Event::SyscallReturn { number, result })
    }

    fn deliver(&mut self, thread: usize, info: Info) -> Flow<T> {
        let number = info.signal as usize;
        let action = self.kernel.process(thread).actions[number];
        self.kernel.process(thread).actions[number] = action.after_delivery();
        let (t, mut world) = self.kernel.hart(thread);
        let interrupted = t.cpu.pc;
        let state = (t.lent_mask.take().unwrap_or(t.blocked), t.signal_stack);
        t.blocked = action.blocked(info.signal, t.blocked);
        if signal::enter(&mut t.cpu, &mut world.0, &action, info, state).is_err() {
            let process = t.process;
            return self.end_process(process, EndStatus::Killed(SIGSEGV as i32));
        }
        let told = SignalInfo {
            number: info.signal as i32,
            code: info.code,
            interrupted: GuestVa(interrupted),
            handler: GuestVa(action.handler),
        };
        self.event(thread, &Event::Signal(told))
    }

    /// The system call that the thread's registers ask for.
    fn call(&mut self, thread: usize) -> Flow<T> {
        let cpu = &self.kernel.threads[thread].cpu;
        let number = cpu.x(17);
        let args = std::array::from_fn(|n| cpu.x(10 + n as u8));
        if self.event(thread, &Event::Syscall { number, args })? == More::Enough {
            return Ok(More::Enough);
        }
        self.kernel.threads[thread].in_call = Some(number);
        self.finish_call(thread, number)
    }

    fn finish_call(&mut self, thread: usize, number: u64) -> Flow<T> {
        let answer = syscall::perform(&mut self.kernel, thread, number);
        let result = match answer {
            Answer::Wait(wait) => {
                self.kernel.threads[thread].wait = wait;
                // The call may have lent a mask under which a signal is due.
                self.kernel.interrupt(thread);
                return Ok(More::Yes);
            }
            Answer::WaitThen(wait) => {
                // The waker, or the clock, sets the result.
                let t = &mut self.kernel.threads[thread];
                t.wait = wait;
                t.in_call = None;
                self.kernel.interrupt(thread);
                return Ok(More::Yes);
            }
            Answer::ExitThread(status) => return self.end_thread(thread, status),
            Answer::ExitProcess(status) => {
                let process = self.kernel.threads[thread].process;
                return self.end_process(process, status);
            }
            Answer::Set => None,
            Answer::Value(value) => Some(value),
            Answer::Error(errno) => Some(-i64::from(errno.raw_os_error()) as u64),
        };
        let t = &mut self.kernel.threads[thread];
        t.in_call = None;
        if let Some(mask) = t.lent_mask.take() {
            t.blocked = mask;
        }
        if let Some(value) = result {
            t.cpu.set_x(10, value);
        }
        let result = t.cpu.x(10) as i64;
        if self.event(thread, &Event::SyscallReturn { number, result })? == More::Enough {
            return Ok(More::Enough);
        }
        self.tell_news()
    }

    fn end_thread(&mut self, thread: usize, status: EndStatus) -> Flow<T> {
        let process = self.kernel.threads[thread].process;
        if self.kernel.processes[process].threads == 1 {
            return self.end_process(process, status);
        }
        if self.tell_end(thread, status)? == More::Enough {
            return Ok(More::Enough);
        }
        self.kernel.end_thread(thread, status);
        Ok(More::Yes)
    }

    fn end_process(&mut self, process: usize, status: EndStatus) -> Flow<T> {
        for thread in 0..self.kernel.threads.len() {
            let t = &self.kernel.threads[thread];
            if t.process == process
                && t.wait != Wait::Ended
                && self.tell_end(thread, status)? == More::Enough
            {
                return Ok(More::Enough);
            }
        }
        self.kernel.end_process(process, status);
        Ok(More::Yes)
    }

    fn tell_end(&mut self, thread: usize, status: EndStatus) -> Flow<T> {
        self.finished.resize(self.kernel.threads.len(), false);
        if std::mem::replace(&mut self.finished[thread], true) {
            return Ok(More::Yes);
        }
        self.event(thread, &Event::ThreadEnd(status))
    }
}
