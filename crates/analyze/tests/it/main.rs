//! The crate's integration tests: crafted traces, random valid executions, and
//! naive twins.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod anything;
mod check;
mod check_random;
mod diff;
mod inventory;
mod machine;
mod script;
mod tools;
