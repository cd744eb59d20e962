//! The table of 16-bit instructions: one line each, with the 32-bit operation
//! that it stands for and where its operands come from. Every halfword matches
//! at most one line; `tests/table.rs` tries them all.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bits::Field;
use crate::insn::Insn;
use crate::table::Op;

/// One line of the table of compressed instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CRow {
    /// The assembler's name.
    pub name: &'static str,
    /// The bits of `mask` that are set in this instruction.
    pub bits: u16,
    /// The bits that tell this instruction from others.
    pub mask: u16,
    /// Which operands stand where.
    pub(crate) format: CFormat,
    /// The instruction that it abbreviates.
    pub op: Op,
    /// What else must hold.
    pub(crate) only: Only,
}

/// Operand formats of compressed instructions, as the assembler prints them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CFormat {
    /// `rd', sp, imm`
    Addi4spn,
    /// `sp, imm`
    Addi16sp,
    /// `rd', imm(rs1')` with words
    Lw,
    /// `rd', imm(rs1')` with double words
    Ld,
    /// `fd', imm(rs1')`
    Fld,
    /// `rs2', imm(rs1')` with words
    Sw,
    /// `rs2', imm(rs1')` with double words
    Sd,
    /// `fs2', imm(rs1')`
    Fsd,
    /// `rd, imm` with the source the same
    Imm,
    /// `rd, imm` with the source zero
    Li,
    /// `rd, imm` for bits 17:12
    Lui,
    /// `rd, shamt` with the source the same
    Shift,
    /// `rd', shamt`
    ShiftHigh,
    /// `rd', imm`
    ImmHigh,
    /// `rd', rs2'`
    RegHigh,
    /// `target`
    J,
    /// `rs1', target`
    B,
    /// `rd, imm(sp)` with words
    Lwsp,
    /// `rd, imm(sp)` with double words
    Ldsp,
    /// `fd, imm(sp)`
    Fldsp,
    /// `rs2, imm(sp)` with words
    Swsp,
    /// `rs2, imm(sp)` with double words
    Sdsp,
    /// `fs2, imm(sp)`
    Fsdsp,
    /// `rs1`, and links nowhere
    Jr,
    /// `rs1`, and links
    Jalr,
    /// `rd, rs2` with the source zero
    Mv,
    /// `rd, rs2` with the source the same
    Add,
    /// No operands.
    None,
    /// No operands but a hint's number.
    Nop,
}

/// What must hold besides the bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Only {
    /// Nothing.
    Always,
    /// The immediate is not zero.
    Imm,
    /// The register at bit 7 is not zero.
    Rd,
    /// The register at bit 7 is not the stack pointer, and the immediate not zero.
    RdNotSpImm,
    /// The register at bit 2 is not zero.
    Rs2,
}

macro_rules! compressed {
    ($($name:literal $bits:literal $mask:literal $format:ident $op:ident $only:ident;)*) => {
        /// All 16-bit instructions.
        pub const COMPRESSED: &[CRow] = &[$(CRow {
            name: $name, bits: $bits, mask: $mask,
            format: CFormat::$format, op: Op::$op, only: Only::$only,
        },)*];
    };
}

compressed! {
    "c.addi4spn" 0x0000 0xe003 Addi4spn  Addi   Imm;
    "c.fld"      0x2000 0xe003 Fld       Fld    Always;
    "c.lw"       0x4000 0xe003 Lw        Lw     Always;
    "c.ld"       0x6000 0xe003 Ld        Ld     Always;
    "c.fsd"      0xa000 0xe003 Fsd       Fsd    Always;
    "c.sw"       0xc000 0xe003 Sw        Sw     Always;
    "c.sd"       0xe000 0xe003 Sd        Sd     Always;
    "c.nop"      0x0001 0xef83 Nop       Addi   Always;
    "c.addi"     0x0001 0xe003 Imm       Addi   Rd;
    "c.addiw"    0x2001 0xe003 Imm       Addiw  Rd;
    "c.li"       0x4001 0xe003 Li        Addi   Always;
    "c.addi16sp" 0x6101 0xef83 Addi16sp  Addi   Imm;
    "c.lui"      0x6001 0xe003 Lui       Lui    RdNotSpImm;
    "c.srli"     0x8001 0xec03 ShiftHigh Srli   Always;
    "c.srai"     0x8401 0xec03 ShiftHigh Srai   Always;
    "c.andi"     0x8801 0xec03 ImmHigh   Andi   Always;
    "c.sub"      0x8c01 0xfc63 RegHigh   Sub    Always;
    "c.xor"      0x8c21 0xfc63 RegHigh   Xor    Always;
    "c.or"       0x8c41 0xfc63 RegHigh   Or     Always;
    "c.and"      0x8c61 0xfc63 RegHigh   And    Always;
    "c.subw"     0x9c01 0xfc63 RegHigh   Subw   Always;
    "c.addw"     0x9c21 0xfc63 RegHigh   Addw   Always;
    "c.j"        0xa001 0xe003 J         Jal    Always;
    "c.beqz"     0xc001 0xe003 B         Beq    Always;
    "c.bnez"     0xe001 0xe003 B         Bne    Always;
    "c.slli"     0x0002 0xe003 Shift     Slli   Always;
    "c.fldsp"    0x2002 0xe003 Fldsp     Fld    Always;
    "c.lwsp"     0x4002 0xe003 Lwsp      Lw     Rd;
    "c.ldsp"     0x6002 0xe003 Ldsp      Ld     Rd;
    "c.jr"       0x8002 0xf07f Jr        Jalr   Rd;
    "c.mv"       0x8002 0xf003 Mv        Add    Rs2;
    "c.ebreak"   0x9002 0xffff None      Ebreak Always;
    "c.jalr"     0x9002 0xf07f Jalr      Jalr   Rd;
    "c.add"      0x9002 0xf003 Add       Add    Rs2;
    "c.fsdsp"    0xa002 0xe003 Fsdsp     Fsd    Always;
    "c.swsp"     0xc002 0xe003 Swsp      Sw     Always;
    "c.sdsp"     0xe002 0xe003 Sdsp      Sd     Always;
}

/// Where a register's number comes from.
#[derive(Clone, Copy)]
enum Place {
    /// This register always.
    Fixed(u8),
    /// Five bits at this place.
    Wide(u8),
    /// Three bits at this place, naming registers 8 to 15.
    High(u8),
}

impl Place {
    fn take(self, half: u16) -> u8 {
        match self {
            Self::Fixed(n) => n,
            Self::Wide(at) => (half >> at & 31) as u8,
            Self::High(at) => (half >> at & 7) as u8 + 8,
        }
    }

    fn put(self, number: u8) -> Option<u16> {
        let bits = match self {
            Self::Fixed(n) => return (n == number).then_some(0),
            Self::Wide(at) => u16::from(number) << at,
            Self::High(at) => u16::from(number.checked_sub(8)?) << at,
        };
        (self.take(bits) == number).then_some(bits)
    }
}

impl CFormat {
    /// Where destination, sources and immediate come from.
    const fn layout(self) -> (Place, Place, Place, Field) {
        use Place::{Fixed, High, Wide};
        const ZERO: Place = Fixed(0);
        const SP: Place = Fixed(2);
        match self {
            Self::Addi4spn => (High(2), SP, ZERO, Field::CIW),
            Self::Addi16sp => (SP, SP, ZERO, Field::CADDI16SP),
            Self::Lw => (High(2), High(7), ZERO, Field::CLW),
            Self::Ld | Self::Fld => (High(2), High(7), ZERO, Field::CLD),
            Self::Sw => (ZERO, High(7), High(2), Field::CLW),
            Self::Sd | Self::Fsd => (ZERO, High(7), High(2), Field::CLD),
            Self::Imm => (Wide(7), Wide(7), ZERO, Field::CI),
            Self::Li => (Wide(7), ZERO, ZERO, Field::CI),
            Self::Lui => (Wide(7), ZERO, ZERO, Field::CLUI),
            Self::Shift => (Wide(7), Wide(7), ZERO, Field::CSHIFT),
            Self::ShiftHigh => (High(7), High(7), ZERO, Field::CSHIFT),
            Self::ImmHigh => (High(7), High(7), ZERO, Field::CI),
            Self::RegHigh => (High(7), High(7), High(2), Field::NONE),
            Self::J => (ZERO, ZERO, ZERO, Field::CJ),
            Self::B => (ZERO, High(7), ZERO, Field::CB),
            Self::Lwsp => (Wide(7), SP, ZERO, Field::CLWSP),
            Self::Ldsp | Self::Fldsp => (Wide(7), SP, ZERO, Field::CLDSP),
            Self::Swsp => (ZERO, SP, Wide(2), Field::CSWSP),
            Self::Sdsp | Self::Fsdsp => (ZERO, SP, Wide(2), Field::CSDSP),
            Self::Jr => (ZERO, Wide(7), ZERO, Field::NONE),
            Self::Jalr => (Fixed(1), Wide(7), ZERO, Field::NONE),
            Self::Mv => (Wide(7), ZERO, Wide(2), Field::NONE),
            Self::Add => (Wide(7), Wide(7), Wide(2), Field::NONE),
            Self::None => (ZERO, ZERO, ZERO, Field::NONE),
            Self::Nop => (ZERO, ZERO, ZERO, Field::CI),
        }
    }
}

impl CRow {
    /// Whether `half` is this instruction.
    #[must_use]
    pub fn matches(&self, half: u16) -> bool {
        let imm = || self.format.layout().3.take(u32::from(half)) != 0;
        let rd = half >> 7 & 31;
        half & self.mask == self.bits
            && match self.only {
                Only::Always => true,
                Only::Imm => imm(),
                Only::Rd => rd != 0,
                Only::RdNotSpImm => rd != 2 && imm(),
                Only::Rs2 => half >> 2 & 31 != 0,
            }
    }

    fn take(&self, half: u16) -> Insn {
        let (rd, rs1, rs2, imm) = self.format.layout();
        Insn {
            rd: rd.take(half),
            rs1: rs1.take(half),
            rs2: rs2.take(half),
            imm: imm.take(u32::from(half)),
            len: 2,
            ..Insn::new(self.op)
        }
    }

    fn put(&self, insn: &Insn) -> Option<u16> {
        let (rd, rs1, rs2, imm) = self.format.layout();
        let bits = self.bits
            | rd.put(insn.rd)?
            | rs1.put(insn.rs1)?
            | rs2.put(insn.rs2)?
            | u16::try_from(imm.put(insn.imm)?).ok()?;
        // Two operands may share a field, so only reading it back tells if both fit.
        (self.matches(bits) && self.take(bits) == Insn { len: 2, ..*insn }).then_some(bits)
    }
}

/// The line that matches `half`, if any does.
#[must_use]
pub fn row(half: u16) -> Option<&'static CRow> {
    COMPRESSED.iter().find(|r| r.matches(half))
}

pub(crate) fn expand(half: u16) -> Option<Insn> {
    row(half).map(|r| r.take(half))
}

/// The 16-bit form of an instruction, if it has one.
#[must_use]
pub fn compress(insn: &Insn) -> Option<u16> {
    COMPRESSED.iter().filter(|r| r.op == insn.op).find_map(|r| r.put(insn))
}
