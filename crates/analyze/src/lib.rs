//! Tools over a trace. Each is a [`Sink`](ichnos_base::Sink) that whoever has
//! a trace drives, live or from a file, and asks for its result afterwards.
//!
//! - [`check`]: does the trace keep the rules that every trace keeps?
//!
//! Nothing here reads files, decodes instructions or prints: names of functions
//! and lines come from the caller through traits, and `report` does the printing.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod check;
