//! The tests of this crate, as one program.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod library;
