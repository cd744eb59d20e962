//! `ichnos record`: a trace without stepping.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::Result;

use crate::choice::ChoiceArgs;
use crate::count;
use crate::exit::Ending;
use crate::keep::KeepArgs;
use crate::live::Bare;
use crate::spooling::SpoolArgs;

/// Trace a program as it runs from a code cache; riscv64 programs in the simulator.
///
/// Any x86-64 executable as it is, with its libraries, threads and children. The
/// program's own exit status is passed on; 2 means that ichnos itself failed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos record -- ls -lR /usr/share
  ichnos record --sample 10M:100K -- bzip2 -k big.txt
  ichnos record --every 1s --for 10ms -- ./built-by-ichnos-cc
  ichnos record -o none -- bzip2 -k big.txt
  ichnos record --trace off -- bzip2 -k big.txt
  ichnos record --sysroot /usr/riscv64-linux-gnu -- ./prog.riscv")]
pub struct Args {
    /// What becomes of the trace; for measuring what tracing costs.
    #[arg(long, value_enum, default_value_t, conflicts_with_all = ["output", "values"])]
    trace: Trace,
    /// Let a library of yours (`docs/MODELS.md`) see what is recorded, and say what it found; no file is written.
    /// Where parts are recorded, its counts come with confidence intervals.
    #[arg(long, value_name = "LIB[:ARGS]", conflicts_with_all = ["output", "values", "trace"])]
    tool: Option<String>,
    /// Of each sample that the library sees, so many instructions only fill its state.
    #[arg(long, value_name = "COUNT", value_parser = count::count, requires = "tool", default_value = "0")]
    warm_up: u64,
    #[command(flatten)]
    choice: ChoiceArgs,
    #[command(flatten)]
    spool: SpoolArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

/// What becomes of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Trace {
    /// It is written, as `--output` says.
    #[default]
    Keep,
    /// It is taken from the program and dropped unseen.
    Drop,
    /// Records are made of it, counted and dropped.
    Count,
    /// The same, and the events at which recording can begin and cease (programs built by `ichnos cc`).
    Events,
    /// There is none: the program only runs from the code cache.
    Off,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Ending> {
    let keep = args.keep.clone().choose(args.choice.clone()).spool(args.spool.clone());
    if let Some(library) = &args.tool {
        return keep.run_tool(library, args.warm_up);
    }
    match args.trace {
        Trace::Events => keep.run_events(),
        Trace::Keep => keep.run(None, "recording"),
        Trace::Drop => keep.run_bare(Bare::Dropped),
        Trace::Count => keep.run_counted(),
        Trace::Off => keep.run_bare(Bare::Untraced),
    }
}
