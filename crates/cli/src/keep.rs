//! Collecting a trace into a file: what `step` and `record` have in common.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use ichnos_base::Null;
use ichnos_collect_exec::Choice;
use ichnos_report::number::thousands;

use crate::erase::Erase;
use crate::exit::Ending;
use crate::live::{Bare, Collector, LiveArgs, Values};
use crate::output::{TraceFile, WriteArgs, default_path};
use crate::progress::Progress;
use crate::split::Split;

/// What to collect, and where to.
#[derive(Args, Clone, Debug)]
pub struct KeepArgs {
    /// The trace file; `none` collects and drops; with `%p` in it, one file for each process, `%p` being its
    /// number. Without this: PROG.PID.ichnos here, PID being
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

impl KeepArgs {
    /// Records not everything but this.
    pub fn choose(mut self, choice: Option<Choice>) -> Self {
        self.live.choose(choice);
        self
    }

    /// Runs the program under a collector and keeps its trace.
    pub fn run(&self, collector: Collector, doing: &'static str) -> Result<Ending> {
        let values = if self.values { Values::Collect } else { Values::Omit };
        if self.output.as_ref().is_some_and(|o| o.as_os_str() == "none") {
            if collector == Collector::Exec
                && !self.values
                && let Some(ending) = self.live.drain(&self.command)?
            {
                return Ok(ending);
            }
            let mut sink = Progress::new(Erase(Null), None, doing);
            return Ok(self.live.run(collector, &self.command, values, &mut sink)?.ending);
        }
        let path = self.output.clone().unwrap_or_else(|| default_path(&self.command[0]));
        if Split::is_pattern(&path) {
            let mut sink = Progress::new(Split::new(&path, self.write.options()), None, doing);
            let live = self.live.run(collector, &self.command, values, &mut sink)?;
            if !self.quiet {
                sink.into_inner().files().for_each(|file| report(file, live.cut_short));
            }
            return Ok(live.ending);
        }
        let file = TraceFile::new(path, self.write.options());
        let mut sink = Progress::new(file, None, doing);
        let live = self.live.run(collector, &self.command, values, &mut sink)?;
        let file = sink.into_inner();
        if !self.quiet {
            report(&file, live.cut_short);
        }
        Ok(live.ending)
    }
}

impl KeepArgs {
    /// Runs the program under the code cache and keeps nothing.
    pub fn run_bare(&self, how: Bare) -> Result<Ending> {
        Ok(self.live.run_bare(how, &self.command)?.ending)
    }
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
