//! What a branch predictor got right and wrong, as a table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::{BranchReport, PredictionCount};

use crate::table::{Cell, Table};

/// Predictions by what was predicted, all mispredictions together, and the
/// target buffer, whose misses are not mispredictions.
#[must_use]
pub fn branch_table(report: &BranchReport) -> Table {
    let mut table = Table::new(&[
        ("branches", "branches"),
        ("predicted", "predicted"),
        ("wrong", "wrong"),
        ("wrong_ratio", "wrong ratio"),
        ("mpki", "MPKI"),
    ]);
    let all = PredictionCount {
        predicted: report.conditional.predicted
            + report.indirect.predicted
            + report.returns.predicted,
        wrong: report.mispredictions(),
    };
    for (name, count) in [
        ("conditional", report.conditional),
        ("indirect", report.indirect),
        ("returns", report.returns),
        ("all", all),
        ("target buffer", report.targets),
    ] {
        table.row([
            name.into(),
            Cell::Count(count.predicted),
            Cell::Count(count.wrong),
            Cell::ratio(count.wrong, count.predicted),
            Cell::per_thousand(count.wrong, report.instructions),
        ]);
    }
    table
}
