//! The host side: starts programs and puts the engine into them.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod channel;
mod follow;
mod inject;
mod launch;
mod maps;
mod remote;
mod self_image;

pub use launch::{Launch, Randomize, Tracee};
