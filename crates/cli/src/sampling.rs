//! Simulating samples of a trace: the models see a stretch of every period,
//! and count only its end.
//!
//! A period is made of three stages: instructions that no model sees, those
//! that only warm the models, and those that are measured. Stages change
//! between instructions, never between an instruction and its accesses.
//!
//! Samples that stand apart have models of their own, empty at first. So the answer
//! is the same whether they are simulated one after the other along a source
//! ([`Sampled`]) or by seeking in a file, on several processors ([`apart`]). Other
//! samples begin with what the models held at the end of the one before.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;

use anyhow::Result;
use ichnos_base::{Batch, Event, Record, Sink, Source, ThreadId, ThreadStart};
use ichnos_replay::Replay;
use ichnos_trace::Reader;

use crate::count::count;
use crate::live::either;
use crate::simulation::Simulation;

/// How long the stages of a period are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    skip: u64,
    warmup: u64,
    length: u64,
    start: Start,
}

/// What the models hold when a warm-up begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// What they held at the end of the sample before.
    Stale,
    /// Nothing.
    Empty,
}

impl Plan {
    /// Reads PERIOD:LENGTH[:WARMUP].
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Result<Vec<u64>, String> = text.split(':').map(count).collect();
        let (period, length, warmup) = match parts?[..] {
            [period, length] => (period, length, 0),
            [period, length, warmup] => (period, length, warmup),
            _ => return Err("expected PERIOD:LENGTH or PERIOD:LENGTH:WARMUP".into()),
        };
        let used = length.checked_add(warmup);
        let skip = used.and_then(|used| period.checked_sub(used));
        match skip {
            Some(skip) if length > 0 => Ok(Self { skip, warmup, length, start: Start::Stale }),
            Some(_) => Err("the length of a sample must not be 0".into()),
            None => Err("length and warm-up together must not exceed the period".into()),
        }
    }

    /// The same stages with models that begin like this.
    pub const fn starting(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// The warm-ups and samples of so many instructions.
    fn ranges(&self, insns: u64) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let mut end = 0_u64;
        loop {
            let Some(start) = end.checked_add(self.skip) else { return ranges };
            let Some(next) = start.checked_add(self.warmup + self.length) else { return ranges };
            if next > insns {
                return ranges;
            }
            ranges.push(start..next);
            end = next;
        }
    }

    /// Instructions measured in each period.
    pub const fn length(&self) -> u64 {
        self.length
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Skip,
    Warm,
    Measure,
}

/// What one sample counted: by model, a part and its whole.
pub type Sample = Vec<(String, (u64, u64))>;

/// All whole samples, and the instructions that they stand for.
pub struct Taken {
    pub samples: Vec<Sample>,
    pub seen: u64,
}

/// Shows samples of all that comes to the models.
pub struct Sampled<'a> {
    fresh: &'a dyn Fn() -> Result<Simulation>,
    models: Simulation,
    plan: Plan,
    stage: Stage,
    seen: u64,
    /// When the stage ends, in instructions seen.
    until: u64,
    /// The threads that are alive, for models that begin in their midst.
    threads: BTreeMap<ThreadId, ThreadStart>,
    samples: Vec<Sample>,
}

impl<'a> Sampled<'a> {
    /// Begins with a stage that is not seen.
    pub fn new(fresh: &'a dyn Fn() -> Result<Simulation>, plan: Plan) -> Result<Self> {
        let (stage, until) = (Stage::Skip, plan.skip);
        let (threads, samples) = (BTreeMap::new(), Vec::new());
        Ok(Self { fresh, models: fresh()?, plan, stage, seen: 0, until, threads, samples })
    }

    /// What was measured.
    pub fn into_taken(self) -> Taken {
        Taken { samples: self.samples, seen: self.seen }
    }

    fn next_stage(&mut self) -> Result<()> {
        let (stage, length) = match self.stage {
            Stage::Skip => {
                if self.plan.start == Start::Empty {
                    self.models = (self.fresh)()?;
                    for (thread, start) in &self.threads {
                        self.models.event(*thread, &Event::ThreadStart(*start))?;
                    }
                }
                (Stage::Warm, self.plan.warmup)
            }
            Stage::Warm => {
                self.models.end_warmup();
                (Stage::Measure, self.plan.length)
            }
            Stage::Measure => {
                self.samples.push(self.models.counts());
                (Stage::Skip, self.plan.skip)
            }
        };
        self.stage = stage;
        self.until = self.until.saturating_add(length);
        Ok(())
    }

    fn show(&mut self, batch: &Batch<'_>, records: &[Record]) -> Result<bool> {
        if self.stage == Stage::Skip || records.is_empty() {
            return Ok(true);
        }
        // No model looks at values, nor at how many instructions came before.
        Ok(self.models.records(&Batch { records, values: None, ..*batch })?)
    }
}

impl Sink for Sampled<'_> {
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        let mut start = 0;
        for (at, record) in batch.records.iter().enumerate() {
            if !matches!(record, Record::Insn { .. }) {
                continue;
            }
            if self.seen == self.until {
                self.show(batch, &batch.records[start..at])?;
                start = at;
                while self.seen == self.until {
                    self.next_stage()?;
                }
            }
            self.seen += 1;
        }
        self.show(batch, &batch.records[start..])
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        match event {
            Event::ThreadStart(start) => {
                self.threads.insert(thread, *start);
            }
            Event::ThreadEnd(_) => {
                self.threads.remove(&thread);
            }
            _ => {}
        }
        Ok(self.models.event(thread, event)?)
    }

    fn finish(&mut self) -> Result<()> {
        if self.stage == Stage::Measure && self.seen == self.until {
            self.next_stage()?;
        }
        Ok(self.models.finish()?)
    }
}

/// Samples of a stored thread that stand apart, on several processors.
pub fn apart(
    reader: &Reader,
    plan: Plan,
    jobs: NonZeroUsize,
    fresh: impl Fn() -> Result<Simulation> + Sync,
) -> Result<Taken> {
    let replay = Replay::new(reader);
    let mut first = First::default();
    replay.clone().insns(0..1).drive(&mut first).map_err(either)?;
    let seen = reader.totals().insns;
    // A range is what Sampled makes of its one period without a beginning.
    let one = Plan { skip: 0, start: Start::Empty, ..plan };
    let make = |_| -> Result<Box<Sampled<'_>>> {
        let mut sampled = Box::new(Sampled::new(&fresh, one)?);
        if let Some((thread, start)) = first.0 {
            sampled.threads.insert(thread, start);
        }
        Ok(sampled)
    };
    let done = |_, sink: Lone<'_>| sink.0.map(|sampled| sampled.samples);
    let samples = replay.map_ranges(jobs.get(), &plan.ranges(seen), |at| Lone(make(at)), done);
    let samples: Result<Vec<Vec<Sample>>> = samples.map_err(either)?.into_iter().collect();
    Ok(Taken { samples: samples?.into_iter().flatten().collect(), seen })
}

/// How the only thread begins.
#[derive(Default)]
struct First(Option<(ThreadId, ThreadStart)>);

impl Sink for First {
    type Error = anyhow::Error;

    fn records(&mut self, _batch: &Batch<'_>) -> Result<bool> {
        Ok(false)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        if let Event::ThreadStart(start) = event {
            self.0 = Some((thread, *start));
        }
        Ok(true)
    }
}

/// One sample, or why there is none.
struct Lone<'a>(Result<Box<Sampled<'a>>>);

impl Sink for Lone<'_> {
    type Error = anyhow::Error;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        match &mut self.0 {
            Ok(sampled) => sampled.records(batch),
            Err(_) => Ok(false),
        }
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        match &mut self.0 {
            Ok(sampled) => sampled.event(thread, event),
            Err(_) => Ok(false),
        }
    }

    fn finish(&mut self) -> Result<()> {
        match &mut self.0 {
            Ok(sampled) => sampled.finish(),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_periods_are_sampled() {
        let plan = Plan::parse("1K:100:50").unwrap();
        assert_eq!(plan.ranges(999), []);
        assert_eq!(plan.ranges(2500), [850..1000, 1850..2000]);
    }

    #[test]
    fn plans_are_checked() {
        let plan = |skip, warmup, length| Ok(Plan { skip, warmup, length, start: Start::Stale });
        assert_eq!(Plan::parse("1K:100:50"), plan(850, 50, 100));
        assert_eq!(Plan::parse("100:100"), plan(0, 0, 100));
        for wrong in ["1K", "1K:0", "1K:900:200", "x:1", "1:2:3:4", ""] {
            assert!(Plan::parse(wrong).is_err(), "{wrong}");
        }
    }
}
