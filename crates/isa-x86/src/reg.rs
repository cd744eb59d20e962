//! Registers, and sets of them small enough to copy.
//!
//! A general register is one member of a set whatever part of it is meant; how
//! many of its bits are read and written is said by [`crate::Effects`]. A vector
//! register is two members, its low 128 bits and the rest, because legacy SSE
//! instructions write the former and keep the latter while VEX and EVEX ones
//! write both. The x87/MMX state is one member: its registers move with the top
//! of stack, so nothing finer is true of a single instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;

use iced_x86::Register;

/// A general register, numbered as instructions encode it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say all there is to say")]
pub enum Gpr {
    Rax,
    Rcx,
    Rdx,
    Rbx,
    Rsp,
    Rbp,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

impl Gpr {
    /// All sixteen, in order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Rax,
        Self::Rcx,
        Self::Rdx,
        Self::Rbx,
        Self::Rsp,
        Self::Rbp,
        Self::Rsi,
        Self::Rdi,
        Self::R8,
        Self::R9,
        Self::R10,
        Self::R11,
        Self::R12,
        Self::R13,
        Self::R14,
        Self::R15,
    ];

    /// The number by which instructions name it.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The register that holds `reg`, if that is a general register or a part
    /// of one.
    #[must_use]
    pub fn of(reg: Register) -> Option<Self> {
        if !reg.is_gpr() {
            return None;
        }
        Self::ALL.get(reg.full_register().number()).copied()
    }

    /// The name of the whole register in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        GPR_NAMES[self as usize]
    }
}

const GPR_NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// A member of a [`RegSet`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(u8);

const VEC: u8 = 16;
const VEC_UPPER: u8 = 48;
const MASK: u8 = 80;

impl Reg {
    /// The x87 and MMX registers with their control, status and tag words.
    pub const X87: Self = Self(88);
    /// The SSE control and status register.
    pub const MXCSR: Self = Self(89);
    /// The base of the `fs` segment.
    pub const FS_BASE: Self = Self(90);
    /// The base of the `gs` segment.
    pub const GS_BASE: Self = Self(91);
    /// The AMX tiles and their configuration.
    pub const TILES: Self = Self(92);
    /// All that only the kernel should care for: selectors, control and debug
    /// registers, `pkru`, the shadow-stack pointer, counters.
    pub const SYSTEM: Self = Self(93);

    /// A whole general register.
    #[must_use]
    pub const fn gpr(reg: Gpr) -> Self {
        Self(reg as u8)
    }

    /// The low 128 bits of a vector register, numbered modulo 32.
    #[must_use]
    pub const fn vector(number: u8) -> Self {
        Self(VEC + number % 32)
    }

    /// Bits 128 and up of a vector register, numbered modulo 32.
    #[must_use]
    pub const fn vector_upper(number: u8) -> Self {
        Self(VEC_UPPER + number % 32)
    }

    /// An AVX-512 mask register, numbered modulo 8.
    #[must_use]
    pub const fn opmask(number: u8) -> Self {
        Self(MASK + number % 8)
    }

    /// A small number that is this register's own; below 94.
    #[inline]
    #[must_use]
    pub const fn id(self) -> u8 {
        self.0
    }

    /// The general register it is, if it is one.
    #[must_use]
    pub fn as_gpr(self) -> Option<Gpr> {
        Gpr::ALL.get(usize::from(self.0)).copied()
    }

    /// The number of the vector register of which it is a half, if it is one.
    #[must_use]
    pub const fn as_vector(self) -> Option<u8> {
        match self.0 {
            VEC..MASK => Some((self.0 - VEC) % 32),
            _ => None,
        }
    }

    /// Whether it is the upper part of a vector register.
    #[must_use]
    pub const fn is_upper(self) -> bool {
        matches!(self.0, VEC_UPPER..MASK)
    }

    /// The number of the mask register it is, if it is one.
    #[must_use]
    pub const fn as_opmask(self) -> Option<u8> {
        match self.0 {
            MASK..88 => Some(self.0 - MASK),
            _ => None,
        }
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            VEC..VEC_UPPER => write!(f, "xmm{}", self.0 - VEC),
            VEC_UPPER..MASK => write!(f, "zmm{}.hi", self.0 - VEC_UPPER),
            MASK..88 => write!(f, "k{}", self.0 - MASK),
            88 => f.write_str("x87"),
            89 => f.write_str("mxcsr"),
            90 => f.write_str("fs.base"),
            91 => f.write_str("gs.base"),
            92 => f.write_str("tiles"),
            93 => f.write_str("system"),
            n => f.write_str(GPR_NAMES.get(usize::from(n)).copied().unwrap_or("?")),
        }
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RegSet(u128);

impl RegSet {
    /// No register.
    pub const EMPTY: Self = Self(0);
    /// All general registers.
    pub const GPRS: Self = Self(0xffff);

    /// The set of one.
    #[inline]
    #[must_use]
    pub const fn only(reg: Reg) -> Self {
        Self(1 << reg.0)
    }

    /// The set of these general registers.
    #[must_use]
    pub fn gprs(regs: &[Gpr]) -> Self {
        regs.iter().map(|r| Reg::gpr(*r)).collect()
    }

    /// Both halves of a vector register.
    #[must_use]
    pub const fn vector(number: u8) -> Self {
        Self::only(Reg::vector(number)).or(Self::only(Reg::vector_upper(number)))
    }

    /// Members of either.
    #[inline]
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Members of both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Members of this set that are not in `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether `reg` is a member.
    #[inline]
    #[must_use]
    pub const fn has(self, reg: Reg) -> bool {
        self.0 >> reg.0 & 1 != 0
    }

    /// Whether nothing is a member.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many members there are.
    #[inline]
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Adds a member.
    #[inline]
    pub const fn insert(&mut self, reg: Reg) {
        self.0 |= 1 << reg.0;
    }

    /// The members in order of their ids.
    pub fn iter(self) -> impl Iterator<Item = Reg> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let next = rest.trailing_zeros();
            rest &= rest - 1;
            u8::try_from(next).ok().map(Reg)
        })
    }
}

impl FromIterator<Reg> for RegSet {
    fn from_iter<I: IntoIterator<Item = Reg>>(regs: I) -> Self {
        regs.into_iter().fold(Self::EMPTY, |set, reg| set.or(Self::only(reg)))
    }
}

impl fmt::Display for RegSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, reg) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            fmt::Display::fmt(&reg, f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for RegSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}
