//! Exact LRU stack distances (Mattson et al., 1970) in logarithmic time.
//!
//! # Method
//!
//! Every reference takes the next *moment*; a bitmap has a bit for each moment
//! that is the latest of some line. The distance of a reference to a line last
//! used at moment `p` is the number of bits set after `p`: the distinct lines
//! used since. Bits are counted by a Fenwick tree over the words of the bitmap
//! (Bennett and Kruskal, 1975, with a word where they have a leaf), or, when
//! `p` is recent, by looking at the few words between.
//!
//! When the moments run out, the lines are renumbered in order, so memory is
//! bounded by the footprint: about 14 bytes a line in the map, and at most four
//! moments a line.
//!
//! # Invariants
//!
//! * `tree` holds, for word `w` (from 1), the number of bits in the Fenwick
//!   range that ends at `w`.
//! * As many bits are set as the map has lines, and `map[line]` is its moment.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::line_map::LineMap;

/// Words that are counted directly instead of through the tree.
const NEAR: usize = 24;
/// Moments at the start; also the least.
const FIRST_MOMENTS: usize = 1 << 16;

/// The order of use of all lines.
#[derive(Debug)]
pub(crate) struct Stack {
    map: LineMap,
    words: Vec<u64>,
    tree: Vec<u32>,
    now: usize,
}

impl Stack {
    /// No lines yet.
    pub(crate) fn new() -> Self {
        let words = FIRST_MOMENTS / 64;
        Self {
            map: LineMap::with_capacity(1024),
            words: vec![0; words],
            tree: vec![0; words + 1],
            now: 0,
        }
    }

    /// How many lines there are.
    pub(crate) const fn lines(&self) -> usize {
        self.map.len()
    }

    /// Uses a line; its distance, or nothing for the first use.
    #[inline]
    pub(crate) fn reference(&mut self, line: u64) -> Option<usize> {
        if self.now == self.words.len() * 64 {
            self.renumber();
        }
        let now = self.now;
        self.now += 1;
        let last = self.map.insert(line, now as u32);
        let (word, bit) = (now / 64, now % 64);
        let Some(last) = last else {
            self.words[word] |= 1 << bit;
            self.add(word, 1);
            return None;
        };
        let (old_word, old_bit) = (last as usize / 64, last as usize % 64);
        let distance = self.after(old_word, old_bit, word);
        self.words[old_word] &= !(1 << old_bit);
        self.words[word] |= 1 << bit;
        if old_word != word {
            self.add(old_word, u32::MAX);
            self.add(word, 1);
        }
        Some(distance)
    }

    /// Forgets a line.
    pub(crate) fn forget(&mut self, line: u64) {
        if let Some(moment) = self.map.remove(line) {
            self.words[moment as usize / 64] &= !(1 << (moment % 64));
            self.add(moment as usize / 64, u32::MAX);
        }
    }

    /// The bits set after bit `bit` of word `from`, up to word `to`, the last
    /// one with any.
    #[inline]
    fn after(&self, from: usize, bit: usize, to: usize) -> usize {
        let rest = (self.words[from] >> bit).count_ones() as usize - 1;
        if to - from <= NEAR {
            let between: u32 = self.words[from + 1..=to].iter().map(|word| word.count_ones()).sum();
            return rest + between as usize;
        }
        // All lines but the one asked about have their bit somewhere; the map
        // counts it already. Those up to `from` are subtracted.
        rest + self.map.len() - self.up_to(from) as usize
    }

    /// The bits set in words `0..=word`.
    #[inline]
    fn up_to(&self, word: usize) -> u32 {
        let mut sum = 0u32;
        let mut at = word + 1;
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at]);
            at &= at - 1;
        }
        sum
    }

    #[inline]
    fn add(&mut self, word: usize, delta: u32) {
        let mut at = word + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(delta);
            at += at & at.wrapping_neg();
        }
    }

    /// Gives the lines the first moments, in order, and makes room for at least
    /// as many more.
    #[cold]
    fn renumber(&mut self) {
        let lines = self.map.len();
        let mut before = Vec::with_capacity(self.words.len());
        let mut sum = 0u32;
        for word in &self.words {
            before.push(sum);
            sum += word.count_ones();
        }
        let words = &self.words;
        self.map.update(|moment| {
            let (word, bit) = (moment as usize / 64, moment % 64);
            before[word] + (words[word] & ((1 << bit) - 1)).count_ones()
        });
        let moments = (lines * 2).next_power_of_two().clamp(FIRST_MOMENTS, 1 << 31);
        self.words.clear();
        self.words.resize(moments / 64, 0);
        for moment in 0..lines {
            self.words[moment / 64] |= 1 << (moment % 64);
        }
        self.rebuild();
        self.now = lines;
    }

    /// The tree from the bitmap, in linear time.
    fn rebuild(&mut self) {
        self.tree.clear();
        self.tree.push(0);
        self.tree.extend(self.words.iter().map(|word| word.count_ones()));
        for at in 1..self.tree.len() {
            let parent = at + (at & at.wrapping_neg());
            if parent < self.tree.len() {
                self.tree[parent] += self.tree[at];
            }
        }
    }
}
