//! From a stream of samples to estimates: ratios of counts with confidence intervals, as in [`Estimate`](crate::Estimate), of which
//! this is what needs no list of all samples, and does not suppose that they are independent.
//!
//! A sample is a cluster of trials of unequal size, so the ratio of an outcome is that of two sums, and its error that of
//! a ratio of means over clusters. Neighbouring samples resemble each other; therefore the same error is computed
//! from batches of 2, 4, 8, ... samples as well, as long as there are enough batches, and the widest interval
//! counts (*batch means*). Quantiles are Student's, because batches may be few.
//!
//! Memory does not grow with samples: for each batch size there are sums, of squares and of products with the number
//! of trials besides.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::estimate::student;

/// Larger batches are used only if there are so many of them.
const ENOUGH: f64 = 16.0;

/// Counts of samples, summed.
#[derive(Debug, Default)]
pub struct Clusters {
    /// By batch size: one sample, two, four, ...
    levels: Vec<Level>,
    number: u64,
    /// A batch on its way up.
    rising: Vec<f64>,
}

/// Sums of a count.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    all: f64,
    squares: f64,
    /// Of products with the number of trials.
    products: f64,
}

#[derive(Debug, Default)]
struct Level {
    batches: f64,
    sums: Vec<Sum>,
    /// A batch that waits for its other half; empty if there is none.
    half: Vec<f64>,
}

impl Level {
    fn add(&mut self, counts: &[f64]) {
        let trials = counts.first().copied().unwrap_or(0.0);
        self.sums.resize(counts.len().max(self.sums.len()), Sum::default());
        self.batches += 1.0;
        for (sum, count) in self.sums.iter_mut().zip(counts) {
            sum.all += count;
            sum.squares += count * count;
            sum.products += count * trials;
        }
    }

    /// The standard error of the ratio of count `which` to the first, if that is `ratio`.
    fn error(&self, which: usize, ratio: f64) -> Option<f64> {
        let (sum, trials) = (self.sums.get(which)?, self.sums.first()?);
        let squares = sum.squares - 2.0 * ratio * sum.products + ratio * ratio * trials.squares;
        let variance = squares.max(0.0) / (self.batches - 1.0);
        (self.batches > 1.0).then(|| (variance * self.batches).sqrt() / trials.all)
    }
}

impl Clusters {
    /// Takes a sample's counts, the number of trials first. One without trials tells nothing.
    pub fn add(&mut self, counts: &[u64]) {
        if counts.first().is_none_or(|trials| *trials == 0) {
            return;
        }
        self.number += 1;
        self.rising.clear();
        self.rising.extend(counts.iter().map(|c| *c as f64));
        for at in 0.. {
            if at == self.levels.len() {
                self.levels.push(Level::default());
            }
            let level = &mut self.levels[at];
            level.add(&self.rising);
            if level.half.is_empty() {
                level.half.extend(&self.rising);
                return;
            }
            for (all, half) in self.rising.iter_mut().zip(level.half.drain(..)) {
                *all += half;
            }
        }
    }

    /// How many samples there were.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The ratio of a count to the first over all samples, and how far the truth may be from it, 95 times of a hundred;
    /// nothing if there are too few samples.
    #[must_use]
    pub fn ratio(&self, which: usize) -> Option<(f64, f64)> {
        let first = self.levels.first()?;
        let ratio = first.sums.get(which)?.all / first.sums.first()?.all;
        let enough = |(i, level): &(usize, &Level)| *i == 0 || level.batches >= ENOUGH;
        let side =
            |level: &Level| Some(student(level.batches as usize - 1) * level.error(which, ratio)?);
        let sides = self.levels.iter().enumerate().filter(enough).filter_map(|(_, l)| side(l));
        let widest = sides.fold(None, |most: Option<f64>, s| Some(most.map_or(s, |m| m.max(s))));
        widest.filter(|_| which > 0).map(|side| (ratio, side))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[[u64; 2]]) -> Clusters {
        let mut clusters = Clusters::default();
        samples.iter().for_each(|s| clusters.add(s));
        clusters
    }

    #[test]
    fn ratios_have_the_error_of_clusters() {
        let (mean, side) = of(&[[10, 1], [20, 2], [10, 1]]).ratio(1).unwrap();
        assert!((mean - 0.1).abs() < 1e-12 && side < 1e-6);
        // Two clusters with ratios 0 and 0.2: their standard error is 0.1, with one degree of freedom.
        let (mean, side) = of(&[[10, 0], [10, 2]]).ratio(1).unwrap();
        assert!((mean - 0.1).abs() < 1e-12 && (side - 1.2706).abs() < 1e-9);
        assert!(of(&[[10, 1]]).ratio(1).is_none());
        assert!(of(&[[10, 1], [10, 2]]).ratio(0).is_none());
        assert_eq!(of(&[[0, 0], [10, 2]]).number(), 1);
    }

    #[test]
    fn neighbours_that_are_alike_widen_the_interval() {
        let apart: Vec<_> = (0..256).map(|i| [10, i % 2]).collect();
        let alike: Vec<_> = (0..256).map(|i| [10, u64::from(i % 16 < 8)]).collect();
        let (one, two) = (of(&apart).ratio(1).unwrap(), of(&alike).ratio(1).unwrap());
        assert!((one.0 - two.0).abs() < 1e-12);
        // Eight alike in a row count as one: the error grows by the root of eight.
        let grown = two.1 / one.1;
        assert!((2.5..3.3).contains(&grown), "{grown}");
    }
}
