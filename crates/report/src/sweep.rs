//! Many caches side by side, as a table: one row for each cache of each
//! combination.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::{CacheStats, Grid, GridPoint, SweepCache, parse_size};

use crate::caches::{class_columns, classes};
use crate::table::{Cell, Table};

/// The results of a sweep: `results` has one list of caches for each point.
#[must_use]
pub fn sweep_table(grid: &Grid, points: &[GridPoint], results: &[Vec<SweepCache>]) -> Table {
    let mut table = Table::default();
    for axis in &grid.axes {
        table.column(&axis.field, &axis.field);
    }
    for (key, title) in [
        ("cache", "cache"),
        ("accesses", "accesses"),
        ("misses", "misses"),
        ("miss_ratio", "miss ratio"),
        ("mpki", "MPKI"),
        ("fetch_misses", "fetch misses"),
        ("load_misses", "load misses"),
        ("store_misses", "store misses"),
        ("write_backs", "write-backs"),
    ] {
        table.column(key, title);
    }
    let classified = results.iter().flatten().any(|cache| cache.classified);
    if classified {
        class_columns(&mut table);
    }
    table.column_unless_zero("write_throughs", "write-throughs");
    table.column_unless_zero("prefetches", "prefetches");
    for (point, caches) in points.iter().zip(results) {
        for cache in caches {
            let values = grid.axes.iter().zip(&point.values);
            let values = values.map(|(axis, value)| shown(&axis.field, value));
            let known = |count: fn(&CacheStats) -> u64| cache.stats.as_ref().map(count).into();
            let sorted = cache.stats.unwrap_or_default();
            let classes = classes(&sorted, cache.classified).into_iter().filter(|_| classified);
            let counts = [
                Cell::Text(cache.name.clone()),
                Cell::Count(cache.accesses.total()),
                Cell::Count(cache.misses.total()),
                Cell::ratio(cache.misses.total(), cache.accesses.total()),
                Cell::per_thousand(cache.misses.total(), cache.instructions),
                Cell::Count(cache.misses.fetch),
                Cell::Count(cache.misses.load),
                Cell::Count(cache.misses.store),
                known(|stats| stats.write_backs),
            ];
            let traffic = [known(|stats| stats.write_throughs), known(|stats| stats.prefetches)];
            table.row(values.chain(counts).chain(classes).chain(traffic));
        }
    }
    table
}

/// A field's value: numbers as numbers, sizes with their unit.
fn shown(field: &str, value: &str) -> Cell {
    match parse_size(field, value) {
        Ok(bytes) if field.ends_with(".size") => Cell::Bytes(bytes),
        Ok(number) => Cell::Count(number),
        Err(_) => value.into(),
    }
}
