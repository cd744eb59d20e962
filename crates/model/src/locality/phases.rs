//! Phases: intervals that execute the same blocks in the same proportion, and
//! one interval to stand for each (after SimPoint: Sherwood et al., ASPLOS 2002;
//! Hamerly, Perelman, Lau and Calder, 2005).
//!
//! # Method
//!
//! Each interval's block vector is divided by its length and projected onto a
//! few random directions; the coefficients come from a hash of block and
//! direction, so no matrix is stored. K-means runs for each number of clusters
//! from several starts (k-means++ seeding, Lloyd's steps until nothing moves).
//! The Bayesian information criterion of Pelleg and Moore (ICML 2000), with one
//! spherical variance, scores each clustering, and the smallest number of
//! clusters whose score reaches 90 % of the range of scores is taken. At most half as many
//! clusters as there are intervals are tried: the criterion holds for many points a cluster, and where
//! most clusters have one, the variance, and with it the score, says nothing. The
//! interval nearest to a cluster's centre represents it; its weight is the
//! cluster's share of the instructions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::blocks::Interval;
use crate::Random;
use crate::random::mix;

/// How phases are looked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PhasesConfig {
    /// The most phases; never more than half the intervals.
    pub most: u32,
    /// Directions of the projection.
    pub dimensions: u32,
    /// Starts of k-means for each number of clusters.
    pub starts: u32,
    /// The share of the range of scores that is good enough.
    pub threshold: f64,
    /// What determines the projection and the starts.
    pub seed: u64,
}

impl Default for PhasesConfig {
    /// SimPoint's customary values: 15 dimensions, 5 starts, 90 %.
    fn default() -> Self {
        Self { most: 30, dimensions: 15, starts: 5, threshold: 0.9, seed: 493_575_226 }
    }
}

/// One phase.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phase {
    /// The interval that stands for it.
    pub representative: usize,
    /// Its share of all instructions.
    pub weight: f64,
    /// How many intervals it has.
    pub intervals: usize,
}

/// The phases of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Phases {
    /// The phases, in order of their representatives.
    pub phases: Vec<Phase>,
    /// The phase of each interval.
    pub of_interval: Vec<usize>,
    /// The score of each number of clusters tried, from 1.
    pub scores: Vec<f64>,
}

/// A clustering of points.
struct Clustering {
    of_point: Vec<usize>,
    centres: Vec<Vec<f64>>,
    /// The sum of squared distances to the centres.
    error: f64,
}

impl Phases {
    /// Finds the phases of a run.
    #[must_use]
    pub fn find(intervals: &[Interval], config: &PhasesConfig) -> Self {
        if intervals.is_empty() {
            return Self::default();
        }
        let points: Vec<Vec<f64>> = intervals.iter().map(|i| project(i, config)).collect();
        let most = (config.most.max(1) as usize).min(points.len().div_ceil(2));
        let tried: Vec<Clustering> =
            (1..=most).map(|k| best_of_starts(&points, k, config)).collect();
        let scores: Vec<f64> = tried.iter().map(|c| score(&points, c)).collect();
        let (low, high) =
            scores.iter().fold((f64::MAX, f64::MIN), |(low, high), &s| (low.min(s), high.max(s)));
        let enough = low + config.threshold * (high - low);
        let chosen = scores.iter().position(|&s| s >= enough).unwrap_or(0);
        let mut found = summarise(intervals, &points, &tried[chosen]);
        found.scores = scores;
        found
    }
}

/// The interval's vector on the random directions.
fn project(interval: &Interval, config: &PhasesConfig) -> Vec<f64> {
    let length = interval.instructions.max(1) as f64;
    let mut point = vec![0.0; config.dimensions.max(1) as usize];
    for &(block, count) in &interval.counts {
        let share = count as f64 / length;
        for (direction, value) in point.iter_mut().enumerate() {
            let word = mix(config.seed ^ (u64::from(block) << 16) ^ direction as u64);
            let coefficient = (word >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            *value += share * coefficient;
        }
    }
    point
}

fn squared(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

fn best_of_starts(points: &[Vec<f64>], k: usize, config: &PhasesConfig) -> Clustering {
    let mut random = Random::new(mix(config.seed ^ k as u64));
    let mut best = k_means(points, seeds(points, k, &mut random));
    for _ in 1..config.starts.max(1) {
        let other = k_means(points, seeds(points, k, &mut random));
        if other.error < best.error {
            best = other;
        }
    }
    best
}

/// K-means++: each further centre is a point drawn with a chance proportional
/// to its squared distance from the nearest centre so far.
fn seeds(points: &[Vec<f64>], k: usize, random: &mut Random) -> Vec<Vec<f64>> {
    let mut centres = vec![points[random.below(points.len() as u64) as usize].clone()];
    let mut nearest: Vec<f64> = points.iter().map(|p| squared(p, &centres[0])).collect();
    while centres.len() < k {
        let mut left = random.unit() * nearest.iter().sum::<f64>();
        let drawn = nearest.iter().position(|&d| {
            left -= d;
            left < 0.0
        });
        let centre = points[drawn.unwrap_or(points.len() - 1)].clone();
        for (d, point) in nearest.iter_mut().zip(points) {
            *d = d.min(squared(point, &centre));
        }
        centres.push(centre);
    }
    centres
}

/// Lloyd's algorithm, at most a hundred steps.
fn k_means(points: &[Vec<f64>], mut centres: Vec<Vec<f64>>) -> Clustering {
    let mut of_point = vec![usize::MAX; points.len()];
    let mut error = 0.0;
    for _ in 0..100 {
        error = 0.0;
        let mut moved = false;
        for (point, cluster) in points.iter().zip(&mut of_point) {
            let (at, distance) = nearest(point, &centres);
            error += distance;
            moved |= *cluster != at;
            *cluster = at;
        }
        if !moved {
            break;
        }
        recentre(points, &of_point, &mut centres);
    }
    Clustering { of_point, centres, error }
}

fn nearest(point: &[f64], centres: &[Vec<f64>]) -> (usize, f64) {
    let mut best = (0, f64::MAX);
    for (at, centre) in centres.iter().enumerate() {
        let distance = squared(point, centre);
        if distance < best.1 {
            best = (at, distance);
        }
    }
    best
}

/// Moves each centre to the mean of its points; one without points stays.
fn recentre(points: &[Vec<f64>], of_point: &[usize], centres: &mut [Vec<f64>]) {
    for (at, centre) in centres.iter_mut().enumerate() {
        let members = || points.iter().zip(of_point).filter(|&(_, &c)| c == at).map(|(p, _)| p);
        let count = members().count();
        if count == 0 {
            continue;
        }
        centre.fill(0.0);
        for point in members() {
            centre.iter_mut().zip(point).for_each(|(sum, x)| *sum += x);
        }
        centre.iter_mut().for_each(|sum| *sum /= count as f64);
    }
}

/// The Bayesian information criterion under spherical Gaussians of one variance.
fn score(points: &[Vec<f64>], clustering: &Clustering) -> f64 {
    let (n, k) = (points.len() as f64, clustering.centres.len() as f64);
    let dimensions = points.first().map_or(1, Vec::len) as f64;
    let freedom = (n - k).max(1.0);
    // Identical points would have no variance and an infinite score.
    let variance = (clustering.error / (dimensions * freedom)).max(1e-9);
    let mut likelihood = -n * dimensions / 2.0 * (std::f64::consts::TAU * variance).ln()
        - clustering.error / (2.0 * variance);
    for at in 0..clustering.centres.len() {
        let members = clustering.of_point.iter().filter(|&&c| c == at).count() as f64;
        if members > 0.0 {
            likelihood += members * (members / n).ln();
        }
    }
    let parameters = (k - 1.0) + dimensions * k + 1.0;
    likelihood - parameters / 2.0 * n.ln()
}

fn summarise(intervals: &[Interval], points: &[Vec<f64>], clustering: &Clustering) -> Phases {
    let total: u64 = intervals.iter().map(|i| i.instructions).sum();
    let mut found: Vec<(usize, Phase)> = Vec::new();
    for (at, centre) in clustering.centres.iter().enumerate() {
        let members: Vec<usize> =
            (0..points.len()).filter(|&p| clustering.of_point[p] == at).collect();
        let distance = |&p: &usize| squared(&points[p], centre);
        let Some(&representative) =
            members.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))
        else {
            continue;
        };
        let instructions: u64 = members.iter().map(|&p| intervals[p].instructions).sum();
        let weight = instructions as f64 / total.max(1) as f64;
        found.push((at, Phase { representative, weight, intervals: members.len() }));
    }
    found.sort_by_key(|(_, phase)| phase.representative);
    let place = |cluster| found.iter().position(|&(at, _)| at == cluster).unwrap_or(0);
    Phases {
        of_interval: clustering.of_point.iter().map(|&cluster| place(cluster)).collect(),
        phases: found.iter().map(|&(_, phase)| phase).collect(),
        scores: Vec::new(),
    }
}
