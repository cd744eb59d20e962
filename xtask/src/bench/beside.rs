//! Runs that are made at the same time on one processor, so that what disturbs one disturbs all.
//!
//! A shared machine's speed changes by a factor of two from one second to the next, so that runs which follow each
//! other cannot be compared, however many there are. Runs beside each other change places every few milliseconds.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Processor time of a command and all it starts, and what it says on standard error.
pub fn processor_time(folder: &Path, command: &[String]) -> Result<(f64, String)> {
    let mut bash = Command::new("bash");
    // The words are passed as arguments, so that nothing needs quoting.
    bash.args(["-c", "TIMEFORMAT='took %U %S'; time \"$@\" >/dev/null", "bash"]);
    bash.args(command).current_dir(folder).stdin(Stdio::null());
    let output = bash.output().context("bash cannot be run")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("{bash:?} failed: {text}");
    }
    let line = text.lines().rev().find_map(|line| line.strip_prefix("took "));
    let times: Vec<f64> =
        line.unwrap_or("").split_whitespace().filter_map(|w| w.parse().ok()).collect();
    match times[..] {
        [user, system] => Ok((user + system, text)),
        _ => bail!("bash says `{}` instead of two times", text.trim()),
    }
}

/// The same of several commands at the same time, on one processor.
pub fn processor_times(folder: &Path, commands: &[Vec<String>]) -> Result<Vec<(f64, String)>> {
    let pinned = ["taskset".to_owned(), "-c".to_owned(), last_processor()?];
    std::thread::scope(|scope| {
        let runs: Vec<_> = commands
            .iter()
            .map(|command| [&pinned[..], command].concat())
            .map(|line| scope.spawn(move || processor_time(folder, &line)))
            .collect();
        let joined = runs.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|run| run.unwrap_or_else(|_| bail!("a run was lost"))).collect()
    })
}

/// The last processor that may be used: interrupts tend to come to the first.
fn last_processor() -> Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = list.and_then(|list| list.trim().rsplit([',', '-']).next());
    Ok(last.unwrap_or("0").to_owned())
}

/// Of rounds with equally many times: the middle time of the first run, and the middle ratio to it of each other one.
pub fn middles(rounds: &[Vec<f64>]) -> (f64, Vec<f64>) {
    let runs = rounds.iter().map(Vec::len).min().unwrap_or(0);
    let base = |round: &[f64]| round[0].max(0.001);
    let of = |run: usize| middle(rounds.iter().map(|round| round[run] / base(round)).collect());
    (middle(rounds.iter().map(|round| base(round)).collect()), (1..runs).map(of).collect())
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}
