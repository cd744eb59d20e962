//! What can go wrong in this crate: bytes that are no instruction, and state
//! that an evaluation needs but was not given.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

/// Why an instruction could not be decoded or its accesses not be computed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before the instruction does.
    #[error("the instruction at {pc} is cut off: it needs more than the {have} bytes given")]
    Truncated {
        /// Where the instruction starts.
        pc: GuestVa,
        /// How many bytes there were.
        have: usize,
    },
    /// The bytes are no x86-64 instruction; executing them raises `#UD`.
    #[error("the bytes at {pc} are no x86-64 instruction ({first:#04x} {second:#04x} ...)")]
    Invalid {
        /// Where the bytes lie.
        pc: GuestVa,
        /// The first of them.
        first: u8,
        /// The second of them, or zero.
        second: u8,
    },
    /// The accesses of the instruction depend on state that [`crate::Regs`]
    /// did not give.
    #[error("the accesses of the instruction at {pc} depend on {what}, which was not given")]
    Missing {
        /// Where the instruction starts.
        pc: GuestVa,
        /// What is missing.
        what: &'static str,
    },
    /// The instruction's memory operands are not modelled.
    #[error("the memory operands of the instruction at {pc} ({name}) are not modelled")]
    Unsupported {
        /// Where the instruction starts.
        pc: GuestVa,
        /// Its mnemonic.
        name: String,
    },
}
