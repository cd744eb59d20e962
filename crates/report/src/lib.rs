//! What ichnos prints: tables, dumps of traces, and profiles, as text, CSV,
//! JSON and in the formats of other tools.
//!
//! Nothing here measures or decides. Dumps are sinks that write to any
//! [`Write`](std::io::Write), fast enough to be piped.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod annotate;
mod branch;
mod breakdown;
mod cachegrind;
mod caches;
mod callgrind;
mod dump_json;
mod dump_lackey;
mod dump_text;
mod error;
mod estimate;
mod fields;
mod findings;
mod info;
mod line;
mod locality;
mod machines;
pub mod number;
mod ordinals;
mod profile_file;
mod profile_text;
mod sweep;
mod symbols;
mod syscall_names;
mod table;
mod tlb;

pub use branch::branch_table;
pub use breakdown::{breakdown_table, time_table};
pub use cachegrind::{Subject, write_cachegrind};
pub use caches::{Rows, cache_json, cache_table, memory_text};
pub use callgrind::{Positions, write_callgrind};
pub use dump_json::DumpJson;
pub use dump_lackey::DumpLackey;
pub use dump_text::DumpText;
pub use error::Error;
pub use estimate::estimate_table;
pub use findings::{comparison_json, comparison_text, similarity_table, verdict_json};
pub use info::{info_json, info_text};
pub use locality::{
    Sizes, curve_table, mix_table, optimal_table, phase_table, reuse_table, stride_table,
    working_set_table,
};
pub use machines::{machine_table, machine_text};
pub use profile_file::{PROFILE_MAGIC, StoredArc, StoredInsn, StoredMap, StoredProfile};
pub use sweep::sweep_table;
pub use symbols::Symbolize;
pub use table::{Cell, Table};
pub use tlb::{tlb_table, walk_json, walk_text};
