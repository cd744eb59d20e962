//! What developers run: `cargo xtask setup|test|tidy|bench|ci`.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

fn main() {}
