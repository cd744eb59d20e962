//! `ichnos pack`: the trace of a recording that is not packed yet.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::exit::Ending;
use crate::interrupt;
use crate::keep::report;
use crate::packing::Words;
use crate::spooling::spool_of;
use crate::unpacked::{Found, Unpacked};

/// Make the trace of a recording that is not packed yet.
///
/// `ichnos record` puts what it cannot pack as fast as the program runs into a spool, and packs it from there; with `--pack later` it puts
/// all there. If it was interrupted or killed, the spool is left; it holds all from the beginning of the run, and this makes the trace of it.
/// Every verb that is given such a recording does the same first.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ichnos pack bzip2.1234.ichnos")]
pub struct Args {
    /// The trace, beside which its spool is, or the spool.
    file: PathBuf,
    /// The new file; without this, the trace, or for a spool the one that the recording was to make.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not say what was written.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Ending> {
    let beside = spool_of(&args.file);
    let path = if beside.exists() { &beside } else { &args.file };
    let mut unpacked = match Unpacked::open(path)? {
        Found::Free(unpacked) => unpacked,
        Found::InUse => {
            bail!("{}: a recording that still runs or another `ichnos` uses it", path.display())
        }
        Found::Gone => {
            bail!("there is neither {} nor a spool beside it", args.file.display());
        }
    };
    let output = args.output.clone().unwrap_or_else(|| match path == &beside {
        // Both may have been moved since.
        true => args.file.clone(),
        false => unpacked.later.path.clone(),
    });
    let stop = interrupt::flag()?;
    let words = if args.quiet { Words::None } else { Words::Said };
    let packed = unpacked.pack(&output, words, &stop.stop)?;
    if packed.stopped {
        bail!("interrupted; {} is left", path.display());
    }
    if let Some(traces) = packed.traces.filter(|_| !args.quiet) {
        traces.files().iter().for_each(|file| report(file, packed.note));
    }
    unpacked.remove()?;
    Ok(Ending::Good)
}
