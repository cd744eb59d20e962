//! `ichnos step`: the oracle.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::Result;

use crate::exit::Ending;
use crate::keep::KeepArgs;
use crate::live::Collector;

/// Trace a program by single stepping: slow, and right to the last reference.
///
/// Every thread and every child process is followed. The program's own exit
/// status is passed on; 2 means that ichnos itself failed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos step -- ls -l /usr
  ichnos step -o sort.ichnos --values -- sort /etc/passwd
  ichnos step -o none --limit 1M -- python3 -c 'print(1)'")]
pub struct Args {
    #[command(flatten)]
    keep: KeepArgs,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Ending> {
    args.keep.run(Some(Collector::Step), "stepping")
}
