//! `ichnos cut`: a part of a trace, as a trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ichnos_base::ThreadId;
use ichnos_replay::Cut;
use ichnos_trace::Writer;

use crate::count;
use crate::exit::Ending;
use crate::input::Trace;
use crate::output::WriteArgs;
use crate::whole::is_same;

/// Copy a part of a trace.
///
/// Instructions are counted from 0 in each thread; times are nanoseconds on the
/// trace's own clock, as `dump` shows them. What is left out of a kept thread is
/// told as a gap; starts, ends and mappings are kept, so that the part can be
/// understood without the whole.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos cut big.ichnos --range 100M..110M -o roi.ichnos
  ichnos cut server.ichnos --thread 3 --thread 4 -o workers.ichnos")]
pub struct Args {
    /// The trace.
    file: PathBuf,
    /// The new file.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Only these instructions of each thread: A..B, A.. or ..B.
    #[arg(long, value_name = "RANGE", value_parser = count::range)]
    range: Option<Range<u64>>,
    /// Only this thread; may be given several times.
    #[arg(long, value_name = "ID")]
    thread: Vec<u32>,
    /// Only instructions executed at these times: A..B in nanoseconds.
    #[arg(long, value_name = "RANGE", value_parser = count::range)]
    time: Option<Range<u64>>,
    #[command(flatten)]
    write: WriteArgs,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    let Trace { reader, file, .. } = Trace::open(&args.file)?;
    let all = Cut::default();
    let cut = Cut {
        threads: args.thread.iter().copied().map(ThreadId).collect(),
        insns: args.range.clone().unwrap_or(all.insns),
        time: args.time.clone().unwrap_or(all.time),
    };
    refuse_same(&args.file, &args.output)?;
    refuse_same(&file, &args.output)?;
    let place = || args.output.display().to_string();
    let mut writer: Writer<File> =
        Writer::create(&args.output, args.write.options()).with_context(place)?;
    ichnos_replay::cut(&reader, &cut, &mut writer)
        .with_context(|| format!("cannot cut {} to {}", args.file.display(), place()))?;
    Ok(Ending::Good)
}

/// Refuses to write over the file that is being read.
pub fn refuse_same(input: &Path, output: &Path) -> Result<()> {
    if is_same(input, output) {
        bail!("{} is the trace to be read: name another output", output.display());
    }
    Ok(())
}
