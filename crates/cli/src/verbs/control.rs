//! `ichnos control`: switches recordings on and off while they run.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ichnos_collect_asm::Word;
use ichnos_collect_exec::{Switch, control};

use crate::choice::duration;
use crate::exit::Ending;
use crate::switcher::Schedule;

/// Switch the recording of a running `ichnos record` on or off.
///
/// The run must have been started with `--control` (or `--paused`, `--sample`, `--start`,
/// `--stop`). All its processes and threads notice within about a million instructions of theirs; what
/// they do meanwhile is counted, and the trace says how much is missing. Programs built by `ichnos cc` notice at
/// their next event, and all recordings with one `--shared` file are switched together.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ichnos record --paused -o server.ichnos -- ./server &
  ichnos control $! on
  ichnos control --file all.switch --every 1s --for 10ms --until 1000s")]
pub struct Args {
    /// The process that records, or one that is recorded.
    #[arg(required_unless_present = "file")]
    pid: Option<String>,
    /// What becomes of the recording: `on` or `off`.
    switch: Option<String>,
    /// The file that recordings were given by `--shared`, instead of a process.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Switch on once in every so much time,
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "for")]
    every: Option<Duration>,
    /// for so long,
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "every")]
    r#for: Option<Duration>,
    /// and cease after so much time; without this, when interrupted.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "every")]
    until: Option<Duration>,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<Ending> {
    // With a file, the first word is what becomes of the recording.
    let (pid, to) = match (&args.file, &args.pid, &args.switch) {
        (Some(_), to, None) => (None, to.as_deref()),
        (Some(_), Some(_), Some(_)) => bail!("a process or a file, not both"),
        (_, pid, to) => (pid.as_deref(), to.as_deref()),
    };
    let pid = pid.map(|p| p.parse::<u32>().with_context(|| format!("`{p}` is no process number")));
    let pid = pid.transpose()?;
    let word = match (&args.file, pid) {
        (Some(file), _) => {
            Some(Word::open(file).with_context(|| format!("{} cannot be opened", file.display()))?)
        }
        (None, Some(pid)) => Word::of_process(pid).ok().flatten(),
        (None, None) => None,
    };
    if let (Some(every), Some(length)) = (args.every, args.r#for) {
        let word = word.context("only programs built by `ichnos cc` are switched by time")?;
        let wait = |time| {
            std::thread::sleep(time);
            true
        };
        Schedule::Periodic { every, length }.follow(&word, args.until, wait)?;
        return Ok(Ending::Good);
    }
    let to = match to {
        Some("on") => Switch::On,
        Some("off") => Switch::Off,
        _ => bail!("say what becomes of the recording: on or off"),
    };
    match (word, pid) {
        (Some(word), _) => word.set(u32::from(to == Switch::On))?,
        (None, Some(pid)) => control(pid, to)?,
        (None, None) => bail!("name a process or a file"),
    }
    Ok(Ending::Good)
}
