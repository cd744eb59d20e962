//! Many caches side by side, as a table: one row for each cache of each
//! combination.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::{Grid, GridPoint, SweepCache};

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
        ("fetch_misses", "fetch misses"),
        ("load_misses", "load misses"),
        ("store_misses", "store misses"),
    ] {
        table.column(key, title);
    }
    for (point, caches) in points.iter().zip(results) {
        for cache in caches {
            let values = point.values.iter().map(|value| Cell::Text(value.clone()));
            table.row(values.chain([
                Cell::Text(cache.name.clone()),
                Cell::Count(cache.accesses.total()),
                Cell::Count(cache.misses.total()),
                Cell::ratio(cache.misses.total(), cache.accesses.total()),
                Cell::Count(cache.misses.fetch),
                Cell::Count(cache.misses.load),
                Cell::Count(cache.misses.store),
            ]));
        }
    }
    table
}
