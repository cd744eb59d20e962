//! Control and status registers of machine and supervisor mode.
//!
//! A register's side effects on the rest of the hart (translation, interrupts)
//! are not worked out here: after any write the machine looks at the whole.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::Csr;

use crate::cpu::{Cpu, FloatState};
use crate::system::pmp::Pmp;
use crate::system::privilege::Privilege;

pub(crate) const SIE: u64 = 1 << 1;
pub(crate) const MIE: u64 = 1 << 3;
pub(crate) const SPIE: u64 = 1 << 5;
pub(crate) const MPIE: u64 = 1 << 7;
pub(crate) const SPP: u64 = 1 << 8;
pub(crate) const MPP: u64 = 3 << 11;
pub(crate) const FS: u64 = 3 << 13;
pub(crate) const MPRV: u64 = 1 << 17;
pub(crate) const SUM: u64 = 1 << 18;
pub(crate) const MXR: u64 = 1 << 19;
pub(crate) const TVM: u64 = 1 << 20;
pub(crate) const TW: u64 = 1 << 21;
pub(crate) const TSR: u64 = 1 << 22;
/// Both lower modes have 64 bits, always.
const XLEN: u64 = 2 << 32 | 2 << 34;
const DIRTY: u64 = 1 << 63;
const MSTATUS: u64 = SIE | MIE | SPIE | MPIE | SPP | MPP | FS | MPRV | SUM | MXR | TVM | TW | TSR;
const SSTATUS: u64 = SIE | SPIE | SPP | FS | SUM | MXR;
const UXLEN: u64 = 2 << 32;

/// Interrupts, as bits of `mip` and `mie`.
pub(crate) mod irq {
    pub(crate) const SUPERVISOR_SOFTWARE: u64 = 1 << 1;
    pub(crate) const MACHINE_SOFTWARE: u64 = 1 << 3;
    pub(crate) const SUPERVISOR_TIMER: u64 = 1 << 5;
    pub(crate) const MACHINE_TIMER: u64 = 1 << 7;
    pub(crate) const SUPERVISOR_EXTERNAL: u64 = 1 << 9;
    pub(crate) const MACHINE_EXTERNAL: u64 = 1 << 11;
    pub(crate) const SUPERVISOR: u64 = SUPERVISOR_SOFTWARE | SUPERVISOR_TIMER | SUPERVISOR_EXTERNAL;
    pub(crate) const ALL: u64 = SUPERVISOR | MACHINE_SOFTWARE | MACHINE_TIMER | MACHINE_EXTERNAL;
}

/// RV64, extensions A, C, D, F, I, M, S and U.
const MISA: u64 = 2 << 62 | 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 8 | 1 << 12 | 1 << 18 | 1 << 20;
/// The exceptions that can be handed down: all but `ecall` from machine mode.
const DELEGABLE: u64 = 0xb3ff;
/// Cache-block bits of the environment registers.
const ENVIRONMENT: u64 = 0xf1;

/// The control registers of one hart.
#[derive(Clone, Debug)]
pub(crate) struct Csrs {
    pub(crate) privilege: Privilege,
    /// Without the floating-point field, which the hart itself keeps.
    pub(crate) mstatus: u64,
    pub(crate) medeleg: u64,
    pub(crate) mideleg: u64,
    pub(crate) mie: u64,
    /// What software wrote; devices' lines come on top.
    pub(crate) mip: u64,
    /// What devices assert.
    pub(crate) lines: u64,
    pub(crate) mtvec: u64,
    pub(crate) mepc: u64,
    pub(crate) mcause: u64,
    pub(crate) mtval: u64,
    pub(crate) stvec: u64,
    pub(crate) sepc: u64,
    pub(crate) scause: u64,
    pub(crate) stval: u64,
    pub(crate) satp: u64,
    mscratch: u64,
    sscratch: u64,
    mcounteren: u64,
    scounteren: u64,
    pub(crate) menvcfg: u64,
    pub(crate) senvcfg: u64,
    mcountinhibit: u64,
    /// What is added to the count of instructions.
    cycle_offset: u64,
    instret_offset: u64,
    pub(crate) pmp: Pmp,
    hart: u64,
}

impl Csrs {
    /// Registers as after a reset, in machine mode.
    pub(crate) fn new(hart: u64) -> Self {
        Self {
            privilege: Privilege::Machine,
            mstatus: 0,
            medeleg: 0,
            mideleg: 0,
            mie: 0,
            mip: 0,
            lines: 0,
            mtvec: 0,
            mepc: 0,
            mcause: 0,
            mtval: 0,
            stvec: 0,
            sepc: 0,
            scause: 0,
            stval: 0,
            satp: 0,
            mscratch: 0,
            sscratch: 0,
            mcounteren: 0,
            scounteren: 0,
            menvcfg: 0,
            senvcfg: 0,
            mcountinhibit: 0,
            cycle_offset: 0,
            instret_offset: 0,
            pmp: Pmp::new(),
            hart,
        }
    }

    /// Registers as firmware hands a hart to an operating system.
    pub(crate) fn after_firmware(hart: u64) -> Self {
        Self {
            privilege: Privilege::Supervisor,
            medeleg: DELEGABLE & !(1 << 9),
            mideleg: irq::SUPERVISOR,
            mcounteren: 7,
            menvcfg: ENVIRONMENT,
            pmp: Pmp::open(),
            ..Self::new(hart)
        }
    }

    /// Interrupts that wait.
    pub(crate) const fn pending(&self) -> u64 {
        self.mip | self.lines
    }

    fn status(&self, cpu: &Cpu) -> u64 {
        let float = (cpu.float_state as u64) << 13;
        let dirty = if cpu.float_state == FloatState::Dirty { DIRTY } else { 0 };
        self.mstatus | float | dirty
    }

    fn set_status(&mut self, cpu: &mut Cpu, value: u64, mask: u64) {
        let mut new = self.mstatus & !mask | value & mask;
        if new & MPP == 2 << 11 {
            new = new & !MPP | self.mstatus & MPP;
        }
        self.mstatus = new & MSTATUS & !FS;
        if mask & FS != 0 {
            cpu.float_state = match value >> 13 & 3 {
                0 => FloatState::Off,
                1 => FloatState::Initial,
                2 => FloatState::Clean,
                _ => FloatState::Dirty,
            };
        }
    }

    /// Whether this mode may read a counter.
    fn counter_allowed(&self, csr: Csr) -> bool {
        let bit = 1 << (csr.0 & 31);
        match self.privilege {
            Privilege::Machine => true,
            Privilege::Supervisor => self.mcounteren & bit != 0,
            Privilege::User => self.mcounteren & self.scounteren & bit != 0,
        }
    }

    /// A register's value; none if it does not exist or this mode may not see it.
    pub(crate) fn read(&self, cpu: &Cpu, csr: Csr, time: u64) -> Option<u64> {
        if (self.privilege as u8) < csr.privilege() {
            return None;
        }
        Some(match csr {
            Csr::FFLAGS | Csr::FRM | Csr::FCSR if cpu.float_state == FloatState::Off => {
                return None;
            }
            Csr::FFLAGS => cpu.fflags.into(),
            Csr::FRM => cpu.frm.into(),
            Csr::FCSR => u64::from(cpu.fflags) | u64::from(cpu.frm) << 5,
            Csr::CYCLE | Csr::TIME | Csr::INSTRET if !self.counter_allowed(csr) => return None,
            Csr::CYCLE | Csr::MCYCLE => cpu.retired.wrapping_add(self.cycle_offset),
            Csr::INSTRET | Csr::MINSTRET => cpu.retired.wrapping_add(self.instret_offset),
            Csr::TIME => time,
            Csr::SSTATUS => self.status(cpu) & (SSTATUS | DIRTY) | UXLEN,
            Csr::SIE => self.mie & self.mideleg,
            Csr::STVEC => self.stvec,
            Csr::SCOUNTEREN => self.scounteren,
            Csr::SENVCFG => self.senvcfg,
            Csr::SSCRATCH => self.sscratch,
            Csr::SEPC => self.sepc,
            Csr::SCAUSE => self.scause,
            Csr::STVAL => self.stval,
            Csr::SIP => self.pending() & self.mideleg,
            Csr::SATP if self.privilege == Privilege::Supervisor && self.mstatus & TVM != 0 => {
                return None;
            }
            Csr::SATP => self.satp,
            Csr::MSTATUS => self.status(cpu) | XLEN,
            Csr::MISA => MISA,
            Csr::MEDELEG => self.medeleg,
            Csr::MIDELEG => self.mideleg,
            Csr::MIE => self.mie,
            Csr::MTVEC => self.mtvec,
            Csr::MCOUNTEREN => self.mcounteren,
            Csr::MENVCFG => self.menvcfg,
            Csr::MCOUNTINHIBIT => self.mcountinhibit,
            Csr::MSCRATCH => self.mscratch,
            Csr::MEPC => self.mepc,
            Csr::MCAUSE => self.mcause,
            Csr::MTVAL => self.mtval,
            Csr::MIP => self.pending(),
            Csr::PMPCFG0 => self.pmp.config(0),
            Csr::PMPCFG2 => self.pmp.config(8),
            Csr(n @ 0x3b0..=0x3bf) => self.pmp.address(usize::from(n - 0x3b0)),
            Csr::MHARTID => self.hart,
            Csr::MVENDORID | Csr::MARCHID | Csr::MIMPID | Csr::MCONFIGPTR => 0,
            // Performance counters and triggers that count and match nothing.
            Csr(0xb03..=0xb1f | 0x323..=0x33f | 0x7a0..=0x7a3) => 0,
            Csr(0xc03..=0xc1f) if self.counter_allowed(csr) => 0,
            _ => return None,
        })
    }

    /// Writes a register that [`read`](Self::read) has found readable; none if it
    /// is read-only.
    pub(crate) fn write(&mut self, cpu: &mut Cpu, csr: Csr, value: u64) -> Option<()> {
        if csr.is_read_only() {
            return None;
        }
        match csr {
            Csr::FFLAGS | Csr::FRM | Csr::FCSR => write_float(cpu, csr, value),
            Csr::SSTATUS => self.set_status(cpu, value, SSTATUS),
            Csr::MSTATUS => self.set_status(cpu, value, MSTATUS),
            Csr::SIE => self.mie = self.mie & !self.mideleg | value & self.mideleg & irq::ALL,
            Csr::SIP => {
                let writable = self.mideleg & irq::SUPERVISOR_SOFTWARE;
                self.mip = self.mip & !writable | value & writable;
            }
            Csr::MIE => self.mie = value & irq::ALL,
            Csr::MIP => self.mip = value & irq::SUPERVISOR,
            Csr::STVEC => self.stvec = value & !2,
            Csr::MTVEC => self.mtvec = value & !2,
            Csr::SEPC => self.sepc = value & !1,
            Csr::MEPC => self.mepc = value & !1,
            Csr::SATP => self.set_satp(value),
            Csr::MEDELEG => self.medeleg = value & DELEGABLE,
            Csr::MIDELEG => self.mideleg = value & irq::SUPERVISOR,
            Csr::SCOUNTEREN => self.scounteren = value & 7,
            Csr::MCOUNTEREN => self.mcounteren = value & 7,
            Csr::MCOUNTINHIBIT => self.mcountinhibit = value & 5,
            Csr::SENVCFG => self.senvcfg = value & ENVIRONMENT,
            Csr::MENVCFG => self.menvcfg = value & ENVIRONMENT,
            Csr::SSCRATCH => self.sscratch = value,
            Csr::MSCRATCH => self.mscratch = value,
            Csr::SCAUSE => self.scause = value,
            Csr::MCAUSE => self.mcause = value,
            Csr::STVAL => self.stval = value,
            Csr::MTVAL => self.mtval = value,
            // The write itself retires after it has taken effect.
            Csr::MCYCLE => self.cycle_offset = value.wrapping_sub(cpu.retired.wrapping_add(1)),
            Csr::MINSTRET => self.instret_offset = value.wrapping_sub(cpu.retired.wrapping_add(1)),
            Csr::PMPCFG0 => self.pmp.set_config(0, value),
            Csr::PMPCFG2 => self.pmp.set_config(8, value),
            Csr(n @ 0x3b0..=0x3bf) => self.pmp.set_address(usize::from(n - 0x3b0), value),
            // Fixed registers keep their values.
            _ => {}
        }
        Some(())
    }

    /// Modes that are not there are not taken. Address-space ids have 16 bits.
    fn set_satp(&mut self, value: u64) {
        if matches!(value >> 60, 0 | 8 | 9) {
            self.satp = value;
        }
    }
}

fn write_float(cpu: &mut Cpu, csr: Csr, value: u64) {
    match csr {
        Csr::FFLAGS => cpu.fflags = value as u8 & 31,
        Csr::FRM => cpu.frm = value as u8 & 7,
        _ => {
            cpu.fflags = value as u8 & 31;
            cpu.frm = value as u8 >> 5;
        }
    }
    cpu.float_state = FloatState::Dirty;
}
