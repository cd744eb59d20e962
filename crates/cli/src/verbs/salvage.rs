//! `ichnos salvage`: all that is whole, out of a damaged file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ichnos_report::number::thousands;
use ichnos_trace::Lost;
use serde_json::json;

use super::cut::refuse_same;
use crate::answer::out;
use crate::exit::Ending;
use crate::whole::{self, Whole};

/// Copy all that is whole out of a damaged or truncated trace.
///
/// Where parts of a thread are lost, the new file says so with a gap event.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ichnos salvage torn.ichnos -o whole.ichnos")]
pub struct Args {
    /// The damaged trace.
    file: PathBuf,
    /// The new file.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print what was kept and lost as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<Ending> {
    refuse_same(&args.file, &args.output)?;
    let whole = whole::unless_there(&args.file)?;
    let input = whole.as_ref().map_or(&*args.file, Whole::path);
    refuse_same(input, &args.output)?;
    // Read first: a file that is no trace must not cost another file its contents.
    File::open(input).with_context(|| args.file.display().to_string())?;
    let file = File::create(&args.output)
        .with_context(|| format!("cannot make {}", args.output.display()))?;
    let saved = ichnos_trace::salvage(input, BufWriter::new(file)).with_context(|| {
        format!("cannot salvage {} to {}", args.file.display(), args.output.display())
    })?;
    let lost: Vec<String> = saved.lost.iter().map(words).collect();
    if args.json {
        let answer = json!({
            "instructions": saved.totals.insns,
            "chunks": saved.kept,
            "lost": lost,
        });
        out(&format!("{answer}\n"))?;
        return Ok(Ending::Good);
    }
    out(&format!(
        "{}: {} instructions in {} chunks saved\n",
        args.output.display(),
        thousands(saved.totals.insns),
        saved.kept
    ))?;
    for line in lost {
        out(&format!("lost: {line}\n"))?;
    }
    Ok(Ending::Good)
}

fn words(lost: &Lost) -> String {
    match lost {
        Lost::Header(error) => format!("the header, and with it what was traced: {error}"),
        Lost::Chunk(error) => error.to_string(),
        Lost::Stretch(hole) => format!("{} bytes at offset {}", hole.len, hole.offset),
        Lost::Index => "the index, which was made anew".into(),
        other => format!("{other:?}"),
    }
}
