//! The edit distance of two sequences of any length and likeness, and the
//! similarity that follows from it.
//!
//! Near-equal sequences: the exact distance (`distance.rs`). Otherwise an upper
//! bound from one good list of edits: exact between unique stretches
//! (`anchors.rs`) as far as the budget goes, by tiles (`tiles.rs`) where it does
//! not; and lower bounds from the rounds of the exact search that failed, from
//! the lengths, and from counting common stretches: each edit destroys at most q
//! stretches of q tokens (Ukkonen 1992).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_base::ThreadId;

use super::anchors::{anchors, windows};
use super::distance::{Budget, Distance, exact, strip};
use super::pairing::{Pairing, pair};
use super::tiles;
use super::tokens::Sequences;
use crate::hash::FastMap;

/// Anchors are looked for at these lengths, one after the other.
const ANCHOR_LENGTHS: [usize; 3] = [64, 16, 4];

/// Stretches of these lengths are counted for the lower bound.
const COUNTED_LENGTHS: [usize; 4] = [1, 2, 4, 8];

/// How alike two sequences are, from 0 (nothing in common) to 1 (equal).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Similarity {
    /// The length of the longer sequence.
    pub length: u64,
    /// The edit distance.
    pub distance: Distance,
}

impl Similarity {
    /// It is not smaller than this.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.of(self.distance.high)
    }

    /// It is not larger than this.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.of(self.distance.low)
    }

    fn of(&self, distance: u64) -> f64 {
        if self.length == 0 { 1.0 } else { 1.0 - distance as f64 / self.length as f64 }
    }

    fn add(&mut self, other: &Self) {
        self.length += other.length;
        self.distance.low += other.distance.low;
        self.distance.high += other.distance.high;
    }
}

/// The similarity of one thread of each trace.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ThreadSimilarity {
    /// The first trace's thread, if this is not one of the second trace only.
    pub a: Option<ThreadId>,
    /// The second trace's thread, if this is not one of the first trace only.
    pub b: Option<ThreadId>,
    /// How alike they are. A thread without partner is like nothing.
    pub similarity: Similarity,
}

/// How alike two traces are: all threads together, and each pair.
#[must_use]
pub fn similarity(
    a: &Sequences,
    b: &Sequences,
    pairing: &Pairing,
    budget: &Budget,
) -> (Similarity, Vec<ThreadSimilarity>) {
    let lengths = |s: &Sequences| -> BTreeMap<ThreadId, u64> {
        s.threads.iter().map(|(&id, tokens)| (id, tokens.len() as u64)).collect()
    };
    let paired = pair(&lengths(a), &lengths(b), pairing);
    let both = paired.pairs.iter().map(|&(x, y)| (Some(x), Some(y)));
    let first = paired.only_a.iter().map(|&x| (Some(x), None));
    let second = paired.only_b.iter().map(|&y| (None, Some(y)));
    let mut total = Similarity { length: 0, distance: Distance::default() };
    let rows = both.chain(first).chain(second).map(|(x, y)| {
        let (s, t) = (tokens(a, x), tokens(b, y));
        let length = s.len().max(t.len()) as u64;
        let similarity = Similarity { length, distance: distance(s, t, budget) };
        total.add(&similarity);
        ThreadSimilarity { a: x, b: y, similarity }
    });
    let rows = rows.collect();
    (total, rows)
}

fn tokens(sequences: &Sequences, id: Option<ThreadId>) -> &[u32] {
    id.and_then(|id| sequences.threads.get(&id)).map_or(&[], Vec::as_slice)
}

/// The edit distance of two sequences, exact if the budget allows.
#[must_use]
pub fn distance(a: &[u32], b: &[u32], budget: &Budget) -> Distance {
    let (a, b) = strip(a, b);
    if a.is_empty() || b.is_empty() {
        return Distance::exactly(a.len().max(b.len()) as u64);
    }
    let exceeded = match exact(a, b, budget.exact) {
        Ok(distance) => return Distance::exactly(distance),
        Err(exceeded) => exceeded,
    };
    let counted = COUNTED_LENGTHS.iter().map(|&q| lower_bound(a, b, q)).max();
    let low = counted.unwrap_or(0).max(exceeded + 1).max(a.len().abs_diff(b.len()) as u64);
    Distance { low, high: upper_bound(a, b, budget, &ANCHOR_LENGTHS).max(low) }
}

/// A lower bound from stretches of `q` tokens: two sequences share all but what
/// their edits destroy, and one edit destroys at most `q`.
fn lower_bound(a: &[u32], b: &[u32], q: usize) -> u64 {
    let longer = a.len().max(b.len());
    let Some(stretches) = (longer + 1).checked_sub(q) else { return 0 };
    let mut counts = FastMap::<u64, u32>::default();
    for hash in windows(a, q) {
        *counts.entry(hash).or_default() += 1;
    }
    // Stretches that differ but hash alike only make the bound smaller.
    let mut shared = 0;
    for hash in windows(b, q) {
        if let Some(count) = counts.get_mut(&hash).filter(|count| **count > 0) {
            *count -= 1;
            shared += 1;
        }
    }
    ((stretches - shared) as u64).div_ceil(q as u64)
}

fn upper_bound(a: &[u32], b: &[u32], budget: &Budget, lengths: &[usize]) -> u64 {
    let (a, b) = strip(a, b);
    if a.is_empty() || b.is_empty() {
        return a.len().max(b.len()) as u64;
    }
    let Some((&len, shorter)) = lengths.split_first() else { return tiles::upper_bound(a, b) };
    let found = anchors(a, b, len);
    let (mut i, mut j, mut cost) = (0, 0, 0);
    let between = |a: &[u32], b: &[u32]| {
        let (a, b) = strip(a, b);
        let work = budget.per_token.saturating_mul((a.len() + b.len()) as u64);
        exact(a, b, work).unwrap_or_else(|_| upper_bound(a, b, budget, shorter))
    };
    for anchor in found {
        cost += between(&a[i..anchor.a], &b[j..anchor.b]);
        (i, j) = (anchor.a + anchor.len, anchor.b + anchor.len);
    }
    cost + between(&a[i..], &b[j..])
}
