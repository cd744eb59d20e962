//! A user's library that sees what is recorded while it is: its counts, and what they estimate where only samples are
//! seen.
//!
//! A sample is what a thread does between two switches of its mode (programs built by `ichnos cc`) or between two gaps that
//! say that something was passed over on purpose (others). The library's first count is taken for the
//! number of trials (references), the others for outcomes (misses). The ratio of an outcome over all samples estimates
//! that of the whole run ([`Clusters`]). A library that cannot be sure of an outcome, because it was not shown what
//! came before the sample, counts the certain and the possible ones besides (`NAME, at least` and `NAME, at most`): the
//! interval then reaches from the lower end of the one to the upper end of the other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use ichnos_base::{Batch, Event, GapReason, Mode, Record, Sink, ThreadId};
use ichnos_model::Clusters;
use ichnos_plugin::{Finding, UserModel, Value};
use ichnos_report::number::thousands;

/// The library and the samples that it saw.
pub struct Tool {
    model: UserModel,
    warm_up: u64,
    /// By number.
    threads: Vec<Sample>,
    /// The library's counts before and after the last batch that counted.
    before: Vec<u64>,
    now: Vec<u64>,
    /// Whether the library was shown something since.
    stale: bool,
    samples: Clusters,
}

/// A thread's sample.
#[derive(Default)]
struct Sample {
    open: bool,
    /// Instructions of warm-up that it still has.
    cold: u64,
    /// Whether something of it was counted.
    begun: bool,
    counts: Vec<u64>,
}

impl Tool {
    /// Loads a library; `warm_up` instructions of each sample are not counted.
    pub fn load(text: &str, warm_up: u64) -> Result<Self> {
        let model = UserModel::load(text).context("--tool")?;
        let (threads, before, now, samples) = Default::default();
        Ok(Self { model, warm_up, threads, before, now, stale: true, samples })
    }

    fn begin(&mut self, thread: ThreadId) {
        let at = thread.0 as usize;
        if self.threads.len() <= at {
            self.threads.resize_with(at + 1, Sample::default);
        }
        let sample = &mut self.threads[at];
        (sample.open, sample.cold, sample.begun) = (true, self.warm_up, false);
        sample.counts.clear();
    }

    fn end(&mut self, thread: ThreadId) {
        if let Some(sample) = self.threads.get_mut(thread.0 as usize)
            && std::mem::take(&mut sample.open)
            && sample.begun
        {
            self.samples.add(&sample.counts);
        }
    }

    /// Shows a batch that counts.
    fn counted(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        if std::mem::take(&mut self.stale) {
            self.model.counts(&mut self.now);
        }
        std::mem::swap(&mut self.before, &mut self.now);
        let more = self.model.records(batch)?;
        self.model.counts(&mut self.now);
        if let Some(sample) = self.threads.get_mut(batch.thread.0 as usize) {
            sample.begun = true;
            sample.counts.resize(self.now.len().max(sample.counts.len()), 0);
            let before = self.before.iter().chain(std::iter::repeat(&0));
            for ((sum, now), before) in sample.counts.iter_mut().zip(&self.now).zip(before) {
                *sum += now.saturating_sub(*before);
            }
        }
        Ok(more)
    }

    /// What the library found, a line each.
    pub fn results(&mut self) -> String {
        let threads = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        (0..threads).for_each(|thread| self.end(ThreadId(thread)));
        let mut text = format!("ichnos: {}\n", self.model.name());
        let findings = self.model.findings();
        let counts = || findings.iter().filter(|f| matches!(f.value, Value::Count(_)));
        for Finding { key, value } in &findings {
            let line = match value {
                Value::Count(count) => {
                    let at = |name: &str| counts().position(|f| f.key == name);
                    let bound = |which: &str| at(&format!("{key}, {which}"));
                    let which = (at(key), bound("at least"), bound("at most"));
                    let said = estimate(&self.samples, which).unwrap_or_default();
                    format!("{key}: {}{said}", thousands(*count))
                }
                Value::Number(number) => format!("{key}: {number:.6}"),
                Value::Text(said) => format!("{key}: {said}"),
            };
            // Writing into a string does not fail.
            let _ = writeln!(text, "ichnos:   {line}");
        }
        let _ = writeln!(text, "ichnos:   samples: {}", thousands(self.samples.number()));
        text
    }
}

/// The ratio of a count to the first one over all samples, with its interval; nothing if there are too few. The second and
/// third number are those of the counts that bound it, if there are such.
fn estimate(
    samples: &Clusters,
    (which, least, most): (Option<usize>, Option<usize>, Option<usize>),
) -> Option<String> {
    let (ratio, side) = samples.ratio(which?)?;
    let low = least.and_then(|l| samples.ratio(l)).unwrap_or((ratio, side));
    let high = most.and_then(|m| samples.ratio(m)).unwrap_or((ratio, side));
    let (from, to) = ((low.0 - low.1).max(0.0), high.0 + high.1);
    Some(format!(", ratio {ratio:.6}, {from:.6} to {to:.6} (95 %)"))
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
        let cold = match self.threads.get(batch.thread.0 as usize) {
            Some(sample) if sample.open => sample.cold,
            _ => {
                self.stale = true;
                return self.model.records(batch);
            }
        };
        if cold == 0 {
            return self.counted(batch);
        }
        self.stale = true;
        let (cool, warm) = batch.records.split_at(after(batch.records, cold));
        let count = cool.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
        let more = self.model.records(&Batch::new(batch.thread, batch.insns_before, cool))?;
        if let Some(sample) = self.threads.get_mut(batch.thread.0 as usize) {
            sample.cold = if warm.is_empty() { cold - count.min(cold) } else { 0 };
        }
        if warm.is_empty() {
            return Ok(more);
        }
        self.counted(&Batch::new(batch.thread, batch.insns_before + count, warm))
    }

    fn takes_references(&self) -> bool {
        // A warm-up is counted in instructions.
        self.warm_up == 0 && self.model.takes_references()
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::ModeSwitch { mode: Mode::Inst } => self.begin(thread),
            Event::ModeSwitch { .. } | Event::ThreadEnd(_) => self.end(thread),
            Event::Gap { reason: GapReason::Sampling | GapReason::Window, .. } => {
                self.end(thread);
                self.begin(thread);
            }
            _ => {}
        }
        self.model.event(thread, event)
    }
}
