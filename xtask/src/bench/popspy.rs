//! What tracing unmodified executables costs: processor time of everybody involved, over that of
//! the program alone.
//!
//! Programs and inputs are the same in all columns of a part. The first part has inputs that
//! keep a program busy for some tenths of a second; the second has short ones, because Valgrind's tools and
//! whatever looks at every record take a hundred times as long. Each figure is the least of several
//! runs, taken in turn.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::inputs::{self, Size};
use super::memory;
use crate::run;

/// How often each measurement is made.
const ROUNDS: usize = 3;
/// What takes longer than this is measured once.
const LONG: f64 = 5.0;

/// A way to run a program: a name, and the words before it.
struct Mode {
    name: &'static str,
    words: Vec<String>,
}

/// Prints the tables.
pub fn print() -> Result<()> {
    run::cargo(&["build", "--release", "-q", "-p", "ichnos-cli"])?;
    let folder = run::root().join("target/bench/popspy");
    std::fs::create_dir_all(&folder)?;
    inputs::write(&folder)?;
    println!("processor time over native, the least of {ROUNDS} runs (one if it takes long)\n");
    part(&folder, Size::Long, &cheap_modes())?;
    println!();
    part(&folder, Size::Short, &dear_modes(&folder))?;
    println!();
    start_up(&folder)?;
    println!();
    memory::print(&folder, &ichnos())
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

fn dear_modes(folder: &Path) -> Vec<Mode> {
    let ichnos = ichnos().to_string_lossy().into_owned();
    let file = folder.join("stored.ichnos").to_string_lossy().into_owned();
    let mut modes = vec![
        mode("stored", &[&ichnos, "record", "-q", "-o", &file, "--"]),
        mode("live sim", &[&ichnos, "sim", "--collector", "exec", "--"]),
    ];
    if Path::new("/usr/bin/valgrind").exists() {
        let tools: [(&str, &[&str]); 3] = [
            ("vg none", &["--tool=none"]),
            (
                "vg cachegr",
                &["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"],
            ),
            ("vg lackey", &["--tool=lackey"]),
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
fn part(folder: &Path, size: Size, modes: &[Mode]) -> Result<()> {
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
        let (native, times) = row(folder, &program.words, modes)?;
        print!("{:<10} {native:>9.3}", program.name);
        for (time, product) in times.iter().zip(&mut products) {
            print!(" {:>10.2}", time / native);
            *product += (time / native).ln();
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

/// The least times of a program: alone, and under each mode.
fn row(folder: &Path, program: &[String], modes: &[Mode]) -> Result<(f64, Vec<f64>)> {
    let mut native = f64::MAX;
    let mut least = vec![f64::MAX; modes.len()];
    for round in 0..ROUNDS {
        native = native.min(processor_time(folder, &[], program)?);
        for (mode, time) in modes.iter().zip(&mut least) {
            if round == 0 || *time < LONG {
                *time = time.min(processor_time(folder, &mode.words, program)?);
            }
        }
    }
    Ok((native, least))
}

/// Seconds of processor time that a command and all it starts take.
fn processor_time(folder: &Path, before: &[String], program: &[String]) -> Result<f64> {
    let mut bash = Command::new("bash");
    // The words are passed as arguments, so that nothing needs quoting.
    bash.args(["-c", "TIMEFORMAT='%U %S'; { time \"$@\" >/dev/null 2>&1; } 2>&1", "bash"]);
    bash.args(before).args(program).current_dir(folder).stdin(Stdio::null());
    let text = run::output(&mut bash)?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    match numbers[..] {
        [user, system] => Ok(user + system),
        _ => anyhow::bail!("bash says `{}` instead of two times", text.trim()),
    }
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
