//! Where lines live: the storage behind one cache, without counts, levels or
//! write policies.
//!
//! All storages keep these invariants:
//!
//! * A line is in at most one place.
//! * `fill` is only called for a line that is absent; it evicts at most one
//!   line, and none while the line's set has an empty way.
//! * A *slot* numbers the place of a line and is stable while the line stays,
//!   except in [`LruArray`], which moves lines and has no slots.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Debug;

use super::config::{CacheConfig, Placement};
use super::entry::Resident;
use super::full_lru::{FullFifo, FullLru};
use super::lru_array::LruArray;
use super::set_array::SetArray;
use super::skew_array::SkewArray;
use super::small_fifo::{MOST, SmallFifo};
use super::stamped::StampedLru;
use crate::replace::{
    Brrip, Drrip, Fifo, Lru, Nru, RandomReplacement, Replacement, Shape, Srrip, TreePlru,
};

/// From this many ways on, a fully associative LRU or FIFO cache is searched by
/// hash instead of one way after the other.
const HASHED_WAYS: u32 = 32;

/// What became of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// The line was there, with these flags before the access, in this slot.
    Hit { flags: u64, slot: usize },
    /// It was not; nothing changed.
    Miss,
}

/// What a fill did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Filled {
    /// The line that had to go.
    pub(crate) evicted: Option<Resident>,
    /// Where the new line is.
    pub(crate) slot: usize,
}

/// A storage. See the module's invariants.
pub(crate) trait Array: Debug + Send {
    /// Looks for a line; if it is there, takes note of its use, sets the flags
    /// `set` and clears the flags `clear`.
    fn access(&mut self, line: u64, set: u64, clear: u64) -> Found;
    /// Puts an absent line in, with flags.
    fn fill(&mut self, line: u64, flags: u64) -> Filled;
    /// Takes a line out.
    fn remove(&mut self, line: u64) -> Option<Resident>;
    /// Whether a line is there; nothing changes.
    fn contains(&self, line: u64) -> bool;
    /// Whether using a line again right after its fill changes nothing. After a
    /// hit, using the line again never does.
    fn fill_settles(&self) -> bool;
    /// The slot and the flags of a line, without taking note of it; none if it
    /// is absent or the storage moves its lines.
    fn place(&self, line: u64) -> Option<(usize, u64)> {
        let _ = line;
        None
    }
}

/// A storage picked at run time: the common ones without a virtual call.
#[derive(Debug)]
pub(crate) enum AnyArray {
    /// LRU in sets.
    Lru(LruArray),
    /// LRU in sets, behind a filter.
    Stamped(StampedLru),
    /// FIFO of many ways in one set: TLBs.
    Fifo(FullFifo),
    /// FIFO of few ways in one set, behind a filter.
    SmallFifo(Box<SmallFifo>),
    /// Everything else.
    Other(Box<dyn Array>),
}

impl AnyArray {
    /// The storage of a checked configuration.
    pub(crate) fn new(config: &CacheConfig) -> Self {
        let seed = match config.replacement {
            Replacement::Random { seed } => seed,
            _ => 0,
        };
        let shape = Shape { sets: config.sets() as usize, ways: config.ways as usize, seed };
        if config.placement == Placement::Skewed {
            return Self::Other(Box::new(SkewArray::new(config)));
        }
        let slots_needed = config.sectors > 1;
        match config.replacement {
            Replacement::Lru if config.sets() == 1 && config.ways >= HASHED_WAYS => {
                Self::Other(Box::new(FullLru::new(config.ways as usize)))
            }
            Replacement::Fifo
                if config.sets() == 1 && config.ways >= HASHED_WAYS && !slots_needed =>
            {
                Self::Fifo(FullFifo::new(config.ways as usize))
            }
            Replacement::Lru if !slots_needed => Self::Lru(LruArray::new(config)),
            Replacement::Lru => Self::sets::<Lru>(config, shape),
            Replacement::TreePlru => Self::sets::<TreePlru>(config, shape),
            Replacement::Fifo => Self::sets::<Fifo>(config, shape),
            Replacement::Random { .. } => Self::sets::<RandomReplacement>(config, shape),
            Replacement::Nru => Self::sets::<Nru>(config, shape),
            Replacement::Srrip => Self::sets::<Srrip>(config, shape),
            Replacement::Brrip => Self::sets::<Brrip>(config, shape),
            Replacement::Drrip => Self::sets::<Drrip>(config, shape),
        }
    }

    /// The same for an array behind a filter, which sees few hits.
    pub(crate) fn behind_filter(config: &CacheConfig) -> Self {
        match Self::new(config) {
            Self::Fifo(_) if config.ways as usize <= MOST => {
                Self::SmallFifo(Box::new(SmallFifo::new(config.ways as usize)))
            }
            other => other,
        }
    }

    fn sets<P: crate::replace::Policy + 'static>(config: &CacheConfig, shape: Shape) -> Self {
        Self::Other(Box::new(SetArray::<P>::new(config, shape)))
    }

    /// See [`Array::access`].
    #[inline]
    pub(crate) fn access(&mut self, line: u64, set: u64, clear: u64) -> Found {
        match self {
            Self::Lru(array) => array.access(line, set, clear),
            Self::Stamped(array) => array.access(line, set, clear),
            Self::Fifo(array) => array.access(line, set, clear),
            Self::SmallFifo(array) => array.access(line, set, clear),
            Self::Other(array) => array.access(line, set, clear),
        }
    }

    /// See [`Array::fill`].
    #[inline]
    pub(crate) fn fill(&mut self, line: u64, flags: u64) -> Filled {
        match self {
            Self::Lru(array) => array.fill(line, flags),
            Self::Stamped(array) => array.fill(line, flags),
            Self::Fifo(array) => array.fill(line, flags),
            Self::SmallFifo(array) => array.fill(line, flags),
            Self::Other(array) => array.fill(line, flags),
        }
    }

    /// See [`Array::remove`].
    pub(crate) fn remove(&mut self, line: u64) -> Option<Resident> {
        match self {
            Self::Lru(array) => array.remove(line),
            Self::Stamped(array) => array.remove(line),
            Self::Fifo(array) => array.remove(line),
            Self::SmallFifo(array) => array.remove(line),
            Self::Other(array) => array.remove(line),
        }
    }

    /// See [`Array::contains`].
    pub(crate) fn contains(&self, line: u64) -> bool {
        match self {
            Self::Lru(array) => array.contains(line),
            Self::Stamped(array) => array.contains(line),
            Self::Fifo(array) => array.contains(line),
            Self::SmallFifo(array) => array.contains(line),
            Self::Other(array) => array.contains(line),
        }
    }

    /// See [`Array::fill_settles`].
    pub(crate) fn fill_settles(&self) -> bool {
        match self {
            Self::Lru(array) => array.fill_settles(),
            Self::Stamped(array) => array.fill_settles(),
            Self::Fifo(array) => array.fill_settles(),
            Self::SmallFifo(array) => array.fill_settles(),
            Self::Other(array) => array.fill_settles(),
        }
    }

    /// See [`Array::place`].
    pub(crate) fn place(&self, line: u64) -> Option<(usize, u64)> {
        match self {
            Self::Lru(array) => array.place(line),
            Self::Stamped(array) => array.place(line),
            Self::Fifo(array) => array.place(line),
            Self::SmallFifo(array) => array.place(line),
            Self::Other(array) => array.place(line),
        }
    }
}
