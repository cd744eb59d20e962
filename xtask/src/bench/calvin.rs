//! The tables of the calvin paper for programs built by `ichnos cc`: how events lie among instructions (table 1), what
//! running in two copies costs (table 2), and what samples tell of the whole.
//!
//! Times are processor time: of the program itself where it only runs in the copy that records nothing; of everybody, the
//! making of the copies and the simulation included, where samples are simulated. All runs of a round are made beside each other
//! (`beside.rs`), the program alone twice: how far these two differ says how far the other figures can be trusted.
//! recorded for that.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::beside::{self, processor_time};
use super::inputs;
use super::mptrace::{Extent, Program, ichnos, kernels, numbers_in, projects, words};
use crate::run;

/// How often each measurement is made. The middle one counts.
const ROUNDS: usize = 5;
/// So many events that nobody comes to the end.
const NEVER: &str = "1T:1";
/// Sampling plans whose estimates are compared with the whole: events that count, how many, and instructions of
/// warm-up.
const PLANS: [(&str, &str, &str); 6] = [
    ("calls", "1000:10", "0"),
    ("calls", "1000:100", "0"),
    ("calls", "300:100", "2K"),
    ("calls,loops", "1000:10", "0"),
    ("calls,loops", "1000:100", "0"),
    // Long samples with a warm-up, in no step with the program: the narrowest intervals.
    ("calls,loops", "10007:3001", "5K"),
];

/// Which of the tables are printed.
const TABLES: [&str; 3] = ["events", "costs", "estimates"];

/// Prints the tables, or those that the arguments name, for all programs or for those that they name.
pub fn print(args: &[String]) -> Result<()> {
    let (flags, names): (Vec<_>, Vec<_>) = args.iter().partition(|a| a.starts_with('-'));
    if let Some(other) = flags.iter().find(|f| **f != "--quick") {
        anyhow::bail!(
            "expected --quick, a table ({}) or a program, found `{other}`",
            TABLES.join(", ")
        );
    }
    let extent = if flags.is_empty() { Extent::Whole } else { Extent::Quick };
    let (tables, names): (Vec<&str>, Vec<&str>) =
        names.into_iter().map(String::as_str).partition(|n| TABLES.contains(n));
    let wanted = |table: &str| tables.is_empty() || tables.contains(&table);
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-cli"])?;
    let folder = run::root().join("target/bench/mptrace");
    std::fs::create_dir_all(&folder)?;
    inputs::write(&folder)?;
    let library = six(&folder)?;
    let mut programs = kernels(&folder)?;
    if extent == Extent::Whole {
        programs.extend(projects(&folder)?);
    }
    if let Some(other) = names.iter().find(|n| programs.iter().all(|p| p.name != **n)) {
        anyhow::bail!("there is no table and no program `{other}`");
    }
    programs.retain(|p| names.is_empty() || names.contains(&p.name));
    if wanted("events") {
        distances(&folder, &programs)?;
    }
    if wanted("costs") {
        costs(&folder, &programs, &library, extent)?;
    }
    if wanted("estimates") {
        estimates(&folder, &programs, &library)?;
    }
    Ok(())
}

/// The paper's example tool, built.
fn six(folder: &Path) -> Result<String> {
    let plugin = run::root().join("crates/plugin");
    let library = folder.join("libsix.so");
    let mut command = Command::new("cc");
    command.args(["-O2", "-shared", "-fPIC", "-I"]).arg(plugin.join("include"));
    run::check(command.arg("-o").arg(&library).arg(plugin.join("examples/six.c")))?;
    Ok(library.to_string_lossy().into_owned())
}

/// Runs `ichnos record` with these flags: processor time, and what it says.
fn record(folder: &Path, flags: &str, program: &Program, args: &[String]) -> Result<(f64, String)> {
    processor_time(folder, &program.command(&recording(flags), args))
}

/// The beginning of a command line that records.
fn recording(flags: &str) -> Vec<String> {
    [&ichnos()[..], &words(&format!("record {flags} --"))].concat()
}

fn distances(folder: &Path, programs: &[Program]) -> Result<()> {
    println!("events (procedure calls) among executed instructions, short inputs\n");
    println!(
        "{:<12} {:>14} {:>12} {:>8} {:>8} {:>10} {:>12} {:>12}",
        "program", "instructions", "events", "ratio %", "min", "mean", "max", "deviation"
    );
    for program in programs {
        let (_, text) = record(folder, "--trace events", program, &program.short)?;
        let [insns, events, least, mean, most, deviation] = numbers_in(&text)[..] else {
            anyhow::bail!("ichnos says `{}`", text.trim())
        };
        println!(
            "{:<12} {insns:>14} {events:>12} {:>8.3} {least:>8} {mean:>10.1} {most:>12} {deviation:>12.1}",
            program.name,
            100.0 * events / insns.max(1.0)
        );
    }
    Ok(())
}

fn costs(folder: &Path, programs: &[Program], library: &str, extent: Extent) -> Result<()> {
    println!(
        "\nprocessor time over the program alone, all runs beside each other, middle of {ROUNDS} (M: references simulated)\n"
    );
    println!(
        "{:<12} {:>9} {:>7} {:>13} {:>15} {:>23}",
        "program",
        "base (s)",
        "again",
        "shm exec only",
        "inner exec only",
        "1000:10 with six caches"
    );
    let flags = [
        "--trace off --paused".to_owned(),
        format!("--trace off --sample {NEVER}"),
        format!("--tool {library} --sample 1000:10"),
    ];
    // The program alone, twice, and then the ways to record it.
    let alone = [Vec::new(), Vec::new()];
    let before: Vec<_> = alone.into_iter().chain(flags.iter().map(|f| recording(f))).collect();
    let mut logs = [0.0; 4];
    for program in programs {
        let args = if extent == Extent::Whole { &program.long } else { &program.short };
        let commands: Vec<_> = before.iter().map(|words| program.command(words, args)).collect();
        let mut rounds: Vec<Vec<f64>> = Vec::new();
        let mut references = 0.0;
        for _ in 0..ROUNDS {
            let runs = beside::processor_times(folder, &commands)?;
            let sampled = runs.last().map_or("", |(_, text)| text);
            references = count_of(sampled, "references").unwrap_or(references);
            rounds.push(runs.iter().map(|(all, text)| own_time(text).unwrap_or(*all)).collect());
        }
        let (base, ratios) = beside::middles(&rounds);
        let [again, shm, inner, sampled] = ratios[..] else {
            anyhow::bail!("a round of {} has too few runs", program.name)
        };
        ratios.iter().zip(&mut logs).for_each(|(ratio, log)| *log += ratio.ln());
        println!(
            "{:<12} {base:>9.2} {again:>7.3} {shm:>13.3} {inner:>15.3} {sampled:>16.3} [{:.2} M]",
            program.name,
            references / 1e6
        );
    }
    let [again, shm, inner, sampled] = logs.map(|log| (log / programs.len().max(1) as f64).exp());
    println!("{:<12} {:>9} {again:>7.3} {shm:>13.3} {inner:>15.3} {sampled:>16.3}", "all", "");
    Ok(())
}

fn estimates(folder: &Path, programs: &[Program], library: &str) -> Result<()> {
    println!(
        "\nmiss ratio of 32 KB, 4 ways, LRU: of the whole, and as samples estimate it (95 %), short inputs"
    );
    for program in programs {
        let tool = format!("--tool {library}");
        let (_, text) = record(folder, &tool, program, &program.short)?;
        let misses = count_of(&text, "4 ways, modulo, LRU");
        let whole = misses.zip(count_of(&text, "references")).map(|(m, n)| m / n.max(1.0));
        println!("{:<12} {:>10.6}", program.name, whole.unwrap_or(0.0));
        for (events, plan, warm_up) in PLANS {
            let flags = format!("{tool} --events {events} --sample {plan} --warm-up {warm_up}");
            let (_, text) = record(folder, &flags, program, &program.short)?;
            let samples = count_of(&text, "samples").unwrap_or(0.0);
            let Some((ratio, from, to)) = interval(&text, "4 ways, modulo, LRU") else {
                println!(
                    "  {events:<11} {plan:>10} warm-up {warm_up:<3} {samples:>8} samples: too few"
                );
                continue;
            };
            let inside = whole.is_some_and(|whole| from <= whole && whole <= to);
            let said = if inside { "holds it" } else { "does not hold it" };
            println!(
                "  {events:<11} {plan:>10} warm-up {warm_up:<3} {samples:>8} samples {ratio:>10.6}, {from:.6} to {to:.6} {said}"
            );
        }
    }
    Ok(())
}

/// The program's own time, where it is told.
fn own_time(text: &str) -> Option<f64> {
    match numbers_in(text)[..] {
        [_, _, _, _, _, _, own, system] => Some(own + system),
        _ => None,
    }
}

/// What is said of a key.
fn said<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let start = format!("ichnos:   {key}: ");
    text.lines().find_map(|line| line.strip_prefix(&start))
}

fn count_of(text: &str, key: &str) -> Option<f64> {
    said(text, key)?.split(", ratio").next()?.replace(',', "").parse().ok()
}

/// An estimated ratio, and the ends of its interval.
fn interval(text: &str, key: &str) -> Option<(f64, f64, f64)> {
    let (_, rest) = said(text, key)?.split_once("ratio ")?;
    let plain = rest.replace(',', "");
    let mut words = plain.split_whitespace();
    let mut number = |skip: usize| words.nth(skip)?.parse().ok();
    Some((number(0)?, number(0)?, number(1)?))
}
