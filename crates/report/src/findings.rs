//! What `ichnos check` and `ichnos diff` found, as JSON and as text.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Write as _;

use ichnos_analyze::check::{Verdict, Violation};
use ichnos_analyze::diff::{Comparison, Difference, Item, Similarity, ThreadSimilarity};
use ichnos_base::{Batch, Sink, ThreadId};
use serde_json::{Value, json};

use crate::dump_text::DumpText;
use crate::table::{Cell, Table};

/// A verdict as JSON: `clean`, `violations` (how many), `by_rule`, `first` (the
/// violations that were kept), and what could not be judged.
#[must_use]
pub fn verdict_json(verdict: &Verdict) -> Value {
    let by_rule = verdict.by_rule.iter().map(|(rule, n)| (rule.name().to_owned(), (*n).into()));
    let violation = |v: &Violation| {
        json!({
            "rule": v.rule.name(),
            "thread": v.thread.0,
            "insn": v.insn,
            "pc": v.pc.map(|pc| pc.to_string()),
            "expected": v.expected,
            "got": v.got,
        })
    };
    let insns: u64 = verdict.totals.values().map(|t| t.insns).sum();
    json!({
        "clean": verdict.is_clean(),
        "instructions": insns,
        "threads": verdict.totals.len(),
        "violations": verdict.total(),
        "by_rule": Value::Object(by_rule.collect()),
        "first": verdict.violations.iter().map(violation).collect::<Value>(),
        "threads_without_end": verdict.unended,
        "locks_held_at_end": verdict.locks_held_at_end,
        "accesses_unchecked": verdict.unchecked,
    })
}

/// Two traces' first differences as JSON.
#[must_use]
pub fn comparison_json(comparison: &Comparison) -> Value {
    let ids = |ids: &[ThreadId]| ids.iter().map(|id| id.0).collect::<Value>();
    let one = |d: &Difference| {
        json!({
            "thread_a": d.a.0,
            "thread_b": d.b.0,
            "item": d.item,
            "insn": d.insn,
            "before": words(d.a, &d.before),
            "a": words(d.a, &d.in_a),
            "b": words(d.b, &d.in_b),
        })
    };
    json!({
        "equal": comparison.is_equal(),
        "compared_threads": comparison.paired.pairs.len(),
        "only_a": ids(&comparison.paired.only_a),
        "only_b": ids(&comparison.paired.only_b),
        "differences": comparison.differences.iter().map(one).collect::<Value>(),
    })
}

/// Two traces' first differences as text, with the equal items before.
#[must_use]
pub fn comparison_text(comparison: &Comparison) -> String {
    let mut out = String::new();
    for d in &comparison.differences {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "threads {} and {} differ after {} instructions:", d.a, d.b, d.insn);
        for (sign, thread, items) in
            [(' ', d.a, &d.before), ('-', d.a, &d.in_a), ('+', d.b, &d.in_b)]
        {
            for line in words(thread, items) {
                let _ = writeln!(out, "{sign} {line}");
            }
            if items.is_empty() && sign != ' ' {
                let _ = writeln!(out, "{sign} (ends here)");
            }
        }
    }
    for (which, ids) in
        [("first", &comparison.paired.only_a), ("second", &comparison.paired.only_b)]
    {
        for id in ids {
            let _ = writeln!(out, "thread {id} is only in the {which} trace");
        }
    }
    if comparison.is_equal() {
        let _ = writeln!(out, "equal: {} threads", comparison.paired.pairs.len());
    }
    out
}

/// Items as lines of the text dump, without thread and ordinal.
fn words(thread: ThreadId, items: &[Item]) -> Vec<String> {
    let line = |item: &Item| match item {
        Item::Event(text) => format!("E {text}"),
        Item::Record(record, value) => {
            let mut dump = DumpText::new(Vec::new());
            let records = [*record];
            let values = (!value.is_empty()).then_some(&value[..]);
            let batch = Batch { values, ..Batch::new(thread, 0, &records) };
            // Writing to memory cannot fail.
            let _ = dump.records(&batch);
            let _ = dump.finish();
            let text = String::from_utf8(dump.into_inner()).unwrap_or_default();
            text.trim_end().splitn(3, ' ').nth(2).unwrap_or_default().to_owned()
        }
    };
    items.iter().map(line).collect()
}

/// Similarities as a table: each pair of threads, then all together. Where the
/// distance is not exact, both bounds are shown.
#[must_use]
pub fn similarity_table(all: &Similarity, rows: &[ThreadSimilarity]) -> Table {
    let mut table = Table::new(&[
        ("thread_a", "first"),
        ("thread_b", "second"),
        ("length", "length"),
        ("distance_low", "distance at least"),
        ("distance_high", "at most"),
        ("similarity_low", "similarity at least"),
        ("similarity_high", "at most"),
    ]);
    let cells = |s: &Similarity| {
        [
            s.length.into(),
            s.distance.low.into(),
            s.distance.high.into(),
            Cell::Share(s.low()),
            Cell::Share(s.high()),
        ]
    };
    for row in rows {
        let ids = [row.a, row.b].map(|id| Cell::from(id.map(|id| u64::from(id.0))));
        table.row(ids.into_iter().chain(cells(&row.similarity)));
    }
    table.row([Cell::Empty, Cell::Empty].into_iter().chain(cells(all)));
    table
}
