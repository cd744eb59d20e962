//! What can go wrong on the host side.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;

/// Why a program could not be run under the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program could not be started.
    #[error("cannot run {program}")]
    Start {
        /// What was asked for.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A system call on behalf of the program failed.
    #[error("cannot {what} process {pid}")]
    Process {
        /// What was tried.
        what: &'static str,
        /// The process.
        pid: i32,
        /// What the system said.
        source: io::Error,
    },
    /// The process ended before the engine was in place.
    #[error("process {pid} ended before it could be taken over (wait status {status:#x})")]
    Ended {
        /// The process.
        pid: i32,
        /// The status as `wait` gave it.
        status: i32,
    },
    /// The program is for another machine.
    #[error("{program} is not a 64-bit x86 program")]
    NotX86_64 {
        /// What was asked for.
        program: String,
    },
    /// Our own executable is not what the engine needs.
    #[error("the engine's image {path} is unusable: {why}")]
    Image {
        /// The file.
        path: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The channel to the program could not be made.
    #[error("cannot make the channel to the program")]
    Channel {
        /// What the system said.
        source: io::Error,
    },
    /// A thread's stream makes no sense: engine and host disagree.
    #[error("the stream of thread {thread} is broken at byte {at} of a buffer: {why}")]
    Stream {
        /// The thread.
        thread: u32,
        /// What is wrong.
        why: &'static str,
        /// Where.
        at: usize,
    },
    /// The spool cannot be read.
    #[error("cannot read the spool {path}")]
    Spool {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody records this process.
    #[error("process {pid} neither records nor is recorded by `ichnos record`")]
    NoRun {
        /// The process.
        pid: u32,
    },
    /// The run records everything.
    #[error("the recording of process {pid} cannot be switched: it was started without --control")]
    NoSwitch {
        /// The process.
        pid: u32,
    },
    /// The engine's place in the address space is taken.
    #[error("process {pid} already uses the addresses that the engine needs")]
    Occupied {
        /// The process.
        pid: i32,
    },
}

impl Error {
    pub(crate) fn process(what: &'static str, pid: i32) -> Self {
        Self::Process { what, pid, source: io::Error::last_os_error() }
    }
}
