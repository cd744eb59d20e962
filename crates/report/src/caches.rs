//! What a cache hierarchy counted, as a table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::{CacheStats, HierarchyReport};
use serde_json::{Value, json};

use crate::table::{Cell, Table};

/// Whether each core's caches have rows of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rows {
    /// One row for all caches of a name.
    #[default]
    Together,
    /// One row for each cache.
    EachCore,
}

/// A hierarchy's counts, nearest level first.
#[must_use]
pub fn cache_table(report: &HierarchyReport, rows: Rows) -> Table {
    let mut table = Table::new(&[
        ("cache", "cache"),
        ("accesses", "accesses"),
        ("misses", "misses"),
        ("miss_ratio", "miss ratio"),
        ("mpki", "MPKI"),
        ("fetch_misses", "fetch misses"),
        ("load_misses", "load misses"),
        ("store_misses", "store misses"),
        ("write_backs", "write-backs"),
    ]);
    let classified = report.caches.iter().any(|c| c.stats.compulsory.total() > 0);
    if classified {
        table.column("compulsory", "compulsory");
        table.column("capacity", "capacity");
        table.column("conflict", "conflict");
    }
    let mut row = |name: String, stats: &CacheStats| {
        table.row([
            Cell::Text(name),
            Cell::Count(stats.accesses.total()),
            Cell::Count(stats.misses.total()),
            Cell::Share(stats.miss_ratio()),
            Cell::Number(stats.mpki(report.instructions), 2),
            Cell::Count(stats.misses.fetch),
            Cell::Count(stats.misses.load),
            Cell::Count(stats.misses.store),
            Cell::Count(stats.write_backs),
            Cell::Count(stats.compulsory.total()),
            Cell::Count(stats.capacity.total()),
            Cell::Count(stats.conflict.total()),
        ]);
    };
    match rows {
        Rows::Together => {
            for name in report.names() {
                if let Some(stats) = report.total(name) {
                    row(name.to_owned(), &stats);
                }
            }
        }
        Rows::EachCore => {
            for cache in &report.caches {
                let core = cache.core.map_or(String::new(), |c| format!(" of core {c}"));
                row(format!("{}{core}", cache.name), &cache.stats);
            }
        }
    }
    table
}

/// A hierarchy's counts as JSON: `instructions`, `caches` (a list with the
/// columns of the table) and `memory`.
#[must_use]
pub fn cache_json(report: &HierarchyReport, rows: Rows) -> Value {
    json!({
        "instructions": report.instructions,
        "caches": cache_table(report, rows).to_json(),
        "memory": {
            "reads": report.memory.reads.total(),
            "writes": report.memory.writes,
            "write_backs": report.memory.write_backs,
            "prefetches": report.memory.prefetches,
        },
    })
}
