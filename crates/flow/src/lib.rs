//! Where to store what so that replay can reconstruct every address.
//!
//! One analysis for assembly text and machine code of any instruction set. In go
//! instructions in neutral terms ([`Region`]): what they read and write, the
//! addresses they form, the values that follow from others. Out comes a [`Plan`]:
//! the code cut into superblocks ([`Piece`]), for each the few registers to store
//! and where ([`SavePoint`], with what is dead there and free to use), and the
//! roadmap steps by which replay turns the stored words back into addresses.
//!
//! The method is MPTRACE's (Eggers, Keppel, Koldinger, Levy, 1990, section 3) with
//! data flow over whole functions: an identifier per superblock, registers stored once
//! and followed through moves and arithmetic, several in one save point, nothing
//! for addresses that are constant or follow from what is known. [`Options`]
//! switches each of these singly; [`Level`] names the paper's combinations.
//!
//! # What the caller promises
//!
//! - Every address that control can reach other than by the region's own direct
//!   branches and fall-throughs is in [`Region::entries`] or follows a call.
//! - Shadow registers survive what interrupts a thread (a signal handler) by being
//!   snapshotted around it.
//! - A conditional branch does not target its own fall-through: replay could not
//!   tell whether it was taken.
//!
//! The crate depends on `ichnos-trace` for the step types alone.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod emit;
mod error;
mod graph;
mod insn;
mod known;
mod liveness;
mod options;
mod place;
mod plan;
mod search;
mod set;
mod summary;

pub use error::Error;
pub use insn::{Control, Effect, Insn, Live, Loss, Reference, Region};
pub use options::{Across, Follow, Halves, Level, Options, Piece as Granularity};
pub use plan::{Piece, Plan, SavePoint, Store, plan};
pub use set::Set;
