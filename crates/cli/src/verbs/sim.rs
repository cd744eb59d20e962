//! `ichnos sim`: a trace, or a running program, through caches.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Result, bail};
use ichnos_base::Tee;
use ichnos_collect_step::Values;
use ichnos_convert::{Format, ReadOptions};
use ichnos_model::Hierarchy;
use ichnos_replay::Order;
use ichnos_report::{Rows, cache_json, cache_table};

use crate::erase::{Both, Erase};
use crate::exit::Ending;
use crate::hierarchy::HierarchyArgs;
use crate::input::{Input, Part};
use crate::live::LiveArgs;
use crate::output::{TraceFile, WriteArgs};
use crate::progress::Progress;

/// Run a trace, or a program, through caches.
///
/// A cache is SIZE,WAYS,LINE and further words: lru, plru, fifo, random, nru,
/// srrip, brrip, drrip; modulo, xor, skewed; write-back, write-through;
/// allocate, no-allocate; inclusive, exclusive, non-inclusive; victim=LINES,
/// sectors=N, 3c; next-line, stride, stream, best-offset.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos sim -- ls /usr/share
  ichnos sim --l1d 48K,12,64,plru --l2 2M,16,64,3c --l3 none ls.ichnos
  ichnos sim --json ls.ichnos | jq '.caches[0]'")]
pub struct Args {
    /// The trace: an .ichnos file, or any format that `convert` reads.
    #[arg(value_name = "FILE", conflicts_with = "command")]
    file: Option<PathBuf>,
    #[command(flatten)]
    hierarchy: HierarchyArgs,
    /// The input's format, where contents and name do not tell it.
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// Keep the trace of the program in this file, too.
    #[arg(short, long, value_name = "FILE", requires = "command")]
    output: Option<PathBuf>,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Show each core's caches in rows of their own.
    #[arg(long)]
    per_core: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV.
    #[arg(long)]
    csv: bool,
    /// The program and its arguments, after `--`.
    #[arg(last = true, value_name = "PROG")]
    command: Vec<OsString>,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    let model = Hierarchy::new(&args.hierarchy.config()?)?;
    match (&args.file, args.command.is_empty()) {
        (Some(file), _) => {
            let mut input = Input::open(file, args.from, &ReadOptions::default())?;
            let mut sink = Progress::new(Erase(model), input.insns(), "simulating");
            input.drive(&Part { order: Order::ByTime, ..Part::default() }, &mut sink)?;
            report(&args, &sink.into_inner().0);
            Ok(Ending::Good)
        }
        (None, false) => live(&args, model),
        (None, true) => bail!("name a trace, or a program after `--`: ichnos sim -- ls /usr/share"),
    }
}

fn live(args: &Args, model: Hierarchy) -> Result<Ending> {
    let (model, ending) = match &args.output {
        None => {
            let mut sink = Progress::new(Erase(model), None, "simulating");
            let live = args.live.step(&args.command, Values::Omit, &mut sink)?;
            (sink.into_inner().0, live.ending)
        }
        Some(path) => {
            let file = TraceFile::new(path.clone(), args.write.options());
            let mut sink = Progress::new(Both(Tee::new(file, Erase(model))), None, "simulating");
            let live = args.live.step(&args.command, Values::Omit, &mut sink)?;
            let (_, model) = sink.into_inner().0.into_inner();
            (model.0, live.ending)
        }
    };
    report(args, &model);
    Ok(ending)
}

/// Prints the answer: on standard error for a program that ran, whose own output
/// has standard output, unless the answer was asked for in a machine's form.
fn report(args: &Args, model: &Hierarchy) {
    let rows = if args.per_core { Rows::EachCore } else { Rows::Together };
    let report = model.report();
    if args.json {
        println!("{}", cache_json(&report, rows));
        return;
    }
    let table = cache_table(&report, rows);
    if args.csv {
        print!("{}", table.to_csv());
        return;
    }
    let instructions = ichnos_report::number::thousands(report.instructions);
    if args.file.is_some() {
        print!("{instructions} instructions\n{}", table.to_text());
    } else {
        eprint!("\nichnos: {instructions} instructions\n{}", table.to_text());
    }
}
