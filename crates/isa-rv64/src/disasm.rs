//! Instructions as assembler text, in the shape of the GNU tools with numeric
//! register names and without aliases, so that the two can be compared.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;

use ichnos_base::GuestVa;

use crate::compressed::{self, CFormat};
use crate::csr::Csr;
use crate::format::Format;
use crate::insn::{Insn, is_compressed};

/// An instruction word at an address, to be printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disasm {
    /// The word; of a compressed instruction only the low half counts.
    pub word: u32,
    /// Where it stands: targets are printed as addresses.
    pub pc: GuestVa,
}

impl fmt::Display for Disasm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(insn) = Insn::decode(self.word) else {
            return match is_compressed(self.word) {
                true => write!(f, ".short {:#06x}", self.word & 0xffff),
                false => write!(f, ".word {:#010x}", self.word),
            };
        };
        let text = Text { insn: &insn, pc: self.pc };
        match compressed::row(self.word as u16).filter(|_| is_compressed(self.word)) {
            Some(row) => text.compressed(f, row.name, row.format),
            None => text.full(f),
        }
    }
}

struct Text<'a> {
    insn: &'a Insn,
    pc: GuestVa,
}

const ROUNDING: [&str; 8] = ["rne", "rtz", "rdn", "rup", "rmm", "?", "?", "dyn"];
const ORDERING: [&str; 4] = ["", ".rl", ".aq", ".aqrl"];

impl Text<'_> {
    fn target(&self) -> GuestVa {
        self.pc.offset(self.insn.imm as i64 as u64)
    }

    fn full(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let i = self.insn;
        let Insn { rd, rs1, rs2, rs3, imm, .. } = *i;
        let row = i.op.row();
        let rm = ROUNDING[usize::from(i.mode & 7)];
        f.write_str(row.name)?;
        match row.format {
            Format::R => write!(f, " x{rd},x{rs1},x{rs2}"),
            Format::R1 => write!(f, " x{rd},x{rs1}"),
            Format::I => write!(f, " x{rd},x{rs1},{imm}"),
            Format::Sh6 | Format::Sh5 => write!(f, " x{rd},x{rs1},{imm:#x}"),
            Format::L | Format::Jalr => write!(f, " x{rd},{imm}(x{rs1})"),
            Format::S => write!(f, " x{rs2},{imm}(x{rs1})"),
            Format::B => write!(f, " x{rs1},x{rs2},{}", self.target()),
            Format::U => write!(f, " x{rd},{:#x}", imm as u32 >> 12),
            Format::J => write!(f, " x{rd},{}", self.target()),
            Format::Csr => write!(f, " x{rd},{},x{rs1}", Csr(imm as u16)),
            Format::CsrI => write!(f, " x{rd},{},{rs1}", Csr(imm as u16)),
            Format::Fence => self.fence(f),
            Format::None | Format::Ignored => Ok(()),
            Format::Amo => write!(f, "{} x{rd},x{rs2},(x{rs1})", ORDERING[usize::from(i.mode & 3)]),
            Format::Lr => write!(f, "{} x{rd},(x{rs1})", ORDERING[usize::from(i.mode & 3)]),
            Format::Cbo => write!(f, " (x{rs1})"),
            Format::Sfence => write!(f, " x{rs1},x{rs2}"),
            Format::FL => write!(f, " f{rd},{imm}(x{rs1})"),
            Format::FS => write!(f, " f{rs2},{imm}(x{rs1})"),
            Format::FR4 => write!(f, " f{rd},f{rs1},f{rs2},f{rs3},{rm}"),
            Format::FRRm => write!(f, " f{rd},f{rs1},f{rs2},{rm}"),
            Format::FR => write!(f, " f{rd},f{rs1},f{rs2}"),
            Format::FR1Exact if i.mode == 0 => write!(f, " f{rd},f{rs1}"),
            Format::FR1Rm | Format::FR1Exact => write!(f, " f{rd},f{rs1},{rm}"),
            Format::FCmp => write!(f, " x{rd},f{rs1},f{rs2}"),
            Format::FtoXRm => write!(f, " x{rd},f{rs1},{rm}"),
            Format::FtoX => write!(f, " x{rd},f{rs1}"),
            Format::XtoFExact if i.mode == 0 => write!(f, " f{rd},x{rs1}"),
            Format::XtoFRm | Format::XtoFExact => write!(f, " f{rd},x{rs1},{rm}"),
            Format::XtoF => write!(f, " f{rd},x{rs1}"),
        }
    }

    /// The two sets of a `fence`; the one combination with a name of its own is
    /// spelt with it.
    fn fence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.insn.imm == 0x833 && self.insn.rd == 0 && self.insn.rs1 == 0 {
            return f.write_str(".tso");
        }
        let set = |f: &mut fmt::Formatter<'_>, bits: i32| {
            if bits & 15 == 0 {
                return f.write_str("unknown");
            }
            let letter = |n: i32, c| if bits >> n & 1 != 0 { c } else { "" };
            write!(f, "{}{}{}{}", letter(3, "i"), letter(2, "o"), letter(1, "r"), letter(0, "w"))
        };
        f.write_str(" ")?;
        set(f, self.insn.imm >> 4)?;
        f.write_str(",")?;
        set(f, self.insn.imm)
    }

    fn compressed(&self, f: &mut fmt::Formatter<'_>, name: &str, format: CFormat) -> fmt::Result {
        let Insn { rd, rs1, rs2, imm, .. } = *self.insn;
        f.write_str(name)?;
        match format {
            CFormat::Addi4spn => write!(f, " x{rd},x2,{imm}"),
            CFormat::Addi16sp => write!(f, " x2,{imm}"),
            CFormat::Lw | CFormat::Ld | CFormat::Lwsp | CFormat::Ldsp => {
                write!(f, " x{rd},{imm}(x{rs1})")
            }
            CFormat::Fld | CFormat::Fldsp => write!(f, " f{rd},{imm}(x{rs1})"),
            CFormat::Sw | CFormat::Sd | CFormat::Swsp | CFormat::Sdsp => {
                write!(f, " x{rs2},{imm}(x{rs1})")
            }
            CFormat::Fsd | CFormat::Fsdsp => write!(f, " f{rs2},{imm}(x{rs1})"),
            CFormat::Imm | CFormat::Li | CFormat::ImmHigh => write!(f, " x{rd},{imm}"),
            CFormat::Lui => write!(f, " x{rd},{:#x}", imm as u32 >> 12 & 0xf_ffff),
            CFormat::Shift | CFormat::ShiftHigh => write!(f, " x{rd},{imm:#x}"),
            CFormat::RegHigh | CFormat::Mv | CFormat::Add => write!(f, " x{rd},x{rs2}"),
            CFormat::J => write!(f, " {}", self.target()),
            CFormat::B => write!(f, " x{rs1},{}", self.target()),
            CFormat::Jr | CFormat::Jalr => write!(f, " x{rs1}"),
            CFormat::Nop if imm != 0 => write!(f, " {imm}"),
            CFormat::None | CFormat::Nop => Ok(()),
        }
    }
}
