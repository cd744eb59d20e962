//! Best-offset prefetching (Michaud, HPCA 2016).
//!
//! One offset `D` serves all streams: an access to line `X` that misses or uses
//! a prefetched line asks for `X + D` if that lies on the same 4 KiB page. To
//! learn `D`, a small table holds the base `Y - D` of lines `Y` that were
//! prefetched recently (of all lines filled, with `D = 0`, while it is off); each such access to `X` tests one candidate offset `d`, and
//! a score is given if `X - d` is in the table, for then `d` would have brought
//! `X` in time. A learning phase ends when an offset scores 31 or after 100
//! rounds; the best offset wins, and at a score of 1 or less prefetching is off
//! until the next phase.
//!
//! There is no time here, so a prefetch is "filled" at once: the table tells
//! recent from old, which is what remains of the paper's timeliness.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::LineAddr;

use super::{Fill, Outcome, Prefetcher, Seen, Wanted};
use crate::random::mix;

/// Entries of the recent-requests table.
const RECENT: usize = 256;
/// A score that ends the phase at once.
const SCORE_MAX: u32 = 31;
/// Rounds after which the phase ends anyway.
const ROUND_MAX: u32 = 100;
/// A best score up to which prefetching is turned off.
const BAD_SCORE: u32 = 1;
/// The page that a prefetch does not leave, as a power of two.
const PAGE_SHIFT: u32 = 12;

/// Best-offset prefetching.
#[derive(Debug)]
pub struct BestOffset {
    line_shift: u32,
    candidates: Box<[u64]>,
    scores: Box<[u32]>,
    testing: usize,
    round: u32,
    offset: u64,
    on: bool,
    recent: Box<[Option<LineAddr>]>,
}

impl BestOffset {
    /// For a cache with lines of `1 << line_shift` bytes.
    #[must_use]
    pub fn new(line_shift: u32) -> Self {
        let candidates = candidates(line_shift);
        Self {
            line_shift,
            scores: vec![0; candidates.len()].into_boxed_slice(),
            candidates,
            testing: 0,
            round: 0,
            offset: 1,
            on: true,
            recent: vec![None; RECENT].into_boxed_slice(),
        }
    }

    /// The offset in use, if prefetching is on.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.on.then_some(self.offset)
    }

    fn same_page(&self, a: LineAddr, b: LineAddr) -> bool {
        let shift = PAGE_SHIFT.saturating_sub(self.line_shift);
        a.0 >> shift == b.0 >> shift
    }

    fn learn(&mut self, line: LineAddr) {
        let candidate = self.candidates[self.testing];
        let base = line.offset(candidate.wrapping_neg());
        if self.recent[place(base)] == Some(base) {
            self.scores[self.testing] += 1;
            if self.scores[self.testing] >= SCORE_MAX {
                return self.end_phase();
            }
        }
        self.testing += 1;
        if self.testing == self.candidates.len() {
            self.testing = 0;
            self.round += 1;
            if self.round == ROUND_MAX {
                self.end_phase();
            }
        }
    }

    fn end_phase(&mut self) {
        // The smallest of equally good offsets: `max_by_key` takes the last one.
        let best = (0..self.scores.len()).rev().max_by_key(|&at| self.scores[at]).unwrap_or(0);
        self.on = self.scores[best] > BAD_SCORE;
        self.offset = self.candidates[best];
        self.scores.fill(0);
        self.testing = 0;
        self.round = 0;
    }
}

/// The paper's candidates: numbers whose prime factors are 2, 3 and 5, up to
/// the lines of a page (the paper goes to 256 for large pages).
fn candidates(line_shift: u32) -> Box<[u64]> {
    let most = 1u64 << PAGE_SHIFT.saturating_sub(line_shift);
    (1..most.max(2)).filter(|&n| smooth(n)).collect()
}

const fn smooth(mut n: u64) -> bool {
    let mut primes = [2, 3, 5].as_slice();
    while let [prime, rest @ ..] = primes {
        while n.is_multiple_of(*prime) {
            n /= *prime;
        }
        primes = rest;
    }
    n == 1
}

fn place(line: LineAddr) -> usize {
    mix(line.0) as usize % RECENT
}

impl Prefetcher for BestOffset {
    fn access(&mut self, seen: &Seen, wanted: &mut Wanted) {
        if seen.outcome == Outcome::Hit {
            return;
        }
        self.learn(seen.line);
        let target = seen.line.offset(self.offset);
        if self.on && self.same_page(seen.line, target) {
            wanted.push(target);
        }
    }

    fn filled(&mut self, line: LineAddr, why: Fill) {
        let base = match (self.on, why) {
            (true, Fill::Prefetch) => line.offset(self.offset.wrapping_neg()),
            (true, Fill::Demand) => return,
            (false, _) => line,
        };
        if self.same_page(base, line) {
            self.recent[place(base)] = Some(base);
        }
    }
}

#[cfg(test)]
mod tests {
    use ichnos_base::GuestVa;

    use super::*;

    #[test]
    fn candidates_are_those_of_the_paper() {
        // Those of the paper.s list of 52 that lie below 64.
        let got = candidates(6);
        assert_eq!(
            got.as_ref(),
            [
                1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24, 25, 27, 30, 32, 36, 40, 45, 48,
                50, 54, 60
            ]
        );
    }

    #[test]
    fn learns_the_stride_of_a_single_stream() {
        let mut best = BestOffset::new(6);
        let mut line = 0;
        for _ in 0..5000 {
            let at = LineAddr(line);
            let seen =
                Seen { pc: GuestVa(0), addr: GuestVa(line << 6), line: at, outcome: Outcome::Miss };
            let mut wanted = Wanted::new();
            best.access(&seen, &mut wanted);
            best.filled(at, Fill::Demand);
            for &line in wanted.lines() {
                best.filled(line, Fill::Prefetch);
            }
            line += 3;
        }
        // Any multiple of three is in time here; the learnt one must be one.
        assert_eq!(best.offset().map(|d| d % 3), Some(0));
    }
}
