//! `ichnos step`: the oracle.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use ichnos_base::Null;
use ichnos_collect_step::Values;
use ichnos_report::number::thousands;

use crate::erase::Erase;
use crate::exit::Ending;
use crate::live::LiveArgs;
use crate::output::{TraceFile, WriteArgs, default_path};
use crate::progress::Progress;

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
    /// The trace file; `none` collects and drops. Without this: PROG.PID.ichnos here, PID being
    /// that of ichnos.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Record the bytes that loads and stores move, too.
    #[arg(long)]
    values: bool,
    /// Do not say what was written.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROG"
    )]
    command: Vec<OsString>,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    let values = if args.values { Values::Collect } else { Values::Omit };
    if args.output.as_ref().is_some_and(|o| o.as_os_str() == "none") {
        let mut sink = Progress::new(Erase(Null), None, "stepping");
        return Ok(args.live.step(&args.command, values, &mut sink)?.ending);
    }
    let path = args.output.clone().unwrap_or_else(|| default_path(&args.command[0]));
    let file = TraceFile::new(path, args.write.options());
    let mut sink = Progress::new(file, None, "stepping");
    let live = args.live.step(&args.command, values, &mut sink)?;
    let file = sink.into_inner();
    if !args.quiet {
        report(&file, live.cut_short);
    }
    Ok(live.ending)
}

fn report(file: &TraceFile, cut_short: Option<&str>) {
    let Some((totals, bytes)) = file.written() else { return };
    let bits = bytes as f64 * 8.0 / totals.insns.max(1) as f64;
    let note = cut_short.map_or(String::new(), |why| format!(" ({why})"));
    eprintln!(
        "ichnos: {}: {} instructions, {} references, {} bytes ({bits:.2} bits an instruction){note}",
        file.path().display(),
        thousands(totals.insns),
        thousands(totals.references()),
        thousands(bytes),
    );
}
