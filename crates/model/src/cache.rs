//! Caches and hierarchies of caches.
//!
//! [`HierarchyConfig`] says what there is; [`Hierarchy`] is the sink that
//! simulates it; [`HierarchyReport`] holds the counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod array;
mod breakdown;
mod check;
mod classify;
mod config;
mod direct;
mod entry;
mod fields;
mod filter;
mod full_lru;
mod graph;
mod hierarchy;
mod index;
#[cfg(test)]
mod laws;
mod levels;
mod lru_array;
mod node;
mod observe;
mod pass;
mod per_pc;
mod set_array;
mod settled;
mod short;
mod sifted;
mod skew_array;
mod small_fifo;
mod stamped;
mod stats;

pub use breakdown::{PerRegion, PerThread, Region};
pub use classify::Cause;
pub use config::{
    Allocate, CacheConfig, Caches, Classify, HierarchyConfig, Hints, Inclusion, LevelConfig,
    Modify, Placement, Sharing, Straddle, WritePolicy,
};
pub use direct::{Brought, Direct, WRITTEN};
pub use filter::{AtOnce, Filterable, Reference, Standing};
pub use hierarchy::Hierarchy;
pub use observe::{Access, LevelCounts, Observe, Unobserved};
pub use per_pc::{PcCounts, PerPc};
pub use small_fifo::Ring;
pub use stamped::Stamps;
pub use stats::{CacheStats, HierarchyReport, InstanceReport, MemoryStats};

pub(crate) use array::{AnyArray, Array, Found};
pub(crate) use entry::{Resident, entry};
pub(crate) use full_lru::FullLru;
pub(crate) use index::Index;
