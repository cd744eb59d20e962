//! The miss-ratio curve: the share of misses of a fully associative LRU cache,
//! for every size.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The misses of caches of one size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CurvePoint {
    /// The size in lines.
    pub lines: u64,
    /// The share of references that miss.
    pub miss_ratio: f64,
}

/// A miss-ratio curve: steps down, sizes ascending, valid from each point's size
/// up to the next one's.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MissRatioCurve {
    /// The points at which the ratio changes, beginning with size 0.
    pub points: Vec<CurvePoint>,
}

impl MissRatioCurve {
    /// The curve of a histogram of distances, given as (distance, weight) in
    /// ascending order, and the weight of first references, which always miss.
    pub(crate) fn from_histogram(
        histogram: impl Iterator<Item = (u64, f64)> + Clone,
        first: f64,
    ) -> Self {
        let total: f64 = first + histogram.clone().map(|(_, weight)| weight).sum::<f64>();
        if total <= 0.0 {
            return Self::default();
        }
        let mut misses = total;
        let mut points = vec![CurvePoint { lines: 0, miss_ratio: 1.0 }];
        // A reference at distance d hits in every cache of more than d lines.
        for (distance, weight) in histogram.filter(|&(_, weight)| weight != 0.0) {
            misses -= weight;
            points.push(CurvePoint {
                lines: distance + 1,
                miss_ratio: (misses / total).clamp(0.0, 1.0),
            });
        }
        Self { points }
    }

    /// The miss ratio of a cache of so many lines.
    #[must_use]
    pub fn at(&self, lines: u64) -> f64 {
        let after = self.points.partition_point(|point| point.lines <= lines);
        after
            .checked_sub(1)
            .and_then(|at| self.points.get(at))
            .map_or(0.0, |point| point.miss_ratio)
    }

    /// The mean absolute difference to another curve over sizes that double
    /// from one line to `most` lines: how far an estimate is off.
    #[must_use]
    pub fn distance(&self, other: &Self, most: u64) -> f64 {
        let sizes: Vec<u64> =
            (0..64).map(|shift| 1 << shift).take_while(|&size| size <= most.max(1)).collect();
        let sum: f64 = sizes.iter().map(|&size| (self.at(size) - other.at(size)).abs()).sum();
        sum / sizes.len() as f64
    }
}
