//! Perceptron prediction (Jiménez and Lin, HPCA 2001): a branch's perceptron
//! weighs each outcome of the global history; the sign of the sum predicts.
//!
//! Trained on a misprediction or when the sum is within the paper's threshold
//! `1.93 * history + 14`. Weights are signed bytes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Conditional, Direction};

/// A table of perceptrons over one global history.
#[derive(Debug)]
pub struct Perceptron {
    /// For each perceptron its bias and a weight per outcome.
    weights: Box<[i8]>,
    /// The outcomes as +1 and -1, latest first.
    history: Box<[i8]>,
    entries: usize,
    threshold: i32,
}

impl Perceptron {
    /// `entries` perceptrons over `history` outcomes.
    #[must_use]
    pub fn new(entries: u32, history: u32) -> Self {
        let (entries, history) = (entries.max(1) as usize, history as usize);
        Self {
            weights: vec![0; entries * (history + 1)].into_boxed_slice(),
            history: vec![-1; history].into_boxed_slice(),
            entries,
            threshold: (1.93 * history as f64 + 14.0) as i32,
        }
    }
}

impl Direction for Perceptron {
    fn predict(&mut self, branch: &Conditional) -> bool {
        let width = self.history.len() + 1;
        let start = (branch.pc.0 % self.entries as u64) as usize * width;
        let Some((bias, weights)) = self.weights[start..start + width].split_first_mut() else {
            return false;
        };
        let dot: i32 =
            weights.iter().zip(&self.history).map(|(&w, &h)| i32::from(w) * i32::from(h)).sum();
        let sum = i32::from(*bias) + dot;
        let predicted = sum >= 0;
        let outcome: i8 = if branch.taken { 1 } else { -1 };
        if predicted != branch.taken || sum.abs() <= self.threshold {
            *bias = bias.saturating_add(outcome);
            for (weight, &past) in weights.iter_mut().zip(&self.history) {
                *weight = weight.saturating_add(outcome * past);
            }
        }
        if !self.history.is_empty() {
            self.history.rotate_right(1);
            self.history[0] = outcome;
        }
        predicted
    }
}
