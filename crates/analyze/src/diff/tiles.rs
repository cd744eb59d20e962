//! A cheap upper bound of the edit distance for stretches that have nothing
//! unique in common: tiles along the diagonal, each aligned exactly.
//!
//! Within a tile the whole matrix of distances is computed, 64 cells at a time
//! (Myers 1999, in Hyyrö's form for global distances). The next tile begins at
//! the point of the tile's far border that got furthest for its cost. The sum of
//! the tiles' costs is the cost of one possible list of edits, and so an upper
//! bound. Cost: some 300 operations per token.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::hash::FastMap;

/// Tokens along each side of a tile.
const SIDE: usize = 1024;

/// An upper bound of the distance.
pub(crate) fn upper_bound(mut a: &[u32], mut b: &[u32]) -> u64 {
    let mut cost = 0;
    while !a.is_empty() && !b.is_empty() {
        let (rows, columns) = (a.len().min(SIDE), b.len().min(SIDE));
        let border = Border::of(&a[..rows], &b[..columns]);
        if rows == a.len() && columns == b.len() {
            return cost + border.last_row[columns];
        }
        let (i, j, tile) = border.best();
        cost += tile;
        (a, b) = (&a[i..], &b[j..]);
    }
    cost + (a.len() + b.len()) as u64
}

/// Distances along the far border of a tile.
struct Border {
    /// From all rows to each column.
    last_row: Vec<u64>,
    /// From each row to all columns.
    last_column: Vec<u64>,
}

impl Border {
    fn of(a: &[u32], b: &[u32]) -> Self {
        let words = a.len().div_ceil(64);
        let (places, masks) = masks(a, words);
        let blank = vec![0; words];
        let mut column = Column { up: vec![!0; words], down: blank.clone(), rows: a.len() };
        let mut score = a.len() as u64;
        let mut last_row = vec![score];
        for token in b {
            let equal = places.get(token).map_or(&blank[..], |&at| &masks[at..at + words]);
            score = score.wrapping_add_signed(column.advance(equal));
            last_row.push(score);
        }
        Self { last_row, last_column: column.values(b.len() as u64) }
    }

    /// The border point with the most progress for its cost.
    fn best(&self) -> (usize, usize, u64) {
        let (rows, columns) = (self.last_column.len() - 1, self.last_row.len() - 1);
        let bottom = self.last_row.iter().enumerate().map(|(j, &cost)| (rows, j, cost));
        let right = self.last_column.iter().enumerate().map(|(i, &cost)| (i, columns, cost));
        let gain = |&(i, j, cost): &(usize, usize, u64)| (i + j) as i64 - 2 * cost as i64;
        // Equal gains: the point with the most progress.
        let best = bottom.chain(right).max_by_key(|point| (gain(point), point.0 + point.1));
        best.unwrap_or((rows, columns, self.last_row[columns]))
    }
}

/// For each token of `a`, where its bits begin in the table of positions.
fn masks(a: &[u32], words: usize) -> (FastMap<u32, usize>, Vec<u64>) {
    let mut places = FastMap::default();
    let mut masks = Vec::new();
    for (row, &token) in a.iter().enumerate() {
        let at = *places.entry(token).or_insert_with(|| {
            masks.resize(masks.len() + words, 0);
            masks.len() - words
        });
        masks[at + row / 64] |= 1 << (row % 64);
    }
    (places, masks)
}

/// One column of the matrix as differences between neighbouring rows.
struct Column {
    up: Vec<u64>,
    down: Vec<u64>,
    rows: usize,
}

impl Column {
    /// Moves on by one column and answers the change in the last row.
    fn advance(&mut self, equal: &[u64]) -> i64 {
        let words = self.up.len();
        // The first row is the distance from nothing: it grows with each column.
        let mut carry: i64 = 1;
        for (word, &equal) in equal.iter().enumerate() {
            let (up, down) = (self.up[word], self.down[word]);
            let mut eq = equal;
            let xv = eq | down;
            eq |= u64::from(carry < 0);
            let xh = ((eq & up).wrapping_add(up) ^ up) | eq;
            let mut ph = down | !(xh | up);
            let mut mh = up & xh;
            let top = if word + 1 == words { (self.rows - 1) % 64 } else { 63 };
            let out = (ph >> top & 1) as i64 - (mh >> top & 1) as i64;
            ph = ph << 1 | u64::from(carry > 0);
            mh = mh << 1 | u64::from(carry < 0);
            self.up[word] = mh | !(xv | ph);
            self.down[word] = ph & xv;
            carry = out;
        }
        carry
    }

    /// The column's values, given its first.
    fn values(&self, first: u64) -> Vec<u64> {
        let mut value = first;
        let mut values = vec![first];
        for row in 0..self.rows {
            value += self.up[row / 64] >> (row % 64) & 1;
            value -= self.down[row / 64] >> (row % 64) & 1;
            values.push(value);
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The textbook matrix.
    fn matrix(a: &[u32], b: &[u32]) -> Vec<Vec<u64>> {
        let mut rows = vec![(0..=b.len() as u64).collect::<Vec<_>>()];
        for (i, x) in a.iter().enumerate() {
            let mut row = vec![i as u64 + 1];
            for (j, y) in b.iter().enumerate() {
                let replace = rows[i][j] + u64::from(x != y);
                row.push(replace.min(rows[i][j + 1] + 1).min(row[j] + 1));
            }
            rows.push(row);
        }
        rows
    }

    proptest! {
        #[test]
        fn borders_equal_the_matrix(
            a in prop::collection::vec(0u32..5, 1..200),
            b in prop::collection::vec(0u32..5, 1..200),
        ) {
            let full = matrix(&a, &b);
            let border = Border::of(&a, &b);
            prop_assert_eq!(&border.last_row, &full[a.len()]);
            let column: Vec<_> = full.iter().map(|row| row[b.len()]).collect();
            prop_assert_eq!(&border.last_column, &column);
        }
    }

    #[test]
    fn tiles_follow_a_shift() {
        // 5000 tokens, and the same without every hundredth.
        let a: Vec<u32> = (0..5000).map(|i| i * 7919 % 1009).collect();
        let indexed = a.iter().enumerate();
        let b: Vec<u32> = indexed.filter(|(i, _)| i % 100 != 0).map(|(_, &t)| t).collect();
        let bound = upper_bound(&a, &b);
        assert!((50..=60).contains(&bound), "{bound}");
    }
}
