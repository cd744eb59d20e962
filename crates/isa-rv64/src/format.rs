//! Operand formats: which register files and immediates an instruction's
//! fields name. The layout of a format is data ([`Format::layout`]), read by
//! the decoder, the encoder and the effects alike.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bits::Field;

/// Which operands an instruction has, and where.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// `rd, rs1, rs2`
    R,
    /// `rd, rs1`
    R1,
    /// `rd, rs1, imm`
    I,
    /// `rd, rs1, shamt` with six bits
    Sh6,
    /// `rd, rs1, shamt` with five bits
    Sh5,
    /// `rd, imm(rs1)`, a load
    L,
    /// `rs2, imm(rs1)`, a store
    S,
    /// `rs1, rs2, target`
    B,
    /// `rd, imm` for the upper 20 bits
    U,
    /// `rd, target`
    J,
    /// `rd, imm(rs1)`, a jump
    Jalr,
    /// `rd, csr, rs1`
    Csr,
    /// `rd, csr, imm5`
    CsrI,
    /// `predecessor, successor`
    Fence,
    /// No operands.
    None,
    /// No operands, but fields that implementations ignore.
    Ignored,
    /// `rd, rs2, (rs1)`
    Amo,
    /// `rd, (rs1)`
    Lr,
    /// `(rs1)`
    Cbo,
    /// `rs1, rs2`
    Sfence,
    /// `fd, imm(rs1)`
    FL,
    /// `fs2, imm(rs1)`
    FS,
    /// `fd, fs1, fs2, fs3, rm`
    FR4,
    /// `fd, fs1, fs2, rm`
    FRRm,
    /// `fd, fs1, fs2`
    FR,
    /// `fd, fs1, rm`
    FR1Rm,
    /// `fd, fs1, rm` where the result is exact, so `rm` is not printed if 0
    FR1Exact,
    /// `rd, fs1, fs2`
    FCmp,
    /// `rd, fs1, rm`
    FtoXRm,
    /// `rd, fs1`
    FtoX,
    /// `fd, rs1, rm`
    XtoFRm,
    /// `fd, rs1, rm` where the result is exact, so `rm` is not printed if 0
    XtoFExact,
    /// `fd, rs1`
    XtoF,
}

/// What a register field names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum File {
    /// Nothing: the field is part of the operation or of the immediate.
    Absent,
    /// An integer register.
    X,
    /// A floating-point register.
    F,
    /// A number that is kept in the register's place.
    Number,
}

/// What the three bits at 12 and the two at 25 hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Mode {
    /// Part of the operation.
    Absent,
    /// A rounding mode at 12.
    Rounding,
    /// Acquire and release at 25.
    Ordering,
}

/// A format spelt out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) rd: File,
    pub(crate) rs1: File,
    pub(crate) rs2: File,
    pub(crate) rs3: File,
    pub(crate) mode: Mode,
    pub(crate) imm: Field,
}

const fn layout(rd: File, rs1: File, rs2: File, imm: Field) -> Layout {
    Layout { rd, rs1, rs2, rs3: File::Absent, mode: Mode::Absent, imm }
}

const fn rounded(rd: File, rs1: File, rs2: File) -> Layout {
    Layout { mode: Mode::Rounding, ..layout(rd, rs1, rs2, Field::NONE) }
}

impl Format {
    pub(crate) const fn layout(self) -> Layout {
        use File::{Absent, F, Number, X};
        match self {
            Self::R => layout(X, X, X, Field::NONE),
            Self::R1 => layout(X, X, Absent, Field::NONE),
            Self::I | Self::L | Self::Jalr => layout(X, X, Absent, Field::I),
            Self::Sh6 => layout(X, X, Absent, Field::SHIFT6),
            Self::Sh5 => layout(X, X, Absent, Field::SHIFT5),
            Self::S => layout(Absent, X, X, Field::S),
            Self::B => layout(Absent, X, X, Field::B),
            Self::U => layout(X, Absent, Absent, Field::U),
            Self::J => layout(X, Absent, Absent, Field::J),
            Self::Csr => layout(X, X, Absent, Field::HIGH12),
            Self::CsrI => layout(X, Number, Absent, Field::HIGH12),
            Self::Fence | Self::Ignored => layout(Number, Number, Absent, Field::HIGH12),
            Self::None => layout(Absent, Absent, Absent, Field::NONE),
            Self::Amo => Layout { mode: Mode::Ordering, ..layout(X, X, X, Field::NONE) },
            Self::Lr => Layout { mode: Mode::Ordering, ..layout(X, X, Absent, Field::NONE) },
            Self::Cbo => layout(Absent, X, Absent, Field::NONE),
            Self::Sfence => layout(Absent, X, X, Field::NONE),
            Self::FL => layout(F, X, Absent, Field::I),
            Self::FS => layout(Absent, X, F, Field::S),
            Self::FR4 => Layout { rs3: F, ..rounded(F, F, F) },
            Self::FRRm => rounded(F, F, F),
            Self::FR => layout(F, F, F, Field::NONE),
            Self::FR1Rm | Self::FR1Exact => rounded(F, F, Absent),
            Self::FCmp => layout(X, F, F, Field::NONE),
            Self::FtoXRm => rounded(X, F, Absent),
            Self::FtoX => layout(X, F, Absent, Field::NONE),
            Self::XtoFRm | Self::XtoFExact => rounded(F, X, Absent),
            Self::XtoF => layout(F, X, Absent, Field::NONE),
        }
    }
}
