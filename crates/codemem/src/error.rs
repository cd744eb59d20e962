//! What can go wrong with executable memory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::CacheAddr;

/// Why executable memory could not be had or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system gave no memory.
    #[error("no executable memory of {len} bytes could be mapped")]
    Map {
        /// How much was asked for.
        len: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// The region has no room left.
    #[error("the code region at {start} is full: {wanted} bytes wanted, {left} left")]
    Full {
        /// Where the region lies.
        start: CacheAddr,
        /// How much was asked for.
        wanted: usize,
        /// How much there is.
        left: usize,
    },
    /// An address lies outside the region, or not wholly in it.
    #[error("{len} bytes at {addr} are not in the code region at {start}")]
    Outside {
        /// Where the region lies.
        start: CacheAddr,
        /// What was named.
        addr: CacheAddr,
        /// How many bytes.
        len: usize,
    },
}
