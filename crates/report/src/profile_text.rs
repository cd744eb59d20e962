//! What cachegrind's and callgrind's files have in common: one line per name
//! and per row of costs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_analyze::profile::Gathered;

/// What these tools call something that is not known.
const UNKNOWN: &str = "???";

/// A name on a line of its own: never empty, never more than one line.
pub(crate) fn name(text: &str) -> String {
    if text.is_empty() {
        return UNKNOWN.into();
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Costs, one per column, with a blank before each.
pub(crate) fn costs(row: &[u64], all: &Gathered) -> String {
    let at = |column: usize| row.get(column).copied().unwrap_or(0);
    (0..all.columns.len()).map(|column| format!(" {}", at(column))).collect()
}

/// The columns' names. These files part them by blanks.
pub(crate) fn events(all: &Gathered) -> String {
    let names = all.columns.iter().map(|column| column.replace(char::is_whitespace, "_"));
    names.collect::<Vec<_>>().join(" ")
}
