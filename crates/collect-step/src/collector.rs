//! The way in: from a configuration to a finished trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::env;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use ichnos_base::{About, DriveError, EndStatus, Isa, Sink};

use crate::engine::Engine;
use crate::{Config, Error, Values, launch, sys};

/// A flag that nobody sets.
static NEVER: AtomicBool = AtomicBool::new(false);

/// A collection about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Collector<'a> {
    config: &'a Config,
    stop: &'a AtomicBool,
}

/// How a collection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// How the program ended; [`EndStatus::Unknown`] if it was let go.
    pub status: EndStatus,
    /// Why collection ended.
    pub ending: Ending,
    /// Instructions recorded.
    pub insns: u64,
    /// Threads seen.
    pub threads: u32,
    /// Processes seen.
    pub processes: u32,
}

/// Why a collection ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Ending {
    /// Every process of the tree had ended.
    Complete,
    /// The stop flag was set.
    Stopped,
    /// The limit of the configuration was reached.
    Limit,
    /// The sink had seen enough.
    Enough,
}

impl<'a> Collector<'a> {
    /// A collector that runs to the end of the program.
    #[must_use]
    pub fn new(config: &'a Config) -> Self {
        Self { config, stop: &NEVER }
    }

    /// The same, but it ends soon after `flag` becomes true, in the way that
    /// [`Config::on_stop`] says, with a complete trace of what was done.
    #[must_use]
    pub fn stop_flag(self, flag: &'a AtomicBool) -> Self {
        Self { stop: flag, ..self }
    }

    /// Runs the program and tells its whole trace to `sink`.
    ///
    /// # Errors
    ///
    /// [`DriveError::Source`] if the program cannot be started or stepped,
    /// [`DriveError::Sink`] with what the sink said. The program is killed in
    /// both cases.
    pub fn run<S: Sink>(&self, sink: &mut S) -> Result<Outcome, DriveError<Error, S::Error>> {
        let root = launch::launch(self.config).map_err(DriveError::Source)?;
        let mut engine = Engine::new(self.config, self.stop, sink, root);
        let result = self.tell(&mut engine);
        if result.is_err() {
            engine.abandon();
        }
        result
    }

    fn tell<S: Sink>(
        &self,
        engine: &mut Engine<'_, S>,
    ) -> Result<Outcome, DriveError<Error, S::Error>> {
        let go_on = self.begin(engine.out.sink()).map_err(DriveError::Sink)?;
        engine.out.note(go_on);
        let ending = engine.run()?;
        engine.out.sink().finish().map_err(DriveError::Sink)?;
        Ok(Outcome {
            status: engine.end,
            ending,
            insns: engine.out.total(),
            threads: engine.tracees.len() as u32,
            processes: engine.processes.len() as u32,
        })
    }

    fn begin<S: Sink>(&self, sink: &mut S) -> Result<bool, S::Error> {
        let program = std::iter::once(&self.config.program);
        let command: Vec<_> =
            program.chain(&self.config.args).map(|arg| arg.to_string_lossy()).collect();
        let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        let folder = self.config.folder.clone().or_else(|| env::current_dir().ok());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        sink.begin(&About {
            isa: Isa::X86_64,
            collector: concat!("collect-step ", env!("CARGO_PKG_VERSION")),
            command: &command,
            folder: &folder.unwrap_or_default().to_string_lossy(),
            host: &host(),
            started_ns: since_1970.as_nanos() as u64,
            values: self.config.values == Values::Collect,
            branches: true,
        })
    }
}

/// Runs a program to its end and tells its whole trace to `sink`: a
/// [`Collector`] without a stop flag.
///
/// # Errors
///
/// As [`Collector::run`].
pub fn run<S: Sink>(config: &Config, sink: &mut S) -> Result<Outcome, DriveError<Error, S::Error>> {
    Collector::new(config).run(sink)
}

/// Host name, kernel and processor in words.
fn host() -> String {
    let [name, release, machine] = sys::uname().unwrap_or_default();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    format!("{name}, Linux {release} {machine}, {}", model.trim_start_matches([' ', '\t', ':']))
}
