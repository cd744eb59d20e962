//! What a live simulation of caches costs, beside Valgrind's cachegrind on the same programs.
//!
//! Two levels of the same size on both sides. Both times are of everybody involved, the program
//! included: seconds of processors added up, and seconds on the wall, in which ichnos uses a second processor if there is
//! one. Runs are taken in turn, and the least of each counts. The last column says whether the live counts
//! are those of a recorded trace, for the same programs on inputs of a tenth. pigz has two threads, which run at once here and in turn
//! under Valgrind; its counts are compared for one, because how the references of two meet in the shared level is chance.
//! Strength: real programs, some tenths of a second natively. Weakness: programs that run for minutes are not among them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::inputs::{self, Program, Size};
use super::size::ichnos;
use crate::run;

const ROUNDS: usize = 3;
const CACHES: [&str; 8] =
    ["--l1i", "32K,8,64", "--l1d", "32K,8,64", "--l2", "none", "--l3", "32M,16,64"];
const CACHEGRIND: [&str; 5] = [
    "--tool=cachegrind",
    "--cache-sim=yes",
    "--cachegrind-out-file=/dev/null",
    "--I1=32768,8,64",
    "--D1=32768,8,64",
];
const MIX: &str = include_str!("mix.c");
/// Hashes of strings are then no random numbers.
const PINNED: (&str, &str) = ("PYTHONHASHSEED", "0");

/// Seconds that a command took: of processors, and on the wall.
#[derive(Clone, Copy, Debug)]
struct Took {
    processor: f64,
    wall: f64,
}

const NEVER: Took = Took { processor: f64::MAX, wall: f64::MAX };

/// Prints the table.
pub fn print() -> Result<()> {
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-cli"])?;
    let folder = run::root().join("target/bench/live");
    std::fs::create_dir_all(&folder)?;
    inputs::write(&folder)?;
    println!(
        "{:<9} {:>8} {:>17} {:>17} {:>17}  counts",
        "", "native", "live sim", "cachegrind", "gain"
    );
    println!("{:<9} {:>8}{}", "program", "s", "    processor  wall".repeat(3));
    let mut products = [0.0; 2];
    let mut rows = 0.0;
    let short = programs(&folder, Size::Short)?;
    for (program, short) in programs(&folder, Size::Long)?.into_iter().zip(short) {
        if !Path::new(&program.words[0]).exists() {
            println!("{:<9} is not installed", program.name);
            continue;
        }
        let [native, live, cachegrind] = measured(&folder, &program)?;
        let gains = [cachegrind.processor / live.processor, cachegrind.wall / live.wall];
        let counts = if counts_agree(&folder, &short)? { "equal" } else { "DIFFERENT" };
        println!(
            "{:<9} {:>8.3} {:>11.2} {:>5.2} {:>11.2} {:>5.2} {:>11.2} {:>5.2}  {counts}",
            program.name,
            native.processor,
            live.processor,
            live.wall,
            cachegrind.processor,
            cachegrind.wall,
            gains[0],
            gains[1]
        );
        products.iter_mut().zip(gains).for_each(|(product, gain)| *product += gain.ln());
        rows += 1.0;
    }
    let [processor, wall] = products.map(|product: f64| (product / rows).exp());
    println!("{:<9} {:>56.2} {:>5.2}", "geomean", processor, wall);
    Ok(())
}

/// The programs that the comparison is about.
fn programs(folder: &Path, size: Size) -> Result<Vec<Program>> {
    let (text, turns, threads) = match size {
        Size::Short => ("short.txt", "4", 1),
        Size::Long => ("long.txt", "40", 2),
        Size::Whole => ("whole.txt", "120", 2),
    };
    std::fs::write(folder.join("mix.c"), MIX)?;
    run::check(Command::new("gcc").args(["-O2", "-o", "mix", "mix.c"]).current_dir(folder))?;
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    let mix = folder.join("mix").to_string_lossy().into_owned();
    let mut all = inputs::programs(size);
    all.retain(|program| ["bzip2", "sqlite3", "python3"].contains(&program.name));
    // Python does the same in each run only if it may look at the environment.
    all.iter_mut().for_each(|program| program.words.retain(|word| word != "-I"));
    let pigz = words(&format!("/usr/bin/pigz -p{threads} -kc {text}"));
    all.push(Program { name: "pigz", words: pigz });
    all.push(Program { name: "mix", words: vec![mix, turns.into()] });
    Ok(all)
}

/// A shell's words for all the programs on short inputs, one after the other.
pub fn one_after_the_other(folder: &Path) -> Result<String> {
    std::fs::create_dir_all(folder)?;
    inputs::write(folder)?;
    let quoted = |word: &String| format!("'{word}'");
    let mut script = format!("cd '{}'; export {}={}", folder.display(), PINNED.0, PINNED.1);
    for program in programs(folder, Size::Short)? {
        let words: Vec<_> = program.words.iter().map(quoted).collect();
        script += &format!("; {} >/dev/null 2>&1", words.join(" "));
    }
    Ok(script)
}

/// The least times of a program alone, simulated live, and under cachegrind.
fn measured(folder: &Path, program: &Program) -> Result<[Took; 3]> {
    let ichnos = ichnos().get_program().to_owned();
    let mut least = [NEVER; 3];
    for _ in 0..ROUNDS {
        let commands = [
            Vec::new(),
            [
                vec![ichnos.clone(), "sim".into()],
                CACHES.map(Into::into).to_vec(),
                vec!["--".into()],
            ]
            .concat(),
            [vec!["valgrind".into(), "-q".into()], CACHEGRIND.map(Into::into).to_vec()].concat(),
        ];
        for (before, least) in commands.iter().zip(&mut least) {
            let took = took(folder, before, &program.words)?;
            least.processor = least.processor.min(took.processor);
            least.wall = least.wall.min(took.wall);
        }
    }
    Ok(least)
}

fn took(folder: &Path, before: &[std::ffi::OsString], program: &[String]) -> Result<Took> {
    let mut bash = Command::new("bash");
    // The words are passed as arguments, so that nothing needs quoting.
    bash.args(["-c", "TIMEFORMAT='%U %S %R'; { time \"$@\" >/dev/null 2>&1; } 2>&1", "bash"]);
    bash.args(before)
        .args(program)
        .current_dir(folder)
        .stdin(Stdio::null())
        .env(PINNED.0, PINNED.1);
    let text = run::output(&mut bash)?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    match numbers[..] {
        [user, system, wall] => Ok(Took { processor: user + system, wall }),
        _ => anyhow::bail!("bash says `{}` instead of three times", text.trim()),
    }
}

/// Whether a live run counts what a recorded trace counts. What the vdso does depends on the time, so it is hidden from both. A shell takes the program's output
/// away, which would stand before the answer; it is counted, too.
fn counts_agree(folder: &Path, program: &Program) -> Result<bool> {
    // Where the two runs write must not differ: programs look at it.
    let silent = ["--", "/bin/sh", "-c", "exec \"$@\" >/dev/null 2>&1", "sh"];
    let mut live = ichnos();
    live.arg("sim").args(CACHES).args(["--json", "--no-vdso"]).args(silent).args(&program.words);
    let mut record = ichnos();
    record.args(["record", "-q", "--no-vdso", "-o", "live.ichnos"]).args(silent);
    record.args(&program.words).stdin(Stdio::null()).env(PINNED.0, PINNED.1);
    run::check(record.current_dir(folder))?;
    let mut stored = ichnos();
    stored.arg("sim").args(CACHES).args(["--json", "live.ichnos"]);
    let [stored, live] = [stored, live].map(|mut command| answer(command.current_dir(folder)));
    Ok(stored? == live?)
}

/// The answer of a simulation: the last line that it prints.
fn answer(command: &mut Command) -> Result<Value> {
    let text = run::output(command.stdin(Stdio::null()).env(PINNED.0, PINNED.1))?;
    let line = text.lines().last().context("no answer")?;
    Ok(serde_json::from_str(line)?)
}
