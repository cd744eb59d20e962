//! Who tells a trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::{error, fmt};

use crate::Sink;

/// A producer of a trace: a stored file being replayed, a converter's reader.
pub trait Source {
    /// What can go wrong in this source.
    type Error;

    /// Tells the whole trace to `sink`, from `begin` to `finish`, or until the
    /// sink has seen enough. See [`Sink`] for the order of calls.
    fn drive<S: Sink>(&mut self, sink: &mut S) -> Result<(), DriveError<Self::Error, S::Error>>;
}

/// Why a drive ended early: the two sides' errors stay apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriveError<F, T> {
    /// The source could not go on.
    Source(F),
    /// The sink could not go on.
    Sink(T),
}

impl<F: fmt::Display, T: fmt::Display> fmt::Display for DriveError<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(e) => e.fmt(f),
            Self::Sink(e) => e.fmt(f),
        }
    }
}

impl<F: error::Error, T: error::Error> error::Error for DriveError<F, T> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Source(e) => e.source(),
            Self::Sink(e) => e.source(),
        }
    }
}
