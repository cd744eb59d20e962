//! `ichnos convert`: other tools' formats, in and out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use ichnos_base::ThreadId;
use ichnos_convert::{Format, ReadOptions, Repeats, WriteOptions};

use super::cut::refuse_same;
use crate::count;
use crate::erase::Erase;
use crate::exit::Ending;
use crate::input::{Input, Part};
use crate::output::{TraceFile, WriteArgs};
use crate::progress::Progress;

/// Translate between ichnos traces and other tools' formats.
///
/// Formats: ichnos, din, lackey, champsim, cloudsuite, drmemtrace, gem5, and, to
/// write only, bbv. `docs/CONVERT.md` says what each keeps and loses.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos convert ls.ichnos --to champsim -o ls.champsimtrace.xz
  ichnos convert trace.din -o trace.ichnos
  valgrind --tool=lackey --trace-mem=yes --log-fd=9 ls 9>&1 >/dev/null |
    ichnos convert - --from lackey -o ls.ichnos")]
pub struct Args {
    /// The trace to read; `-` for standard input (then --from is needed).
    file: PathBuf,
    /// The format to read; without this, told by the file's contents or name.
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// The format to write; without this, told by the output's name.
    #[arg(long, value_name = "FORMAT")]
    to: Option<Target>,
    /// The file to write; formats with a file per thread number them.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Only this thread.
    #[arg(long, value_name = "ID")]
    thread: Option<u32>,
    /// Only these instructions of each thread: A..B, counted from 0.
    #[arg(long, value_name = "RANGE", value_parser = count::range)]
    range: Option<std::ops::Range<u64>>,
    /// Treat the repeated lines that lackey prints for a REP string instruction as one
    /// instruction (reading), or print one line for it (writing).
    #[arg(long)]
    merge_rep: bool,
    /// Instructions in an interval of basic-block vectors.
    #[arg(long, value_name = "COUNT", value_parser = count::count)]
    interval: Option<u64>,
    #[command(flatten)]
    write: WriteArgs,
}

/// A format to write.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    Ichnos,
    Foreign(Format),
}

impl std::str::FromStr for Target {
    type Err = ichnos_convert::UnknownFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "ichnos" { Ok(Self::Ichnos) } else { text.parse().map(Self::Foreign) }
    }
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    if args.file.as_os_str() == "-" && args.from.is_none() {
        bail!("standard input has no name to tell its format: say --from FORMAT");
    }
    let repeats = if args.merge_rep { Repeats::Merged } else { Repeats::Separate };
    let mut reading = ReadOptions::default();
    reading.repeats = repeats;
    let mut input = Input::open(&args.file, args.from, &reading)?;
    if let Some(file) = input.file() {
        refuse_same(file, &args.output)?;
    }
    let part = Part {
        threads: args.thread.map(ThreadId).into_iter().collect(),
        insns: args.range.clone(),
        ..Part::default()
    };
    match target(&args)? {
        Target::Ichnos => {
            // Nothing is lost that cannot be converted again: chunks need not be closed by the clock.
            let mut options = args.write.options();
            options.chunk_time = std::time::Duration::MAX;
            let file = TraceFile::new(args.output.clone(), options);
            let mut sink = Progress::new(file, input.insns(), "converting");
            input.drive(&part, &mut sink)?;
        }
        Target::Foreign(format) => {
            let mut writing = WriteOptions::default();
            writing.repeats = repeats;
            writing.thread = args.thread.map(ThreadId);
            writing.interval = args.interval.unwrap_or(writing.interval);
            let sink = ichnos_convert::create_sink(format, &args.output, &writing)
                .with_context(|| args.output.display().to_string())?;
            let mut sink = Progress::new(Erase(sink), input.insns(), "converting");
            input.drive(&part, &mut sink)?;
        }
    }
    Ok(Ending::Good)
}

fn target(args: &Args) -> Result<Target> {
    if let Some(target) = args.to {
        return Ok(target);
    }
    if args.output.extension().is_some_and(|e| e == "ichnos") {
        return Ok(Target::Ichnos);
    }
    match Format::from_path(&args.output) {
        Some(format) => Ok(Target::Foreign(format)),
        None => bail!(
            "the name {} does not tell the format to write: say --to FORMAT",
            args.output.display()
        ),
    }
}
