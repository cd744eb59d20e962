//! A whole machine under a debugger: its threads are its harts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestPa, GuestVa};
use ichnos_isa_rv64::Csr;

use crate::cpu::Cpu;
use crate::debug::Debug;
use crate::error::RunError;
use crate::gdb::{Advance, Debuggee};
use crate::ram::PAGE_SIZE;
use crate::system::Ending;
use crate::system::console::Console;
use crate::system::hart::{State, SystemWorld};
use crate::system::machine::Machine;
use crate::system::privilege::Privilege;
use crate::tracer::Tracer;

const PAGE: u64 = PAGE_SIZE as u64;

impl<C: Console, T: Tracer> Machine<C, T> {
    /// The index into RAM of a virtual address and how many bytes follow in its
    /// page. A debugger sees what is mapped, whatever the mode may touch.
    fn place(&mut self, hart: usize, at: GuestVa) -> Option<(usize, usize)> {
        let pa = self.look_up(hart, at)?;
        let left = (PAGE - at.0 % PAGE) as usize;
        Some((self.bus.ram_index(pa.0, left)?, left))
    }

    fn look_up(&mut self, hart: usize, at: GuestVa) -> Option<GuestPa> {
        let hart = self.harts.get(hart)?;
        SystemWorld { bus: &mut self.bus, csrs: &hart.csrs }.look_up(at)
    }
}

impl<C: Console, T: Tracer> Debuggee for Machine<C, T> {
    type Error = RunError<T::Error>;

    fn debug(&mut self) -> &mut Debug {
        self.debug.get_or_insert_default()
    }

    fn threads(&self) -> Vec<usize> {
        (0..self.harts.len()).collect()
    }

    fn current(&self) -> usize {
        self.hart_in_turn()
    }

    fn describe(&self, thread: usize) -> String {
        let Some(hart) = self.harts.get(thread) else { return String::new() };
        let mode = match hart.csrs.privilege {
            Privilege::User => "user",
            Privilege::Supervisor => "supervisor",
            Privilege::Machine => "machine",
        };
        let state = match hart.state {
            State::Running => "running",
            State::Waiting => "waiting for an interrupt",
            State::Stopped => "stopped",
        };
        format!("hart {thread}, {mode} mode, {state}")
    }

    fn retired(&self) -> u64 {
        Machine::retired(self)
    }

    fn cpu(&self, thread: usize) -> Option<&Cpu> {
        self.harts.get(thread).map(|hart| &hart.cpu)
    }

    fn cpu_mut(&mut self, thread: usize) -> Option<&mut Cpu> {
        self.harts.get_mut(thread).map(|hart| &mut hart.cpu)
    }

    fn csr(&self, thread: usize, csr: Csr) -> Option<u64> {
        let hart = self.harts.get(thread)?;
        let mut csrs = hart.csrs.clone();
        csrs.privilege = Privilege::Machine;
        csrs.read(&hart.cpu, csr, self.bus.clint.time(self.bus.clock))
    }

    fn set_csr(&mut self, thread: usize, csr: Csr, value: u64) -> Option<()> {
        self.csr(thread, csr)?;
        self.harts.get_mut(thread)?.set_csr(csr, value)
    }

    fn privilege(&self, thread: usize) -> u64 {
        self.harts.get(thread).map_or(0, |hart| hart.csrs.privilege as u64)
    }

    fn translate(&mut self, thread: usize, at: GuestVa) -> Option<GuestPa> {
        self.look_up(thread, at)
    }

    fn read(&mut self, thread: usize, at: GuestVa, bytes: &mut [u8]) -> usize {
        let mut got = 0;
        while got < bytes.len() {
            let Some((index, left)) = self.place(thread, at.offset(got as u64)) else { break };
            let len = left.min(bytes.len() - got);
            let Some(from) = self.bus.ram.slice(index, len) else { break };
            bytes[got..got + len].copy_from_slice(from);
            got += len;
        }
        got
    }

    fn write(&mut self, thread: usize, at: GuestVa, bytes: &[u8]) -> bool {
        let mut put = 0;
        while put < bytes.len() {
            let Some((index, left)) = self.place(thread, at.offset(put as u64)) else {
                return false;
            };
            let len = left.min(bytes.len() - put);
            let Some(to) = self.bus.ram.slice_mut(index, len) else { return false };
            to.copy_from_slice(&bytes[put..put + len]);
            put += len;
        }
        true
    }

    fn advance(&mut self) -> Result<Advance, Self::Error> {
        let ending = self.step_on()?;
        Ok(ending.map_or(Advance::On, |ending| Advance::Ended(status(ending))))
    }
}

/// The status that a debugger is told.
fn status(ending: Ending) -> u8 {
    match ending {
        Ending::Failed(code) => code as u8,
        Ending::ToHost(verdict) => verdict as u8,
        _ => 0,
    }
}
