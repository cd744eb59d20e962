//! What can go wrong with an image. Every message names the file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// What every fallible function here returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an image cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no ELF file.
    #[error("{} is not an ELF file: it begins with {found:02x?} instead of 7f 45 4c 46", path.display())]
    NotElf {
        /// Which file.
        path: PathBuf,
        /// Its first bytes, as far as there are any.
        found: Vec<u8>,
    },
    /// An ELF file of a sort that ichnos does not handle.
    #[error("{} is {what}; ichnos handles 64-bit little-endian x86-64 and riscv64 images", path.display())]
    Unsupported {
        /// Which file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// An ELF file whose contents contradict themselves.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// Debugging information that cannot be understood.
    #[error("the debugging information of {} cannot be read: {source}", path.display())]
    Dwarf {
        /// Which file.
        path: PathBuf,
        /// What the DWARF reader said.
        source: gimli::Error,
    },
}
