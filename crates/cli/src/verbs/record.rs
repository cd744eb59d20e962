//! `ichnos record`: a trace without stepping.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::Result;

use crate::exit::Ending;
use crate::keep::KeepArgs;
use crate::live::Collector;

/// Trace a program as it runs from a code cache; riscv64 programs in the simulator.
///
/// Any x86-64 executable as it is, with its libraries, threads and children. The
/// program's own exit status is passed on; 2 means that ichnos itself failed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos record -- ls -lR /usr/share
  ichnos record -o none -- bzip2 -k big.txt
  ichnos record --sysroot /usr/riscv64-linux-gnu -- ./prog.riscv")]
pub struct Args {
    #[command(flatten)]
    keep: KeepArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Ending> {
    args.keep.run(Collector::Exec, "recording")
}
