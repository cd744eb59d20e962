//! Replay: roadmap and streams back to records, exactly as they were pushed or
//! as the plan says; serial, merged by time, from any instruction on, or
//! in parallel by chunk.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod announce;
mod cut;
mod expand;
mod machine;
mod merge;
mod parallel;
mod player;
mod replay;

pub use cut::{Cut, cut};
pub use parallel::Piece;
pub use replay::{Order, Replay};
