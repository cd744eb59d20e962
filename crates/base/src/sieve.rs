//! References that a model of caches need not be told one by one.
//!
//! If a line is used again that was one of the last used of its set, nothing changes in many caches but the order of use: it is a
//! hit. A source that can see this for itself, close to the program, keeps such references back and says only how many
//! there were.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::GuestVa;

/// What a source may keep back from a sink, thread by thread.
///
/// It knows of each set the lines last used, as many as [`Lines::known`] says, and their order. A reference to one of those is
/// kept back; every other one is told as a [`Line`], by [`Sink::sifted`](crate::Sink::sifted), with what the cache must know
/// about the set: if the lines known are all that a full set has, which of them has to go; else, before it, what was stored to
/// since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sieve {
    /// The cache of fetches.
    pub code: Lines,
    /// The cache of loads and stores.
    pub data: Lines,
}

/// How addresses fall into lines and sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lines {
    /// Bytes of a line, as a power of two.
    pub shift: u32,
    /// Number of sets, as a power of two: the set is the low bits of the line's number.
    pub sets: u32,
    /// Lines of a full set.
    pub ways: u32,
    /// Which lines of a set may be known.
    pub known: Known,
}

/// Which lines of a set can be used again without the cache being told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// The one used last, in a cache in which using it again changes nothing.
    Last,
    /// All of them, in an LRU cache.
    All,
}

/// What is told of a line, in the order of references to its set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// An instruction is fetched from it.
    Fetch(GuestVa),
    /// It is loaded from.
    Load(GuestVa),
    /// It is stored to.
    Store(GuestVa),
    /// It is asked for.
    Prefetch(GuestVa),
    /// It is to leave all caches.
    Flush(GuestVa),
    /// It comes in the place of another one, which was used before all others of its set.
    Instead {
        /// What comes.
        comes: Use,
        /// From or to which line.
        line: GuestVa,
        /// The line that has to go.
        goes: Gone,
    },
}

/// What a line is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// An instruction is fetched from it.
    Fetch,
    /// It is loaded from.
    Load,
    /// It is stored to.
    Store,
}

/// A line that has to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// It was not stored to since it came.
    Clean(GuestVa),
    /// It was.
    Dirty(GuestVa),
}

/// How many references of a thread were kept back.
///
/// All sums are modulo 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Instructions, each of which is a fetch. An instruction in two lines may have been told twice.
    pub insns: u64,
    /// Second lines of all instructions, told or not.
    pub across: u64,
    /// Loads, by lines.
    pub loads: u64,
    /// Stores, by lines.
    pub stores: u64,
}
