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
    /// A stored profile cannot be read.
    #[error("the profile cannot be read")]
    Read(#[source] std::io::Error),
    /// A line of a stored profile is not as it should be.
    #[error("line {line} of the profile should be {expected}, not \"{got}\"")]
    Profile {
        /// Which line, from 1.
        line: usize,
        /// What should stand there.
        expected: &'static str,
        /// What does, shortened.
        got: String,
    },
}
