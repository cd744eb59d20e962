//! What can go wrong with a user's model. Every message names the file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

use crate::abi::{ABI, ENTRY};

/// Why a library cannot be used as a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system's loader refused it.
    #[error("{}: the library cannot be loaded: {reason}", path.display())]
    Load {
        /// The library.
        path: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// It is no model.
    #[error("{}: the library does not export `{ENTRY}`: {reason}", path.display())]
    NoEntry {
        /// The library.
        path: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// It is a model for another version of the interface.
    #[error(
        "{}: the model has version {found} of the interface, and this program version {ABI}; \
         build it with the ichnos_model.h of this program",
        path.display()
    )]
    Version {
        /// The library.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Its table of functions is not complete.
    #[error("{}: the model's table lacks `{what}`", path.display())]
    Lacks {
        /// The library.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// It does not want to be made.
    #[error("{}: the model refuses its arguments `{args}`: {reason}", path.display())]
    Refused {
        /// The library.
        path: PathBuf,
        /// What it was given.
        args: String,
        /// What it said.
        reason: String,
    },
    /// The arguments cannot be given to a C function.
    #[error("{}: the model's arguments have a zero byte", path.display())]
    ZeroByte {
        /// The library.
        path: PathBuf,
    },
}
