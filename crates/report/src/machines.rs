//! The known machines, as a table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::{CacheConfig, Caches, Machine};

use crate::number;
use crate::table::Table;

/// All known machines with the source of their numbers.
#[must_use]
pub fn machine_table(machines: &[Machine]) -> Table {
    let mut table = Table::new(&[
        ("machine", "machine"),
        ("description", "description"),
        ("caches", "caches"),
        ("source", "source"),
    ]);
    for machine in machines {
        let mut caches = Vec::new();
        for level in &machine.caches.levels {
            let name = |side: &str| format!("{}{side}", level.name);
            match &level.caches {
                Caches::Unified(cache) => caches.push(cache_text(&name(""), cache)),
                Caches::Code(cache) => caches.push(cache_text(&name("i"), cache)),
                Caches::Data(cache) => caches.push(cache_text(&name("d"), cache)),
                Caches::Split { code, data } => {
                    caches.push(cache_text(&name("i"), code));
                    caches.push(cache_text(&name("d"), data));
                }
            }
        }
        let row = [machine.name, machine.description, &caches.join(", "), machine.source];
        table.row(row.map(Into::into));
    }
    table
}

/// The same, to be read: a few lines for each machine.
#[must_use]
pub fn machine_text(machines: &[Machine]) -> String {
    let rows = machine_table(machines).to_json();
    let word = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or("").to_owned();
    let show = |row: &serde_json::Value| {
        let [name, what, caches, source] =
            ["machine", "description", "caches", "source"].map(|key| word(row, key));
        format!("{name}\n  {what}\n  {caches}\n  Source: {source}\n")
    };
    rows.as_array().map(|rows| rows.iter().map(show).collect()).unwrap_or_default()
}

fn cache_text(name: &str, cache: &CacheConfig) -> String {
    let size = number::bytes(cache.size).replace(".00 ", " ").replace(".0 ", " ");
    format!("{name} {size} {}-way", cache.ways)
}
