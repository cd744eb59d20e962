//! Tools over a trace. Each is a [`Sink`](ichnos_base::Sink) that whoever has
//! a trace drives, live or from a file, and asks for its result afterwards.
//!
//! - [`check`]: does the trace keep the rules that every trace keeps?
//! - [`diff`]: where do two traces differ first, and how much?
//! - [`inventory`]: what is in it?
//! - [`select`]: a part of it, passed on to another sink.
//! - [`profile`]: what its instructions, lines, functions and calls cost.
//!
//! Nothing here reads files, decodes instructions or prints: names of functions
//! and lines come from the caller through traits, and `report` does the printing.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod check;
pub mod diff;
mod executed;
mod footprint;
mod hash;
pub mod inventory;
mod pcs;
pub mod profile;
pub mod select;

pub use footprint::Touched;
