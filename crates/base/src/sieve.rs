//! References that a model of caches need not be told one by one.
//!
//! If a line is used again that was one of the last used of its set, nothing changes in many caches but the order of use: it is a
//! hit. A source that can see this for itself, close to the program, keeps such references back and says only how many
//! there were.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::GuestVa;

/// What a source may keep back from a sink, thread by thread.
///
/// It knows of each set the lines last used, [`Lines::depth`] of them at most, and their order. A reference to one of those is
/// kept back; every other one is told as a [`Line`], by [`Sink::sifted`](crate::Sink::sifted). Before that, the cache is told what it must
/// know about the set: if the lines known are all that a full set has, which of them has to go; else what was stored to since.
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
    /// How many lines of a set may be known: one, in a cache in which using the last line again changes nothing; or as many
    /// as an LRU cache has ways.
    pub depth: u32,
    /// Lines of a full set.
    pub ways: u32,
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
    /// Of its set of the code cache, it was used before all others.
    OldestCode(GuestVa),
    /// Of its set of the data cache, it was used before all others, and was not stored to since it came.
    OldestClean(GuestVa),
    /// The same, but it was.
    OldestDirty(GuestVa),
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
