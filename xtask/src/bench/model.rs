//! How fast models run with the reading of a stored trace included, and how much
//! memory they take.
//!
//! There are two traces of about 1 G references each (fetches, loads and stores), recorded once
//! and kept in `target/bench`: of bzip2 compressing 1.5 MB, and of the five programs of the live benchmark, one after
//! the other. Processor time is that of the whole `ichnos` process, reading, unpacking and model together; elapsed
//! time is shorter where they run side by side. Strength: real programs and
//! nothing left out. Weakness: most rows are of one program, whose block sorting is hard on both the
//! unpacker and the caches; only the first is of the others, too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::live;
use super::size::{ichnos, inputs};
use crate::run;

/// What one process took.
struct Cost {
    processor: f64,
    elapsed: f64,
    /// The most memory it held at once, in MiB.
    memory: f64,
}

const CACHES: &str = "--l1i 32K,8,64 --l1d 32K,8,64 --l2 1M,16,64 --l3 32M,16,64";
const ONE: &str = "--sweep l1d.size=32K,l1d.ways=8";
const MANY: &str = "--sweep l1d.size=8K..1M,l1d.ways=1,2,4,8,16,32,64,128";

/// Prints the speed of models over a stored trace of about 1 G references.
pub fn file() -> Result<()> {
    let folder = prepared()?;
    let text = fs::read(folder.join("input.txt"))?;
    let half = text.get(..1_500_000).context("the input is too short")?;
    fs::write(folder.join("half.txt"), half)?;
    let trace = recorded(&folder, "gigaref", &["bzip2", "-9", "-c", "half.txt"])?;
    let (insns, data) = counts(&trace)?;
    let all = insns + data;
    println!("bzip2: {insns} instructions, {data} loads and stores: {all} references");
    let script = live::one_after_the_other(&folder.join("live"))?;
    let five = recorded(&folder, "five", &["/bin/sh", "-c", &script])?;
    let (insns, of_five) = counts(&five)?;
    let all_five = insns + of_five;
    println!(
        "five programs: {insns} instructions, {of_five} loads and stores: {all_five} references\n"
    );
    println!("{:<44} {:>9} {:>9} {:>9} {:>9}", "", "M refs/s", "M refs/s", "seconds", "MiB");
    println!("{:<44} {:>9} {:>9} {:>9} {:>9}", "", "of a core", "elapsed", "of a core", "peak");
    let measure_on = |trace: &Path, name: &str, words: &str, refs: u64| -> Result<f64> {
        let cost = best_of(3, words, trace)?;
        let rate = |seconds: f64| refs as f64 / 1e6 / seconds;
        let (core, elapsed) = (rate(cost.processor), rate(cost.elapsed));
        let Cost { processor, memory, .. } = cost;
        println!("{name:<44} {core:>9.1} {elapsed:>9.1} {processor:>9.2} {memory:>9.1}");
        Ok(processor)
    };
    let levels = format!("sim -j 1 {CACHES}");
    measure_on(&five, "five programs: l1i+l1d+l2+l3, one processor", &levels, all_five)?;
    let measure = |name: &str, words: &str, refs: u64| measure_on(&trace, name, words, refs);
    measure("bzip2: l1i+l1d+l2+l3, one processor", &levels, all)?;
    measure("l1i+l1d+l2+l3, two processors", &format!("sim -j 2 {CACHES}"), all)?;
    let one = measure("one LRU data cache", &format!("sim -j 1 {ONE}"), all)?;
    let many = measure("64 LRU data caches, one pass", &format!("sim -j 1 {MANY}"), all)?;
    measure("exact reuse distances, data only", "locality --show curve", data)?;
    measure("... of all references", "locality --show curve --references all", all)?;
    measure(
        "samples apart, 1 % of the trace",
        &format!("sim --sample 100M:1M:9M --apart {CACHES}"),
        all,
    )?;
    println!("\n64 caches cost {:.2} times one", many / one);
    Ok(())
}

/// Records ten thousand million instructions, simulates them, and prints the
/// memory that took.
pub fn long() -> Result<()> {
    let folder = prepared()?;
    let text = fs::read(folder.join("input.txt"))?;
    fs::write(folder.join("long.txt"), text.repeat(LONG_COPIES))?;
    let trace = recorded(&folder, "long", &["md5sum", "long.txt"])?;
    let (insns, data) = counts(&trace)?;
    println!(
        "{insns} instructions, {data} loads and stores, {} bytes",
        fs::metadata(&trace)?.len()
    );
    for words in [format!("sim -j 1 {CACHES}"), format!("sim -j 1 --tlb --branch tage {CACHES}")] {
        let cost = best_of(1, &words, &trace)?;
        println!(
            "{words}: {:.1} s of a core, {:.1} s elapsed, {:.1} M references/s of a core, peak {:.1} MiB",
            cost.processor,
            cost.elapsed,
            (insns + data) as f64 / 1e6 / cost.processor,
            cost.memory
        );
    }
    Ok(())
}

/// So many copies of the input make md5sum run for over 10 G instructions.
const LONG_COPIES: usize = 420;

/// The folder with the inputs, and a release build.
fn prepared() -> Result<PathBuf> {
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-cli"])?;
    let folder = run::root().join("target/bench");
    fs::create_dir_all(&folder)?;
    inputs(&folder)?;
    Ok(folder)
}

/// A recorded trace, made if it is not there yet.
fn recorded(folder: &Path, name: &str, words: &[&str]) -> Result<PathBuf> {
    let path = folder.join(format!("{name}.ichnos"));
    if !path.exists() {
        let part = folder.join(format!("{name}.part"));
        let mut record = ichnos();
        record.args(["record", "-q", "-o"]).arg(&part).arg("--").args(words);
        run::check(record.current_dir(folder).stdout(Stdio::null()))?;
        fs::rename(part, &path)?;
    }
    Ok(path)
}

/// The instructions, and the loads and stores, of a trace.
fn counts(trace: &Path) -> Result<(u64, u64)> {
    let mut info = ichnos();
    info.args(["info", "--json"]).arg(trace);
    let info: Value = serde_json::from_str(&run::output(&mut info)?)?;
    let count = |key: &str| info[key].as_u64().unwrap_or(0);
    Ok((count("instructions"), count("loads") + count("stores")))
}

/// The least of several runs of `ichnos` with these words.
fn best_of(runs: usize, words: &str, trace: &Path) -> Result<Cost> {
    let mut best = Cost { processor: f64::MAX, elapsed: f64::MAX, memory: 0.0 };
    for _ in 0..runs {
        let cost = cost(ichnos().args(words.split(' ')).arg(trace))?;
        best.processor = best.processor.min(cost.processor);
        best.elapsed = best.elapsed.min(cost.elapsed);
        best.memory = best.memory.max(cost.memory);
    }
    Ok(best)
}

fn cost(command: &mut Command) -> Result<Cost> {
    let (before, start) = (children_seconds()?, Instant::now());
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let memory = watched(&mut child)?;
    let elapsed = start.elapsed().as_secs_f64();
    Ok(Cost { processor: children_seconds()? - before, elapsed, memory })
}

/// Waits for a process; its greatest memory in MiB, which only grows, as last seen.
fn watched(child: &mut Child) -> Result<f64> {
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0.0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        most = kib.map_or(most, |kib| kib / 1024.0);
        match child.try_wait()? {
            Some(end) if end.success() => return Ok(most),
            Some(end) => bail!("ichnos failed with {end}"),
            None => sleep(Duration::from_millis(20)),
        }
    }
}

/// The processor time of all children that ended, in seconds.
fn children_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // The program's name, in brackets, may hold anything; fields 16 and 17 of
    // proc(5), in ticks of 1/100 s, are the 14th and 15th behind it.
    let (_, fields) = text.rsplit_once(')').context("/proc/self/stat has no name")?;
    let ticks = |at: usize| fields.split_whitespace().nth(at)?.parse::<f64>().ok();
    Ok((ticks(13).unwrap_or(0.0) + ticks(14).unwrap_or(0.0)) / 100.0)
}
