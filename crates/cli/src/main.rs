//! The `ichnos` program: one verb a file under `verbs/`.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

fn main() {}
