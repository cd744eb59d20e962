//! Which edits turn one sequence into another, for sequences that are near.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use super::distance::Walk;

/// A stretch of `a` that is replaced by a stretch of `b`. One of them may be
/// empty; the shorter counts as replaced, the rest as inserted or deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    /// Positions in the first sequence.
    pub a: Range<usize>,
    /// Positions in the second sequence.
    pub b: Range<usize>,
}

/// A shortest list of edits, in order, if the distance is at most `limit`.
/// Neighbouring edits are joined. Memory: 8 bytes times the distance squared,
/// so 32 MB for a limit of 2000.
#[must_use]
pub fn edits(a: &[u32], b: &[u32], limit: u32) -> Option<Vec<Edit>> {
    let mut walk = Walk::new(a, b);
    let mut rounds: Vec<(i64, Vec<i64>)> = Vec::new();
    loop {
        let done = walk.round();
        let (low, frontier) = walk.frontier();
        rounds.push((low, frontier.to_vec()));
        if done.is_some() {
            break;
        }
        if walk.edits > u64::from(limit) {
            return None;
        }
    }
    Some(join(&trace_back(&rounds, a.len(), b.len())))
}

fn furthest(rounds: &[(i64, Vec<i64>)], round: usize, k: i64) -> Option<i64> {
    let (low, frontier) = rounds.get(round)?;
    let at = usize::try_from(k - low).ok()?;
    frontier.get(at).copied().filter(|&i| i >= 0)
}

/// Walks from both ends back to the beginning, and lists single edits in
/// order. Each is a stretch of at most one token on each side.
fn trace_back(rounds: &[(i64, Vec<i64>)], n: usize, m: usize) -> Vec<Edit> {
    let mut singles = Vec::new();
    let mut k = m as i64 - n as i64;
    let mut end = n as i64;
    for round in (1..rounds.len()).rev() {
        let before = |k| furthest(rounds, round - 1, k);
        // Where this round's step may have come from, and where it arrived.
        let replaced = before(k).map(|i| (i + 1, k, i, 1));
        let inserted = before(k - 1).map(|i| (i, k - 1, i, 0));
        let deleted = before(k + 1).map(|i| (i + 1, k + 1, i, 1));
        let origins = [replaced, inserted, deleted].into_iter().flatten();
        // The arrival nearest to where the free run ended is the one that was
        // taken: the walk takes the furthest.
        let Some((arrived, from, i, taken)) = origins.filter(|o| o.0 <= end).max_by_key(|o| o.0)
        else {
            break;
        };
        let j = i + from;
        let (i, j, to) = (i as usize, j as usize, (arrived + k) as usize);
        singles.push(Edit { a: i..i + taken, b: j..to });
        k = from;
        end = i as i64;
    }
    singles.reverse();
    singles
}

fn join(singles: &[Edit]) -> Vec<Edit> {
    let mut joined: Vec<Edit> = Vec::new();
    for edit in singles {
        match joined.last_mut() {
            Some(last) if last.a.end == edit.a.start && last.b.end == edit.b.start => {
                last.a.end = edit.a.end;
                last.b.end = edit.b.end;
            }
            _ => joined.push(edit.clone()),
        }
    }
    joined
}
