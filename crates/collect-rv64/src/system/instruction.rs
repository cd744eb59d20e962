//! The instructions that concern more than the hart: control registers,
//! environment calls, returns from traps, fences, waiting, cache blocks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Event, GuestVa, ProcessId, ThreadId};
use ichnos_isa_rv64::{Class, Csr, Insn, Op};

use crate::engine::instruction_word;
use crate::exec::cache_block;
use crate::observe::Observer as _;
use crate::system::console::Console;
use crate::system::hart::SystemWorld;
use crate::system::machine::{Firmware, Flow, Machine};
use crate::system::privilege::Privilege;
use crate::system::sbi;
use crate::tracer::{More, Tracer};
use crate::trap::{Cause, Stop, Trap};

impl<C: Console, T: Tracer> Machine<C, T> {
    /// An instruction that the machine carries out.
    pub(super) fn system(&mut self, n: usize, insn: &Insn) -> Flow<T> {
        let hart = &mut self.harts[n];
        let done = match insn.op.row().class {
            Class::Csr => return self.csr(n, insn),
            Class::Ecall => return self.call(n, insn),
            Class::Ebreak => {
                let pc = hart.cpu.pc;
                return self.trap(n, Trap::new(Cause::Breakpoint, pc));
            }
            Class::TrapReturn => return self.leave(n, insn),
            Class::Wait => hart.wait(),
            Class::CacheBlock | Class::CacheZero => return self.cache_block(n, insn),
            _ if insn.op == Op::SfenceVma => {
                self.drain(n)?;
                let done = self.harts[n].fence();
                self.tracer.code_changed(ProcessId(0), GuestVa(0), u64::MAX);
                done
            }
            _ => Some(()),
        };
        self.finish(n, insn, done)
    }

    /// Retires an instruction that was carried out, or traps.
    fn finish(&mut self, n: usize, insn: &Insn, done: Option<()>) -> Flow<T> {
        if done.is_none() {
            return self.illegal(n);
        }
        let hart = &mut self.harts[n];
        self.tracer.watch(ThreadId(n as u32)).insn(GuestVa(hart.cpu.pc), insn.len, insn.kind());
        hart.cpu.pc = hart.cpu.pc.wrapping_add(insn.len.into());
        hart.cpu.retired += 1;
        Ok(More::Yes)
    }

    fn illegal(&mut self, n: usize) -> Flow<T> {
        let hart = &mut self.harts[n];
        let mut world = SystemWorld { bus: &mut self.bus, csrs: &hart.csrs };
        let word = instruction_word(&mut hart.cpu, &mut world).unwrap_or(0);
        self.trap(n, Trap::new(Cause::Illegal, word.into()))
    }

    fn csr(&mut self, n: usize, insn: &Insn) -> Flow<T> {
        // A device may have lowered its line since the hart last stopped.
        self.update_lines(n);
        let time = self.bus.clint.time(self.bus.clock);
        let hart = &mut self.harts[n];
        let is_space = Csr(insn.imm as u16) == Csr::SATP;
        if is_space && hart.csrs.read(&hart.cpu, Csr::SATP, time).is_some() {
            return self.change_space(n, insn);
        }
        let done = hart.csr(insn, time);
        self.finish(n, insn, done)
    }

    /// A legal instruction on `satp`: it and all before it ran in the old space.
    fn change_space(&mut self, n: usize, insn: &Insn) -> Flow<T> {
        let before = self.harts[n].csrs.satp;
        self.finish(n, insn, Some(()))?;
        self.drain(n)?;
        self.harts[n].csr(insn, 0);
        if self.harts[n].csrs.satp == before {
            return Ok(More::Yes);
        }
        self.tracer.code_changed(ProcessId(0), GuestVa(0), u64::MAX);
        self.tell_mode(n)
    }

    fn call(&mut self, n: usize, insn: &Insn) -> Flow<T> {
        let hart = &mut self.harts[n];
        if self.firmware == Firmware::Guest || hart.csrs.privilege != Privilege::Supervisor {
            let cause = hart.call_cause();
            return self.trap(n, Trap::new(cause, 0));
        }
        let args = std::array::from_fn(|i| hart.cpu.x(10 + i as u8));
        let number = hart.cpu.x(17);
        self.finish(n, insn, Some(()))?;
        if self.event(n, &Event::Syscall { number, args })? == More::Enough {
            return Ok(More::Enough);
        }
        sbi::call(&mut self.harts, n, &mut self.bus);
        let result = self.harts[n].cpu.x(10) as i64;
        if self.event(n, &Event::SyscallReturn { number, result })? == More::Enough {
            return Ok(More::Enough);
        }
        // The call may have started another hart.
        for other in 0..self.harts.len() {
            if self.tell_mode(other)? == More::Enough {
                return Ok(More::Enough);
            }
        }
        Ok(More::Yes)
    }

    fn leave(&mut self, n: usize, insn: &Insn) -> Flow<T> {
        let Some(target) = self.harts[n].return_target(insn.op) else { return self.illegal(n) };
        let pc = self.harts[n].cpu.pc;
        let watch = self.tracer.watch(ThreadId(n as u32));
        watch.insn(GuestVa(pc), insn.len, insn.kind());
        watch.branch(true, GuestVa(target));
        self.drain(n)?;
        let hart = &mut self.harts[n];
        hart.leave(insn.op);
        hart.cpu.pc = target;
        hart.cpu.retired += 1;
        self.tell_mode(n)
    }

    fn cache_block(&mut self, n: usize, insn: &Insn) -> Flow<T> {
        let hart = &mut self.harts[n];
        if !hart.allows_cache_block(insn.op) {
            return self.illegal(n);
        }
        let watch = self.tracer.watch(ThreadId(n as u32));
        watch.insn(GuestVa(hart.cpu.pc), insn.len, insn.kind());
        let mut world = SystemWorld { bus: &mut self.bus, csrs: &hart.csrs };
        match cache_block(&mut hart.cpu, &mut world, watch, insn) {
            Err(Stop::Trap(trap)) => {
                watch.abandon();
                self.trap(n, trap)
            }
            Ok(()) | Err(Stop::Completed) => {
                hart.cpu.pc = hart.cpu.pc.wrapping_add(insn.len.into());
                hart.cpu.retired += 1;
                Ok(More::Yes)
            }
        }
    }
}
