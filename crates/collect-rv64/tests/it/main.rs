//! The simulator against things we did not write: QEMU, real programs, a real
//! kernel. What is not installed is skipped with a word on standard error.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stderr, reason = "a test says why it was skipped")]

mod applets;
mod bare;
mod boot;
mod bring;
mod debian;
mod distribution;
mod elf;
mod gdb;
mod guests;
mod machines;
mod profile;
mod programs;
mod random_code;
