//! Programs under a debugger: its threads are the guest's, of all processes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{EndStatus, GuestPa, GuestVa};
use ichnos_isa_rv64::Csr;

use crate::cpu::Cpu;
use crate::debug::Debug;
use crate::error::RunError;
use crate::gdb::{Advance, Debuggee};
use crate::ram::PAGE_SIZE;
use crate::tracer::Tracer;
use crate::trap::Access;
use crate::user::csr;
use crate::user::machine::Machine;
use crate::user::process::Wait;

impl<T: Tracer> Machine<T> {
    fn lives(&self, thread: usize) -> bool {
        self.kernel.threads.get(thread).is_some_and(|t| t.wait != Wait::Ended)
    }
}

impl<T: Tracer> Debuggee for Machine<T> {
    type Error = RunError<T::Error>;

    fn debug(&mut self) -> &mut Debug {
        self.debug.get_or_insert_default()
    }

    fn threads(&self) -> Vec<usize> {
        (0..self.kernel.threads.len()).filter(|&thread| self.lives(thread)).collect()
    }

    fn current(&self) -> usize {
        self.thread
    }

    fn describe(&self, thread: usize) -> String {
        let Some(t) = self.kernel.threads.get(thread) else { return String::new() };
        let process = &self.kernel.processes[t.process];
        let name = process.program.file_name().unwrap_or_default().to_string_lossy();
        let state = if t.wait == Wait::Runnable { "running" } else { "waiting" };
        format!("{name} {}, thread {}, {state}", process.pid, t.tid)
    }

    fn retired(&self) -> u64 {
        Machine::retired(self)
    }

    fn cpu(&self, thread: usize) -> Option<&Cpu> {
        self.kernel.threads.get(thread).map(|t| &t.cpu)
    }

    fn cpu_mut(&mut self, thread: usize) -> Option<&mut Cpu> {
        self.kernel.threads.get_mut(thread).map(|t| &mut t.cpu)
    }

    fn csr(&self, thread: usize, register: Csr) -> Option<u64> {
        csr::read(&self.kernel.threads.get(thread)?.cpu, register, self.kernel.now / 100)
    }

    fn set_csr(&mut self, thread: usize, register: Csr, value: u64) -> Option<()> {
        csr::write(&mut self.kernel.threads.get_mut(thread)?.cpu, register, value)
    }

    fn privilege(&self, _: usize) -> u64 {
        0
    }

    /// Guest memory has no physical addresses here.
    fn translate(&mut self, _: usize, _: GuestVa) -> Option<GuestPa> {
        None
    }

    fn read(&mut self, thread: usize, at: GuestVa, bytes: &mut [u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && self.lives(thread) {
            let va = at.0.wrapping_add(done as u64);
            let part = (PAGE_SIZE - va as usize % PAGE_SIZE).min(bytes.len() - done);
            let mut view = self.kernel.view(thread);
            let piece = &mut bytes[done..done + part];
            if [Access::Load, Access::Fetch].iter().all(|a| view.read_for(va, piece, *a).is_err()) {
                break;
            }
            done += part;
        }
        done
    }

    fn write(&mut self, thread: usize, at: GuestVa, bytes: &[u8]) -> bool {
        if !self.lives(thread) {
            return false;
        }
        let mut view = self.kernel.view(thread);
        view.write(at.0, bytes).or_else(|_| view.poke(at.0, bytes)).is_ok()
    }

    fn advance(&mut self) -> Result<Advance, Self::Error> {
        let outcome = self.step_on()?;
        Ok(outcome.map_or(Advance::On, |outcome| {
            Advance::Ended(match outcome.status {
                EndStatus::Exited(code) => code as u8,
                EndStatus::Killed(signal) => 128_u8.wrapping_add(signal as u8),
                _ => 0,
            })
        }))
    }
}
