//! The protocol's requests, answered by a machine.
// SPDX-License-Identifier: MIT OR Apache-2.0

use gdbstub::common::{Signal, Tid};
use gdbstub::outputln;
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps, MultiThreadSchedulerLocking,
    MultiThreadSchedulerLockingOps, MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use gdbstub::target::ext::base::single_register_access::{
    SingleRegisterAccess, SingleRegisterAccessOps,
};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwBreakpoint, HwBreakpointOps, HwWatchpoint, HwWatchpointOps,
    SwBreakpoint, SwBreakpointOps, WatchKind,
};
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use ichnos_base::GuestVa;

use super::Debuggee;
use super::registers::{Core, Register, Rv64};
use crate::debug::{Watch, WatchFor};

const HELP: &str = "\
monitor help            this text
monitor count           instructions retired so far by all threads
monitor threads         what each thread is doing
monitor translate ADDR  the physical address behind a virtual one
Harts keep their turns whatever is stepped, so a debugged run is the same run.";

/// A machine on a client's line.
pub(crate) struct Stub<'a, D> {
    pub(super) machine: &'a mut D,
    step: Option<usize>,
}

impl<'a, D> Stub<'a, D> {
    pub(super) fn new(machine: &'a mut D) -> Self {
        Self { machine, step: None }
    }
}

/// gdb counts threads from one.
pub(super) fn thread_id(thread: usize) -> Tid {
    Tid::MIN.saturating_add(thread)
}

fn thread(tid: Tid) -> usize {
    tid.get() - 1
}

pub(super) fn watch_kind(what: WatchFor) -> WatchKind {
    match what {
        WatchFor::Loads => WatchKind::Read,
        WatchFor::Stores => WatchKind::Write,
        WatchFor::Both => WatchKind::ReadWrite,
    }
}

fn watch(start: u64, len: u64, kind: WatchKind) -> Watch {
    let what = match kind {
        WatchKind::Read => WatchFor::Loads,
        WatchKind::Write => WatchFor::Stores,
        WatchKind::ReadWrite => WatchFor::Both,
    };
    Watch { start, len, what }
}

impl<D: Debuggee> Target for Stub<'_, D> {
    type Arch = Rv64;
    type Error = D::Error;

    fn base_ops(&mut self) -> BaseOps<'_, Rv64, D::Error> {
        BaseOps::MultiThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }
}

impl<D: Debuggee> MultiThreadBase for Stub<'_, D> {
    fn read_registers(&mut self, regs: &mut Core, tid: Tid) -> TargetResult<(), Self> {
        let cpu = self.machine.cpu(thread(tid)).ok_or(TargetError::NonFatal)?;
        *regs = Core { x: std::array::from_fn(|n| cpu.x(n as u8)), pc: cpu.pc };
        Ok(())
    }

    fn write_registers(&mut self, regs: &Core, tid: Tid) -> TargetResult<(), Self> {
        let cpu = self.machine.cpu_mut(thread(tid)).ok_or(TargetError::NonFatal)?;
        for (n, value) in regs.x.iter().enumerate() {
            cpu.set_x(n as u8, *value);
        }
        cpu.pc = regs.pc & !1;
        Ok(())
    }

    fn support_single_register_access(&mut self) -> Option<SingleRegisterAccessOps<'_, Tid, Self>> {
        Some(self)
    }

    fn read_addrs(&mut self, at: u64, bytes: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        match self.machine.read(thread(tid), GuestVa(at), bytes) {
            0 => Err(TargetError::NonFatal),
            got => Ok(got),
        }
    }

    fn write_addrs(&mut self, at: u64, bytes: &[u8], tid: Tid) -> TargetResult<(), Self> {
        let done = self.machine.write(thread(tid), GuestVa(at), bytes);
        if done { Ok(()) } else { Err(TargetError::NonFatal) }
    }

    fn list_active_threads(&mut self, active: &mut dyn FnMut(Tid)) -> Result<(), D::Error> {
        self.machine.threads().into_iter().for_each(|thread| active(thread_id(thread)));
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl<D: Debuggee> SingleRegisterAccess<Tid> for Stub<'_, D> {
    fn read_register(
        &mut self,
        tid: Tid,
        register: Register,
        bytes: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let cpu = self.machine.cpu(thread(tid)).ok_or(TargetError::NonFatal)?;
        let value = match register {
            Register::Integer(n) => cpu.x(n),
            Register::Pc => cpu.pc,
            Register::Float(n) => cpu.f(n),
            Register::Csr(csr) => {
                self.machine.csr(thread(tid), csr).ok_or(TargetError::NonFatal)?
            }
            Register::Privilege => self.machine.privilege(thread(tid)),
        };
        let len = bytes.len().min(8);
        bytes[..len].copy_from_slice(&value.to_le_bytes()[..len]);
        Ok(len)
    }

    fn write_register(
        &mut self,
        tid: Tid,
        register: Register,
        bytes: &[u8],
    ) -> TargetResult<(), Self> {
        let mut word = [0; 8];
        let len = bytes.len().min(8);
        word[..len].copy_from_slice(&bytes[..len]);
        let value = u64::from_le_bytes(word);
        let cpu = self.machine.cpu_mut(thread(tid)).ok_or(TargetError::NonFatal)?;
        match register {
            Register::Integer(n) => cpu.set_x(n, value),
            Register::Pc => cpu.pc = value & !1,
            Register::Float(n) => cpu.set_f(n, value),
            Register::Csr(csr) => {
                let done = self.machine.set_csr(thread(tid), csr, value);
                return done.ok_or(TargetError::NonFatal);
            }
            Register::Privilege => return Err(TargetError::NonFatal),
        }
        Ok(())
    }
}

impl<D: Debuggee> MultiThreadResume for Stub<'_, D> {
    fn resume(&mut self) -> Result<(), D::Error> {
        self.machine.debug().go_on(self.step);
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), D::Error> {
        self.step = None;
        Ok(())
    }

    fn set_resume_action_continue(&mut self, _: Tid, _: Option<Signal>) -> Result<(), D::Error> {
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl<D: Debuggee> MultiThreadSingleStep for Stub<'_, D> {
    fn set_resume_action_step(&mut self, tid: Tid, _: Option<Signal>) -> Result<(), D::Error> {
        self.step = Some(thread(tid));
        Ok(())
    }
}

/// Clients lock others out to step past a breakpoint. The thread that stopped
/// is in the middle of its turn, so no other runs during its step anyway; a
/// thread that is not in its turn cannot run before the others have had theirs.
impl<D: Debuggee> MultiThreadSchedulerLocking for Stub<'_, D> {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), D::Error> {
        Ok(())
    }
}

impl<D: Debuggee> ThreadExtraInfo for Stub<'_, D> {
    fn thread_extra_info(&self, tid: Tid, bytes: &mut [u8]) -> Result<usize, D::Error> {
        let text = self.machine.describe(thread(tid));
        let len = text.len().min(bytes.len());
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Ok(len)
    }
}

impl<D: Debuggee> Breakpoints for Stub<'_, D> {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl<D: Debuggee> SwBreakpoint for Stub<'_, D> {
    fn add_sw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        self.machine.debug().set_breakpoint(GuestVa(at));
        Ok(true)
    }

    fn remove_sw_breakpoint(&mut self, at: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.machine.debug().clear_breakpoint(GuestVa(at)))
    }
}

/// No breakpoint changes memory, so both kinds are one.
impl<D: Debuggee> HwBreakpoint for Stub<'_, D> {
    fn add_hw_breakpoint(&mut self, at: u64, kind: usize) -> TargetResult<bool, Self> {
        self.add_sw_breakpoint(at, kind)
    }

    fn remove_hw_breakpoint(&mut self, at: u64, kind: usize) -> TargetResult<bool, Self> {
        self.remove_sw_breakpoint(at, kind)
    }
}

impl<D: Debuggee> HwWatchpoint for Stub<'_, D> {
    fn add_hw_watchpoint(
        &mut self,
        at: u64,
        len: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        self.machine.debug().set_watch(watch(at, len, kind));
        Ok(true)
    }

    fn remove_hw_watchpoint(
        &mut self,
        at: u64,
        len: u64,
        kind: WatchKind,
    ) -> TargetResult<bool, Self> {
        Ok(self.machine.debug().clear_watch(watch(at, len, kind)))
    }
}

impl<D: Debuggee> MonitorCmd for Stub<'_, D> {
    fn handle_monitor_cmd(
        &mut self,
        command: &[u8],
        mut out: ConsoleOutput<'_>,
    ) -> Result<(), D::Error> {
        let text = String::from_utf8_lossy(command);
        let words: Vec<&str> = text.split_whitespace().collect();
        match *words {
            ["count"] => outputln!(out, "{}", self.machine.retired()),
            ["threads"] => {
                for thread in self.machine.threads() {
                    let pc = self.machine.cpu(thread).map_or(0, |cpu| cpu.pc);
                    outputln!(out, "{} {pc:#x} {}", thread + 1, self.machine.describe(thread));
                }
            }
            ["translate", address] => match parse(address) {
                Some(at) => {
                    let thread = self.machine.current();
                    match self.machine.translate(thread, at) {
                        Some(pa) => outputln!(out, "{:#x}", pa.0),
                        None => outputln!(out, "nothing is mapped at {:#x}", at.0),
                    }
                }
                None => outputln!(out, "{address} is not a number"),
            },
            [] | ["help"] => outputln!(out, "{HELP}"),
            _ => outputln!(out, "there is no such command; try `monitor help`"),
        }
        Ok(())
    }
}

fn parse(text: &str) -> Option<GuestVa> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(GuestVa),
        None => text.parse().ok().map(GuestVa),
    }
}
