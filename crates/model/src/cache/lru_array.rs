//! LRU in sets, as fast as it gets: the ways of a set lie in order of use, most
//! recent first, so the order needs no storage of its own, the usual hit is
//! found at the first word, and the victim is always the last.
//!
//! Invariant: empty ways are at the end of their set.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::array::{Array, Filled, Found};
use super::config::CacheConfig;
use super::entry::{DIRTY, PREFETCHED, Resident, entry, flags, place_of, same};
use super::index::Index;
use crate::outline::{Step, What};

/// LRU in sets.
#[derive(Debug)]
pub(crate) struct LruArray {
    index: Index,
    ways: usize,
    words: Box<[u64]>,
    /// Where the words begin: at a cache line of the host, so that a usual set takes no more lines than it must.
    base: usize,
}

/// Words of a cache line of the host.
const HOST_LINE: usize = 8;

impl LruArray {
    /// An empty array.
    pub(crate) fn new(config: &CacheConfig) -> Self {
        let words = vec![0; config.lines() as usize + HOST_LINE - 1].into_boxed_slice();
        // If the host does not say, any place is as good.
        let base = words.as_ptr().align_offset(HOST_LINE * size_of::<u64>()) % HOST_LINE;
        Self { index: Index::new(config), ways: config.ways as usize, words, base }
    }

    /// Where the words of a line's set begin.
    #[inline(always)]
    fn start(&self, line: u64) -> usize {
        self.base + self.index.set(line) * self.ways
    }

    #[inline]
    fn set(&mut self, line: u64) -> &mut [u64] {
        let start = self.start(line);
        &mut self.words[start..start + self.ways]
    }

    /// The word of a line that is the most recent one of its set.
    #[inline(always)]
    pub(crate) fn newest(&mut self, line: u64) -> Option<&mut u64> {
        let start = self.start(line);
        self.words.get_mut(start).filter(|word| same(**word, entry(line)))
    }

    /// Has the host fetch the words of a line's set, eight to a line of its own.
    #[inline]
    pub(crate) fn look_ahead(&self, line: u64) {
        let start = self.start(line);
        for word in self.words[start..start + self.ways].iter().step_by(8) {
            std::hint::black_box(*word);
        }
    }

    /// Puts an absent line in the place of a present one. The order of the set is then no longer that of its use:
    /// whoever asks for this says always which line has to go, or uses all lines of the set again first.
    #[inline]
    pub(crate) fn exchange(&mut self, gone: u64, line: u64, flags: u64) -> Option<Resident> {
        let key = entry(gone);
        let words = self.set(line);
        let at = match <&[u64; 8]>::try_from(&*words) {
            Ok(words) => place_of(words, key),
            Err(_) => words.iter().position(|&word| same(word, key)),
        };
        let word = words.get_mut(at?)?;
        Resident::from_word(std::mem::replace(word, entry(line) | flags))
    }

    /// Makes a present line the most recent one, with flags set and cleared,
    /// and tells the flags it had.
    #[inline(never)]
    pub(crate) fn touch(&mut self, line: u64, set: u64, clear: u64) -> Option<u64> {
        let key = entry(line);
        let words = self.set(line);
        let first = words.first_mut()?;
        if same(*first, key) {
            let word = *first;
            *first = (word | set) & !clear;
            return Some(flags(word));
        }
        touch_older(words, key, set, clear)
    }

    /// Uses a line if it is there; says whether it is. It is counted if it had been prefetched.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, line: u64, prefetched: &mut u64) -> bool {
        let (start, key) = (self.start(line), entry(line));
        match self.words.get(start) {
            Some(first) if (*first ^ key) & !DIRTY == 0 => true,
            _ => self.fetch_older(start, key, prefetched),
        }
    }

    #[inline(never)]
    fn fetch_older(&mut self, start: usize, key: u64, prefetched: &mut u64) -> bool {
        let words = self.words.get_mut(start..start + self.ways);
        let flags = words.and_then(|words| touch_older(words, key, 0, PREFETCHED));
        *prefetched += flags.unwrap_or(0) / PREFETCHED;
        flags.is_some()
    }

    /// Makes loads and stores as long as each lies in one line that is there; answers how many were made. Lines that had been
    /// prefetched are counted.
    #[inline]
    pub(crate) fn run(&mut self, run: &Run<'_>, prefetched: &mut u64) -> usize {
        match self.index {
            Index::Mask(mask) => self.run_in(run, prefetched, |line| (line & mask) as usize),
            index => self.run_in(run, prefetched, |line| index.set(line)),
        }
    }

    #[inline(always)]
    fn run_in(&mut self, run: &Run<'_>, prefetched: &mut u64, set: impl Fn(u64) -> usize) -> usize {
        let Run { steps, words, space, shift, dirties } = *run;
        let (ways, sets) = (self.ways, &mut self.words[self.base..]);
        let line_mask = (1 << shift) - 1;
        let ends = |(step, &word): (&Step, &u64)| {
            let at = word ^ space;
            let key = entry(at >> shift);
            let start = set(at >> shift) * ways;
            let dirty = if step.what == What::Store { dirties } else { 0 };
            let Some(first) = sets.get_mut(start) else { return true };
            if (at & line_mask) + u64::from(step.size) > line_mask + 1 {
                return true;
            }
            if (*first ^ key) & !DIRTY == 0 {
                *first |= dirty;
                return false;
            }
            let words = sets.get_mut(start..start + ways);
            let flags = words.and_then(|words| touch_older(words, key, dirty, PREFETCHED));
            *prefetched += flags.unwrap_or(0) / PREFETCHED;
            flags.is_none()
        };
        let count = steps.len().min(words.len());
        steps.iter().zip(words).position(ends).unwrap_or(count)
    }
}

/// Loads and stores of a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// What they are.
    pub(crate) steps: &'a [Step],
    /// Their addresses, before their space is put in.
    pub(crate) words: &'a [u64],
    pub(crate) space: u64,
    /// Bytes of a line as a power of two.
    pub(crate) shift: u32,
    /// The flag that a store sets.
    pub(crate) dirties: u64,
}

/// Makes a line of a set that is present, but not the most recent one, the most recent one, with flags set and cleared, and
/// tells the flags it had.
#[inline(always)]
fn touch_older(words: &mut [u64], key: u64, set: u64, clear: u64) -> Option<u64> {
    let word = match words.len() {
        8 => find_fixed::<8>(words, key)?,
        16 => find_fixed::<16>(words, key)?,
        4 => find_fixed::<4>(words, key)?,
        12 => find_fixed::<12>(words, key)?,
        _ => find(words, key)?,
    };
    words[0] = (word | set) & !clear;
    Some(flags(word))
}

/// Finds the word of a line and moves those before it down by one, so that the
/// first place is free for it.
#[inline]
fn find(words: &mut [u64], key: u64) -> Option<u64> {
    let at = words.iter().position(|&word| same(word, key))?;
    let word = words[at];
    push(&mut words[..=at], word);
    Some(word)
}

/// [`find`] without a branch on where the line is: that is as good as random
/// once it is not the most recent one, and two mispredictions cost more than
/// looking at and moving all words of a usual set.
#[inline]
fn find_fixed<const WAYS: usize>(words: &mut [u64], key: u64) -> Option<u64> {
    let words: &mut [u64; WAYS] = words.try_into().ok()?;
    let at = place_of(words, key)?;
    let old = *words;
    for way in 1..WAYS {
        words[way] = if way <= at { old[way - 1] } else { old[way] };
    }
    Some(old[at % WAYS])
}

/// Puts `first` before all words of `set`, whose last word falls out.
#[inline]
fn push(set: &mut [u64], first: u64) -> u64 {
    let mut carried = first;
    for word in set {
        std::mem::swap(word, &mut carried);
    }
    carried
}

impl Array for LruArray {
    #[inline]
    fn access(&mut self, line: u64, set: u64, clear: u64) -> Found {
        match self.touch(line, set, clear) {
            Some(flags) => Found::Hit { flags, slot: 0 },
            None => Found::Miss,
        }
    }

    #[inline]
    fn fill(&mut self, line: u64, flags: u64) -> Filled {
        let evicted = push(self.set(line), entry(line) | flags);
        Filled { evicted: Resident::from_word(evicted), slot: 0 }
    }

    fn remove(&mut self, line: u64) -> Option<Resident> {
        let key = entry(line);
        let words = self.set(line);
        let at = words.iter().position(|&word| same(word, key))?;
        words[at..].rotate_left(1);
        let last = words.last_mut()?;
        Resident::from_word(std::mem::take(last))
    }

    fn contains(&self, line: u64) -> bool {
        let start = self.start(line);
        let key = entry(line);
        self.words[start..start + self.ways].iter().any(|&word| same(word, key))
    }

    fn fill_settles(&self) -> bool {
        true
    }
}
