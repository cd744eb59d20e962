//! One step of a roadmap block: what replay does to turn stream words into
//! records. Knows no instruction set; registers are numbers that a plan chose.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{AccessFlags, GuestVa, InsnKind, Record};

/// A shadow register: any number below [`Register::COUNT`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Register(pub u8);

impl Register {
    /// How many shadow registers there are.
    pub const COUNT: usize = 64;
}

/// A static place whose words resemble each other: the unit of prediction. The
/// same memory operand keeps its slot in every block that holds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Slot(pub u32);

/// How much of a register a [`Step::Take`] fills.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// The low four bytes; the upper half stays what it was (0 if forgotten).
    Four,
    /// All eight bytes.
    Eight,
}

/// A sum over shadow registers, modulo 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sum {
    /// A register that counts once.
    pub base: Option<Register>,
    /// A register that counts `scale` times.
    pub index: Option<(Register, u8)>,
    /// A constant.
    pub disp: i64,
}

/// What a [`Step::Derive`] puts into a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// A sum; covers constants, copies, additions of constants and registers.
    Sum(Sum),
    /// The first register minus the second.
    Difference(Register, Register),
    /// A register and a constant.
    And(Register, u64),
    /// A register shifted left.
    ShiftLeft(Register, u8),
    /// A register shifted right, zeros coming in.
    ShiftRight(Register, u8),
    /// A register shifted right, its sign coming in.
    ShiftRightSigned(Register, u8),
    /// The low four bytes, zero-extended.
    Low32(Register),
    /// The low four bytes, sign-extended.
    Low32Signed(Register),
}

/// What a reference does to memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RefKind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Asks to bring nearer.
    Prefetch,
    /// Writes back or drops a line.
    Flush,
}

/// Where a reference's address comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// Replay computes it from shadow registers.
    Known(Sum),
    /// It is a word of the stream.
    Word(Slot),
}

/// How control leaves at an [`Step::Exit`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExitKind {
    /// Always to the fixed target.
    Direct,
    /// To the fixed target or on to the next instruction.
    Conditional,
    /// To wherever the next block is.
    Indirect,
}

/// One step of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// An instruction; the address is the block's entry plus the lengths before.
    Insn {
        /// Its length in bytes.
        len: u8,
        /// What it does to control flow.
        kind: InsnKind,
    },
    /// The stream's next word goes into a register.
    Take {
        /// Which register.
        register: Register,
        /// How much of it.
        width: Width,
        /// Whose words these are.
        slot: Slot,
    },
    /// A register becomes the value of an expression.
    Derive {
        /// Which register.
        register: Register,
        /// What it becomes.
        value: Value,
    },
    /// A register's value is no longer known.
    Forget {
        /// Which register.
        register: Register,
    },
    /// The current instruction refers to memory.
    Ref(Ref),
    /// The current instruction's accesses differ from one execution to the next:
    /// the stream tells them.
    Flex {
        /// Whose addresses these are.
        slot: Slot,
    },
    /// The current instruction transfers control.
    Exit {
        /// How.
        kind: ExitKind,
        /// The fixed target; 0 if indirect.
        target: GuestVa,
    },
}

/// A memory reference of fixed sort and size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ref {
    /// What it does.
    pub kind: RefKind,
    /// What else is known.
    pub flags: AccessFlags,
    /// Bytes.
    pub size: u32,
    /// Where.
    pub address: Address,
}

impl RefKind {
    /// The record of such a reference.
    #[inline]
    #[must_use]
    pub const fn record(self, flags: AccessFlags, size: u32, addr: GuestVa) -> Record {
        match self {
            Self::Load => Record::Load { flags, size, addr },
            Self::Store => Record::Store { flags, size, addr },
            Self::Prefetch => Record::Prefetch { flags, size, addr },
            Self::Flush => Record::Flush { flags, size, addr },
        }
    }

    /// The parts of a record that is a reference.
    #[inline]
    #[must_use]
    pub const fn of(record: &Record) -> Option<(Self, AccessFlags, u32, GuestVa)> {
        Some(match *record {
            Record::Load { flags, size, addr } => (Self::Load, flags, size, addr),
            Record::Store { flags, size, addr } => (Self::Store, flags, size, addr),
            Record::Prefetch { flags, size, addr } => (Self::Prefetch, flags, size, addr),
            Record::Flush { flags, size, addr } => (Self::Flush, flags, size, addr),
            Record::Insn { .. } | Record::Branch { .. } => return None,
        })
    }

    /// Its number in files and raw words.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The number that describes an access among raw words.
    #[must_use]
    pub const fn describe(self, flags: AccessFlags, size: u32) -> u64 {
        self.code() as u64 | (flags.0 as u64) << 8 | (size as u64) << 32
    }

    /// What such a number describes.
    #[must_use]
    pub const fn described(word: u64) -> Option<(Self, AccessFlags, u32)> {
        match Self::from_code(word as u8) {
            Some(kind) => Some((kind, AccessFlags((word >> 8) as u8), (word >> 32) as u32)),
            None => None,
        }
    }

    /// The one with this number.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Load,
            1 => Self::Store,
            2 => Self::Prefetch,
            3 => Self::Flush,
            _ => return None,
        })
    }
}

impl Step {
    /// The bytes of an instruction; none for other steps.
    #[must_use]
    pub fn insn_len(&self) -> usize {
        if let Self::Insn { len, .. } = self { usize::from(*len) } else { 0 }
    }

    /// Whether the step takes something from the stream.
    #[must_use]
    pub const fn takes(&self) -> bool {
        self.slot().is_some()
    }

    /// The slot of what it takes from the stream.
    #[must_use]
    pub const fn slot(&self) -> Option<Slot> {
        match *self {
            Self::Take { slot, .. }
            | Self::Flex { slot }
            | Self::Ref(Ref { address: Address::Word(slot), .. }) => Some(slot),
            _ => None,
        }
    }

    /// The same, to be given another number.
    #[must_use]
    pub const fn slot_mut(&mut self) -> Option<&mut Slot> {
        match self {
            Self::Take { slot, .. }
            | Self::Flex { slot }
            | Self::Ref(Ref { address: Address::Word(slot), .. }) => Some(slot),
            _ => None,
        }
    }

    /// The register that it sets, or makes unknown.
    #[must_use]
    pub const fn sets(&self) -> Option<Register> {
        match *self {
            Self::Take { register, .. }
            | Self::Derive { register, .. }
            | Self::Forget { register } => Some(register),
            _ => None,
        }
    }

    /// Whether all registers that it names exist.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        match *self {
            Self::Take { register, .. } | Self::Forget { register } => register.known(),
            Self::Derive { register, value } => register.known() && value.known(),
            Self::Ref(Ref { address: Address::Known(sum), .. }) => sum.known(),
            _ => true,
        }
    }
}

impl Register {
    const fn known(self) -> bool {
        (self.0 as usize) < Self::COUNT
    }
}

impl Sum {
    fn known(self) -> bool {
        self.base.is_none_or(Register::known) && self.index.is_none_or(|(r, _)| r.known())
    }
}

impl Value {
    fn known(self) -> bool {
        match self {
            Self::Sum(sum) => sum.known(),
            Self::Difference(a, b) => a.known() && b.known(),
            Self::And(r, _) | Self::Low32(r) | Self::Low32Signed(r) => r.known(),
            Self::ShiftLeft(r, n) | Self::ShiftRight(r, n) | Self::ShiftRightSigned(r, n) => {
                r.known() && n < 64
            }
        }
    }
}
