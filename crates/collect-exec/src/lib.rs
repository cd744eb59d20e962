//! Runs unmodified x86-64 Linux programs from a code cache.
//!
//! Two processes take part. The *host* side ([`launch`]) starts the program as any
//! parent would, under ptrace, and at its very first instruction puts a copy of the
//! running executable, with its own loader and libraries, into a far corner of the
//! program's address space (`window`); then it lets go. The *engine* side is that
//! copy: it takes the first thread over at the state in which the kernel left it, and
//! from then on decodes, rewrites and runs the program's code from a code cache.
//!
//! So the kernel itself has loaded the program: stack, auxiliary vector, vdso, heap,
//! `/proc/self/exe` and every address that the kernel picks later are those of an
//! untraced run, and the engine is an ordinary program with a libc of its own.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod boot;
mod engine;
mod error;
mod host;
mod plan;
mod sieve;
mod window;
mod words;

pub use error::Error;
pub use host::{
    Choice, CollectError, Fallback, Function, Launch, Outcome, Packed, Paths, Randomize, Record,
    SpoolPlace, Spooled, Spooling, Switch, Tracee, Vdso, Watch, When, control, remove_spool,
};
