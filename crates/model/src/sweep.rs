//! Many caches in one pass over a trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod grid;
mod lru;
mod parallel;
mod run;

pub use grid::{Axis, Grid, GridPoint};
pub use lru::{LruSweep, SweepPoint};
pub use parallel::Parallel;
pub use run::{Sweep, SweepCache};
