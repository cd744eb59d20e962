//! What can go wrong with a trace file, each with its place.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;

use ichnos_base::{FileOff, ThreadId};

/// Why a trace could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to write.
    #[error(
        "The trace could not be written after {written} bytes; what was written before stays readable."
    )]
    Write {
        /// Bytes of the trace that were handed over before.
        written: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The operating system refused to read.
    #[error("The trace could not be read at offset {offset}.")]
    Read {
        /// Where.
        offset: FileOff,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be opened or made.
    #[error("The trace file {path} could not be opened.")]
    Open {
        /// Which file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not begin as a trace does.
    #[error("This is not an ichnos trace: it does not begin with the trace magic.")]
    NotATrace,
    /// The file begins as a trace does, but its header is damaged.
    #[error("The trace's header is damaged: {flaw}.")]
    Header {
        /// What is wrong.
        flaw: &'static str,
    },
    /// The file was written by a later version.
    #[error("The trace has format version {found}, and this program knows versions up to {known}.")]
    Version {
        /// The file's version.
        found: u16,
        /// The newest version known here.
        known: u16,
    },
    /// The file is about an instruction set that this version does not know.
    #[error("The trace is about instruction set number {0}, which this program does not know.")]
    Isa(u16),
    /// A chunk is damaged.
    #[error("Chunk {chunk} at offset {offset} is damaged: {flaw}.")]
    Damaged {
        /// The chunk's number in the file, counted from 0.
        chunk: usize,
        /// Where the chunk begins.
        offset: FileOff,
        /// What is wrong.
        flaw: &'static str,
    },
    /// A chunk of a thread is not there.
    #[error(
        "Thread {thread} lacks its chunk {sequence}: the file is damaged before offset {offset}."
    )]
    Missing {
        /// Whose chunk.
        thread: ThreadId,
        /// The missing chunk's number in the thread's stream.
        sequence: u32,
        /// Where the next chunk of the thread begins.
        offset: FileOff,
    },
    /// The file holds no such thread.
    #[error("The trace has no thread {0}.")]
    NoThread(ThreadId),
    /// The file holds no such chunk.
    #[error("The trace has {chunks} chunks, so there is no chunk {chunk}.")]
    NoChunk {
        /// The number asked for.
        chunk: usize,
        /// How many there are.
        chunks: usize,
    },
    /// Executions that were told raw are none.
    #[error(
        "What thread {thread} executed cannot be packed, {at} bytes into a chunk of it: {flaw}."
    )]
    Raw {
        /// Whose executions.
        thread: ThreadId,
        /// Bytes of the chunk before.
        at: usize,
        /// What is wrong.
        flaw: &'static str,
    },
    /// Whoever pushed the trace broke the rules of the interface.
    #[error("The writer was used against its rules: {0}.")]
    Misuse(&'static str),
}

/// What is wrong with a piece of payload, before anyone knows where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flaw(pub(crate) &'static str);
