//! A cache hierarchy's counts broken down by thread, by region of memory or
//! over time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::{HierarchyReport, LevelCounts};

use crate::table::{Cell, Table};

/// One row for each part: what names it, accesses, and misses by level. `what` are the titles
/// of what names the parts, `levels` are the names of the levels, nearest first.
#[must_use]
pub fn breakdown_table<'a>(
    what: &[&str],
    levels: &[String],
    parts: impl IntoIterator<Item = (Vec<Cell>, &'a LevelCounts)>,
) -> Table {
    let mut table = Table::default();
    for column in what.iter().chain(&["fetches", "loads", "stores"]) {
        table.column(column, column);
    }
    for level in levels {
        table.column(&format!("{level}_misses"), &format!("{level} misses"));
        table.column(&format!("{level}_miss_ratio"), "ratio");
    }
    for (mut row, counts) in parts {
        let all = counts.accesses;
        row.extend([all.fetch, all.load, all.store].map(Cell::Count));
        let mut reached = all.total();
        for at in 0..levels.len() {
            let misses = counts.misses.get(at).map_or(0, |misses| misses.total());
            row.push(Cell::Count(misses));
            row.push(Cell::ratio(misses, reached));
            reached = misses;
        }
        table.row(row);
    }
    table
}

/// One row for each window of instructions. `reports` are taken at the end of
/// each window and count from the beginning.
#[must_use]
pub fn time_table(reports: &[HierarchyReport]) -> Table {
    let mut table = Table::new(&[("from", "from"), ("instructions", "instructions")]);
    let names: Vec<&str> = reports.last().map(HierarchyReport::names).unwrap_or_default();
    for name in &names {
        table.column(&format!("{name}_accesses"), &format!("{name} accesses"));
        table.column(&format!("{name}_misses"), &format!("{name} misses"));
        table.column(&format!("{name}_miss_ratio"), "ratio");
    }
    let start = HierarchyReport::default();
    let before = std::iter::once(&start).chain(reports);
    for (before, after) in before.zip(reports) {
        let instructions = after.instructions - before.instructions;
        let mut row = vec![Cell::Count(before.instructions), Cell::Count(instructions)];
        for name in &names {
            let (now, then) = (after.total(name).unwrap_or_default(), before.total(name));
            let then = then.unwrap_or_default();
            let accesses = now.accesses.total() - then.accesses.total();
            let misses = now.misses.total() - then.misses.total();
            row.extend([Cell::Count(accesses), Cell::Count(misses), Cell::ratio(misses, accesses)]);
        }
        table.row(row);
    }
    table
}
