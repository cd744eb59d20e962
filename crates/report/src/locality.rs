//! Locality as tables: miss-ratio curves, reuse distances, working sets,
//! strides, instruction mixes and phases.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_model::{
    InsnMixReport, Interval, MissRatioCurve, OptimalReport, Phases, ReuseHistogram, StrideReport,
    WorkingSetPoint,
};

use crate::table::{Cell, Table};

/// Which sizes of a miss-ratio curve are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sizes {
    /// One line, two, four, and so on up to where nothing changes any more.
    #[default]
    Doublings,
    /// Every size at which the ratio changes.
    All,
}

/// The miss ratio of fully associative LRU caches by size, from `least` lines on.
#[must_use]
pub fn curve_table(curve: &MissRatioCurve, line: u32, sizes: Sizes, least: u64) -> Table {
    let mut table =
        Table::new(&[("size", "size"), ("lines", "lines"), ("miss_ratio", "miss ratio")]);
    let last = curve.points.last().map_or(0, |point| point.lines);
    let lines: Vec<u64> = match sizes {
        Sizes::All => curve.points.iter().map(|point| point.lines).collect(),
        Sizes::Doublings => {
            let enough = last.max(least).max(1).checked_next_power_of_two().unwrap_or(u64::MAX);
            (0..63).map(|shift| 1 << shift).take_while(|&lines| lines <= enough).collect()
        }
    };
    for lines in lines.into_iter().filter(|&lines| lines >= least) {
        let bytes = lines.saturating_mul(u64::from(line));
        table.row([Cell::Bytes(bytes), Cell::Count(lines), Cell::Share(curve.at(lines))]);
    }
    table
}

/// The fewest possible misses of caches beside those of LRU: two rows a cache.
#[must_use]
pub fn optimal_table<'a>(reports: impl IntoIterator<Item = (&'a str, &'a OptimalReport)>) -> Table {
    let mut table = Table::new(&[
        ("cache", "cache"),
        ("replacement", "replacement"),
        ("accesses", "accesses"),
        ("misses", "misses"),
        ("miss_ratio", "miss ratio"),
        ("fetch_misses", "fetch misses"),
        ("load_misses", "load misses"),
        ("store_misses", "store misses"),
        ("cut", "cut short"),
    ]);
    for (name, report) in reports {
        let accesses = report.accesses.total();
        for (policy, misses) in [("lru", report.lru), ("optimal", report.misses)] {
            table.row([
                name.into(),
                policy.into(),
                Cell::Count(accesses),
                Cell::Count(misses.total()),
                Cell::ratio(misses.total(), accesses),
                Cell::Count(misses.fetch),
                Cell::Count(misses.load),
                Cell::Count(misses.store),
                if report.cut { "yes" } else { "no" }.into(),
            ]);
        }
    }
    table
}

/// References by reuse distance: each row counts distances of its first number
/// up to the next row's, and the last row the first references to lines.
#[must_use]
pub fn reuse_table(histogram: &ReuseHistogram) -> Table {
    let mut table = Table::new(&[
        ("distance", "distance from"),
        ("references", "references"),
        ("share", "share"),
        ("cumulative", "cumulative"),
    ]);
    let all = histogram.references();
    let (mut from, mut to, mut sum) = (0usize, 1usize, 0u64);
    while from < histogram.distances.len() {
        let part = &histogram.distances[from..to.min(histogram.distances.len())];
        let count: u64 = part.iter().sum();
        sum += count;
        table.row([
            Cell::Text(from.to_string()),
            Cell::Count(count),
            Cell::ratio(count, all),
            Cell::ratio(sum, all),
        ]);
        (from, to) = (to, to.saturating_mul(2));
    }
    let first = histogram.first;
    table.row(["first".into(), Cell::Count(first), Cell::ratio(first, all), Cell::ratio(all, all)]);
    table
}

/// The working set of each window.
#[must_use]
pub fn working_set_table(points: &[WorkingSetPoint], line: u32) -> Table {
    let mut table = Table::new(&[
        ("until", "until instruction"),
        ("references", "references"),
        ("lines", "lines"),
        ("bytes", "working set"),
        ("new_lines", "new lines"),
    ]);
    for point in points {
        table.row([
            Cell::Count(point.instructions),
            Cell::Count(point.references),
            Cell::Count(point.lines),
            Cell::Bytes(point.lines.saturating_mul(u64::from(line))),
            Cell::Count(point.new_lines),
        ]);
    }
    table
}

/// How accesses move, the most frequent first. `name` says where an
/// instruction is.
#[must_use]
pub fn stride_table(
    reports: &[StrideReport],
    mut name: impl FnMut(&StrideReport) -> Option<String>,
) -> Table {
    let mut table = Table::new(&[
        ("pc", "instruction"),
        ("access", "access"),
        ("count", "count"),
        ("stride", "stride"),
        ("share", "share"),
        ("strides", "all strides"),
        ("place", "place"),
    ]);
    for report in reports {
        let dominant = report.dominant();
        let mut all: Vec<_> =
            report.strides.iter().map(|(stride, count)| format!("{stride:+}:{count}")).collect();
        if report.other > 0 {
            all.push(format!("other:{}", report.other));
        }
        table.row([
            Cell::Address(report.pc),
            Cell::Count(u64::from(report.place)),
            Cell::Count(report.count),
            dominant.map_or(Cell::Empty, |(stride, _)| Cell::Number(stride as f64, 0)),
            dominant.map_or(Cell::Empty, |(_, share)| Cell::Share(share)),
            Cell::Text(all.join(" ")),
            name(report).into(),
        ]);
    }
    table
}

/// The instruction mix: one row for each kind, length and access size.
#[must_use]
pub fn mix_table(mix: &InsnMixReport) -> Table {
    let mut table = Table::new(&[
        ("group", "group"),
        ("member", "of which"),
        ("count", "count"),
        ("share", "share"),
    ]);
    let mut row = |group: &str, member: String, count: u64, whole: u64| {
        table.row([group.into(), member.into(), Cell::Count(count), Cell::ratio(count, whole)]);
    };
    let totals = &mix.totals;
    row("instructions", "all".into(), totals.insns, totals.insns);
    for (kind, count) in &mix.kinds {
        let name = kind.name().map_or_else(|| format!("kind {}", kind.0), str::to_owned);
        row("instructions", name, *count, totals.insns);
    }
    for (length, count) in mix.lengths.iter().enumerate().filter(|(_, count)| **count > 0) {
        row("length", format!("{length} bytes"), *count, totals.insns);
    }
    row("branches", "all".into(), totals.branches, totals.insns);
    row("branches", "taken".into(), totals.taken, totals.branches);
    for (group, count, sizes, bytes) in [
        ("loads", totals.loads, &mix.load_sizes, mix.bytes_loaded),
        ("stores", totals.stores, &mix.store_sizes, mix.bytes_stored),
    ] {
        row(group, "all".into(), count, totals.insns);
        for (size, of_size) in sizes {
            row(group, format!("{size} bytes"), *of_size, count);
        }
        row(group, "bytes moved".into(), bytes, mix.bytes_loaded + mix.bytes_stored);
    }
    let accesses = totals.references();
    for (name, count) in [
        ("atomic", mix.atomic),
        ("push, pop, call, return", mix.stack),
        ("non-temporal", mix.non_temporal),
    ] {
        row("accesses", name.into(), count, accesses);
    }
    row("prefetches", "all".into(), totals.prefetches, totals.insns);
    row("flushes", "all".into(), totals.flushes, totals.insns);
    table
}

/// The phases of a run, each with the interval that stands for it.
#[must_use]
pub fn phase_table(phases: &Phases, intervals: &[Interval]) -> Table {
    let mut table = Table::new(&[
        ("phase", "phase"),
        ("weight", "weight"),
        ("intervals", "intervals"),
        ("representative", "representative"),
        ("from", "from instruction"),
        ("instructions", "instructions"),
    ]);
    for (number, phase) in phases.phases.iter().enumerate() {
        let interval = intervals.get(phase.representative);
        table.row([
            Cell::Count(number as u64),
            Cell::Share(phase.weight),
            Cell::Count(phase.intervals as u64),
            Cell::Count(phase.representative as u64),
            interval.map(|i| i.start).into(),
            interval.map(|i| i.instructions).into(),
        ]);
    }
    table
}
