//! What can go wrong.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;

/// Why building or recording failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No compiler was named.
    #[error("no compiler is named")]
    NoCompiler,
    /// The compiler cannot be run.
    #[error("{name} cannot be run")]
    Compiler {
        /// The compiler.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// The assembler cannot be run, or its input cannot be read.
    #[error("{name} cannot be run on its input")]
    Assembler {
        /// The assembler.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// Link-time optimisation makes code where nobody sees its assembly.
    #[error("programs built with -flto cannot be traced inline: build without it")]
    Lto,
    /// The program's crate has more than one object, or another than its assembly tells.
    #[error("rustc links no object that is the one of the program's assembly")]
    RustUnits,
    /// The assembler's output cannot be read.
    #[error("the assembler's output is no object that can be read")]
    Object {
        /// What is wrong with it.
        source: object::Error,
    },
    /// An executable cannot be read.
    #[error("{path} cannot be read as an executable")]
    Image {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: object::Error,
    },
    /// A file cannot be read.
    #[error("{path} cannot be read")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("{program} cannot be started")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// A process cannot be prepared or followed.
    #[error("process {pid}: {what} failed")]
    Process {
        /// The process.
        pid: i32,
        /// What was done.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A function's copy cannot be made.
    #[error("the copy of the code at {base:#x} cannot be laid out: {why}")]
    Layout {
        /// Where it was to lie.
        base: u64,
        /// What the encoder says.
        why: String,
    },
    /// A function that begins or ends what is recorded is not there.
    #[error("{program} has no function {name} that `ichnos cc` compiled")]
    NoFunction {
        /// The function.
        name: String,
        /// The program.
        program: String,
    },
    /// A thread's stream makes no sense.
    #[error("thread {thread}: the stream has no sense at byte {at}: {why}")]
    Stream {
        /// The thread.
        thread: u32,
        /// Where in its buffer.
        at: u64,
        /// What was expected.
        why: &'static str,
    },
    /// What threads stored cannot be read again.
    #[error("what the program stored cannot be read from the spool")]
    Spool {
        /// What the system says.
        source: io::Error,
    },
    /// What was told cannot be read again.
    #[error("what the recording noted beside the program's words cannot be used: {why}")]
    Notes {
        /// Why not.
        why: &'static str,
    },
    /// There are more threads than there is memory for.
    #[error("more than {most} threads and signal handlers run at once")]
    TooManyThreads {
        /// How many there may be.
        most: u32,
    },
}

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError<E> {
    /// The sink failed.
    #[error("the sink failed")]
    Sink(E),
    /// Something else did.
    #[error(transparent)]
    Collector(Error),
}

impl<E> From<Error> for RecordError<E> {
    fn from(error: Error) -> Self {
        Self::Collector(error)
    }
}
