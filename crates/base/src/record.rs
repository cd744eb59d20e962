//! What a thread executes, one record at a time: the type all consumers see.
//!
//! The order within an instruction is fixed (`docs/EVENTS.md`): the
//! [`Record::Insn`], then its accesses, loads before stores where one feeds the
//! other, then, for control transfers only, exactly one [`Record::Branch`].
//!
//! A record is 16 bytes so that a batch of a few thousand stays in the first
//! cache level; the size is checked below at compile time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::GuestVa;

/// One thing that a thread did.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// An instruction retired.
    Insn {
        /// Its length in bytes.
        len: u8,
        /// What it does to control flow.
        kind: InsnKind,
        /// Its address.
        pc: GuestVa,
    },
    /// The current instruction read memory.
    Load {
        /// What else is known about the access.
        flags: AccessFlags,
        /// Bytes read.
        size: u32,
        /// The lowest address read.
        addr: GuestVa,
    },
    /// The current instruction wrote memory.
    Store {
        /// What else is known about the access.
        flags: AccessFlags,
        /// Bytes written.
        size: u32,
        /// The lowest address written.
        addr: GuestVa,
    },
    /// The current instruction asked for memory to be brought nearer. Nothing
    /// was read as far as the program can tell, and the address may be unmapped.
    Prefetch {
        /// What else is known about the request.
        flags: AccessFlags,
        /// Bytes asked for; 0 when the instruction means "the line".
        size: u32,
        /// The address asked for.
        addr: GuestVa,
    },
    /// The current instruction wrote back or dropped a cache line.
    Flush {
        /// What else is known about the request.
        flags: AccessFlags,
        /// Bytes named; 0 when the instruction means "the line".
        size: u32,
        /// The address named.
        addr: GuestVa,
    },
    /// The current instruction is a control transfer; this is its outcome.
    Branch {
        /// Whether control went to `target`.
        taken: bool,
        /// Where control goes when the transfer is taken. For an untaken
        /// conditional branch, where it would have gone.
        target: GuestVa,
    },
}

const _: () = assert!(size_of::<Record>() == 16);

impl Record {
    /// An instruction record.
    #[inline]
    #[must_use]
    pub const fn insn(pc: GuestVa, len: u8, kind: InsnKind) -> Self {
        Self::Insn { len, kind, pc }
    }

    /// A load without flags.
    #[inline]
    #[must_use]
    pub const fn load(addr: GuestVa, size: u32) -> Self {
        Self::Load { flags: AccessFlags::NONE, size, addr }
    }

    /// A store without flags.
    #[inline]
    #[must_use]
    pub const fn store(addr: GuestVa, size: u32) -> Self {
        Self::Store { flags: AccessFlags::NONE, size, addr }
    }

    /// A branch record.
    #[inline]
    #[must_use]
    pub const fn branch(taken: bool, target: GuestVa) -> Self {
        Self::Branch { taken, target }
    }

    /// The same that many bytes further on: an instruction's own address, the lowest one accessed, or a branch's target.
    #[inline]
    #[must_use]
    pub const fn moved(mut self, by: u64) -> Self {
        let (Self::Insn { pc: place, .. }
        | Self::Load { addr: place, .. }
        | Self::Store { addr: place, .. }
        | Self::Prefetch { addr: place, .. }
        | Self::Flush { addr: place, .. }
        | Self::Branch { target: place, .. }) = &mut self;
        place.0 = place.0.wrapping_add(by);
        self
    }

    /// How many bytes of value belong to this record in a batch that carries
    /// values: the size of a load or store, nothing for the rest.
    #[inline]
    #[must_use]
    pub const fn value_len(&self) -> usize {
        match self {
            Self::Load { size, .. } | Self::Store { size, .. } => *size as usize,
            _ => 0,
        }
    }
}

/// What an instruction does to control flow. Values not known to this version
/// survive a round trip through a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct InsnKind(pub u8);

impl InsnKind {
    /// Goes on to the next instruction.
    pub const OTHER: Self = Self(0);
    /// Unconditional jump to a fixed target.
    pub const JUMP: Self = Self(1);
    /// Unconditional jump to a computed target.
    pub const JUMP_INDIRECT: Self = Self(2);
    /// Conditional branch to a fixed target.
    pub const BRANCH: Self = Self(3);
    /// Call of a fixed target.
    pub const CALL: Self = Self(4);
    /// Call of a computed target.
    pub const CALL_INDIRECT: Self = Self(5);
    /// Return to a caller.
    pub const RETURN: Self = Self(6);
    /// Enters the kernel and comes back to the next instruction, or, after a
    /// return from a signal handler or an exec, elsewhere, as an event says.
    pub const SYSCALL: Self = Self(7);

    /// Whether a [`Record::Branch`] follows an instruction of this kind.
    #[inline]
    #[must_use]
    pub const fn transfers(self) -> bool {
        matches!(self.0, 1..=6)
    }

    /// Whether the instruction can go on to the next one.
    #[inline]
    #[must_use]
    pub const fn may_fall_through(self) -> bool {
        matches!(self.0, 0 | 3) || self.0 >= 7
    }

    /// The kind's name in text and JSON output, if it has one.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::OTHER => "other",
            Self::JUMP => "jump",
            Self::JUMP_INDIRECT => "jump-indirect",
            Self::BRANCH => "branch",
            Self::CALL => "call",
            Self::CALL_INDIRECT => "call-indirect",
            Self::RETURN => "return",
            Self::SYSCALL => "syscall",
            _ => return None,
        })
    }
}

/// What is known about an access besides address and size: a set of bits, of
/// which unknown ones survive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct AccessFlags(pub u8);

impl AccessFlags {
    /// A plain access.
    pub const NONE: Self = Self(0);
    /// Part of an atomic read-modify-write.
    pub const ATOMIC: Self = Self(1);
    /// Non-temporal: asks not to disturb the caches.
    pub const NON_TEMPORAL: Self = Self(2);
    /// Not an operand of the instruction but of what it does by nature: the
    /// stack of push, pop, call and return.
    pub const STACK: Self = Self(4);
    /// One lane of a gather, scatter or masked vector access.
    pub const LANE: Self = Self(8);
    /// One step of a repeated string instruction.
    pub const STRING: Self = Self(16);
    /// The processor's own state as saved and restored by xsave and friends.
    pub const STATE: Self = Self(32);
    /// A prefetch with intent to write.
    pub const FOR_WRITE: Self = Self(64);

    /// Both sets together.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are set.
    #[inline]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
