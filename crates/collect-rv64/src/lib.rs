//! A deterministic RV64 simulator that tells what it runs: Linux programs
//! ([`user`]) and whole machines ([`system`]).
//!
//! A hart's decoded instructions are interpreted by `exec`, driven by `engine`;
//! the machine around it (memory, kernel or devices) answers when translations
//! miss and when instructions concern more than the hart.
// SPDX-License-Identifier: MIT OR Apache-2.0
// Only `jit::enter`, which calls generated code, `profile::host`, which reads and
// writes as that does, and `pages`, which asks for large pages, may use unsafe code.
#![deny(unsafe_code)]

mod code;
mod cpu;
mod debug;
mod engine;
mod error;
mod exec;
mod float;
mod gdb;
mod jit;
mod memory;
mod observe;
mod pages;
pub mod profile;
mod ram;
mod recorder;
pub mod system;
mod tlb;
mod tracer;
mod trap;
pub mod user;

pub use engine::Speed;
pub use error::{Error, RunError};
pub use gdb::GdbAt;
pub use recorder::Values;
pub use trap::{Access, Cause, Trap};
