//! How much memory tracing takes: the largest resident sizes of all processes, by looking often.
//!
//! Memory that two processes share counts in both. What lives for less than the time between two looks is
//! not seen.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::inputs::{self, Size};

const BETWEEN: Duration = Duration::from_millis(2);

/// Prints the table.
pub fn print(folder: &Path, ichnos: &Path) -> Result<()> {
    println!("{:<10} {:>10} {:>10} {:>10}", "memory", "native MB", "engine", "dropped");
    for program in inputs::programs(Size::Long) {
        if !Path::new(&program.words[0]).exists() {
            continue;
        }
        let native = peak(Command::new(&program.words[0]).args(&program.words[1..]), folder)?;
        print!("{:<10} {:>10.1}", program.name, native as f64 / 1024.0);
        for trace in ["off", "drop"] {
            let mut command = Command::new(ichnos);
            command.args(["record", "--trace", trace, "--"]).args(&program.words);
            print!(" {:>10.2}", peak(&mut command, folder)? as f64 / native.max(1) as f64);
        }
        println!();
    }
    Ok(())
}

/// Kilobytes at most of a command and all it starts.
fn peak(command: &mut Command, folder: &Path) -> Result<u64> {
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().context("cannot start a program")?;
    let mut most: HashMap<u32, u64> = HashMap::new();
    while child.try_wait()?.is_none() {
        for pid in tree(child.id()) {
            let high = resident(pid).unwrap_or(0);
            let entry = most.entry(pid).or_default();
            *entry = high.max(*entry);
        }
        std::thread::sleep(BETWEEN);
    }
    Ok(most.values().sum())
}

/// A process and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut all = vec![root];
    let mut at = 0;
    while let Some(pid) = all.get(at) {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        all.extend(text.split_whitespace().filter_map(|w| w.parse::<u32>().ok()));
        at += 1;
    }
    all
}

fn resident(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
