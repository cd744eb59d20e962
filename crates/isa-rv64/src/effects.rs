//! What an instruction reads and writes, and where it can go: derived from its
//! line of the table, for analyses that do not want to know the instruction set.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::InsnKind;

use crate::format::File;
use crate::insn::Insn;
use crate::table::Class;

/// A set of registers: the 32 integer ones and the 32 floating-point ones. The
/// register `x0` is never in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Registers {
    /// One bit per integer register.
    pub x: u32,
    /// One bit per floating-point register.
    pub f: u32,
}

/// The memory operand of an instruction: `size` bytes at `x[base] + offset`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Memory {
    /// The integer register that holds the address.
    pub base: u8,
    /// What is added to it.
    pub offset: i32,
    /// Bytes.
    pub size: u8,
    /// Whether it is read.
    pub reads: bool,
    /// Whether it is written (by a store-conditional: perhaps).
    pub writes: bool,
}

impl Registers {
    fn add(&mut self, file: File, number: u8) {
        match file {
            File::X => self.x |= (1 << number) & !1,
            File::F => self.f |= 1 << number,
            File::Absent | File::Number => {}
        }
    }
}

impl Insn {
    /// The registers it reads.
    #[must_use]
    pub fn reads(&self) -> Registers {
        let l = self.op.row().format.layout();
        let mut set = Registers::default();
        set.add(l.rs1, self.rs1);
        set.add(l.rs2, self.rs2);
        set.add(l.rs3, self.rs3);
        set
    }

    /// The registers it writes.
    #[must_use]
    pub fn writes(&self) -> Registers {
        let mut set = Registers::default();
        set.add(self.op.row().format.layout().rd, self.rd);
        set
    }

    /// Its memory operand, if it has one. Cache-block operations name the block
    /// that holds the address.
    #[must_use]
    pub const fn memory(&self) -> Option<Memory> {
        let row = self.op.row();
        let (reads, writes) = match row.class {
            Class::Load | Class::LoadReserved => (true, false),
            Class::Store | Class::StoreConditional | Class::CacheZero => (false, true),
            Class::Amo => (true, true),
            _ => return None,
        };
        Some(Memory { base: self.rs1, offset: self.imm, size: row.size, reads, writes })
    }

    /// What it does to control flow. Jumps that link are calls, and jumps through
    /// the link registers are returns, as the calling convention has them.
    #[must_use]
    pub const fn kind(&self) -> InsnKind {
        match self.op.row().class {
            Class::Branch => InsnKind::BRANCH,
            Class::Jal if is_link(self.rd) => InsnKind::CALL,
            Class::Jal => InsnKind::JUMP,
            Class::Jalr if is_link(self.rd) => InsnKind::CALL_INDIRECT,
            Class::Jalr if is_link(self.rs1) => InsnKind::RETURN,
            Class::Jalr | Class::TrapReturn => InsnKind::JUMP_INDIRECT,
            Class::Ecall | Class::Ebreak => InsnKind::SYSCALL,
            _ => InsnKind::OTHER,
        }
    }

    /// Whether it is the last of a block: what follows it in memory need not
    /// follow it in time, or what it changes may change how the rest is read.
    #[must_use]
    pub const fn ends_block(&self) -> bool {
        !matches!(
            self.op.row().class,
            Class::Alu
                | Class::Load
                | Class::Store
                | Class::Amo
                | Class::LoadReserved
                | Class::StoreConditional
        )
    }
}

const fn is_link(register: u8) -> bool {
    register == 1 || register == 5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;

    #[test]
    fn effects_follow_the_format() {
        let amo = Insn { rd: 0, rs1: 4, rs2: 6, ..Insn::new(Op::AmoaddD) };
        assert_eq!(amo.reads(), Registers { x: 1 << 4 | 1 << 6, f: 0 });
        assert_eq!(amo.writes(), Registers::default());
        assert_eq!(amo.memory().map(|m| (m.size, m.reads, m.writes)), Some((8, true, true)));
        let fsd = Insn { rs1: 2, rs2: 9, imm: -8, ..Insn::new(Op::Fsd) };
        assert_eq!(fsd.reads(), Registers { x: 1 << 2, f: 1 << 9 });
        assert_eq!(fsd.memory().map(|m| (m.base, m.offset)), Some((2, -8)));
    }

    #[test]
    fn jumps_are_told_apart_by_their_link_register() {
        let jalr = |rd, rs1| Insn { rd, rs1, ..Insn::new(Op::Jalr) }.kind();
        assert_eq!(jalr(0, 1), InsnKind::RETURN);
        assert_eq!(jalr(1, 5), InsnKind::CALL_INDIRECT);
        assert_eq!(jalr(0, 10), InsnKind::JUMP_INDIRECT);
        assert_eq!(Insn { rd: 1, ..Insn::new(Op::Jal) }.kind(), InsnKind::CALL);
        assert_eq!(Insn::new(Op::Jal).kind(), InsnKind::JUMP);
    }
}
