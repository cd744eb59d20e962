//! Many caches in one pass over a trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod lru;
mod parallel;

pub use lru::{LruSweep, SweepPoint};
pub use parallel::Parallel;
