//! What `ichnos annotate` shows on a terminal: functions, lines and
//! instructions, the costliest first.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_analyze::profile::{FunctionKey, Gathered};

use crate::table::{Cell, Table};

/// Which column decides the order, and how many rows are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The column's number.
    pub column: usize,
    /// At most so many rows.
    pub rows: usize,
}

/// Functions by cost.
#[must_use]
pub fn function_table(all: &Gathered, order: Order) -> Table {
    let mut table =
        titled(all, order, &[("function", "function"), ("file", "file"), ("image", "image")]);
    for (key, row) in all.hottest(order.column).into_iter().take(order.rows) {
        let place = [key.function.as_str(), &key.file, &key.image].map(known);
        table.row(cells(all, order, &row.costs).into_iter().chain(place));
    }
    table
}

/// Source lines by cost.
#[must_use]
pub fn line_table(all: &Gathered, order: Order) -> Table {
    let mut table = titled(all, order, &[("place", "line"), ("file", "file")]);
    for row in all.hottest_lines(order.column).into_iter().take(order.rows) {
        let line = (row.line > 0).then(|| row.line.to_string());
        let place = [line.into(), known(&row.file)];
        table.row(cells(all, order, &row.costs).into_iter().chain(place));
    }
    table
}

/// The instructions of one function in order of address; an empty table if the
/// function did not run.
#[must_use]
pub fn insn_table(all: &Gathered, function: &FunctionKey, column: usize) -> Table {
    let order = Order { column, rows: usize::MAX };
    let mut table = titled(all, order, &[("pc", "address"), ("line", "line")]);
    for (site, costs) in all.functions.get(function).iter().flat_map(|row| &row.insns) {
        let line = (site.line > 0).then(|| site.line.to_string());
        let place = [Cell::Text(site.pc.to_string()), line.into()];
        table.row(cells(all, order, costs).into_iter().chain(place));
    }
    table
}

fn titled(all: &Gathered, order: Order, places: &[(&str, &str)]) -> Table {
    let mut table = Table::default();
    for (i, name) in all.columns.iter().enumerate() {
        table.column(name, name);
        if i == order.column {
            table.column("share", "share");
        }
    }
    for (key, title) in places {
        table.column(key, title);
    }
    table
}

/// A row's costs, with its share of the total after the deciding column.
fn cells(all: &Gathered, order: Order, costs: &[u64]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for i in 0..all.columns.len() {
        let cost = costs.get(i).copied().unwrap_or(0);
        cells.push(cost.into());
        if i == order.column {
            let total = all.total.get(i).copied().unwrap_or(0);
            cells.push(if total == 0 {
                Cell::Empty
            } else {
                Cell::Share(cost as f64 / total as f64)
            });
        }
    }
    cells
}

fn known(text: &str) -> Cell {
    if text.is_empty() { Cell::Empty } else { text.into() }
}
