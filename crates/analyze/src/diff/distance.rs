//! The exact edit distance of two sequences, in time that grows with the
//! distance and not with the product of the lengths.
//!
//! Method (Ukkonen 1985, Landau and Vishkin 1989): for d = 0, 1, 2, ... and each
//! diagonal k, how far along `a` one can get on that diagonal with d edits. One
//! more edit steps along the diagonal (replacement) or comes from a neighbour
//! (insertion, deletion); equal tokens are then free. The first d that reaches
//! both ends is the distance. After d rounds without reaching them the distance
//! is known to be larger than d.
//!
//! Cost: d rounds over at most 2d + 1 diagonals, plus the tokens compared. Both
//! are counted against the budget.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// How much work may be spent, in units of about a nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// For the exact distance of two whole sequences.
    pub exact: u64,
    /// For the exact distance of a stretch between two anchors, per token.
    pub per_token: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { exact: 1 << 29, per_token: 256 }
    }
}

/// An edit distance, or bounds of it that are certain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Distance {
    /// It is not smaller than this.
    pub low: u64,
    /// It is not larger than this.
    pub high: u64,
}

impl Distance {
    /// A distance that is known.
    #[must_use]
    pub const fn exactly(distance: u64) -> Self {
        Self { low: distance, high: distance }
    }

    /// Whether it is known.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.low == self.high
    }
}

/// How many tokens are equal at the beginning.
pub(crate) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    const WIDE: usize = 16;
    let chunks = a.chunks_exact(WIDE).zip(b.chunks_exact(WIDE));
    let whole = chunks.take_while(|(x, y)| x == y).count() * WIDE;
    let rest = a[whole..].iter().zip(&b[whole..]);
    whole + rest.take_while(|(x, y)| x == y).count()
}

/// How many tokens are equal at the end.
pub(crate) fn common_suffix(a: &[u32], b: &[u32]) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev());
    pairs.take_while(|(x, y)| x == y).count()
}

/// Both sequences without what they share at the beginning and at the end.
/// The edit distance stays the same.
pub(crate) fn strip<'a, 'b>(a: &'a [u32], b: &'b [u32]) -> (&'a [u32], &'b [u32]) {
    let start = common_prefix(a, b);
    let (a, b) = (&a[start..], &b[start..]);
    let end = common_suffix(a, b);
    (&a[..a.len() - end], &b[..b.len() - end])
}

/// One round's furthest positions, for diagonals `-reach ..= reach`.
const NOWHERE: i64 = i64::MIN / 2;

/// The exact distance, or, when the work would exceed `budget`, a distance that
/// is certainly exceeded.
pub(crate) fn exact(a: &[u32], b: &[u32], budget: u64) -> Result<u64, u64> {
    let mut walk = Walk::new(a, b);
    loop {
        if let Some(distance) = walk.round() {
            return Ok(distance);
        }
        if walk.work > budget {
            return Err(walk.edits - 1);
        }
    }
}

/// The state between two rounds.
pub(crate) struct Walk<'a> {
    a: &'a [u32],
    b: &'a [u32],
    /// Rounds done.
    pub edits: u64,
    /// Position along `a` per diagonal; diagonal k is at `k + offset`.
    furthest: Vec<i64>,
    offset: i64,
    /// The diagonals that have been reached.
    low: i64,
    high: i64,
    pub work: u64,
}

impl<'a> Walk<'a> {
    pub fn new(a: &'a [u32], b: &'a [u32]) -> Self {
        let furthest = vec![NOWHERE; 3];
        Self { a, b, edits: 0, furthest, offset: 1, low: 0, high: 0, work: 0 }
    }

    /// The furthest positions after the last round, with the first one's diagonal.
    pub fn frontier(&self) -> (i64, &[i64]) {
        let at = |k: i64| (k + self.offset) as usize;
        (self.low, &self.furthest[at(self.low)..=at(self.high)])
    }

    /// One more edit. Answers the distance when both ends are reached.
    pub fn round(&mut self) -> Option<u64> {
        let (n, m) = (self.a.len() as i64, self.b.len() as i64);
        if self.edits > 0 {
            self.widen();
        }
        // In place, from low diagonals to high ones: `left` is what the lower
        // neighbour was before this round.
        let mut left = NOWHERE;
        for k in self.low..=self.high {
            let at = (k + self.offset) as usize;
            let here = self.furthest[at];
            let right = self.furthest[at + 1];
            let start = if self.edits == 0 { 0 } else { left.max(here + 1).max(right + 1) };
            left = here;
            let i = start.min(n).min(m - k);
            self.furthest[at] = if i < 0 || i + k < 0 { NOWHERE } else { self.slide(i, k) };
        }
        let done = (self.low..=self.high).contains(&(m - n))
            && self.furthest[(m - n + self.offset) as usize] == n;
        self.edits += 1;
        done.then(|| self.edits - 1)
    }

    fn slide(&mut self, i: i64, k: i64) -> i64 {
        let equal = common_prefix(&self.a[i as usize..], &self.b[(i + k) as usize..]);
        self.work += 2 + equal as u64 / 8;
        i + equal as i64
    }

    /// Lets the next round reach one diagonal further on both sides, as long as
    /// there are any.
    fn widen(&mut self) {
        let (n, m) = (self.a.len() as i64, self.b.len() as i64);
        self.low = (self.low - 1).max(-n);
        self.high = (self.high + 1).min(m);
        let reach = self.high.max(-self.low);
        if reach + 1 >= self.offset {
            // Room for as many diagonals again on both sides.
            let more = self.offset + 2;
            let mut wider = vec![NOWHERE; (self.furthest.len() as i64 + 2 * more) as usize];
            wider[more as usize..more as usize + self.furthest.len()]
                .copy_from_slice(&self.furthest);
            self.furthest = wider;
            self.offset += more;
        }
    }
}
