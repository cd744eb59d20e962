//! The tables of "Efficient instruction cache simulation and execution
//! profiling with a threaded-code interpreter" (Magnusson 1997) for our
//! programs: what they are like, and how fast they run native, under QEMU, and
//! here without and with profiling.
//!
//! Times are processor time, the least of several interleaved runs; each program
//! takes about a tenth of a second on the host, so that a millisecond of the clock
//! is one in a hundred of the shortest. Native
//! programs are the host distribution's, the others Debian's riscv64 packages;
//! the two small ones are compiled here for both.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod apt;
mod plugin;
mod programs;
mod system;
mod traits;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run;
use programs::{Program, Set};
use system::System;
use traits::Traits;

/// How often each measurement is made.
pub const ROUNDS: usize = 3;
/// What takes more seconds than this is measured once.
const LONG: f64 = 5.0;

/// One level of caches, and a TLB with this many entries: (file, code, data, TLB).
type OneLevel = (&'static str, &'static str, &'static str, u32);

const ONE_LEVEL: [OneLevel; 3] = [
    // The paper's first configuration: caches that hold everything, a large TLB.
    (
        "endless.toml",
        "size = \"4M\", ways = 16, line = 64",
        "size = \"64M\", ways = 16, line = 64",
        1024,
    ),
    // Its second: a SuperSPARC's caches and TLB.
    (
        "supersparc.toml",
        "size = \"20K\", ways = 5, line = 64",
        "size = \"16K\", ways = 4, line = 32",
        64,
    ),
    // First-level caches of today, as QEMU's plugin simulates them, and the same TLB:
    // the row that is compared.
    (
        "first.toml",
        "size = \"32K\", ways = 8, line = 64",
        "size = \"32K\", ways = 8, line = 64",
        64,
    ),
];

/// The configuration file of one level.
fn toml((_, code, data, entries): OneLevel) -> String {
    format!(
        "[[level]]\nname = \"l1\"\ncode = {{ {code} }}\ndata = {{ {data} }}\n[[tlb]]\nname = \"tlb\"\n\
         unified = {{ entries = {entries}, ways = {entries}, replacement = \"fifo\" }}\n"
    )
}

/// Three levels, which are simulated when nothing is said.
const THREE_LEVELS: &str = "";

/// One way to run a program.
struct Way {
    name: &'static str,
    /// Whether its MIPS mean the guest's instructions.
    guest: bool,
    command: Box<dyn Fn(&Program) -> Command>,
}

/// Measures and prints.
pub fn print(rounds: usize) -> Result<()> {
    let folder = run::root().join("target/bench/simics");
    std::fs::create_dir_all(&folder)?;
    let set = programs::prepare(&folder)?;
    let ways = ways(&folder, &set)?;
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-cli"])?;
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-collect-rv64", "--example", "user"])?;
    let mut traits = Vec::new();
    for program in &set.programs {
        let mut command = profile(&set, "supersparc.toml", "table1.profile", program);
        run::check(command.stdout(Stdio::null()).stderr(Stdio::null()))
            .with_context(|| format!("cannot profile {}", program.name))?;
        let text = std::fs::read_to_string(folder.join("table1.profile"))?;
        traits.push(Traits::read(&text)?);
    }
    let times = measure(&set, &ways, rounds)?;
    first_table(&set, &traits, &times);
    second_table(&set, &traits, &ways, &times);
    match System::prepare(&set) {
        Ok(system) => system_rows(&set, &system, &ways, &times, rounds),
        Err(why) => {
            eprintln!("bench: no system mode: {why:#}");
            Ok(())
        }
    }
}

/// `ichnos sim --profile` with a configuration of the folder.
fn profile(set: &Set, config: &str, file: &str, program: &Program) -> Command {
    let mut command = super::size::ichnos();
    command.current_dir(&set.folder).args(["sim", "--profile", file]);
    if !config.is_empty() {
        command.args(["--config", config]);
    }
    command.arg("--sysroot").arg(&set.sysroot).arg("--").args(&program.guest);
    command
}

/// All ways to run a program, those that cannot be had left out.
fn ways(folder: &Path, set: &Set) -> Result<Vec<Way>> {
    for level in ONE_LEVEL {
        std::fs::write(folder.join(level.0), toml(level))?;
    }
    let mut ways = vec![Way {
        name: "native",
        guest: false,
        command: Box::new({
            let folder = folder.to_owned();
            move |program| words(&folder, &program.native)
        }),
    }];
    let qemu = |plugin: Option<String>| {
        let (folder, sysroot) = (folder.to_owned(), set.sysroot.clone());
        Box::new(move |program: &Program| {
            let mut command = Command::new("qemu-riscv64");
            command.current_dir(&folder).arg("-L").arg(&sysroot);
            if let Some(plugin) = &plugin {
                command.arg("-plugin").arg(plugin);
            }
            command.args(&program.guest);
            command
        })
    };
    if Path::new("/usr/bin/qemu-riscv64").exists() {
        ways.push(Way { name: "QEMU", guest: true, command: qemu(None) });
        match plugin::prepare(folder) {
            Ok(plugin) => {
                ways.push(Way { name: "QEMU, caches", guest: true, command: qemu(Some(plugin)) });
            }
            Err(why) => eprintln!("bench: no QEMU plugin: {why:#}"),
        }
    }
    let user = run::root().join("target/release/examples/user");
    let untraced = {
        let (folder, sysroot) = (folder.to_owned(), set.sysroot.clone());
        Box::new(move |program: &Program| {
            let mut command = Command::new(&user);
            command.current_dir(&folder).env("ICHNOS_SYSROOT", &sysroot).args(&program.guest);
            command
        })
    };
    ways.push(Way { name: "ichnos", guest: true, command: untraced });
    for (name, config) in [
        ("Sim 1", "endless.toml"),
        ("Sim 2", "supersparc.toml"),
        ("profiled", "first.toml"),
        ("three levels", THREE_LEVELS),
    ] {
        let set = set.clone();
        let command =
            Box::new(move |program: &Program| profile(&set, config, "bench.profile", program));
        ways.push(Way { name, guest: true, command });
    }
    let set = set.clone();
    let command = Box::new(move |program: &Program| {
        let mut command = super::size::ichnos();
        command.current_dir(&set.folder);
        command.args(["sim", "--interpret", "--profile", "bench.profile"]);
        command
            .args(["--config", "first.toml", "--sysroot"])
            .arg(&set.sysroot)
            .arg("--")
            .args(&program.guest);
        command
    });
    ways.push(Way { name: "interpreted", guest: true, command });
    Ok(ways)
}

fn words(folder: &Path, words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.current_dir(folder).args(&words[1..]);
    command
}

/// Seconds by program and way.
fn measure(set: &Set, ways: &[Way], rounds: usize) -> Result<Vec<Vec<f64>>> {
    let mut times = vec![vec![f64::INFINITY; ways.len()]; set.programs.len()];
    for _ in 0..rounds {
        for (program, row) in set.programs.iter().zip(&mut times) {
            for (way, best) in ways.iter().zip(row) {
                if best.is_finite() && *best > LONG {
                    continue;
                }
                let seconds = processor_seconds(&mut (way.command)(program))
                    .with_context(|| format!("{}, {}", program.name, way.name))?;
                *best = best.min(seconds);
            }
        }
    }
    Ok(times)
}

/// The processor time of a command, as bash tells it: to the millisecond, of which
/// every program takes a hundred or more on the host.
fn processor_seconds(command: &mut Command) -> Result<f64> {
    let mut bash = Command::new("bash");
    bash.args([
        "-c",
        "TIMEFORMAT='%3U %3S'; time \"$@\" >/dev/null 2>/dev/null </dev/null",
        "time",
    ]);
    bash.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        bash.current_dir(folder);
    }
    bash.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = bash.output()?;
    if !output.status.success() {
        bail!("it failed with {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let sum = text.split_whitespace().map(|word| word.parse::<f64>()).sum::<Result<f64, _>>();
    sum.with_context(|| format!("no time in \"{}\"", text.trim()))
}

fn row(name: &str, cells: impl Iterator<Item = String>) {
    print!("{name:<28}");
    cells.for_each(|cell| print!(" {cell:>11}"));
    println!();
}

fn first_table(set: &Set, traits: &[Traits], times: &[Vec<f64>]) {
    println!("Table 1: characteristics of the programs (caches and TLB of Sim 2)\n");
    row("", set.programs.iter().map(|p| p.name.to_owned()));
    let all = || traits.iter();
    let percent = |part: u64, whole: u64| format!("{:.3}%", 100.0 * part as f64 / whole as f64);
    row("Instructions (1000:s)", all().map(|t| (t.instructions / 1000).to_string()));
    row("Data cache miss rate", all().map(|t| percent(t.data_misses, t.references)));
    row("Instr. cache miss rate", all().map(|t| percent(t.code_misses, t.instructions)));
    row("Unique instructions", all().map(|t| t.unique.to_string()));
    row("Size of binary (Kbyte)", set.programs.iter().map(|p| p.kilobytes().to_string()));
    row("Instr:s per TLB miss", all().map(|t| (t.instructions / t.tlb_misses.max(1)).to_string()));
    row("Native execution (sec)", times.iter().map(|row| format!("{:.3}", row[0])));
    row("Branches taken (1000:s)", all().map(|t| (t.branches() / 1000).to_string()));
    for (n, name) in
        ["relative on page", "relative off page", "absolute on page", "absolute off page"]
            .into_iter()
            .enumerate()
    {
        row(&format!("  {name}"), all().map(|t| percent(t.taken[n], t.branches())));
    }
    println!();
}

fn second_table(set: &Set, traits: &[Traits], ways: &[Way], times: &[Vec<f64>]) {
    println!("Table 2: seconds, million instructions a second, and times native\n");
    row("", set.programs.iter().map(|p| p.name.to_owned()).chain(["geom. mean".to_owned()]));
    for (at, way) in ways.iter().enumerate() {
        row(&format!("{} (sec)", way.name), times.iter().map(|row| format!("{:.3}", row[at])));
        if way.guest {
            let mips = traits.iter().zip(times);
            row("  MIPS", mips.map(|(t, row)| format!("{:.0}", t.millions() / row[at])));
            compare("  x native", times, at, 0);
        }
    }
    let place = |name: &str| ways.iter().position(|way| way.name == name);
    if let (Some(qemu), Some(ours)) = (place("QEMU"), place("ichnos")) {
        compare("ichnos / QEMU", times, ours, qemu);
    }
    if let (Some(caches), Some(ours)) = (place("QEMU, caches"), place("profiled")) {
        compare("QEMU, caches / profiled", times, caches, ours);
    }
}

/// The programs inside a machine that is booted for each.
fn system_rows(
    set: &Set,
    system: &System,
    ways: &[Way],
    times: &[Vec<f64>],
    rounds: usize,
) -> Result<()> {
    let mut inside = vec![[f64::INFINITY; 2]; set.programs.len()];
    for _ in 0..rounds {
        for (program, best) in set.programs.iter().zip(&mut inside) {
            let runs = system.seconds(program);
            let runs = runs.with_context(|| format!("{}, system", program.name))?;
            best.iter_mut().zip(runs).for_each(|(best, run)| *best = best.min(run));
        }
    }
    println!("\nIn a whole machine, from the program's beginning to its end: cold, then again\n");
    let user = ways.iter().position(|way| way.name == "ichnos");
    for (at, name) in ["system mode", "again"].into_iter().enumerate() {
        row(&format!("{name} (sec)"), inside.iter().map(|runs| format!("{:.3}", runs[at])));
        if let Some(user) = user {
            let pairs = times.iter().zip(&inside);
            let rows: Vec<Vec<f64>> = pairs.map(|(row, runs)| vec![runs[at], row[user]]).collect();
            compare("  / user mode", &rows, 0, 1);
        }
    }
    Ok(())
}

/// The ratios of two ways, and their geometric mean.
fn compare(name: &str, times: &[Vec<f64>], one: usize, other: usize) {
    let ratios: Vec<f64> = times.iter().map(|row| row[one] / row[other]).collect();
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    let mean = (logs / ratios.len() as f64).exp();
    row(name, ratios.into_iter().chain([mean]).map(|ratio| format!("x{ratio:.2}")));
}
