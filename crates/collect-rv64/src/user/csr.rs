//! The control registers that user programs may touch.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_rv64::{Csr, Insn, Op};

use crate::cpu::Cpu;

/// Carries out a CSR instruction; none if it is illegal in user mode.
pub(crate) fn execute(cpu: &mut Cpu, insn: &Insn, time: u64) -> Option<()> {
    let csr = Csr(insn.imm as u16);
    let old = read(cpu, csr, time)?;
    let operand = match insn.op {
        Op::Csrrwi | Op::Csrrsi | Op::Csrrci => u64::from(insn.rs1),
        _ => cpu.x(insn.rs1),
    };
    let new = match insn.op {
        Op::Csrrw | Op::Csrrwi => Some(operand),
        Op::Csrrs | Op::Csrrsi => (insn.rs1 != 0).then_some(old | operand),
        _ => (insn.rs1 != 0).then_some(old & !operand),
    };
    if let Some(new) = new {
        write(cpu, csr, new)?;
    }
    cpu.set_x(insn.rd, old);
    Some(())
}

/// A register's value; none if programs have no such register.
pub(crate) fn read(cpu: &Cpu, csr: Csr, time: u64) -> Option<u64> {
    Some(match csr {
        Csr::FFLAGS => cpu.fflags.into(),
        Csr::FRM => cpu.frm.into(),
        Csr::FCSR => u64::from(cpu.fflags) | u64::from(cpu.frm) << 5,
        Csr::CYCLE | Csr::INSTRET => cpu.retired,
        Csr::TIME => time,
        _ => return None,
    })
}

/// Writes a register; none if programs may not.
pub(crate) fn write(cpu: &mut Cpu, csr: Csr, value: u64) -> Option<()> {
    match csr {
        Csr::FFLAGS => cpu.fflags = value as u8 & 31,
        Csr::FRM => cpu.frm = value as u8 & 7,
        Csr::FCSR => {
            cpu.fflags = value as u8 & 31;
            cpu.frm = value as u8 >> 5;
        }
        _ => return None,
    }
    Some(())
}
