//! A user's library that sees what is recorded while it is: its counts, and what they estimate where only samples are
//! seen.
//!
//! A sample is what a thread does between two switches of its mode. The library's first count is taken for the
//! number of trials (references), the others for outcomes (misses). The ratio of an outcome over all samples estimates
//! that of the whole run; its standard error is that of a ratio of means over clusters of unequal size.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use ichnos_base::{Batch, Event, Mode, Record, Sink, ThreadId};
use ichnos_plugin::{Finding, UserModel, Value};
use ichnos_report::number::thousands;

/// How many standard errors a 95 % interval has on each side.
const SIDE: f64 = 1.96;

/// The library and the samples that it saw.
pub struct Tool {
    model: UserModel,
    warm_up: u64,
    /// Instructions of warm-up that the sample still has.
    cold: u64,
    /// The counts where the sample began to count.
    before: Vec<u64>,
    /// The counts of each sample.
    samples: Vec<Vec<u64>>,
    open: bool,
}

impl Tool {
    /// Loads a library; `warm_up` instructions of each sample are not counted.
    pub fn load(text: &str, warm_up: u64) -> Result<Self> {
        let model = UserModel::load(text).context("--tool")?;
        let (before, samples) = Default::default();
        Ok(Self { model, warm_up, cold: 0, before, samples, open: false })
    }

    fn counts(&mut self) -> Vec<u64> {
        let count = |finding: Finding| match finding.value {
            Value::Count(count) => Some(count),
            _ => None,
        };
        self.model.findings().into_iter().filter_map(count).collect()
    }

    fn begin(&mut self) {
        (self.open, self.cold) = (true, self.warm_up);
        self.before = self.counts();
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.open) && self.cold == 0 {
            let now = self.counts();
            let before = self.before.iter().chain(std::iter::repeat(&0));
            self.samples.push(now.iter().zip(before).map(|(n, b)| n.saturating_sub(*b)).collect());
        }
    }

    /// What the library found, a line each.
    pub fn results(&mut self) -> String {
        self.end();
        let mut text = format!("ichnos: {}\n", self.model.name());
        let mut at = 0;
        for Finding { key, value } in self.model.findings() {
            let line = match value {
                Value::Count(count) => {
                    at += 1;
                    let estimate = estimate(&self.samples, at - 1);
                    format!("{key}: {}{}", thousands(count), estimate.unwrap_or_default())
                }
                Value::Number(number) => format!("{key}: {number:.6}"),
                Value::Text(said) => format!("{key}: {said}"),
            };
            // Writing into a string does not fail.
            let _ = writeln!(text, "ichnos:   {line}");
        }
        let _ = writeln!(text, "ichnos:   samples: {}", thousands(self.samples.len() as u64));
        text
    }
}

/// The ratio of a count to the first one over all samples, with its interval; nothing if there are too few.
fn estimate(samples: &[Vec<u64>], which: usize) -> Option<String> {
    let (ratio, error) = ratio(samples, which)?;
    Some(format!(", ratio {ratio:.6} +- {:.6} (95 %)", SIDE * error))
}

/// A ratio of sums and its standard error.
fn ratio(samples: &[Vec<u64>], which: usize) -> Option<(f64, f64)> {
    let pairs: Vec<(f64, f64)> = samples
        .iter()
        .filter_map(|s| Some((*s.first()? as f64, *s.get(which)? as f64)))
        .filter(|(trials, _)| *trials > 0.0)
        .collect();
    let number = pairs.len() as f64;
    if which == 0 || number < 2.0 {
        return None;
    }
    let trials: f64 = pairs.iter().map(|p| p.0).sum();
    let ratio = pairs.iter().map(|p| p.1).sum::<f64>() / trials;
    let squares: f64 = pairs.iter().map(|(n, m)| (m - ratio * n).powi(2)).sum();
    Some((ratio, (squares / (number - 1.0) * number).sqrt() / trials))
}

/// Where the record after so many instructions lies.
fn after(records: &[Record], insns: u64) -> usize {
    let is_insn = |(_, r): &(usize, &Record)| matches!(r, Record::Insn { .. });
    let mut starts = records.iter().enumerate().filter(is_insn);
    let nth = usize::try_from(insns).ok().and_then(|n| starts.nth(n));
    nth.map_or(records.len(), |(at, _)| at)
}

impl Sink for Tool {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        if self.cold == 0 {
            return self.model.records(batch);
        }
        let cut = after(batch.records, self.cold);
        let (cold, warm) = batch.records.split_at(cut);
        let count = cold.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
        self.model.records(&Batch::new(batch.thread, batch.insns_before, cold))?;
        self.cold -= count.min(self.cold);
        if warm.is_empty() {
            return Ok(true);
        }
        self.cold = 0;
        self.before = self.counts();
        self.model.records(&Batch::new(batch.thread, batch.insns_before + count, warm))
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::ModeSwitch { mode: Mode::Inst } => self.begin(),
            Event::ModeSwitch { .. } => self.end(),
            _ => {}
        }
        self.model.event(thread, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_the_error_of_clusters() {
        let samples = [vec![10, 1], vec![20, 2], vec![10, 1]];
        let (mean, error) = ratio(&samples, 1).unwrap();
        assert!((mean - 0.1).abs() < 1e-12 && error < 1e-12);
        let samples = [vec![10, 0], vec![10, 2]];
        let (mean, error) = ratio(&samples, 1).unwrap();
        // Two clusters with ratios 0 and 0.2: their standard error is 0.1.
        assert!((mean - 0.1).abs() < 1e-12 && (error - 0.1).abs() < 1e-12);
        assert!(ratio(&samples[..1], 1).is_none());
    }
}
