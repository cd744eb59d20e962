//! Executable memory: one region mapped twice, once to write and once to run, so
//! that no mapping is ever both (W^X).
//!
//! A [`Region`] is filled from its start by [`Region::alloc`] (hot code) and from
//! its end by [`Region::alloc_cold`] (stubs that should not dilute the hot lines); it
//! never gives memory back one piece at a time, only all at once by
//! [`Region::reset`]. Writing and patching go through the writable view; the
//! processor sees them through the executable one. Whether another thread may run
//! what is being written is the caller's business; [`Region::patch_u32`] is the one
//! write that is safe while the code runs.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod error;
mod region;
mod tape;

pub use error::Error;
pub use region::{Copied, Region, Where};
pub use tape::CodeMem;
