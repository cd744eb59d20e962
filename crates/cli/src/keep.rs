//! Collecting a trace into a file: what `step` and `record` have in common.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use ichnos_base::{Batch, Null, Record, Sink};
use ichnos_collect_asm::Outcome;
use ichnos_report::number::thousands;

use crate::apart::Traces;
use crate::behind::Behind;
use crate::choice::ChoiceArgs;
use crate::distances::Distances;
use crate::erase::Erase;
use crate::exit::Ending;
use crate::later::Later;
use crate::live::{Bare, Collector, LiveArgs, Values, from_cache, from_inline};
use crate::output::{TraceFile, WriteArgs, default_path};
use crate::packing::Words;
use crate::progress::Progress;
use crate::spooling::{Recorded, SpoolArgs, spool_of};
use crate::tool::Tool;

/// What to collect, and where to.
#[derive(Args, Clone, Debug)]
pub struct KeepArgs {
    /// The trace file; `none` collects and drops. `%p` in it stands for the number of a process, each of which then
    /// has a file of its own. Without this: PROG.PID.ichnos here, PID being that of ichnos.
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
    /// Where what nobody has packed yet is put.
    #[arg(skip)]
    spool: SpoolArgs,
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
    pub fn choose(mut self, choice: ChoiceArgs) -> Self {
        self.live.choose(choice);
        self
    }

    /// Puts what nobody has packed yet there.
    pub fn spool(mut self, spool: SpoolArgs) -> Self {
        self.spool = spool;
        self
    }

    /// Runs the program under a collector and keeps its trace.
    pub fn run(&self, collector: Option<Collector>, doing: &'static str) -> Result<Ending> {
        let values = if self.values { Values::Collect } else { Values::Omit };
        if self.output.as_ref().is_some_and(|o| o.as_os_str() == "none") {
            if collector.is_none()
                && !self.values
                && let Some(ending) = self.drain()?
            {
                return Ok(ending);
            }
            if self.live.runs_from_cache(collector, &self.command) {
                self.live.refuse_stepping(values)?;
                return Ok(self.live.run_bare(Bare::Dropped, &self.command)?.ending);
            }
            let mut sink = Progress::new(Erase(Null), None, doing);
            return Ok(self.live.run(collector, &self.command, values, &mut sink)?.ending);
        }
        let path = self.output.clone().unwrap_or_else(|| default_path(&self.command[0]));
        let options = self.write.options();
        let (traces, trace) = (Traces::new(path.clone(), options), path.clone());
        // Packing goes on beside collecting.
        let mut sink = Progress::new(Behind::new(traces), None, doing);
        let words = if self.quiet { Words::None } else { Words::Said };
        let (program, args) = (&self.command[0], &self.command[1..]);
        let recorded = if self.live.runs_from_cache(collector, &self.command) {
            self.live.refuse_stepping(values)?;
            let later = Later::new(path, options, from_cache(program, args));
            self.spool.record((&self.live, &self.command), &later, words, &mut sink)?
        } else if self.live.runs_inline(collector, &self.command) {
            self.live.refuse_stepping(values)?;
            let later = Later::new(path, options, from_inline(program, args));
            self.spool.record_inline((&self.live, &self.command), &later, words, &mut sink)?
        } else if self.spool.is_later() {
            bail!("--pack later is for programs that are run natively or from the code cache");
        } else {
            let live = self.live.run(collector, &self.command, values, &mut sink)?;
            Recorded { live, unpacked: None }
        };
        let live = match recorded {
            Recorded { live, unpacked: Some(spool) } => {
                if !self.quiet {
                    report_unpacked(&spool, &trace);
                }
                return Ok(live.ending);
            }
            Recorded { live, .. } => live,
        };
        let traces = sink.into_inner().into_inner();
        if let Some(traces) = traces.filter(|_| !self.quiet) {
            let files = traces.files();
            files.iter().for_each(|file| report(file, live.cut_short));
            let empty = |file: &&TraceFile| file.written().is_none_or(|(all, _)| all.insns == 0);
            let nothing = files.iter().all(empty);
            if let Some(name) = self.live.begins_at().filter(|_| nothing) {
                eprintln!("ichnos: no thread entered a function with the symbol `{name}`");
            }
        }
        Ok(live.ending)
    }
}

impl KeepArgs {
    /// Runs a program built by `ichnos cc` and drops what it stores; nothing if it is another one.
    fn drain(&self) -> Result<Option<Ending>> {
        let Some((ending, outcome)) = self.live.drain(&self.command)? else { return Ok(None) };
        if !self.quiet {
            report_dropped(&outcome);
        }
        Ok(Some(ending))
    }

    /// Runs the program under a collector, counts the records, and keeps nothing.
    pub fn run_counted(&self) -> Result<Ending> {
        let mut sink = Erase(Counted::default());
        let live = self.live.run(None, &self.command, Values::Omit, &mut sink)?;
        let Counted { insns, references } = sink.0;
        if !self.quiet {
            let (insns, references) = (thousands(insns), thousands(references));
            eprintln!("ichnos: {insns} instructions, {references} references");
        }
        Ok(live.ending)
    }

    /// Runs the program and lets a user's library see what is recorded.
    pub fn run_tool(&self, library: &str, warm_up: u64) -> Result<Ending> {
        let mut sink = Erase(Tool::load(library, warm_up)?);
        let live = self.live.run(None, &self.command, Values::Omit, &mut sink)?;
        if !self.quiet {
            eprint!("{}", sink.0.results());
        }
        Ok(live.ending)
    }

    /// Runs a program built by `ichnos cc` and says how its events lie among its instructions.
    pub fn run_events(&self) -> Result<Ending> {
        let mut sink = Erase(Distances::of(&self.command[0])?);
        let live = self.live.run(None, &self.command, Values::Omit, &mut sink)?;
        if !self.quiet {
            eprintln!("{}", sink.0);
        }
        Ok(live.ending)
    }

    /// Runs the program and keeps nothing.
    pub fn run_bare(&self, how: Bare) -> Result<Ending> {
        if how == Bare::Dropped
            && let Some(ending) = self.drain()?
        {
            return Ok(ending);
        }
        if how == Bare::Untraced
            && let Some((ending, outcome)) = self.live.run_plain(&self.command)?
        {
            if !self.quiet {
                report_dropped(&outcome);
            }
            return Ok(ending);
        }
        Ok(self.live.run_bare(how, &self.command)?.ending)
    }
}

/// Counts what it is told.
#[derive(Default)]
struct Counted {
    insns: u64,
    references: u64,
}

impl Sink for Counted {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            match record {
                Record::Insn { .. } => self.insns += 1,
                Record::Branch { .. } => {}
                _ => self.references += 1,
            }
        }
        Ok(true)
    }
}

/// What tracing inline took, for those who measure it.
fn report_dropped(outcome: &Outcome) {
    let seconds = |micros: u64| micros as f64 / 1e6;
    eprintln!(
        "ichnos: {} bytes stored and dropped, {} buffers filled, {} waits; {} instructions of \
         code became {}, {} on the mainline; the program took {:.3} s, {:.3} s in the system",
        thousands(outcome.raw_bytes),
        thousands(outcome.changes),
        thousands(outcome.waits),
        thousands(outcome.code.original),
        thousands(outcome.code.copy),
        thousands(outcome.code.mainline),
        seconds(outcome.times.0),
        seconds(outcome.times.1),
    );
}

/// Says what was stored and not packed.
fn report_unpacked(spool: &Path, trace: &Path) {
    let bytes = spool.metadata().map_or(0, |found| found.len());
    eprintln!(
        "ichnos: {}: {} bytes stored, not packed yet: `ichnos pack {}` makes the trace, or the first verb that reads it",
        spool.display(),
        thousands(bytes),
        if spool_of(trace) == spool { trace } else { spool }.display(),
    );
}

/// Says what was written.
pub fn report(file: &TraceFile, cut_short: Option<&str>) {
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
