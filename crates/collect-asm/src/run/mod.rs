//! What happens when a program is recorded.
//!
//! Two threads. The *tracer* starts the program, puts the copies of its code into it and looks
//! after its threads, children, signals and buffers. The *collector*, the caller's own thread,
//! turns full buffers into records for the sink. The tracer sends messages, in the order in
//! which things happened to each thread; buffers come back when they are read. Between the two there can
//! be a *backlog*, which puts full buffers on disk: then they come back at once.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod backlog;
mod buffers;
mod choice;
mod collect;
mod copies;
mod follow;
mod halt;
mod handler;
mod images;
mod journal;
mod kernel;
mod left;
mod library;
mod loading;
mod maps;
mod message;
mod names;
mod process;
mod raw;
mod reading;
mod setup;
mod sides;
mod spooled;
mod stream;
mod syncing;
mod table;
mod tail;

use std::convert::Infallible;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::channel;

use ichnos_base::{EndStatus, Sink};
use ichnos_flow::Level;
use ichnos_rt::{Clock, Layout, Pool, Randomize, times_of_children};

use crate::code::Form;
use crate::{CodeSize, Error, RecordError};
pub use backlog::{Place, Reads};
pub use choice::{Choice, Events, When};
use collect::Collector;
use follow::Tracer;
pub use left::{Left, Packed};
use message::{Buffers, Listener};
pub use spooled::{Spooling, record_spooled};

/// How the shared memory is divided: as many buffers as threads would run at once, of which only those in use take memory, and as
/// many contexts as threads may be alive. Larger buffers change less often, but what is stored leaves the second cache level sooner:
/// the two cancel out.
const LAYOUT: Layout = Layout { contexts: 1 << 16, buffers: 1024, buffer_len: 1 << 20 };

/// What to run, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The program, looked up in `PATH` as a shell would.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Whether the system places its memory at random.
    pub randomize: Randomize,
    /// How much the planner may do.
    pub level: Level,
    /// Whether references may be stored one by one if the sink takes nothing else: less work for the collector, more for
    /// the program.
    pub one_by_one: bool,
    /// How many buffers all threads share. If there are more threads than that, those that wait for something lose theirs.
    pub buffers: u32,
    /// What is recorded, if not everything.
    pub choice: Option<Choice>,
    /// Whether the files of programs and libraries are kept, from which their copies are made.
    keeps_files: bool,
}

impl Config {
    /// A program with its arguments.
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = OsString>) -> Self {
        Self {
            program: program.into(),
            args: args.into_iter().collect(),
            randomize: Randomize::Off,
            level: Level::Flow,
            one_by_one: true,
            buffers: LAYOUT.buffers,
            choice: None,
            keeps_files: false,
        }
    }
}

/// What came of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// How the program ended.
    pub status: EndStatus,
    /// Instructions recorded.
    pub insns: u64,
    /// Bytes that the program stored.
    pub raw_bytes: u64,
    /// How many of them went to disk before they were read.
    pub spooled: u64,
    /// Whether all is left in the spool, for whoever makes the trace of it.
    pub left: bool,
    /// How often a thread had to wait for a free buffer.
    pub waits: u64,
    /// Noted functions that could not be copied and were not traced.
    pub left_out: u64,
    /// How large the program's traced functions are; those of the last program, if there were
    /// several.
    pub code: CodeSize,
    /// How often a thread filled a buffer and got another.
    pub changes: u64,
    /// Processor time that the program spent in its own code, and in the system, in microseconds.
    pub times: (u64, u64),
}

/// Runs a program and tells a sink what its noted functions do.
///
/// # Errors
///
/// If the program cannot be started or prepared, or the sink fails.
pub fn record<S: Sink>(config: &Config, sink: &mut S) -> Result<Outcome, RecordError<S::Error>> {
    let clock = Clock::start();
    let (tell, messages) = channel();
    let (give, freed) = channel();
    run((config, form(config, sink), clock), Listener::Collector { tell, freed }, |pool| {
        let free = Buffers::new(give);
        let mut collector = Collector::new(sink, Some(pool), (config, clock));
        for message in messages {
            if !collector.message(&message, None)? {
                break;
            }
            message.emptied().into_iter().for_each(|buffer| free.free(buffer));
        }
        collector.finish()
    })
}

/// What threads store for a sink.
fn form<S: Sink>(config: &Config, sink: &S) -> Form {
    match config.one_by_one && sink.takes_references() {
        true => Form::References,
        false => Form::Blocks,
    }
}

/// Runs a program, takes what it stores and drops it: what tracing costs without anybody
/// looking.
///
/// # Errors
///
/// If the program cannot be started or prepared.
pub fn drain(config: &Config) -> Result<Outcome, Error> {
    let asked = (config, Form::Blocks, Clock::start());
    let done = run(asked, Listener::Nobody, |_| Ok::<_, RecordError<Infallible>>(0));
    done.map_err(|error| match error {
        RecordError::Sink(never) => match never {},
        RecordError::Collector(error) => error,
    })
}

/// Starts the tracer and meanwhile lets `consume` work with the memory that is stored into; that answers how many
/// instructions it recorded.
fn run<E>(
    (config, form, clock): (&Config, Form, Clock),
    listener: Listener,
    consume: impl FnOnce(Arc<Pool>) -> Result<u64, RecordError<E>>,
) -> Result<Outcome, RecordError<E>> {
    let program = config.program.to_string_lossy().into_owned();
    let start = |source| Error::Start { program: program.clone(), source };
    let pool =
        Arc::new(Pool::new(Layout { buffers: config.buffers.max(1), ..LAYOUT }).map_err(start)?);
    let before = times_of_children();
    std::thread::scope(|scope| {
        let shared = Arc::clone(&pool);
        let tracer =
            scope.spawn(move || Tracer::new((config, form, clock), shared, listener).run());
        let consumed = consume(pool);
        let traced = tracer
            .join()
            .unwrap_or_else(|_| Err(start(std::io::Error::other("the tracer failed"))));
        // Without a listener the tracer ends the program: the listener's reason counts.
        let insns = consumed?;
        let traced = traced?;
        let after = times_of_children();
        Ok(Outcome {
            status: traced.status,
            insns,
            raw_bytes: traced.raw_bytes,
            spooled: 0,
            left: false,
            waits: traced.waits,
            left_out: traced.left_out,
            code: traced.code,
            changes: traced.changes,
            times: (after.0 - before.0, after.1 - before.1),
        })
    })
}
