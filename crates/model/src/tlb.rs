//! Translation look-aside buffers and the page walks behind them.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod config;
mod filter;
mod model;
mod walk;

pub use config::{
    PageRegion, Pages, TlbConfig, TlbHierarchyConfig, TlbLevelConfig, Tlbs, WalkConfig,
};
pub use filter::TlbAtOnce;
pub use model::{TlbModel, TlbObserve, TlbReport, TlbStats, WalkStats};
