//! Stretches that occur once in each of two sequences, in the same order: the
//! places where an alignment surely should pass.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::hash::{FastMap, mix};

/// An equal stretch: `len` tokens from `a` in the one and from `b` in the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Anchor {
    pub a: usize,
    pub b: usize,
    pub len: usize,
}

/// Where and how often a stretch was seen. Beyond one, how often is the same.
#[derive(Clone, Copy, Default)]
struct Seen {
    in_a: u8,
    in_b: u8,
    a: u32,
    b: u32,
}

/// Hashes of all stretches of `len` tokens, in order.
pub(crate) fn windows(tokens: &[u32], len: usize) -> impl Iterator<Item = u64> + '_ {
    // A polynomial in an odd base, rolled: the token that leaves is taken out
    // with the base to the power of the length.
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
    let out = (0..len).fold(1u64, |power, _| power.wrapping_mul(BASE));
    let mut hash = 0u64;
    tokens.iter().enumerate().filter_map(move |(i, &token)| {
        hash = hash.wrapping_mul(BASE).wrapping_add(u64::from(token) + 1);
        if i >= len {
            hash = hash.wrapping_sub((u64::from(tokens[i - len]) + 1).wrapping_mul(out));
        }
        (i + 1 >= len).then(|| mix(BASE, hash))
    })
}

/// Anchors of at least `len` tokens, in order and without overlap.
pub(crate) fn anchors(a: &[u32], b: &[u32], len: usize) -> Vec<Anchor> {
    let mut seen = FastMap::<u64, Seen>::default();
    for (at, hash) in windows(a, len).enumerate() {
        let entry = seen.entry(hash).or_default();
        entry.in_a = entry.in_a.saturating_add(1);
        entry.a = at as u32;
    }
    for (at, hash) in windows(b, len).enumerate() {
        if let Some(entry) = seen.get_mut(&hash) {
            entry.in_b = entry.in_b.saturating_add(1);
            entry.b = at as u32;
        }
    }
    let unique = seen.into_values().filter(|s| s.in_a == 1 && s.in_b == 1);
    let mut pairs: Vec<_> = unique.map(|s| (s.a as usize, s.b as usize)).collect();
    // Equal hashes are not yet equal stretches.
    pairs.retain(|&(i, j)| a[i..i + len] == b[j..j + len]);
    pairs.sort_unstable();
    merge(&longest_rising(&pairs), len)
}

/// The longest part of the pairs, sorted by the first, that rises in the second.
fn longest_rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // `ends[n]` is the pair with the smallest second that ends a run of n + 1.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (at, pair) in pairs.iter().enumerate() {
        let place = ends.partition_point(|&end| pairs[end].1 < pair.1);
        before.push(place.checked_sub(1).map(|p| ends[p]));
        match ends.get_mut(place) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut run = Vec::with_capacity(ends.len());
    let mut at = ends.last().copied();
    while let Some(i) = at {
        run.push(pairs[i]);
        at = before[i];
    }
    run.reverse();
    run
}

/// Joins anchors that overlap on one diagonal and drops those that overlap
/// otherwise.
fn merge(run: &[(usize, usize)], len: usize) -> Vec<Anchor> {
    let mut merged: Vec<Anchor> = Vec::new();
    for &(a, b) in run {
        match merged.last_mut() {
            Some(last) if a <= last.a + last.len || b <= last.b + last.len => {
                if a - last.a == b - last.b {
                    last.len = a + len - last.a;
                }
            }
            _ => merged.push(Anchor { a, b, len }),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unique_stretches_anchor_and_crossing_ones_do_not() {
        let a: Vec<u32> = vec![9, 9, 1, 2, 3, 4, 9, 9, 5, 6, 7, 9];
        let b: Vec<u32> = vec![5, 6, 7, 8, 1, 2, 3, 4, 8, 8];
        // 1 2 3 4 makes two windows of three, 5 6 7 one that crosses them.
        assert_eq!(anchors(&a, &b, 3), [Anchor { a: 2, b: 4, len: 4 }]);
        assert_eq!(anchors(&a, &a, 3).len(), 1);
        assert_eq!(anchors(&a, &a, 3)[0], Anchor { a: 0, b: 0, len: 12 });
    }

    #[test]
    fn windows_roll() {
        let tokens: Vec<u32> = (0..50).map(|i| i % 7).collect();
        let rolled: Vec<_> = windows(&tokens, 5).collect();
        assert_eq!(rolled.len(), 46);
        for (at, &hash) in rolled.iter().enumerate() {
            let fresh = windows(&tokens[at..at + 5], 5).next();
            assert_eq!(Some(hash), fresh);
        }
    }
}
