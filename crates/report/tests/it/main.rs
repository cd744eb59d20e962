//! The crate's integration tests: what is printed, read back by others.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod dumps;
mod reports;
mod valgrind;
