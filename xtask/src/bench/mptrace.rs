//! The tables of the MPTRACE paper for programs built by `ichnos cc`: how much their code grows, and
//! how much longer they take, for each level of the planner.
//!
//! Times are processor time; the runs of all levels and of the program alone are made beside each other (`beside.rs`).
//! *Own* is the time that the traced program spends in its own code: what the inserted instructions
//! cost (the paper's table 5, without buffer management). *All* is the time of everybody, the
//! system and the tracer included, which changes and drops buffers (table 6). What is stored and
//! what is turned into records is measured on shorter inputs, because it takes longer: elapsed time over that of the program alone,
//! each the least of several runs, until the program has *ended*, until its file is *complete*, and until that if it is *waiting* for
//! it, without a spool. How long a program takes that is busy for seconds, while all that it stores goes to disk, is a table of its own.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::stored::Until;
use super::{beside, inputs, stored};
use crate::run;

const LEVELS: [&str; 5] = ["none", "block", "superblock", "procedural", "flow"];
/// How often each measurement is made.
const ROUNDS: usize = 3;

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All programs, on inputs of 2 to 10 seconds.
    Whole,
    /// The kernels, on short inputs.
    Quick,
}

/// A program: name, arguments of a short run, of one of some tenths of a second, and of a long one.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) file: PathBuf,
    pub(super) short: Vec<String>,
    middle: Vec<String>,
    pub(super) long: Vec<String>,
}

impl Program {
    /// A run of it behind the beginning of a command line.
    pub(super) fn command(&self, before: &[String], args: &[String]) -> Vec<String> {
        [before, &[self.file.to_string_lossy().into_owned()], args].concat()
    }
}

/// What was measured of a program at a level: times are ratios to those of the program alone.
#[derive(Clone, Copy, Default)]
struct Figures {
    raw: f64,
    sizes: [f64; 3],
    own: f64,
    all: f64,
}

/// A table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Only {
    /// Of what is stored.
    Stored,
    /// Of how long programs take that are busy for seconds.
    Ended,
}

/// What is asked for.
struct Plan {
    extent: Extent,
    /// The only table that is wanted.
    only: Option<Only>,
    /// Levels of the planner; all if none is named.
    levels: Vec<&'static str>,
    /// Names of programs; all if there are none.
    names: Vec<String>,
    /// How often what ends is measured.
    rounds: usize,
}

impl Plan {
    fn parse(args: &[String]) -> Result<Self> {
        let (levels, names) = (Vec::new(), Vec::new());
        let (extent, rounds) = (Extent::Whole, ROUNDS);
        let mut plan = Self { extent, only: None, levels, names, rounds };
        for arg in args {
            match LEVELS.iter().find(|level| *level == arg) {
                _ if arg == "--quick" => plan.extent = Extent::Quick,
                _ if arg == "--once" => plan.rounds = 1,
                _ if arg == "stored" => plan.only = Some(Only::Stored),
                _ if arg == "ended" => plan.only = Some(Only::Ended),
                Some(level) => plan.levels.push(level),
                None if arg.starts_with('-') => {
                    bail!(
                        "expected --quick, --once, `stored`, `ended`, a level ({}) or a program, found `{arg}`",
                        LEVELS.join(", ")
                    )
                }
                None => plan.names.push(arg.clone()),
            }
        }
        if plan.levels.is_empty() {
            plan.levels = LEVELS.to_vec();
        }
        Ok(plan)
    }

    /// The programs that are wanted; an error if a name is nobody's.
    fn choose(&self, programs: Vec<Program>) -> Result<Vec<Program>> {
        let all: Vec<_> = programs.iter().map(|program| program.name).collect();
        if let Some(name) = self.names.iter().find(|name| !all.contains(&name.as_str())) {
            bail!("`{name}` is no level and no program; programs: {}", all.join(", "));
        }
        let wanted = |program: &Program| self.names.iter().any(|name| name == program.name);
        Ok(programs.into_iter().filter(|p| self.names.is_empty() || wanted(p)).collect())
    }
}

/// Prints the tables: of all levels and programs, or of those named.
pub fn print(args: &[String]) -> Result<()> {
    let plan = Plan::parse(args)?;
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-cli"])?;
    let folder = run::root().join("target/bench/mptrace");
    std::fs::create_dir_all(&folder)?;
    inputs::write(&folder)?;
    let mut programs = kernels(&folder)?;
    if plan.extent == Extent::Whole {
        programs.extend(projects(&folder)?);
    }
    let programs = plan.choose(programs)?;
    match plan.only {
        Some(Only::Stored) => return stored(&folder, &programs),
        Some(Only::Ended) => return ended(&folder, &programs, &plan),
        None => {}
    }
    println!(
        "middle of {ROUNDS} rounds; dilation: processor time over native, all runs of a round beside each other\n"
    );
    expansion_heading(&plan.levels);
    let mut rows = Vec::new();
    for program in &programs {
        let args = if plan.extent == Extent::Whole { &program.long } else { &program.short };
        let (native, figures) = measure(&folder, (program, args), &plan.levels)?;
        print!("{:<12} {:>8}", program.name, figures[0].sizes[0]);
        for f in &figures {
            print!("  {:>5.2} {:>5.2}", f.sizes[1] / f.sizes[0], f.sizes[2] / f.sizes[0]);
        }
        println!();
        rows.push((program.name, native, figures));
    }
    dilation("own", &plan.levels, &rows, |f| f.own);
    dilation("all", &plan.levels, &rows, |f| f.all);
    stored(&folder, &programs)?;
    ended(&folder, &programs, &plan)
}

fn expansion_heading(levels: &[&str]) {
    println!("instructions of code, and how many times that: all of the copy, its mainline");
    print!("{:<12} {:>8}", "program", "original");
    levels.iter().for_each(|level| print!("  {level:>11}"));
    println!();
}

fn dilation(
    what: &str,
    levels: &[&str],
    rows: &[(&str, f64, Vec<Figures>)],
    of: impl Fn(&Figures) -> f64,
) {
    println!("\ndilation, {what}");
    print!("{:<12} {:>9}", "program", "native s");
    levels.iter().for_each(|level| print!(" {level:>11}"));
    println!();
    let mut products = vec![0.0; levels.len()];
    for (name, native, figures) in rows {
        print!("{name:<12} {native:>9.3}");
        for (figure, product) in figures.iter().zip(&mut products) {
            let ratio = of(figure);
            *product += ratio.max(1e-9).ln();
            print!(" {ratio:>11.2}");
        }
        println!();
    }
    print!("{:<12} {:>9}", "geomean", "");
    products.iter().for_each(|p| print!(" {:>11.2}", (p / rows.len().max(1) as f64).exp()));
    println!();
}

/// What is stored, and how fast records are made.
fn stored(folder: &Path, programs: &[Program]) -> Result<()> {
    println!(
        "\n{:<12} {:>9} {:>14} {:>7} {:>7} {:>7} {:>8} {:>7} {:>12}",
        "program",
        "native s",
        "instructions",
        "raw B",
        "bits",
        "ended",
        "complete",
        "waiting",
        "M records/s"
    );
    let file = folder.join("stored.ichnos");
    let count = [&ichnos()[..], &words("record --trace count --")].concat();
    let [spooled, waiting] = [storing(&file, ""), storing(&file, "--spool-limit 0")];
    let mut sums = [0.0; 6];
    for program in programs {
        let command = |before: &[String]| program.command(before, &program.middle);
        let mut least = [f64::MAX; 4];
        for _ in 0..ROUNDS {
            let (_, native) = stored::time(folder, &command(&[]), Until::Complete)?;
            let (_, waiting) = stored::time(folder, &command(&waiting), Until::Complete)?;
            let (ended, complete) = stored::time(folder, &command(&spooled), Until::Complete)?;
            for (least, time) in least.iter_mut().zip([native, ended, complete, waiting]) {
                *least = least.min(time);
            }
        }
        let native = least[0];
        let [ended, complete, waiting] = [1, 2, 3].map(|run: usize| least[run] / native);
        let bits = std::fs::metadata(&file)?.len() as f64 * 8.0;
        std::fs::remove_file(&file)?;
        let runs = beside::processor_times(folder, &[command(&dropping("flow")), command(&count)])?;
        let [(dropping, told), (counting, said)] = &runs[..] else { bail!("a run is missing") };
        let raw = Figures::of(told)?.raw;
        let [insns, references, ..] = numbers_in(said)[..] else { bail!("no counts in `{said}`") };
        // What is dropped is stored and taken as well, and the copies are made: the rest is turning words into records.
        let speed = (insns + references) / (counting - dropping).max(1e-9) / 1e6;
        println!(
            "{:<12} {native:>9.3} {insns:>14} {:>7.3} {:>7.3} {ended:>7.2} {complete:>8.2} {waiting:>7.2} {speed:>12.1}",
            program.name,
            raw / insns,
            bits / insns,
        );
        let found = [insns, raw, bits, ended.ln(), complete.ln(), waiting.ln()];
        sums.iter_mut().zip(found).for_each(|(sum, x)| *sum += x);
    }
    let [insns, raw, bits, ..] = sums;
    let mean = |ln: f64| (ln / programs.len().max(1) as f64).exp();
    let [ended, complete, waiting] = [sums[3], sums[4], sums[5]].map(mean);
    let (raw, bits) = (raw / insns, bits / insns);
    println!(
        "{:<12} {:>9} {insns:>14} {raw:>7.3} {bits:>7.3} {ended:>7.2} {complete:>8.2} {waiting:>7.2}",
        "all", ""
    );
    Ok(())
}

/// How long programs take that are busy for seconds: until they have ended, where what they stored is in memory, in the trace, or on
/// disk, and packing is interrupted then; and until all of it is on disk, for a trace that is packed later.
fn ended(folder: &Path, programs: &[Program], plan: &Plan) -> Result<()> {
    println!(
        "\nelapsed time until the program has ended, and until all is on disk that is packed later"
    );
    println!("{:<12} {:>9} {:>9} {:>7} {:>7}", "program", "native s", "later s", "ended", "later");
    let file = folder.join("stored.ichnos");
    let mut sums = [0.0; 2];
    for program in programs {
        let args = if plan.extent == Extent::Whole { &program.long } else { &program.short };
        let mut least = [f64::MAX; 3];
        for _ in 0..plan.rounds {
            let alone = program.command(&[], args);
            let (_, native) = stored::time(folder, &alone, Until::Complete)?;
            let recorded = program.command(&storing(&file, ""), args);
            let (ended, _) = stored::time(folder, &recorded, Until::Ended)?;
            let recorded = program.command(&storing(&file, "--pack later"), args);
            let (_, later) = stored::time(folder, &recorded, Until::Complete)?;
            stored::remove(&file)?;
            for (least, time) in least.iter_mut().zip([native, ended, later]) {
                *least = least.min(time);
            }
        }
        let [native, ended, later] = least;
        let ratios = [ended / native, later / native];
        let [ended, after] = ratios;
        println!("{:<12} {native:>9.3} {later:>9.3} {ended:>7.2} {after:>7.2}", program.name);
        sums.iter_mut().zip(ratios).for_each(|(sum, ratio)| *sum += ratio.ln());
    }
    let [ended, later] = sums.map(|sum| (sum / programs.len().max(1) as f64).exp());
    println!("{:<12} {:>9} {:>9} {ended:>7.2} {later:>7.2}", "geomean", "", "");
    Ok(())
}

/// The beginning of a command line that stores a trace.
fn storing(file: &Path, options: &str) -> Vec<String> {
    let line = format!("record -q {options} -o {} --", file.display());
    [&ichnos()[..], &words(&line)].concat()
}

/// Native time and the figures of some levels.
fn measure(
    folder: &Path,
    (program, args): (&Program, &[String]),
    levels: &[&str],
) -> Result<(f64, Vec<Figures>)> {
    let commands: Vec<_> = std::iter::once(program.command(&[], args))
        .chain(levels.iter().map(|level| program.command(&dropping(level), args)))
        .collect();
    let (mut all, mut own, mut figures) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let runs = beside::processor_times(folder, &commands)?;
        figures = runs[1..].iter().map(|(_, text)| Figures::of(text)).collect::<Result<_>>()?;
        all.push(runs.iter().map(|(time, _)| *time).collect::<Vec<_>>());
        let first = std::iter::once(runs[0].0);
        own.push(first.chain(figures.iter().map(|f: &Figures| f.own)).collect::<Vec<_>>());
    }
    let ((native, all), (_, own)) = (beside::middles(&all), beside::middles(&own));
    for ((figure, all), own) in figures.iter_mut().zip(all).zip(own) {
        (figure.all, figure.own) = (all, own);
    }
    Ok((native, figures))
}

/// The beginning of a command line that records and drops.
fn dropping(level: &str) -> Vec<String> {
    [&ichnos()[..], &words(&format!("record -o none --opt {level} --"))].concat()
}

impl Figures {
    /// What a run whose words were dropped says of itself.
    fn of(text: &str) -> Result<Self> {
        let numbers = numbers_in(text);
        let [raw, _, _, original, copy, mainline, own, _] = numbers[..] else {
            bail!("ichnos says `{}`", text.trim())
        };
        Ok(Self { raw, sizes: [original, copy, mainline], own, all: 0.0 })
    }
}

/// The numbers in the program's last line about itself.
pub(super) fn numbers_in(text: &str) -> Vec<f64> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("ichnos: ")).unwrap_or("");
    let plain = line.replace(',', "");
    plain.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

pub(super) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

pub(super) fn ichnos() -> [String; 1] {
    [run::root().join("target/release/ichnos").to_string_lossy().into_owned()]
}

/// The kernels, built.
pub(super) fn kernels(folder: &Path) -> Result<Vec<Program>> {
    let all = [
        ("fft", "gcc", "fft.c", ["2 14 4", "2 18 10", "2 18 50"]),
        (
            "lu",
            "gcc",
            "lu.c",
            ["2 160 16 contiguous", "2 1000 16 contiguous", "2 2000 16 contiguous"],
        ),
        ("lu rows", "gcc", "lu.c", ["2 160 16 rows", "2 1000 16 rows", "2 2000 16 rows"]),
        ("radix", "gcc", "radix.c", ["2 200000 1", "2 2000000 8", "2 2000000 40"]),
        ("ocean", "gcc", "ocean.c", ["2 127 10", "2 511 150", "2 511 1000"]),
        ("objects", "g++", "objects.cc", ["200", "20000", "120000"]),
        ("waves", "gfortran", "waves.f90", ["100 30", "300 500", "300 2500"]),
    ];
    let guests = run::root().join("crates/testkit/guests");
    let mut programs = Vec::new();
    for (name, compiler, source, args) in all {
        let file = folder.join(source.replace('.', "_"));
        let mut command = Command::new(&ichnos()[0]);
        command.args(["cc", "--", compiler, "-O2", "-pthread", "-o"]).arg(&file);
        run::check(command.arg(guests.join(source)).arg("-lm").current_dir(folder))?;
        let [short, middle, long] = args.map(words);
        programs.push(Program { name, file, short, middle, long });
    }
    Ok(programs)
}

/// The real projects, fetched and built.
pub(super) fn projects(folder: &Path) -> Result<Vec<Program>> {
    let script = run::root().join("crates/testkit/projects/build.sh");
    let compiler = format!("{} cc -- gcc", ichnos()[0]);
    let sql = |name: &str| vec![":memory:".to_owned(), format!(".read {name}.sql")];
    let all = [
        (
            "bzip2",
            ["-9kc short.txt", "-9kc long.txt", &format!("-9kc{}", " long.txt".repeat(10))]
                .map(words),
        ),
        ("lua", ["short.lua", "long.lua", "real.lua"].map(words)),
        ("sqlite3", ["short", "long", "real"].map(sql)),
        (
            "zstd",
            ["-q -9 -c short.txt", "-q -9 -c long.txt", "-q -19 -c long.txt long.txt"].map(words),
        ),
    ];
    let mut programs = Vec::new();
    for (name, [short, middle, long]) in all {
        let made = folder.join("projects").join(name);
        let file = made.join(name);
        if !file.exists() {
            let mut command = Command::new("sh");
            command.arg(&script).arg(folder.join("sources")).arg(name).arg(&made);
            run::check(command.args([&compiler, "-O2"]).env("ICHNOS_FETCH", "1"))
                .with_context(|| format!("cannot build {name}"))?;
        }
        programs.push(Program { name, file, short, middle, long });
    }
    Ok(programs)
}
