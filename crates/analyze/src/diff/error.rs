//! What can go wrong when two traces are compared.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// One of the two traces could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<A, B> {
    /// The first.
    #[error("the first trace cannot be read")]
    First(#[source] A),
    /// The second.
    #[error("the second trace cannot be read")]
    Second(#[source] B),
}
