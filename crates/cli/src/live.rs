//! Running a program under a collector: the one place that chooses which.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::OsString;

use anyhow::{Context, Result};
use clap::Args;
use ichnos_base::{DriveError, EndStatus, Sink};
use ichnos_collect_step::{Aslr, Collector, Config, Values};

use crate::count;
use crate::exit::Ending;
use crate::interrupt;

/// How to run a program that is to be traced.
#[derive(Args, Clone, Debug)]
pub struct LiveArgs {
    /// Leave address-space randomisation on; without this, equal runs have equal addresses.
    #[arg(long)]
    aslr: bool,
    /// Stop after this many instructions of all threads together; the program is then killed.
    #[arg(long, value_name = "COUNT", value_parser = count::count)]
    limit: Option<u64>,
}

/// What a run came to.
pub struct Live {
    /// How the verb ends.
    pub ending: Ending,
    /// Why the trace ends before the program did, if so.
    pub cut_short: Option<&'static str>,
}

impl LiveArgs {
    /// Single-steps `command` and tells everything to `sink`.
    pub fn step<S>(&self, command: &[OsString], values: Values, sink: &mut S) -> Result<Live>
    where
        S: Sink<Error = anyhow::Error>,
    {
        let (program, args) = command.split_first().context("no program is named")?;
        let mut config = Config::new(program).args(args);
        config.aslr = if self.aslr { Aslr::System } else { Aslr::Off };
        config.values = values;
        config.limit = self.limit;
        let stop = interrupt::flag()?;
        let outcome =
            Collector::new(&config).stop_flag(&stop).run(sink).map_err(|error| match error {
                DriveError::Source(e) => anyhow::Error::from(e),
                DriveError::Sink(e) => e,
            })?;
        Ok(Live {
            ending: Ending::Program(shell_status(outcome.status)),
            cut_short: match outcome.ending {
                ichnos_collect_step::Ending::Stopped => Some("interrupted"),
                ichnos_collect_step::Ending::Limit => Some("the limit was reached"),
                _ => None,
            },
        })
    }
}

/// A program's end as a shell tells it.
fn shell_status(status: EndStatus) -> u8 {
    match status {
        EndStatus::Exited(code) => (code & 0xff) as u8,
        EndStatus::Killed(signal) => 128_u8.wrapping_add((signal & 0x7f) as u8),
        _ => 0,
    }
}
