//! The miss-ratio curve from a sample of lines (SHARDS: Waldspurger, Park,
//! Garthwaite and Ahmad, FAST 2015).
//!
//! A line is watched if the hash of its number is below a threshold; watched
//! lines keep exact distances among themselves, and a distance stands for
//! `distance / rate`. When more lines than wanted are watched, the threshold is
//! lowered to the greatest hash among them, those lines are dropped, and what
//! was counted so far is scaled by the change of rate: memory is constant
//! whatever the trace. The paper's correction is applied at the end: the
//! difference between the expected and the actual number of sampled references
//! is added to the smallest distance.
//!
//! Distances are counted in buckets of at most 1.6 % width.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BinaryHeap;
use std::convert::Infallible;

use ichnos_base::{Batch, Event, LineAddr, Sink, ThreadId};

use super::curve::MissRatioCurve;
use super::references::{Lines, References};
use super::stack::Stack;
use crate::Error;
use crate::error::{power_of_two, range};
use crate::random::mix;
use crate::spaces::Spaces;

/// Hashes are compared as numbers of this many bits.
const BITS: u32 = 32;
/// Buckets per doubling of the distance.
const STEPS: u32 = 64;

/// An estimate of the miss-ratio curve.
#[derive(Debug)]
pub struct Shards {
    lines: Lines,
    spaces: Spaces,
    threshold: u64,
    most: usize,
    stack: Stack,
    /// Watched lines by hash, greatest first.
    heap: BinaryHeap<(u64, u64)>,
    buckets: Vec<f64>,
    first: f64,
    seen: u64,
    sampled: f64,
}

impl Shards {
    /// In lines of `line` bytes, watching one line in `one_in` at first and
    /// never more than `most` lines.
    ///
    /// # Errors
    ///
    /// If `line` is not a power of two, or `one_in` or `most` is zero.
    pub fn new(line: u32, references: References, one_in: u32, most: u32) -> Result<Self, Error> {
        range("line", u64::from(line), 1, 1 << 30)?;
        power_of_two("line", u64::from(line))?;
        range("one_in", u64::from(one_in), 1, 1 << 24)?;
        range("most", u64::from(most), 1, 1 << 30)?;
        Ok(Self {
            lines: Lines { references, shift: line.trailing_zeros(), space: 0 },
            spaces: Spaces::default(),
            threshold: (1 << BITS) / u64::from(one_in),
            most: most as usize,
            stack: Stack::new(),
            heap: BinaryHeap::new(),
            buckets: Vec::new(),
            first: 0.0,
            seen: 0,
            sampled: 0.0,
        })
    }

    /// The present share of lines that are watched.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / (1u64 << BITS) as f64
    }

    /// The least size in lines of which the sample tells something: two watched lines
    /// stand so far apart on average.
    #[must_use]
    pub fn resolution(&self) -> u64 {
        (1u64 << BITS).div_ceil(self.threshold.max(1))
    }

    /// Takes one reference.
    #[inline]
    pub fn reference(&mut self, line: LineAddr) {
        self.seen += 1;
        let hash = mix(line.0) >> (64 - BITS);
        if hash < self.threshold {
            self.sample(line.0, hash);
        }
    }

    fn sample(&mut self, line: u64, hash: u64) {
        self.sampled += 1.0;
        match self.stack.reference(line) {
            Some(distance) => {
                let bucket = bucket((distance as f64 / self.rate()) as u64);
                if bucket >= self.buckets.len() {
                    self.buckets.resize(bucket + 1, 0.0);
                }
                self.buckets[bucket] += 1.0;
            }
            None => {
                self.first += 1.0;
                self.heap.push((hash, line));
                if self.heap.len() > self.most {
                    self.lower();
                }
            }
        }
    }

    /// Lowers the threshold to the greatest hash watched and drops its lines.
    fn lower(&mut self) {
        let Some(&(greatest, _)) = self.heap.peek() else { return };
        let scale = greatest as f64 / self.threshold as f64;
        self.threshold = greatest;
        while let Some(&(hash, line)) = self.heap.peek() {
            if hash < greatest {
                break;
            }
            self.heap.pop();
            self.stack.forget(line);
        }
        self.buckets.iter_mut().for_each(|weight| *weight *= scale);
        self.first *= scale;
        self.sampled *= scale;
    }

    /// The estimated curve.
    #[must_use]
    pub fn curve(&self) -> MissRatioCurve {
        let missing = self.seen as f64 * self.rate() - self.sampled;
        let mut weights: Vec<(u64, f64)> =
            self.buckets.iter().enumerate().map(|(at, &weight)| (value(at), weight)).collect();
        match weights.first_mut() {
            Some(smallest) => smallest.1 += missing,
            None => weights.push((0, missing)),
        }
        MissRatioCurve::from_histogram(weights.into_iter(), self.first)
    }
}

/// The bucket of a distance: exact below 64, then 64 to a doubling.
fn bucket(distance: u64) -> usize {
    let octave = (64 - distance.leading_zeros()).saturating_sub(STEPS.trailing_zeros() + 1);
    (u64::from(octave * STEPS) + (distance >> octave)) as usize
}

/// The least distance of a bucket.
fn value(bucket: usize) -> u64 {
    let steps = STEPS as usize;
    let octave = (bucket / steps).saturating_sub(1);
    ((bucket - octave * steps) as u64) << octave
}

impl Sink for Shards {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let space = self.spaces.of(batch.thread);
        let lines = Lines { space, ..self.lines };
        lines.each(batch.records, |_, line| self.reference(line));
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.spaces.event(thread, event);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_values_agree() {
        for distance in (0..5000).chain([1 << 20, (1 << 33) + 12345, u64::MAX >> 8]) {
            let at = bucket(distance);
            assert!(value(at) <= distance && distance < value(at + 1), "{distance}");
        }
        assert!((0..100).all(|small| value(bucket(small)) == small));
    }
}
