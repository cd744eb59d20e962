//! User mode: runs riscv64 Linux programs, static or dynamic, with threads,
//! signals, files and child processes, on a kernel that is simulated here.
//!
//! Everything the guest can see is a function of its inputs: addresses are
//! fixed, threads take turns by instruction count, the clock is the count of
//! instructions executed, and random numbers come from a fixed seed. Files are
//! the host's, and so are sockets: pipes and sockets between guests repeat, but
//! when bytes arrive over the network is the host's affair.
//!
//! # Example
//!
//! ```no_run
//! use ichnos_base::Null;
//! use ichnos_collect_rv64::user::{Config, run};
//!
//! let config = Config::new("sort.riscv", ["sort.riscv", "words.txt"]);
//! let outcome = run(&config, &mut Null)?;
//! assert_eq!(outcome.status, ichnos_base::EndStatus::Exited(0));
//! # Ok::<(), ichnos_collect_rv64::RunError<std::convert::Infallible>>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0

mod csr;
mod debug;
mod frames;
mod kernel;
mod loader;
mod machine;
mod process;
mod signal;
mod space;
mod syscall;
mod tell;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use ichnos_base::{About, DriveError, EndStatus, Isa, Sink};

use crate::engine::Speed;
use crate::error::{Error, RunError};
use crate::gdb::GdbAt;
use crate::recorder::Values;
use crate::tracer::{Traced, Untraced};
pub use loader::is_program as is_riscv_program;
use machine::Machine;

/// A program with its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Its file.
    pub file: PathBuf,
    /// Its arguments, beginning with its name.
    pub args: Vec<OsString>,
}

/// What to run and how.
#[derive(Debug)]
pub struct Config {
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments, beginning with its name.
    pub args: Vec<OsString>,
    /// Other programs that run beside it from the start, in turns with it. They
    /// have the same environment and standard files.
    pub beside: Vec<Program>,
    /// The environment, as `NAME=value`.
    pub env: Vec<OsString>,
    /// Where absolute paths are looked up first: libraries, the interpreter.
    pub sysroot: Option<PathBuf>,
    /// How instructions are run when nobody watches.
    pub speed: Speed,
    /// Whether loaded and stored bytes are recorded.
    pub values: Values,
    /// Instructions that a thread runs before the next gets its turn.
    pub quantum: u64,
    /// Bytes of memory that all processes together may use.
    pub memory: u64,
    /// Wall-clock time at the start, in nanoseconds since 1970.
    pub start_time_ns: u64,
    /// Standard input, output and error; those of this process if absent.
    pub stdio: [Option<OwnedFd>; 3],
    /// Where to wait for a gdb client before anything runs.
    pub gdb: Option<GdbAt>,
}

impl Config {
    /// A configuration with this process's environment and files.
    pub fn new<A: Into<OsString>>(
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let pair = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            name
        };
        Self {
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            beside: Vec::new(),
            env: std::env::vars_os().map(pair).collect(),
            sysroot: None,
            values: Values::Omitted,
            speed: Speed::Generated,
            quantum: 20_000,
            memory: 8 << 30,
            start_time_ns: 1_700_000_000_000_000_000,
            stdio: [None, None, None],
            gdb: None,
        }
    }

    /// All programs, each with what it is started with.
    fn commands(&self) -> impl Iterator<Item = (&Path, loader::Command)> {
        let bytes = |texts: &[OsString]| texts.iter().map(|t| t.clone().into_vec()).collect();
        let first = (self.program.as_path(), self.args.as_slice());
        let others = self.beside.iter().map(|p| (p.file.as_path(), p.args.as_slice()));
        std::iter::once(first).chain(others).map(move |(file, args)| {
            let env = bytes(&self.env);
            (file, loader::Command { file: file.to_owned(), args: bytes(args), env })
        })
    }
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// How the first of the programs that did not end well ended, or that all
    /// ended well; unknown if the sink had seen enough before.
    pub status: EndStatus,
    /// Instructions retired by all threads.
    pub retired: u64,
}

/// Runs a program and tells `sink` what it does.
pub fn run<S: Sink>(config: &Config, sink: &mut S) -> Result<Outcome, RunError<S::Error>> {
    let command: Vec<String> =
        config.args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let folder = std::env::current_dir().unwrap_or_default();
    let about = About {
        isa: Isa::RV64,
        collector: concat!("collect-rv64 ", env!("CARGO_PKG_VERSION")),
        command: &command,
        folder: &folder.to_string_lossy(),
        host: "simulated rv64 user mode",
        started_ns: config.start_time_ns,
        values: config.values == Values::Recorded,
        branches: true,
    };
    if !sink.begin(&about).map_err(DriveError::Sink)? {
        sink.finish().map_err(DriveError::Sink)?;
        return Ok(Outcome { status: EndStatus::Unknown, retired: 0 });
    }
    let outcome = Machine::new(config, Traced::new(sink, config.values))
        .map_err(DriveError::Source)
        .and_then(|mut machine| machine.run())?;
    sink.finish().map_err(DriveError::Sink)?;
    Ok(outcome)
}

/// Runs a program without watching it.
pub fn run_untraced(config: &Config) -> Result<Outcome, Error> {
    let mut machine = Machine::new(config, Untraced::default())?;
    machine.run().map_err(|e| match e {
        DriveError::Source(error) => error,
        DriveError::Sink(never) => match never {},
    })
}
