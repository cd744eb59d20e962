//! How one line of a cache is kept in one word.
//!
//! A line number is an address shifted right by at least three (lines have at
//! least eight bytes), so shifting it left by three loses nothing and leaves
//! three bits for flags. The word 0 is an empty way: every present line has
//! [`VALID`] set. Using the whole line number as the tag costs memory that
//! hardware would save, and lets one word answer "is it this line?" for every
//! geometry and placement.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The way holds a line.
pub(crate) const VALID: u64 = 1;
/// The line was written and the next level does not know yet.
pub(crate) const DIRTY: u64 = 2;
/// The line was prefetched and nobody has asked for it since.
pub(crate) const PREFETCHED: u64 = 4;

/// How many bits flags take.
pub(crate) const FLAG_BITS: u32 = 3;

const FLAGS: u64 = VALID | DIRTY | PREFETCHED;
const IDENTITY: u64 = !(DIRTY | PREFETCHED);

/// The word of a line without flags.
#[inline]
pub(crate) const fn entry(line: u64) -> u64 {
    (line << 3) | VALID
}

/// Whether `word` holds the line of `key`, whatever its flags.
#[inline]
pub(crate) const fn same(word: u64, key: u64) -> bool {
    (word ^ key) & IDENTITY == 0
}

/// The place of the word that holds the line of `key`, looked for without a branch for each: where it is is as
/// good as random.
#[inline(always)]
pub(crate) fn place_of<const WAYS: usize>(words: &[u64; WAYS], key: u64) -> Option<usize> {
    let mut found = 0_u32;
    for (at, &word) in words.iter().enumerate() {
        found |= u32::from(same(word, key)) << at;
    }
    (found != 0).then(|| found.trailing_zeros() as usize)
}

/// The flags of a word.
#[inline]
pub(crate) const fn flags(word: u64) -> u64 {
    word & FLAGS
}

/// A line that was in a cache, with its flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resident(u64);

impl Resident {
    /// The line in `word`, or nothing if the way is empty.
    #[inline]
    pub(crate) const fn from_word(word: u64) -> Option<Self> {
        if word == 0 { None } else { Some(Self(word)) }
    }

    /// The line's number.
    #[inline]
    pub(crate) const fn line(self) -> u64 {
        self.0 >> 3
    }

    /// Whether the line is dirty, as a flag.
    #[inline]
    pub(crate) const fn dirty(self) -> u64 {
        self.0 & DIRTY
    }

    /// Whether the line was prefetched in vain so far.
    #[inline]
    pub(crate) const fn prefetched(self) -> bool {
        self.0 & PREFETCHED != 0
    }
}
