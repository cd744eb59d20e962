//! Models that users wrote, in shared libraries with a C interface.
//!
//! A library exports the one function of `include/ichnos_model.h`; [`UserModel`]
//! loads it and is a [`Sink`](ichnos_base::Sink) like any model of ours, live or
//! from a file. The library runs inside this process with all its rights: whoever names
//! it trusts it, as with any program.
//!
//! All unsafe code is in `library.rs`.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod abi;
mod error;
mod library;
mod model;

pub use abi::ABI;
pub use error::Error;
pub use model::{Finding, UserModel, Value};
