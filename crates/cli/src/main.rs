//! The `ichnos` program: one verb a file under `verbs/`.
//!
//! This file owns the list of verbs and nothing of what they do.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks to its user"
)]

mod ahead;
mod annotation;
mod answer;
mod apart;
mod behind;
mod charge;
mod choice;
mod code_bytes;
mod config_file;
mod count;
mod distances;
mod erase;
mod exit;
mod gaps;
mod hierarchy;
mod images;
mod input;
mod interrupt;
mod keep;
mod later;
mod live;
mod locality_models;
mod names;
mod output;
mod packing;
mod pattern;
mod profile;
mod profiling;
mod progress;
mod regions;
mod sampling;
mod simulation;
mod spooling;
mod subject;
mod switcher;
mod tool;
mod unpacked;
mod verbs;
mod whole;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use exit::Ending;
use verbs::{
    annotate, boot, cc, check, control, convert, cut, diff, dump, info, locality, pack, record,
    salvage, sim, step,
};

/// Traces of what programs execute, and answers from them.
#[derive(Parser)]
#[command(name = "ichnos", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  ichnos sim -- ls /usr/share           how a program uses a first and second cache level
  ichnos step -o ls.ichnos -- ls        a complete trace, kept in a file
  ichnos info ls.ichnos                 what is in it
  ichnos help VERB                      all about a verb";

#[derive(Subcommand)]
enum Verb {
    /// Trace a program as it runs from a code cache; riscv64 programs in the simulator.
    Record(record::Args),
    /// Trace a program by single stepping: slow, and right to the last reference.
    Step(step::Args),
    /// Switch the recording of a running `ichnos record` on or off.
    Control(control::Args),
    /// Run a compiler so that `record` can trace what it builds at little cost.
    Cc(cc::Args),
    /// Boot a RISC-V kernel, or run a bare program, in the RV64 simulator.
    Boot(boot::Args),
    /// Run a trace, or a program, through caches.
    Sim(sim::Args),
    /// Show the locality of a trace, or of a program.
    Locality(locality::Args),
    /// Say which functions, lines and instructions cost what.
    Annotate(annotate::Args),
    /// Say what is in a trace.
    Info(info::Args),
    /// Print a trace's records and events.
    Dump(dump::Args),
    /// Check a trace against every rule that a true trace obeys.
    Check(check::Args),
    /// Make the trace of a recording that is not packed yet.
    Pack(pack::Args),
    /// Copy all that is whole out of a damaged or truncated trace.
    Salvage(salvage::Args),
    /// Copy a part of a trace.
    Cut(cut::Args),
    /// Compare two traces.
    Diff(diff::Args),
    /// Translate between ichnos traces and other tools' formats.
    Convert(convert::Args),
}

fn main() -> ExitCode {
    env_logger::init();
    if let Some(done) = cc::tool() {
        return exit::status(done);
    }
    let cli = Cli::parse();
    exit::status(run(cli.verb))
}

fn run(verb: Verb) -> anyhow::Result<Ending> {
    match verb {
        Verb::Record(args) => record::run(&args),
        Verb::Step(args) => step::run(&args),
        Verb::Control(args) => control::run(&args),
        Verb::Cc(args) => cc::run(&args),
        Verb::Boot(args) => boot::run_verb(&args),
        Verb::Sim(args) => sim::run(args),
        Verb::Locality(args) => locality::run(args),
        Verb::Annotate(args) => annotate::run(args),
        Verb::Info(args) => info::run(args),
        Verb::Dump(args) => dump::run(args),
        Verb::Check(args) => check::run(args),
        Verb::Pack(args) => pack::run(&args),
        Verb::Salvage(args) => salvage::run(args),
        Verb::Cut(args) => cut::run(args),
        Verb::Diff(args) => diff::run(args),
        Verb::Convert(args) => convert::run(args),
    }
}
