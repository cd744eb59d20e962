//! The crate's integration tests: what it says against the manual's words, against
//! iced, against nonsense, and against the processor itself.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod binaries;
mod evaluate;
mod forms;
mod golden;
mod hardware;
mod machine;
mod nonsense;
mod probe;
