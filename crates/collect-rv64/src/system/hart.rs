//! A hart with its control registers: how it reaches memory, takes traps and
//! interrupts, and returns from them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestPa, GuestVa};
use ichnos_isa_rv64::{Csr, Insn, Op};

use crate::cpu::{Cpu, FloatState};
use crate::memory::{Place, World};
use crate::ram::{PAGE_SIZE, Ram};
use crate::system::bus::Bus;
use crate::system::csr::{self, Csrs, irq};
use crate::system::mmu::{Miss, Regime};
use crate::system::privilege::Privilege;
use crate::tlb::{Bank, Rights};
use crate::tracer::Fetch;
use crate::trap::{Access, Cause, Trap};

const PAGE: u64 = PAGE_SIZE as u64;
const INTERRUPT: u64 = 1 << 63;

/// Whether a hart runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Running,
    /// In `wfi`, until an enabled interrupt is pending.
    Waiting,
    /// Not started yet, or stopped.
    Stopped,
}

/// One hart.
#[derive(Debug)]
pub(crate) struct Hart {
    pub(crate) cpu: Cpu,
    pub(crate) csrs: Csrs,
    pub(crate) state: State,
    /// The supervisor timer that built-in firmware keeps.
    pub(crate) timer: Option<u64>,
}

/// A trap that was taken: what a trace says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) cause: u64,
    pub(crate) value: u64,
    pub(crate) interrupted: GuestVa,
    pub(crate) handler: GuestVa,
}

/// Memory as a hart reaches it.
pub(crate) struct SystemWorld<'a> {
    pub(crate) bus: &'a mut Bus,
    pub(crate) csrs: &'a Csrs,
}

impl SystemWorld<'_> {
    /// The rules for an access. Machine mode may load and store as another mode.
    fn regime(&self, access: Access) -> Regime {
        let c = self.csrs;
        let as_other = c.mstatus & csr::MPRV != 0 && access != Access::Fetch;
        let mode = if as_other { Privilege::from_bits(c.mstatus >> 11) } else { c.privilege };
        Regime {
            satp: c.satp,
            mode,
            sum: c.mstatus & csr::SUM != 0,
            mxr: c.mstatus & csr::MXR != 0,
        }
    }

    /// The physical page of an address and the tables' rights to it.
    fn translate(&self, va: u64, access: Access) -> Result<(u64, Rights, Privilege), Trap> {
        let regime = self.regime(access);
        if regime.is_bare() {
            let all = Rights { read: true, write: true, exec: true };
            return Ok((va & !(PAGE - 1), all, regime.mode));
        }
        let read = |pa: u64| {
            let allowed = self.csrs.pmp.rights(pa, Privilege::Supervisor).read;
            let index = self.bus.ram_index(pa, 8).filter(|_| allowed)?;
            Some(self.bus.ram.read::<8>(index))
        };
        match regime.walk(va, read) {
            Ok((page, rights)) if rights.allows(access) => Ok((page, rights, regime.mode)),
            Ok(_) | Err(Miss::Page) => Err(Trap::new(access.page_fault(), va)),
            Err(Miss::Access) => Err(Trap::new(access.access_fault(), va)),
        }
    }

    /// The physical address of a virtual one, without touching anything.
    pub(crate) fn peek(&self, va: GuestVa, access: Access) -> Option<GuestPa> {
        let (page, _, _) = self.translate(va.0, access).ok()?;
        Some(GuestPa(page | (va.0 % PAGE)))
    }

    /// The physical address that is mapped, whatever this mode may do with it.
    pub(crate) fn look_up(&self, va: GuestVa) -> Option<GuestPa> {
        let present = self.regime(Access::Load);
        if present.is_bare() {
            return Some(GuestPa(va.0));
        }
        let read = |pa: u64| Some(self.bus.ram.read::<8>(self.bus.ram_index(pa, 8)?));
        let (page, _) = present.walk(va.0, read).ok()?;
        Some(GuestPa(page | (va.0 % PAGE)))
    }
}

impl World for SystemWorld<'_> {
    #[inline(always)]
    fn ram(&self) -> &Ram {
        &self.bus.ram
    }

    #[inline(always)]
    fn ram_mut(&mut self) -> &mut Ram {
        &mut self.bus.ram
    }

    fn reach(&mut self, cpu: &mut Cpu, va: u64, access: Access) -> Result<Place, Trap> {
        let (page, rights, mode) = self.translate(va, access)?;
        let pa = page | (va % PAGE);
        let fault = Trap::new(access.access_fault(), va);
        let allowed = self.csrs.pmp.rights(page, mode);
        if !allowed.allows(access) {
            return Err(fault);
        }
        let Some(index) = self.bus.ram_index(page, PAGE_SIZE) else {
            return if self.bus.admit_device() { Ok(Place::Device(pa)) } else { Err(fault) };
        };
        let has_code = self.bus.ram.has_code(index / PAGE_SIZE);
        let rights = Rights {
            read: rights.read && allowed.read,
            write: rights.write && allowed.write && !has_code,
            exec: rights.exec && allowed.exec,
        };
        // Under MPRV, code and data go different ways in one bank: enter only what
        // this kind of access may use.
        let rights = match (self.csrs.mstatus & csr::MPRV != 0, access) {
            (true, Access::Fetch) => Rights { exec: true, ..Rights::default() },
            (true, _) => Rights { exec: false, ..rights },
            _ => rights,
        };
        cpu.tlb.fill(va, index, rights);
        Ok(Place::Ram(index + (va % PAGE) as usize))
    }

    fn device_read(&mut self, pa: u64, size: usize) -> Option<u64> {
        self.bus.read(pa, size)
    }

    fn device_write(&mut self, pa: u64, size: usize, value: u64) -> Option<bool> {
        self.bus.write(pa, size, value).map(|()| true)
    }
}

impl Fetch for SystemWorld<'_> {
    fn fetch(&mut self, pc: GuestVa, bytes: &mut [u8]) -> bool {
        bytes.chunks_mut(2).enumerate().all(|(n, half)| {
            let found = self.peek(pc.offset(2 * n as u64), Access::Fetch);
            let index = found.and_then(|pa| self.bus.ram_index(pa.0, half.len()));
            let from = index.and_then(|index| self.bus.ram.slice(index, half.len()));
            from.map(|from| half.copy_from_slice(from)).is_some()
        })
    }
}

impl Hart {
    /// A hart in machine mode at `pc`, as after a reset.
    pub(crate) fn new(id: u64) -> Self {
        let mut hart =
            Self { cpu: Cpu::new(), csrs: Csrs::new(id), state: State::Running, timer: None };
        hart.update_bank();
        hart
    }

    /// Chooses the translations of the present mode.
    pub(crate) fn update_bank(&mut self) {
        self.cpu.tlb.select(match self.csrs.privilege {
            Privilege::User => Bank::User,
            Privilege::Supervisor if self.csrs.mstatus & csr::SUM != 0 => Bank::SupervisorUser,
            Privilege::Supervisor => Bank::Supervisor,
            Privilege::Machine => Bank::Machine,
        });
    }

    /// Changes `mstatus`, and forgets translations that no longer hold.
    fn status_changed(&mut self, old: u64) {
        let changed = old ^ self.csrs.mstatus;
        if changed & csr::MXR != 0 {
            self.cpu.tlb.flush();
        } else if (old | self.csrs.mstatus) & csr::MPRV != 0 && changed != 0 {
            self.cpu.tlb.flush_bank(Bank::Machine);
        }
        self.update_bank();
    }

    /// Enters the handler of a trap or interrupt.
    fn enter(&mut self, cause: u64, value: u64) -> Taken {
        let interrupted = self.cpu.pc;
        let c = &mut self.csrs;
        let old = c.mstatus;
        let bit = 1u64 << (cause & 63);
        let delegated = if cause & INTERRUPT != 0 { c.mideleg } else { c.medeleg };
        let down = c.privilege <= Privilege::Supervisor && delegated & bit != 0;
        let vector = if down { c.stvec } else { c.mtvec };
        let from = c.privilege;
        if down {
            (c.sepc, c.scause, c.stval) = (interrupted, cause, value);
            let spie = if old & csr::SIE != 0 { csr::SPIE } else { 0 };
            let spp = if from == Privilege::Supervisor { csr::SPP } else { 0 };
            c.mstatus = old & !(csr::SIE | csr::SPIE | csr::SPP) | spie | spp;
            c.privilege = Privilege::Supervisor;
        } else {
            (c.mepc, c.mcause, c.mtval) = (interrupted, cause, value);
            let mpie = if old & csr::MIE != 0 { csr::MPIE } else { 0 };
            c.mstatus = old & !(csr::MIE | csr::MPIE | csr::MPP) | mpie | (from as u64) << 11;
            c.privilege = Privilege::Machine;
        }
        let vectored = cause & INTERRUPT != 0 && vector & 1 != 0;
        self.cpu.pc = (vector & !3) + if vectored { 4 * (cause & 63) } else { 0 };
        self.status_changed(old);
        Taken { cause, value, interrupted: GuestVa(interrupted), handler: GuestVa(self.cpu.pc) }
    }

    /// Takes an exception.
    pub(crate) fn trap(&mut self, trap: Trap) -> Taken {
        self.enter(trap.cause as u64, trap.value)
    }

    /// The most urgent interrupt that is pending and enabled, as a bit.
    pub(crate) fn next_interrupt(&self) -> Option<u64> {
        const ORDER: [u64; 6] = [
            irq::MACHINE_EXTERNAL,
            irq::MACHINE_SOFTWARE,
            irq::MACHINE_TIMER,
            irq::SUPERVISOR_EXTERNAL,
            irq::SUPERVISOR_SOFTWARE,
            irq::SUPERVISOR_TIMER,
        ];
        let c = &self.csrs;
        let pending = c.pending() & c.mie;
        if pending == 0 {
            return None;
        }
        let machine_open = c.privilege < Privilege::Machine || c.mstatus & csr::MIE != 0;
        let supervisor_open = c.privilege < Privilege::Supervisor
            || c.privilege == Privilege::Supervisor && c.mstatus & csr::SIE != 0;
        let mut taken = if machine_open { pending & !c.mideleg } else { 0 };
        if taken == 0 && supervisor_open {
            taken = pending & c.mideleg;
        }
        ORDER.into_iter().find(|bit| taken & bit != 0)
    }

    /// Takes that interrupt.
    pub(crate) fn interrupt(&mut self) -> Option<Taken> {
        let bit = self.next_interrupt()?;
        Some(self.enter(INTERRUPT | u64::from(bit.trailing_zeros()), 0))
    }

    /// Where `mret` or `sret` would go; none if not allowed here.
    pub(crate) fn return_target(&self, op: Op) -> Option<u64> {
        let c = &self.csrs;
        if op == Op::Mret {
            return (c.privilege == Privilege::Machine).then_some(c.mepc);
        }
        let refused = c.privilege == Privilege::Supervisor && c.mstatus & csr::TSR != 0;
        (c.privilege != Privilege::User && !refused).then_some(c.sepc)
    }

    /// The change of mode of `mret` and `sret`, where they are allowed.
    pub(crate) fn leave(&mut self, op: Op) {
        let c = &mut self.csrs;
        let old = c.mstatus;
        if op == Op::Mret {
            let to = Privilege::from_bits(old >> 11);
            let mie = if old & csr::MPIE != 0 { csr::MIE } else { 0 };
            let mprv = if to == Privilege::Machine { old & csr::MPRV } else { 0 };
            c.mstatus = old & !(csr::MIE | csr::MPP | csr::MPRV) | mie | csr::MPIE | mprv;
            c.privilege = to;
        } else {
            let sie = if old & csr::SPIE != 0 { csr::SIE } else { 0 };
            c.privilege = if old & csr::SPP != 0 { Privilege::Supervisor } else { Privilege::User };
            c.mstatus = old & !(csr::SIE | csr::SPP | csr::MPRV) | sie | csr::SPIE;
        }
        self.status_changed(old);
    }

    /// A CSR instruction; none if it is illegal.
    pub(crate) fn csr(&mut self, insn: &Insn, time: u64) -> Option<()> {
        let csr = Csr(insn.imm as u16);
        let operand = match insn.op {
            Op::Csrrwi | Op::Csrrsi | Op::Csrrci => u64::from(insn.rs1),
            _ => self.cpu.x(insn.rs1),
        };
        let old = self.csrs.read(&self.cpu, csr, time)?;
        // Setting and clearing bits of the software part must not copy lines.
        let base = if csr == Csr::MIP { self.csrs.mip } else { old };
        let new = match insn.op {
            Op::Csrrw | Op::Csrrwi => Some(operand),
            Op::Csrrs | Op::Csrrsi => (insn.rs1 != 0).then_some(base | operand),
            _ => (insn.rs1 != 0).then_some(base & !operand),
        };
        if let Some(new) = new {
            self.set_csr(csr, new)?;
        }
        self.cpu.set_x(insn.rd, old);
        Some(())
    }

    /// Writes a control register that can be read, with all that follows from
    /// it; none if it is read-only.
    pub(crate) fn set_csr(&mut self, csr: Csr, value: u64) -> Option<()> {
        let (status, satp) = (self.csrs.mstatus, self.csrs.satp);
        self.csrs.write(&mut self.cpu, csr, value)?;
        let protection = matches!(csr.0, 0x3a0..=0x3bf);
        if self.csrs.satp != satp || protection {
            self.cpu.tlb.flush();
        }
        if self.csrs.mstatus != status {
            self.status_changed(status);
        }
        Some(())
    }

    /// `sfence.vma`; none if not allowed here.
    pub(crate) fn fence(&mut self) -> Option<()> {
        let c = &self.csrs;
        let refused = c.privilege == Privilege::Supervisor && c.mstatus & csr::TVM != 0;
        if c.privilege == Privilege::User || refused {
            return None;
        }
        self.cpu.tlb.flush();
        Some(())
    }

    /// `wfi`; none if not allowed here.
    pub(crate) fn wait(&mut self) -> Option<()> {
        let c = &self.csrs;
        let refused = c.privilege < Privilege::Machine && c.mstatus & csr::TW != 0;
        if c.privilege == Privilege::User || refused {
            return None;
        }
        self.state = State::Waiting;
        Some(())
    }

    /// Whether a cache-block instruction is allowed here.
    pub(crate) fn allows_cache_block(&self, op: Op) -> bool {
        let (m, s) = (self.csrs.menvcfg, self.csrs.senvcfg);
        let enabled = |environment: u64| match op {
            Op::CboZero => environment & 0x80 != 0,
            Op::CboInval => environment & 0x30 != 0,
            _ => environment & 0x40 != 0,
        };
        match self.csrs.privilege {
            Privilege::Machine => true,
            Privilege::Supervisor => enabled(m),
            Privilege::User => enabled(m) && enabled(s),
        }
    }

    /// The exception that `ecall` raises in the present mode.
    pub(crate) fn call_cause(&self) -> Cause {
        match self.csrs.privilege {
            Privilege::User => Cause::EcallUser,
            Privilege::Supervisor => Cause::EcallSupervisor,
            Privilege::Machine => Cause::EcallMachine,
        }
    }

    /// Hands the hart to an operating system at `entry` in supervisor mode.
    pub(crate) fn start(&mut self, id: u64, entry: u64, argument: u64) {
        self.cpu.reset_registers();
        self.cpu.float_state = FloatState::Off;
        self.cpu.pc = entry;
        self.cpu.set_x(10, id);
        self.cpu.set_x(11, argument);
        self.csrs = Csrs::after_firmware(id);
        self.cpu.tlb.flush();
        self.state = State::Running;
        self.update_bank();
    }
}
