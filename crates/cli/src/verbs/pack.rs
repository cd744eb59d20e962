//! `ichnos pack`: the trace of a recording whose packing did not end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use ichnos_base::Sink;
use ichnos_collect_exec::{CollectError, Spooled, remove_spool};

use crate::apart::Traces;
use crate::behind::Behind;
use crate::exit::Ending;
use crate::interrupt;
use crate::keep::report;
use crate::later::Later;
use crate::packing::{Packing, Words};
use crate::spooling::spool_of;

/// Make the trace of a recording whose packing did not end.
///
/// `ichnos record` puts what it cannot pack as fast as the program runs into a spool, and packs it from there. If it was interrupted or
/// killed, the spool is left; it holds all from the beginning of the run, and this makes the trace of it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ichnos pack bzip2.1234.ichnos")]
pub struct Args {
    /// The trace, beside which its spool is, or the spool.
    file: PathBuf,
    /// The new file; without this, the one that the recording was to make.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not say what was written.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Ending> {
    let beside = spool_of(&args.file);
    let path = if beside.exists() { beside } else { args.file.clone() };
    if !path.exists() {
        bail!("there is neither {} nor a spool beside it", args.file.display());
    }
    let spool = Spooled::open(&path)?;
    let later = Later::read(spool.note(), &path)?;
    let output = args.output.clone().unwrap_or(later.path);
    let mut sink = Behind::new(Traces::new(output, later.options));
    later.about.with(|about| sink.begin(about))?;
    let stop = interrupt::flag()?;
    let words = if args.quiet { Words::None } else { Words::Said };
    let mut packing = Packing::new(words);
    let packed = spool.pack(&mut sink, &stop.stop, &mut |done, all| packing.at(done, all));
    packing.end();
    let packed = packed.map_err(|error| match error {
        CollectError::Sink(e) => e,
        CollectError::Host(e) => e.into(),
        _ => anyhow!("the trace cannot be made"),
    })?;
    if packed.stopped {
        bail!("interrupted; {} is left", path.display());
    }
    let note =
        packed.status.is_none().then_some("the recording was killed: what came last is missing");
    if let Some(traces) = sink.into_inner().filter(|_| !args.quiet) {
        traces.files().iter().for_each(|file| report(file, note));
    }
    remove_spool(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(Ending::Good)
}
