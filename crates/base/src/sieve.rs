//! References that a model of caches need not be told one by one.
//!
//! If a line is used again that was one of the last used of its set, nothing changes in many caches but the order of use: it is a
//! hit. A source that can see this for itself, close to the program, keeps such references back and says only how many
//! there were.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// What a source may keep back from a sink, thread by thread.
///
/// It knows of each set the lines last used, [`Lines::depth`] of them at most, and their order. A reference to one of those is
/// kept back. When another line of the set is used, those whose order has changed since are told first, each once, in the
/// order of their last use, as stores if they were stored to for the first time since. So the cache always knows
/// what it must when a line has to go. Told are lines: instructions, loads and stores of one byte at their beginning.
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
    /// How many lines of a set, at least one, are surely in the cache if they are the ones last used, and using one of
    /// them changes nothing but their order of use.
    pub depth: u32,
}

/// How many references of a thread were kept back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Instructions, each of which is a fetch; modulo 2^64, because an instruction in two lines may be told twice.
    pub insns: u64,
    /// Second lines of all instructions, told or not.
    pub across: u64,
    /// Loads, by lines.
    pub loads: u64,
    /// Stores, by lines.
    pub stores: u64,
}
