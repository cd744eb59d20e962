//! What developers run: `cargo xtask setup|test|tidy|bench|isa-tests|ci`.
//!
//! Owns the order of the steps and nothing else; each step is a file. `.ci/run`
//! and the README call these same commands, so there is one way to do a thing.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks to its user"
)]

mod bench;
mod isa_tests;
mod packages;
mod run;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
What developers of ichnos run.

Usage: cargo xtask COMMAND

Commands:
  setup          install the Debian packages that the tests use, when missing
  test [ARGS]    setup, then every test; ARGS go to `cargo test`
                 (example: cargo xtask test -p ichnos-trace)
  tidy           crate arrows, file headers, the unsafe list, file sizes, words
  bench [NAME]   measurements, printed as tables; no NAME lists them
  isa-tests DIR  the public RISC-V instruction tests, from a checkout, on the simulator
  ci             test, then format, clippy, documentation and tidy
";

fn main() -> ExitCode {
    match dispatch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn dispatch() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let command = args.next();
    let rest: Vec<String> = args.collect();
    std::env::set_current_dir(run::root())?;
    match command.as_deref() {
        Some("setup") => packages::setup(),
        Some("test") => packages::setup().and_then(|()| test::all(&rest)),
        Some("tidy") => tidy::all(),
        Some("bench") => bench::dispatch(&rest),
        Some("isa-tests") => isa_tests::all(&rest),
        Some("ci") => ci(),
        None | Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => bail!("there is no command `{other}`; `cargo xtask help` lists them"),
    }
}

fn ci() -> Result<()> {
    packages::setup()?;
    test::all(&[])?;
    run::cargo(&["fmt", "--all", "--check"])?;
    run::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    run::documentation()?;
    tidy::all()
}
