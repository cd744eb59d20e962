//! What the tests of several crates share, and nothing that ships.
//!
//! - [`guest`] builds the programs of `guests/` with the system's compilers.
//! - [`Recording`] keeps a whole trace in memory, naively.
//! - [`check`] says what is wrong with a recording, by the rules of
//!   `docs/EVENTS.md`, without help from any other crate.
//! - [`lackey`] and [`callgrind`] ask Valgrind what it saw: judges not written here.
//! - [`tool`] finds the programs needed, and says when a test is skipped.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod check;
pub mod guest;
pub mod lackey;
mod recording;
pub mod tool;

pub use recording::{Item, OwnedEvent, OwnedMap, Recording};
