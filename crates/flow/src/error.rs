//! Why a region could not be planned.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

/// What is wrong with a region.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Instructions overlap or are out of order.
    #[error("the instruction at {pc} starts before the one before it ends, at {end}")]
    Order {
        /// The instruction.
        pc: GuestVa,
        /// Where the one before it ends.
        end: GuestVa,
    },
    /// An address needs a register that no save point can store.
    #[error("an address at {pc} needs register {register}, which cannot be stored")]
    Untakeable {
        /// The instruction.
        pc: GuestVa,
        /// The register's number.
        register: u8,
    },
    /// An address depends on what the same instruction loads or computes.
    #[error("an address at {pc} depends on register {register}, lost in the same instruction")]
    LostInside {
        /// The instruction.
        pc: GuestVa,
        /// The register's number.
        register: u8,
    },
    /// The plan contradicts itself: a fault of this crate.
    #[error(
        "the plan for {pc} refers to register {register}, of which nothing is known (a fault in the planner)"
    )]
    Internal {
        /// The instruction.
        pc: GuestVa,
        /// The register's number.
        register: u8,
    },
}
