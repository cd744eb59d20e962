//! What Valgrind's lackey saw: `--trace-mem=yes`, parsed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use ichnos_base::GuestVa;

/// One line of lackey's trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// What was done.
    pub op: Op,
    /// Where.
    pub addr: GuestVa,
    /// How many bytes.
    pub size: u32,
}

/// What a line tells of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// An instruction, or one iteration of a repeated one.
    Insn,
    /// A load.
    Load,
    /// A store.
    Store,
    /// A load and a store of the same bytes.
    Modify,
}

/// Parses one line; `None` for what is not part of the trace.
#[must_use]
pub fn parse(line: &str) -> Option<Line> {
    let op = match line.get(..3)? {
        "I  " => Op::Insn,
        " L " => Op::Load,
        " S " => Op::Store,
        " M " => Op::Modify,
        _ => return None,
    };
    let (addr, size) = line.get(3..)?.split_once(',')?;
    let addr = GuestVa(u64::from_str_radix(addr, 16).ok()?);
    Some(Line { op, addr, size: size.trim_end().parse().ok()? })
}

/// Lackey, told to say nothing, in this environment and no other; what follows is more
/// options, the program and its arguments.
#[must_use]
pub fn command(env: &[(&str, &str)]) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=lackey", "--basic-counts=no", "-q"]).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).envs(env.iter().copied());
    command
}

/// Runs a program under lackey and answers its trace.
///
/// # Panics
///
/// If Valgrind does not run, or the log cannot be read.
#[must_use]
pub fn run(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Vec<Line> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let log = std::env::temp_dir().join(format!("ichnos-lackey-{}-{number}", process::id()));
    let status = command(env)
        // Optimised, Valgrind drops loads whose results nobody uses; chasing
        // branches, it turns `a && b` into code that evaluates both, and lackey
        // counts the instructions of `b` even if they are jumped over.
        .arg("--trace-mem=yes")
        .args(["--vex-iropt-level=0", "--vex-guest-chase=no"])
        .arg(format!("--log-file={}", log.display()))
        .arg(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("valgrind runs");
    assert!(status.code().is_some(), "valgrind: {status}");
    let text = fs::read_to_string(&log).expect("valgrind wrote its log");
    fs::remove_file(&log).expect("the log is ours");
    text.lines().filter_map(parse).collect()
}

/// The environment that a program has under lackey if Valgrind itself is given `env`:
/// Valgrind, and the script that some systems put before it, add variables. In order.
///
/// # Panics
///
/// If Valgrind or `env` does not run.
#[must_use]
pub fn environment(env: &[(&str, &str)]) -> Vec<(String, String)> {
    let output =
        command(env).args(["env", "-0"]).stderr(Stdio::null()).output().expect("valgrind runs");
    let text = String::from_utf8(output.stdout).expect("the environment is text");
    let variables = text.split_terminator('\0').filter_map(|line| line.split_once('='));
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let line = |op, addr, size| Some(Line { op, addr: GuestVa(addr), size });
        assert_eq!(parse("I  04016b00,3"), line(Op::Insn, 0x0401_6b00, 3));
        assert_eq!(parse(" M 1ffeffe7e0,8"), line(Op::Modify, 0x1f_feff_e7e0, 8));
        assert_eq!(parse("==123== Lackey"), None);
        assert_eq!(parse(" L zz,8"), None);
        assert_eq!(parse(""), None);
    }
}
