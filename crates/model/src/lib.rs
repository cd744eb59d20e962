//! Models that listen to a trace and answer questions about memory systems,
//! branch predictors and locality.
//!
//! Every model is a [`Sink`](ichnos_base::Sink): it runs on a stored trace or
//! live under a collector, unchanged. Models take plain configuration structs,
//! checked by functions whose errors name the field, and give plain report
//! structs; nothing here parses files or prints. The crate depends on
//! `ichnos-base` alone.
//!
//! | question | model |
//! |---|---|
//! | misses, write-backs and traffic of a cache hierarchy | [`Hierarchy`] |
//! | the same per instruction, thread or region | [`Hierarchy::observed`] with [`PerPc`], [`PerThread`], [`PerRegion`] |
//! | the same over time, or after a warm-up | [`Windowed`], [`Hierarchy::reset_counts`], [`Estimate`] |
//! | the fewest misses that any policy could have | [`Optimal`] |
//! | many caches at once | [`Sweep`] over a [`Grid`]; [`LruSweep`], [`Parallel`] |
//! | TLB misses and page walks | [`TlbModel`] |
//! | branch mispredictions | [`BranchModel`] |
//! | miss ratios of all sizes | [`ReuseDistance`], exactly; [`Shards`], from a sample |
//! | working set and footprint | [`WorkingSet`] |
//! | phases and simulation points | [`BlockVectors`] and [`Phases`] |
//! | instruction mix, strides | [`InsnMix`], [`StrideProfile`] |
//!
//! # What the models leave out
//!
//! There is no time: prefetches arrive at once, and a page walk costs a fixed
//! number of cycles. There is no wrong path: only retired instructions are seen.
//! Addresses are virtual ones, and private caches are not kept coherent.
//! Non-temporal accesses are treated like any other.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod branch;
mod cache;
mod clusters;
mod error;
mod estimate;
mod kind;
mod line_map;
mod locality;
mod machine;
mod outline;
pub mod prefetch;
mod random;
mod replace;
mod size;
mod spaces;
mod sweep;
mod tlb;
mod window;

pub use branch::{
    Bimodal, BranchConfig, BranchModel, BranchObserve, BranchReport, Conditional, Direction,
    DirectionConfig, Fixed, Gshare, IndirectConfig, Local, PathTargets, Perceptron,
    PredictionCount, Return, ReturnStack, Tage, TageConfig, TargetBuffer, Tournament,
};
pub use cache::{
    Access, Allocate, AtOnce, Brought, CacheConfig, CacheStats, Caches, Cause, Classify, Direct,
    Filterable, Hierarchy, HierarchyConfig, HierarchyReport, Hints, Inclusion, InstanceReport,
    LevelConfig, LevelCounts, MemoryStats, Modify, Observe, PcCounts, PerPc, PerRegion, PerThread,
    Placement, Reference, Region, Ring, Sharing, Stamps, Standing, Straddle, Unobserved, WRITTEN,
    WritePolicy,
};
pub use clusters::Clusters;
pub use error::Error;
pub use estimate::Estimate;
pub use kind::{ByKind, Kind};
pub use locality::{
    BlockVectors, CurvePoint, InsnMix, InsnMixReport, Interval, MissRatioCurve, Phase, Phases,
    PhasesConfig, References, ReuseDistance, ReuseHistogram, Shards, StrideProfile, StrideReport,
    WorkingSet, WorkingSetPoint,
};
pub use machine::Machine;
pub use random::Random;
pub use replace::{
    Brrip, Drrip, Fifo, Lru, Nru, Optimal, OptimalReport, Policy, RandomReplacement, Replacement,
    Shape, Srrip, TreePlru,
};
pub use size::parse_size;
pub use sweep::{Axis, Grid, GridPoint, LruSweep, Parallel, Sweep, SweepCache, SweepPoint};
pub use tlb::{
    PageRegion, Pages, TlbAtOnce, TlbConfig, TlbHierarchyConfig, TlbLevelConfig, TlbModel,
    TlbObserve, TlbReport, TlbStats, Tlbs, WalkConfig, WalkStats,
};
pub use window::Windowed;
