//! Memory operands as expressions over registers: what an instruction will
//! touch, before it is known where.
//!
//! Everything here is static. [`crate::accesses`] turns the expressions into
//! addresses when the registers are known.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;

use ichnos_base::AccessFlags;

use crate::{Gpr, Reg, RegSet};

/// One operand in memory, named by the instruction or implied by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemOperand {
    /// What is done with it.
    pub role: Role,
    /// Bytes of one access: of the whole operand for [`Shape::Plain`] and
    /// [`Shape::String`], of an element for the shapes that have elements, 0
    /// for prefetches and flushes (they mean the line) and [`Shape::State`]
    /// whose size is not fixed.
    pub size: u32,
    /// What else each access of the operand is.
    pub flags: AccessFlags,
    /// Where it lies.
    pub address: AddrExpr,
    /// How the accesses follow from the address.
    pub shape: Shape,
}

/// What an instruction does with a memory operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Reads it.
    Load,
    /// Writes it.
    Store,
    /// Reads it, then writes it.
    Both,
    /// Asks for it to be brought nearer.
    Prefetch,
    /// Writes back, drops or demotes its cache line.
    Flush,
}

/// How the address of an operand is formed: segment base + base + index + disp,
/// the sum without the segment base cut to the address width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddrExpr {
    /// The segment whose base is added.
    pub segment: Segment,
    /// The base register.
    pub base: Option<Gpr>,
    /// The index.
    pub index: Index,
    /// The constant part. For a rip-relative operand, the whole address.
    pub disp: i64,
    /// To how many bits the sum is cut.
    pub width: AddrWidth,
    /// Whether the instruction names the address relative to itself, so that
    /// code moved elsewhere has to name it differently.
    pub rip_relative: bool,
}

/// A segment that has a base in 64-bit mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Segment {
    /// None of the two: the base is zero.
    #[default]
    Flat,
    /// `fs`.
    Fs,
    /// `gs`.
    Gs,
}

/// The part of an address that varies most.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Index {
    /// There is none.
    #[default]
    None,
    /// A general register times 1, 2, 4 or 8.
    Scaled(Gpr, u8),
    /// The low byte of a register, zero-extended: `xlat`.
    LowByte(Gpr),
}

/// How wide addresses are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AddrWidth {
    /// 64 bits.
    #[default]
    Bits64,
    /// 32 bits, zero-extended: the instruction has an address-size prefix.
    Bits32,
}

/// How the accesses of an operand follow from its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One access, of the operand's size, at the address.
    Plain,
    /// A gather or scatter: one access per active lane, in lane order.
    Lanes(Lanes),
    /// Consecutive elements of which only those of active lanes are touched.
    Masked(Masked),
    /// A string instruction's operand: one access per iteration.
    String(Rep),
    /// Several accesses of the operand's size at a fixed distance: what `iret`
    /// and far calls do to the stack, and the frame pointers that `enter` copies.
    Run {
        /// How many.
        count: u8,
        /// How far each lies above the one before it; negative when below.
        step: i8,
    },
    /// One access that a signed bit number in a register moves by whole operands:
    /// `bt`, `bts`, `btr` and `btc` with a register. The number is as wide as
    /// the operand.
    Bit(Gpr),
    /// The cache line of this many bytes that holds the address.
    Line(u32),
    /// Processor state whose extent depends on what is enabled and in use.
    State(StateOp),
    /// Accesses that are not modelled: the PadLock instructions of VIA processors,
    /// which work through whole buffers.
    Unmodelled,
    /// The rows of an AMX tile, each `stride` bytes after the one before it;
    /// the index register of the address is the stride and not part of it.
    Tile {
        /// The tile's number.
        tile: u8,
        /// The register that holds the stride.
        stride: Option<Gpr>,
        /// The factor that the instruction applies to the stride.
        scale: u8,
    },
}

/// The lanes of a gather or scatter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lanes {
    /// The vector register that holds the indices.
    pub index: u8,
    /// Bytes of one index; it is signed.
    pub index_size: u8,
    /// What an index is multiplied by.
    pub scale: u8,
    /// How many lanes there are.
    pub count: u8,
    /// Which lanes are active.
    pub mask: LaneMask,
}

/// A vector operand under a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Masked {
    /// How many elements the operand has in memory.
    pub elements: u8,
    /// How many lanes there are; lane `i` uses element `i % elements`.
    pub lanes: u8,
    /// Which lanes are active.
    pub mask: LaneMask,
    /// Whether the active lanes' elements lie side by side from the start
    /// (compress and expand) and not each in its lane's place.
    pub packed: bool,
}

/// Which lanes of a vector access are active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneMask {
    /// Those whose bit is set in a mask register.
    Opmask(u8),
    /// Those whose element of so many bytes in a vector register is negative.
    Sign {
        /// The vector register's number.
        vector: u8,
        /// Bytes of one element.
        size: u8,
    },
    /// Those whose byte in an MMX register is negative.
    MmxSign(u8),
}

/// A repeat prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rep {
    /// None: exactly one iteration.
    Once,
    /// `rep`: as often as the count says.
    Count,
    /// `repe`: until the count is up or the operands differ.
    Equal,
    /// `repne`: until the count is up or the operands are equal.
    NotEqual,
}

/// An instruction of the xsave family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StateOp {
    /// `xsave`: all requested components, standard format.
    Xsave,
    /// `xsaveopt`: as `xsave`, but components in their initial state or not
    /// modified are left out.
    Xsaveopt,
    /// `xsavec`: requested components in use, compacted.
    Xsavec,
    /// `xsaves`: privileged `xsavec`.
    Xsaves,
    /// `xrstor`: either format.
    Xrstor,
    /// `xrstors`: privileged, compacted.
    Xrstors,
}

impl AddrExpr {
    /// Whether the address is a constant.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.segment == Segment::Flat && self.base.is_none() && self.index == Index::None
    }

    /// The general registers that the address is formed from.
    pub fn registers(&self) -> impl Iterator<Item = Gpr> {
        let index = match self.index {
            Index::None => None,
            Index::Scaled(reg, _) | Index::LowByte(reg) => Some(reg),
        };
        self.base.into_iter().chain(index)
    }
}

impl MemOperand {
    /// All registers on which the operand's accesses depend: those of the
    /// address, and those that say which parts are touched.
    #[must_use]
    pub fn registers(&self) -> RegSet {
        let mut set: RegSet = self.address.registers().map(Reg::gpr).collect();
        match self.address.segment {
            Segment::Flat => {}
            Segment::Fs => set.insert(Reg::FS_BASE),
            Segment::Gs => set.insert(Reg::GS_BASE),
        }
        match self.shape {
            Shape::Plain | Shape::Run { .. } | Shape::Line(_) | Shape::Unmodelled => {}
            Shape::Bit(reg) => set.insert(Reg::gpr(reg)),
            Shape::Lanes(lanes) => {
                set = set
                    .or(vector_bytes(lanes.index, lanes.index_size, lanes.count))
                    .or(lanes.mask.registers(lanes.count));
            }
            Shape::Masked(masked) => set = set.or(masked.mask.registers(masked.lanes)),
            Shape::String(rep) => {
                if rep != Rep::Once {
                    set.insert(Reg::gpr(Gpr::Rcx));
                }
            }
            Shape::State(_) => set = set.or(RegSet::gprs(&[Gpr::Rax, Gpr::Rdx])),
            Shape::Tile { stride, .. } => {
                set.insert(Reg::TILES);
                if let Some(reg) = stride {
                    set.insert(Reg::gpr(reg));
                }
            }
        }
        set
    }

    /// Whether reading is part of what is done.
    #[must_use]
    pub const fn loads(&self) -> bool {
        matches!(self.role, Role::Load | Role::Both)
    }

    /// Whether writing is part of what is done.
    #[must_use]
    pub const fn stores(&self) -> bool {
        matches!(self.role, Role::Store | Role::Both)
    }
}

impl LaneMask {
    /// The register, or the part of it, that holds the mask of so many lanes.
    #[must_use]
    pub const fn registers(self, lanes: u8) -> RegSet {
        match self {
            Self::Opmask(k) => RegSet::only(Reg::opmask(k)),
            Self::Sign { vector, size } => vector_bytes(vector, size, lanes),
            Self::MmxSign(_) => RegSet::only(Reg::X87),
        }
    }
}

/// The parts of a vector register that hold so many elements.
const fn vector_bytes(vector: u8, size: u8, count: u8) -> RegSet {
    if size as u32 * count as u32 > 16 {
        RegSet::vector(vector)
    } else {
        RegSet::only(Reg::vector(vector))
    }
}

impl fmt::Display for AddrExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.segment {
            Segment::Flat => {}
            Segment::Fs => f.write_str("fs:")?,
            Segment::Gs => f.write_str("gs:")?,
        }
        f.write_str("[")?;
        let mut plus = "";
        if let Some(base) = self.base {
            f.write_str(base.name())?;
            plus = "+";
        }
        match self.index {
            Index::None => {}
            Index::Scaled(reg, scale) => write!(f, "{plus}{}*{scale}", reg.name())?,
            Index::LowByte(reg) => write!(f, "{plus}low({})", reg.name())?,
        }
        let varies = self.base.is_some() || self.index != Index::None;
        match (self.disp, varies) {
            (0, true) => {}
            (d, true) if d < 0 => write!(f, "-{:#x}", d.unsigned_abs())?,
            (d, true) => write!(f, "+{d:#x}")?,
            (d, false) => write!(f, "{d:#x}")?,
        }
        f.write_str("]")?;
        if self.width == AddrWidth::Bits32 {
            f.write_str("32")?;
        }
        if self.rip_relative {
            f.write_str("rip")?;
        }
        Ok(())
    }
}
