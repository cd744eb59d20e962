//! What a cache hierarchy counted, as a table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::{CacheStats, HierarchyReport};
use serde_json::{Value, json};

use crate::number::thousands;
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
    let classified = report.caches.iter().any(|cache| cache.classified);
    if classified {
        class_columns(&mut table);
    }
    for (key, title) in TRAFFIC {
        table.column_unless_zero(key, title);
    }
    for key in ["hits", "evictions", "received"] {
        table.column_of_data(key);
    }
    let mut row = |name: String, stats: &CacheStats, instructions: u64, sorted: bool| {
        let counts = [
            Cell::Text(name),
            Cell::Count(stats.accesses.total()),
            Cell::Count(stats.misses.total()),
            Cell::Share(stats.miss_ratio()),
            Cell::per_thousand(stats.misses.total(), instructions),
            Cell::Count(stats.misses.fetch),
            Cell::Count(stats.misses.load),
            Cell::Count(stats.misses.store),
            Cell::Count(stats.write_backs),
        ];
        let classes = classes(stats, sorted).into_iter().filter(|_| classified);
        let data = [stats.hits().total(), stats.evictions, stats.received].map(Cell::Count);
        table.row(counts.into_iter().chain(classes).chain(traffic(stats)).chain(data));
    };
    match rows {
        Rows::Together => {
            for name in report.names() {
                if let Some(stats) = report.total(name) {
                    let sorted = report.is_classified(name);
                    row(name.to_owned(), &stats, report.instructions, sorted);
                }
            }
        }
        Rows::EachCore => {
            for cache in &report.caches {
                let core = cache.core.map_or(String::new(), |c| format!(" of core {c}"));
                let (name, own) = (format!("{}{core}", cache.name), report.instructions_of(cache));
                row(name, &cache.stats, own, cache.classified);
            }
        }
    }
    table
}

/// Adds columns for the causes of misses.
pub(crate) fn class_columns(table: &mut Table) {
    for class in ["compulsory", "capacity", "conflict"] {
        table.column(class, class);
    }
}

/// Misses by cause, where they are sorted.
pub(crate) fn classes(stats: &CacheStats, sorted: bool) -> [Cell; 3] {
    let count = |count| if sorted { Cell::Count(count) } else { Cell::Empty };
    [stats.compulsory, stats.capacity, stats.conflict].map(|class| count(class.total()))
}

/// What only some caches have: keys and titles.
const TRAFFIC: [(&str, &str); 7] = [
    ("sector_misses", "sector misses"),
    ("write_throughs", "write-throughs"),
    ("back_invalidations", "back-invalidations"),
    ("flushed", "flushed"),
    ("prefetches", "prefetches"),
    ("prefetches_used", "used"),
    ("prefetches_wasted", "wasted"),
];

fn traffic(stats: &CacheStats) -> [Cell; 7] {
    [
        stats.sector_misses,
        stats.write_throughs,
        stats.back_invalidations,
        stats.flushed,
        stats.prefetches,
        stats.prefetches_used,
        stats.prefetches_wasted,
    ]
    .map(Cell::Count)
}

/// What reached memory, in a sentence.
#[must_use]
pub fn memory_text(report: &HierarchyReport) -> String {
    let memory = &report.memory;
    let mut text = format!(
        "memory: {} lines read, {} written back",
        thousands(memory.reads.total()),
        thousands(memory.write_backs)
    );
    for (count, what) in [(memory.prefetches, "prefetched"), (memory.writes, "stores")] {
        if count > 0 {
            text += &format!(", {} {what}", thousands(count));
        }
    }
    text + "\n"
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

#[cfg(test)]
mod tests {
    use ichnos_model::{ByKind, InstanceReport, MemoryStats};

    use super::*;

    fn cache(name: &str, core: Option<u32>, stats: CacheStats) -> InstanceReport {
        InstanceReport { name: name.into(), level: 0, core, classified: core == Some(1), stats }
    }

    fn report() -> HierarchyReport {
        let stats = CacheStats {
            accesses: ByKind::new(0, 300, 0),
            misses: ByKind::new(0, 6, 0),
            compulsory: ByKind::new(0, 6, 0),
            prefetches: 4,
            prefetches_used: 3,
            ..CacheStats::default()
        };
        let plain = CacheStats {
            compulsory: ByKind::default(),
            prefetches: 0,
            prefetches_used: 0,
            ..stats
        };
        HierarchyReport {
            instructions: 4000,
            by_core: vec![3000, 1000],
            caches: vec![cache("l1d", Some(0), plain), cache("l1d", Some(1), stats)],
            memory: MemoryStats { reads: ByKind::new(0, 1200, 0), writes: 7, ..Default::default() },
        }
    }

    #[test]
    fn each_core_has_its_own_instructions_and_causes() {
        let json = cache_table(&report(), Rows::EachCore).to_json();
        assert_eq!((&json[0]["mpki"], &json[1]["mpki"]), (&json!(2.0), &json!(6.0)));
        assert_eq!((&json[0]["compulsory"], &json[1]["compulsory"]), (&Value::Null, &json!(6)));
        assert_eq!((&json[1]["hits"], &json[1]["prefetches_used"]), (&json!(294), &json!(3)));
        let together = cache_table(&report(), Rows::Together).to_json();
        assert_eq!(together[0]["mpki"], 3.0);
    }

    #[test]
    fn text_has_what_is_not_zero() {
        let text = cache_table(&report(), Rows::EachCore).to_text();
        let title = text.lines().next().unwrap();
        assert!(title.ends_with("conflict  prefetches  used"), "{text}");
        assert_eq!(memory_text(&report()), "memory: 1,200 lines read, 0 written back, 7 stores\n");
    }
}
