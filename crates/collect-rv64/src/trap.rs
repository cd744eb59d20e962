//! Traps: what the guest sees when an instruction cannot complete, and why the
//! engine stops running a hart.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

/// A synchronous exception, numbered as in `mcause`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Cause {
    /// The instruction's address is not executable memory at all.
    FetchAccess = 1,
    /// No such instruction, or not allowed here.
    Illegal = 2,
    /// `ebreak`.
    Breakpoint = 3,
    /// An atomic access must be aligned.
    LoadMisaligned = 4,
    /// Nothing to read there.
    LoadAccess = 5,
    /// An atomic access must be aligned.
    StoreMisaligned = 6,
    /// Nothing to write there.
    StoreAccess = 7,
    /// `ecall` from user mode.
    EcallUser = 8,
    /// `ecall` from supervisor mode.
    EcallSupervisor = 9,
    /// `ecall` from machine mode.
    EcallMachine = 11,
    /// The page is not mapped for execution.
    FetchPage = 12,
    /// The page is not mapped for reading.
    LoadPage = 13,
    /// The page is not mapped for writing.
    StorePage = 15,
}

/// An exception and the value that goes with it (an address, an instruction).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Trap {
    /// What happened.
    pub cause: Cause,
    /// The address or the instruction word at fault; 0 if neither applies.
    pub value: u64,
}

impl Trap {
    pub(crate) const fn new(cause: Cause, value: u64) -> Self {
        Self { cause, value }
    }

    pub(crate) const fn at(cause: Cause, va: GuestVa) -> Self {
        Self { cause, value: va.0 }
    }
}

/// What a memory access is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Instruction fetch.
    Fetch,
    /// Load.
    Load,
    /// Store, or read-modify-write.
    Store,
}

impl Access {
    /// The exception for memory that is not there, or not allowed to this mode.
    pub(crate) const fn access_fault(self) -> Cause {
        match self {
            Self::Fetch => Cause::FetchAccess,
            Self::Load => Cause::LoadAccess,
            Self::Store => Cause::StoreAccess,
        }
    }

    /// The exception for a page that is not mapped so.
    pub(crate) const fn page_fault(self) -> Cause {
        match self {
            Self::Fetch => Cause::FetchPage,
            Self::Load => Cause::LoadPage,
            Self::Store => Cause::StorePage,
        }
    }
}

/// Why an instruction does not simply lead to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It trapped and did not retire.
    Trap(Trap),
    /// It is complete, but something outside the hart changed that the machine
    /// must look at first: decoded code was overwritten, or a device acted.
    Completed,
}

impl From<Trap> for Stop {
    fn from(trap: Trap) -> Self {
        Self::Trap(trap)
    }
}
