//! What can go wrong in the simulator itself, as opposed to in the guest.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;

/// Why a machine could not be set up or could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is not a riscv64 executable: {reason}", path.display())]
    NotExecutable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Something does not fit into the guest's memory.
    #[error("{what} does not fit into guest memory: {need} bytes, {have} available")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes there are.
        have: u64,
    },
    /// The setting makes no sense.
    #[error("{0}")]
    Config(String),
    /// The host refused something the machine needs.
    #[error("the host refused {what}: {source}")]
    Host {
        /// What was asked.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a run ended early: the simulator and the sink stay apart.
pub type RunError<E> = ichnos_base::DriveError<Error, E>;
