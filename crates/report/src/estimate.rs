//! Ratios estimated from samples, as a table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::Estimate;

use crate::table::{Cell, Table};

/// One row for each name of the first sample. Each sample has, by name, a part
/// and what it is a part of: misses and accesses.
#[must_use]
pub fn estimate_table(samples: &[Vec<(String, (u64, u64))>]) -> Table {
    let mut table = Table::new(&[
        ("model", "model"),
        ("accesses", "accesses"),
        ("misses", "misses"),
        ("miss_ratio", "miss ratio"),
        ("half_width", "± (95 %)"),
        ("samples", "samples"),
    ]);
    for (name, _) in samples.last().into_iter().flatten() {
        let of_name = |sample: &Vec<(String, (u64, u64))>| {
            let found = sample.iter().find(|(other, _)| other == name);
            found.map_or((0, 0), |(_, counts)| *counts)
        };
        let counts: Vec<(u64, u64)> = samples.iter().map(of_name).collect();
        let estimate = Estimate::from_samples(&counts);
        let wholes: u64 = counts.iter().map(|(_, whole)| whole).sum();
        // A ratio of nothing, and the width of a single sample, are not known.
        let share = |value: f64| {
            if wholes > 0 && value.is_finite() { Cell::Share(value) } else { Cell::Empty }
        };
        table.row([
            name.as_str().into(),
            Cell::Count(wholes),
            Cell::Count(counts.iter().map(|(part, _)| part).sum()),
            share(estimate.ratio),
            share(estimate.half_width),
            Cell::Count(estimate.samples as u64),
        ]);
    }
    table
}
