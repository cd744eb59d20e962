//! Inline tracing of programs whose assembly was seen on its way to the assembler.
//!
//! The method is MPTRACE's (Eggers, Keppel, Koldinger, Levy, 1990): flow analysis decides
//! which few registers inserted code must store, a roadmap tells how the rest follows.
//! It is divided between two moments.
//!
//! *When the program is built* ([`compile`], [`assemble`]), each object gets notes about its
//! functions, in a section that is not loaded: where they are, and at which labels control can
//! come in by a computed address. Nothing else changes: the program is the ordinary build, and
//! runs as such when nobody traces it.
//!
//! *When it is recorded* ([`record`]), the noted functions are planned with `ichnos-flow` and
//! a second copy of them with save points is laid out within reach of the first. A jump
//! to its copy is written over every entry of a function in the first copy, which is not
//! executed from then on. Code and data keep their places, so every address in the trace is one of the
//! ordinary build, and so is every pointer that the program computes with.
//! The thread's `gs` points to where it stores. Buffers, threads, children
//! and signals are looked after from outside (`ichnos-rt`).
//!
//! Code without notes (the C library) runs as it is; the trace has a gap where it ran.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod build;
mod code;
mod error;
mod note;
mod run;

pub use build::{ASSEMBLER, LINKER, assemble, compile, link};
pub use code::{CodeSize, entries, event_places, has_notes, noted};
pub use ichnos_rt::{Randomize, Word};

pub use error::{Error, RecordError};
pub use run::{
    Choice, Config, Events, Left, Outcome, Packed, Place as SpoolPlace, Reads, Spooling, When,
    drain, record, record_spooled,
};
