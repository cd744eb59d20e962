//! What can go wrong while reading or writing a foreign format. Every message
//! names the format and the place: a line for text, a byte offset for the rest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::path::PathBuf;

use ichnos_base::GuestVa;
use thiserror::Error;

use crate::Format;

/// What every fallible function here returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a conversion cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened or made.
    #[error("cannot open {}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Reading failed: the system's fault, or a damaged or truncated compressed
    /// stream.
    #[error("cannot read the {format} input after byte {offset} of its contents: {source}")]
    Read {
        /// What was being read.
        format: Format,
        /// Bytes of uncompressed contents taken before.
        offset: u64,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write the {format} output: {source}")]
    Write {
        /// What was being written.
        format: Format,
        /// What the system said.
        source: io::Error,
    },
    /// A line of text that the format does not have.
    #[error("line {line} of the {format} input is bad: {what}")]
    Line {
        /// What was being read.
        format: Format,
        /// The line, from 1.
        line: u64,
        /// Expected and got.
        what: String,
    },
    /// Bytes that the format does not have.
    #[error("the {format} input is bad at byte {offset} of its contents: {what}")]
    Bytes {
        /// What was being read.
        format: Format,
        /// Where the bad piece begins in the uncompressed contents.
        offset: u64,
        /// Expected and got.
        what: String,
    },
    /// A good input of a sort that is not handled.
    #[error("the {format} format cannot be used here: {what}")]
    Unsupported {
        /// Which format.
        format: Format,
        /// What is not handled.
        what: String,
    },
    /// The trace lacks what the format must have.
    #[error("the {format} output needs the machine code of {pc}, which the trace does not tell")]
    NoCode {
        /// Which format.
        format: Format,
        /// Which instruction.
        pc: GuestVa,
    },
}
