//! From samples to an estimate: a ratio such as misses per access, and how far
//! off it may be.
//!
//! Samples are of different size, so the ratio of the sums is estimated, with
//! the variance of a ratio estimator (Cochran, "Sampling Techniques", chapter 6)
//! and Student's distribution with one degree of freedom less than there are
//! samples. The estimate supposes that samples were drawn without regard to
//! what they contain, and that each is warm: see
//! [`Hierarchy::reset_counts`](crate::Hierarchy::reset_counts).
// SPDX-License-Identifier: MIT OR Apache-2.0

/// An estimated ratio.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Estimate {
    /// The ratio.
    pub ratio: f64,
    /// Half the width of its 95 % confidence interval; infinite with less than
    /// two samples.
    pub half_width: f64,
    /// How many samples there were.
    pub samples: usize,
}

impl Estimate {
    /// From the parts and wholes of each sample: misses and accesses, say.
    #[must_use]
    pub fn from_samples(samples: &[(u64, u64)]) -> Self {
        let n = samples.len() as f64;
        let parts: f64 = samples.iter().map(|&(part, _)| part as f64).sum();
        let wholes: f64 = samples.iter().map(|&(_, whole)| whole as f64).sum();
        let ratio = if wholes == 0.0 { 0.0 } else { parts / wholes };
        if samples.len() < 2 || wholes == 0.0 {
            return Self { ratio, half_width: f64::INFINITY, samples: samples.len() };
        }
        let residues: f64 = samples
            .iter()
            .map(|&(part, whole)| part as f64 - ratio * whole as f64)
            .map(|residue| residue * residue)
            .sum();
        let mean_whole = wholes / n;
        let error = (residues / (n - 1.0) / n).sqrt() / mean_whole;
        Self { ratio, half_width: student(samples.len() - 1) * error, samples: samples.len() }
    }

    /// Whether a value lies in the interval.
    #[must_use]
    pub fn covers(&self, value: f64) -> bool {
        (value - self.ratio).abs() <= self.half_width
    }
}

/// The 97.5 % quantile of Student's distribution. The first ten are tabulated;
/// beyond, the expansion in powers of the inverse degrees of freedom (Fisher and
/// Cornish) is right to three digits.
pub(crate) fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 10] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    if let Some(&quantile) = freedom.checked_sub(1).and_then(|at| TABLE.get(at)) {
        return quantile;
    }
    let (z, v) = (1.959_964_f64, freedom.max(1) as f64);
    let first = (z.powi(3) + z) / (4.0 * v);
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v * v);
    z + first + second
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, want) in [(1, 12.706), (10, 2.228), (15, 2.131), (30, 2.042), (120, 1.980)] {
            assert!((student(freedom) - want).abs() < 0.001, "{freedom}");
        }
        assert!((student(1_000_000_000) - 1.96).abs() < 1e-4);
    }

    /// Of many intervals, about 95 % cover the truth.
    #[test]
    fn intervals_cover_as_often_as_they_say() {
        let mut random = Random::new(11);
        let covered = (0..1000)
            .filter(|_| {
                let samples: Vec<(u64, u64)> = (0..20)
                    .map(|_| {
                        let whole = 500 + random.below(1000);
                        let part = (0..whole).filter(|_| random.unit() < 0.1).count();
                        (part as u64, whole)
                    })
                    .collect();
                Estimate::from_samples(&samples).covers(0.1)
            })
            .count();
        assert!((925..=975).contains(&covered), "{covered}");
    }

    #[test]
    fn one_sample_is_no_interval() {
        assert_eq!(Estimate::from_samples(&[(1, 4)]).ratio, 0.25);
        assert!(Estimate::from_samples(&[(1, 4)]).half_width.is_infinite());
        assert!(Estimate::from_samples(&[]).covers(0.7));
    }
}
