//! Locality: what a reference stream is like before any cache is chosen.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod blocks;
mod curve;
mod mix;
mod phases;
mod references;
mod reuse;
mod shards;
mod stack;
mod strides;
mod working_set;

pub use blocks::{BlockVectors, Interval};
pub use curve::{CurvePoint, MissRatioCurve};
pub use mix::{InsnMix, InsnMixReport};
pub use phases::{Phase, Phases, PhasesConfig};
pub use references::References;
pub use reuse::{ReuseDistance, ReuseHistogram};
pub use shards::Shards;
pub use strides::{StrideProfile, StrideReport};
pub use working_set::{WorkingSet, WorkingSetPoint};

pub(crate) use references::Lines;
