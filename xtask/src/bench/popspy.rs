//! What tracing unmodified executables costs: processor time of everybody involved, over that of
//! the program alone.
//!
//! Programs and inputs are the same in all columns of a part. The first part has inputs that
//! keep a program busy for two to ten seconds; the second has short ones, because Valgrind's tools and
//! whatever looks at every record take a hundred times as long. Each figure is the middle of several
//! rounds, whose runs are made beside each other (`beside.rs`), or in turn where elapsed time counts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::inputs::{self, Size};
use super::{beside, memory, stored};
use crate::run;

/// What takes longer than this is measured once.
const LONG: f64 = 30.0;

/// What is measured, and how.
struct Plan {
    /// How often each measurement is made.
    rounds: usize,
    /// Elapsed time counts instead of processor time.
    elapsed: bool,
    /// The parts that are wanted; all if none is named.
    parts: Vec<String>,
}

impl Plan {
    fn parse(args: &[String]) -> Result<Self> {
        let mut plan = Self { rounds: 3, elapsed: false, parts: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--rounds" => {
                    let count = args.next().context("--rounds needs a number")?;
                    plan.rounds = count.parse().context("--rounds needs a number")?;
                }
                "--elapsed" => plan.elapsed = true,
                "long" | "stored" | "waiting" | "short" | "start" | "memory" => {
                    plan.parts.push(arg.clone());
                }
                other => bail!(
                    "expected --rounds N, --elapsed, long, stored, waiting, short, start or memory, found `{other}`"
                ),
            }
        }
        Ok(plan)
    }

    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|p| p == part)
    }
}

/// A way to run a program: a name, and the words before it.
struct Mode {
    name: &'static str,
    words: Vec<String>,
}

/// Prints the tables.
pub fn print(args: &[String]) -> Result<()> {
    let plan = Plan::parse(args)?;
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-cli"])?;
    let folder = run::root().join("target/bench/popspy");
    std::fs::create_dir_all(&folder)?;
    inputs::write(&folder)?;
    let what = if plan.elapsed { "elapsed time" } else { "processor time" };
    println!("{what} over native, the middle of {} rounds (one if it takes long)\n", plan.rounds);
    if plan.wants("long") {
        part(&folder, Size::Whole, &cheap_modes(), &plan)?;
        println!();
    }
    if plan.wants("stored") {
        stored::print(&folder, &ichnos(), plan.rounds)?;
        println!();
    }
    if plan.wants("waiting") {
        stored::print_waiting(&folder, &ichnos(), plan.rounds)?;
        println!();
    }
    if plan.wants("short") {
        part(&folder, Size::Short, &dear_modes(), &plan)?;
        println!();
    }
    if plan.wants("start") {
        start_up(&folder)?;
        println!();
    }
    if plan.wants("memory") {
        memory::print(&folder, &ichnos())?;
    }
    Ok(())
}

fn ichnos() -> PathBuf {
    run::root().join("target/release/ichnos")
}

fn mode(name: &'static str, words: &[&str]) -> Mode {
    Mode { name, words: words.iter().map(|w| (*w).to_owned()).collect() }
}

fn cheap_modes() -> Vec<Mode> {
    let ichnos = ichnos().to_string_lossy().into_owned();
    vec![
        mode("engine", &[&ichnos, "record", "--trace", "off", "--"]),
        mode("dropped", &[&ichnos, "record", "--trace", "drop", "--"]),
    ]
}

fn dear_modes() -> Vec<Mode> {
    let ichnos = ichnos().to_string_lossy().into_owned();
    let mut modes = vec![
        mode("engine", &[&ichnos, "record", "--trace", "off", "--"]),
        mode("dropped", &[&ichnos, "record", "--trace", "drop", "--"]),
        mode("live sim", &[&ichnos, "sim", "--collector", "exec", "--"]),
    ];
    if Path::new("/usr/bin/valgrind").exists() {
        let tools: [(&str, &[&str]); 3] = [
            ("vg none", &["--tool=none"]),
            (
                "vg cachegr",
                &["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"],
            ),
            ("vg lackey", &["--tool=lackey", "--trace-mem=yes"]),
        ];
        for (name, words) in tools {
            let mut all = vec!["valgrind", "-q"];
            all.extend(words);
            modes.push(mode(name, &all));
        }
    }
    modes
}

/// Measures and prints one table.
fn part(folder: &Path, size: Size, modes: &[Mode], plan: &Plan) -> Result<()> {
    print!("{:<10} {:>9}", "program", "native s");
    modes.iter().for_each(|m| print!(" {:>10}", m.name));
    println!();
    let mut products = vec![0.0; modes.len()];
    let mut rows = 0;
    for program in inputs::programs(size) {
        if !Path::new(&program.words[0]).exists() {
            println!("{:<10} is not installed", program.name);
            continue;
        }
        let (native, ratios) = row(folder, &program.words, modes, plan)?;
        print!("{:<10} {native:>9.3}", program.name);
        for (ratio, product) in ratios.iter().zip(&mut products) {
            print!(" {ratio:>10.2}");
            *product += ratio.ln();
        }
        println!();
        rows += 1;
    }
    print!("{:<10} {:>9}", "geomean", "");
    for product in products {
        print!(" {:>10.2}", (product / f64::from(rows)).exp());
    }
    println!();
    Ok(())
}

/// A program's time alone, and how many times that it takes under each mode.
fn row(folder: &Path, program: &[String], modes: &[Mode], plan: &Plan) -> Result<(f64, Vec<f64>)> {
    let before = std::iter::once(&[][..]).chain(modes.iter().map(|mode| &mode.words[..]));
    let commands: Vec<_> = before.map(|words| [words, program].concat()).collect();
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    let lasts = |round: &Vec<f64>| round.iter().any(|time| *time >= LONG);
    while rounds.len() < plan.rounds && !rounds.iter().any(lasts) {
        rounds.push(if plan.elapsed {
            commands.iter().map(|words| elapsed(folder, words)).collect::<Result<_>>()?
        } else {
            let runs = beside::processor_times(folder, &commands)?;
            runs.into_iter().map(|(time, _)| time).collect()
        });
    }
    Ok(beside::middles(&rounds))
}

/// Seconds that a command takes.
fn elapsed(folder: &Path, words: &[String]) -> Result<f64> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {}", words[0]))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(start.elapsed().as_secs_f64())
}

/// How long it takes to start the smallest program.
fn start_up(folder: &Path) -> Result<()> {
    let ichnos = ichnos();
    let wall = |words: &[&str]| -> Result<Duration> {
        let mut least = Duration::MAX;
        for _ in 0..20 {
            let mut command = Command::new(&ichnos);
            command.args(words);
            if words.is_empty() {
                command = Command::new("/bin/true");
            }
            command.current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
            let start = Instant::now();
            command.status().context("cannot start a program")?;
            least = least.min(start.elapsed());
        }
        Ok(least)
    };
    let native = wall(&[])?;
    let engine = wall(&["record", "--trace", "off", "--", "/bin/true"])?;
    let dropped = wall(&["record", "--trace", "drop", "--", "/bin/true"])?;
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "start-up of `true`, elapsed: native {:.1} ms, engine alone {:.1} ms, traced and dropped {:.1} ms",
        ms(native),
        ms(engine),
        ms(dropped)
    );
    Ok(())
}
