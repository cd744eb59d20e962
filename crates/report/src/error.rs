//! What can go wrong when something is printed.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A report could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Writing failed. When the reader of a pipe went away, the kind is
    /// [`std::io::ErrorKind::BrokenPipe`].
    #[error("the output cannot be written")]
    Write(#[from] std::io::Error),
}
