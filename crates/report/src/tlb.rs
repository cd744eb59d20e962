//! What a TLB hierarchy counted, as a table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::TlbReport;
use serde_json::{Value, json};

use crate::number::thousands;
use crate::table::{Cell, Table};

/// A TLB hierarchy's counts, nearest level first.
#[must_use]
pub fn tlb_table(report: &TlbReport) -> Table {
    let mut table = Table::new(&[
        ("tlb", "TLB"),
        ("accesses", "accesses"),
        ("misses", "misses"),
        ("miss_ratio", "miss ratio"),
        ("mpki", "MPKI"),
        ("fetch_misses", "fetch misses"),
        ("load_misses", "load misses"),
        ("store_misses", "store misses"),
    ]);
    for tlb in &report.tlbs {
        let (accesses, misses) = (tlb.accesses.total(), tlb.misses.total());
        table.row([
            Cell::Text(tlb.name.clone()),
            Cell::Count(accesses),
            Cell::Count(misses),
            Cell::ratio(misses, accesses),
            Cell::per_thousand(misses, report.instructions),
            Cell::Count(tlb.misses.fetch),
            Cell::Count(tlb.misses.load),
            Cell::Count(tlb.misses.store),
        ]);
    }
    table
}

/// The page walks in a sentence.
#[must_use]
pub fn walk_text(report: &TlbReport) -> String {
    format!(
        "{} page walks, {} accesses to page tables, {} cycles\n",
        thousands(report.walks.walks.total()),
        thousands(report.walks.accesses),
        thousands(report.walks.cycles)
    )
}

/// The page walks as JSON.
#[must_use]
pub fn walk_json(report: &TlbReport) -> Value {
    json!({
        "walks": report.walks.walks.total(),
        "accesses": report.walks.accesses,
        "cycles": report.walks.cycles,
    })
}
