//! How many instructions Valgrind's callgrind and cachegrind counted.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::Path;
use std::process::{self, Command, Stdio};

/// Which of the two counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// Callgrind: counts a block when the next one begins.
    Callgrind,
    /// Cachegrind: counts every instruction.
    Cachegrind,
}

/// Runs a program under Valgrind and answers its instruction total (`Ir`).
///
/// # Panics
///
/// If Valgrind does not run, or its output has no total.
#[must_use]
pub fn run(tool: Tool, program: &Path, args: &[&str], env: &[(&str, &str)]) -> u64 {
    let name = match tool {
        Tool::Callgrind => "callgrind",
        Tool::Cachegrind => "cachegrind",
    };
    let file = program.with_extension(format!("{name}-{}", process::id()));
    let status = Command::new("valgrind")
        .args([&format!("--tool={name}"), "-q", "--vex-guest-chase=no"])
        .stderr(Stdio::null())
        .arg(format!("--{name}-out-file={}", file.display()))
        .arg(program)
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("valgrind runs");
    assert!(status.code().is_some(), "valgrind: {status}");
    let text = fs::read_to_string(&file).expect("Valgrind wrote its file");
    fs::remove_file(&file).expect("the file is ours");
    total(&text).expect("Valgrind wrote a total")
}

/// The first total of a callgrind or cachegrind file: instructions.
#[must_use]
pub fn total(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("summary:").or_else(|| line.strip_prefix("totals:")))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        assert_eq!(total("events: Ir\nfn=(1)\n1 2\nsummary: 1234\n"), Some(1234));
        assert_eq!(total("events: Ir\n"), None);
    }
}
