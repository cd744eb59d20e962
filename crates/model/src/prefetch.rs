//! Prefetchers: what to fetch before it is asked for. One prefetcher a file.
//!
//! A prefetcher belongs to one cache and works in that cache's lines. It sees
//! every demand access to the cache in order and may ask for a few lines after
//! each; the cache fills those that it does not have.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod best_offset;
mod next_line;
mod stream;
mod stride;

use std::fmt::Debug;

use ichnos_base::{GuestVa, LineAddr};

pub use best_offset::BestOffset;
pub use next_line::NextLine;
pub use stream::Stream;
pub use stride::Stride;

use crate::Error;
use crate::error::{power_of_two, range};

/// The most lines asked for after one access.
pub const MAX_DEGREE: u32 = 16;

/// Which prefetcher a cache has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PrefetchConfig {
    /// None.
    #[default]
    None,
    /// The lines after a line that missed or was prefetched.
    NextLine {
        /// How many lines.
        degree: u32,
    },
    /// A stride per load or store instruction.
    Stride {
        /// How many strides ahead.
        degree: u32,
        /// How many instructions are watched: a power of two.
        entries: u32,
    },
    /// Ascending and descending streams of misses.
    Stream {
        /// How many lines ahead.
        degree: u32,
        /// How many streams are followed.
        streams: u32,
    },
    /// One offset for all, the one that would have been in time most often.
    BestOffset,
}

impl PrefetchConfig {
    /// Checks the numbers; `field` begins the names in errors.
    pub(crate) fn check(&self, field: &str) -> Result<(), Error> {
        let degree_field = format!("{field}.degree");
        let degree = |d: u32| range(&degree_field, u64::from(d), 1, u64::from(MAX_DEGREE));
        match *self {
            Self::None | Self::BestOffset => Ok(()),
            Self::NextLine { degree: d } => degree(d),
            Self::Stride { degree: d, entries } => {
                degree(d)?;
                let field = format!("{field}.entries");
                range(&field, u64::from(entries), 1, 1 << 20)?;
                power_of_two(&field, u64::from(entries))
            }
            Self::Stream { degree: d, streams } => {
                degree(d)?;
                range(&format!("{field}.streams"), u64::from(streams), 1, 1024)
            }
        }
    }

    /// The prefetcher itself, for a cache with lines of `1 << line_shift` bytes.
    pub(crate) fn build(&self, line_shift: u32) -> Option<Box<dyn Prefetcher>> {
        match *self {
            Self::None => None,
            Self::NextLine { degree } => Some(Box::new(NextLine::new(degree))),
            Self::Stride { degree, entries } => {
                Some(Box::new(Stride::new(degree, entries, line_shift)))
            }
            Self::Stream { degree, streams } => Some(Box::new(Stream::new(degree, streams))),
            Self::BestOffset => Some(Box::new(BestOffset::new(line_shift))),
        }
    }
}

/// A demand access as a prefetcher sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The instruction.
    pub pc: GuestVa,
    /// The address.
    pub addr: GuestVa,
    /// Its line in the cache.
    pub line: LineAddr,
    /// What it met.
    pub outcome: Outcome,
}

/// What a demand access met.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The line was there.
    Hit,
    /// The line was there because it was prefetched, and this is its first use.
    PrefetchHit,
    /// The line was not there.
    Miss,
}

/// The lines that a prefetcher asks for after one access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    lines: [LineAddr; MAX_DEGREE as usize],
    len: usize,
}

impl Wanted {
    /// Nothing wanted yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { lines: [LineAddr(0); MAX_DEGREE as usize], len: 0 }
    }

    /// Asks for a line; more than [`MAX_DEGREE`] lines are not taken.
    pub fn push(&mut self, line: LineAddr) {
        if let Some(place) = self.lines.get_mut(self.len) {
            *place = line;
            self.len += 1;
        }
    }

    /// The lines asked for.
    #[must_use]
    pub fn lines(&self) -> &[LineAddr] {
        &self.lines[..self.len]
    }
}

impl Default for Wanted {
    fn default() -> Self {
        Self::new()
    }
}

/// A prefetcher.
pub trait Prefetcher: Debug + Send {
    /// Takes note of an access and asks for lines.
    fn access(&mut self, seen: &Seen, wanted: &mut Wanted);

    /// A line was filled.
    fn filled(&mut self, line: LineAddr, why: Fill) {
        let _ = (line, why);
    }
}

/// Why a line was filled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fill {
    /// It was asked for and missed.
    Demand,
    /// A prefetcher asked for it.
    Prefetch,
}
