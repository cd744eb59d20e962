//! `ichnos control`: switches a recording on and off while it runs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::Result;
use ichnos_collect_exec::{Switch, control};

use crate::exit::Ending;

/// Switch the recording of a running `ichnos record` on or off.
///
/// The run must have been started with `--control` (or `--paused`, `--sample`, `--start`,
/// `--stop`). All its processes and threads notice within about a million instructions of theirs; what
/// they do meanwhile is counted, and the trace says how much is missing.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  ichnos record --paused -o server.ichnos -- ./server &
  ichnos control $! on")]
pub struct Args {
    /// The process that records, or one that is recorded.
    pid: u32,
    /// What becomes of the recording.
    #[arg(value_enum)]
    switch: To,
}

/// What becomes of the recording.
#[derive(Clone, Copy, clap::ValueEnum)]
enum To {
    /// It goes on.
    On,
    /// It pauses.
    Off,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Ending> {
    let to = match args.switch {
        To::On => Switch::On,
        To::Off => Switch::Off,
    };
    control(args.pid, to)?;
    Ok(Ending::Good)
}
