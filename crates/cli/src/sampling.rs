//! Simulating samples of a trace: the models see a stretch of every period,
//! and count only its end.
//!
//! A period is made of three stages: instructions that no model sees, those
//! that only warm the models, and those that are measured. Stages change
//! between instructions, never between an instruction and its accesses.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{Batch, Event, Record, Sink, ThreadId};

use crate::count::count;
use crate::simulation::Simulation;

/// How long the stages of a period are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    skip: u64,
    warmup: u64,
    length: u64,
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
        let skip = length.checked_add(warmup).and_then(|used| period.checked_sub(used));
        match skip {
            Some(skip) if length > 0 => Ok(Self { skip, warmup, length }),
            Some(_) => Err("the length of a sample must not be 0".into()),
            None => Err("length and warm-up together must not exceed the period".into()),
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

/// Shows samples of all that comes to the models.
pub struct Sampled {
    models: Simulation,
    plan: Plan,
    stage: Stage,
    seen: u64,
    /// When the stage ends, in instructions seen.
    until: u64,
    samples: Vec<Sample>,
}

impl Sampled {
    /// Begins with a stage that is not seen.
    pub const fn new(models: Simulation, plan: Plan) -> Self {
        let (stage, until) = (Stage::Skip, plan.skip);
        Self { models, plan, stage, seen: 0, until, samples: Vec::new() }
    }

    /// All whole samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Instructions so far, measured or not.
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    fn next_stage(&mut self) {
        let (stage, length) = match self.stage {
            Stage::Skip => (Stage::Warm, self.plan.warmup),
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
    }

    fn show(&mut self, batch: &Batch<'_>, records: &[Record]) -> Result<bool, Infallible> {
        if self.stage == Stage::Skip || records.is_empty() {
            return Ok(true);
        }
        // No model looks at values, nor at how many instructions came before.
        self.models.records(&Batch { records, values: None, ..*batch })
    }
}

impl Sink for Sampled {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let mut start = 0;
        for (at, record) in batch.records.iter().enumerate() {
            if !matches!(record, Record::Insn { .. }) {
                continue;
            }
            if self.seen == self.until {
                self.show(batch, &batch.records[start..at])?;
                start = at;
                while self.seen == self.until {
                    self.next_stage();
                }
            }
            self.seen += 1;
        }
        self.show(batch, &batch.records[start..])
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.models.event(thread, event)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        if self.stage == Stage::Measure && self.seen == self.until {
            self.next_stage();
        }
        self.models.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_checked() {
        assert_eq!(Plan::parse("1K:100:50"), Ok(Plan { skip: 850, warmup: 50, length: 100 }));
        assert_eq!(Plan::parse("100:100"), Ok(Plan { skip: 0, warmup: 0, length: 100 }));
        for wrong in ["1K", "1K:0", "1K:900:200", "x:1", "1:2:3:4", ""] {
            assert!(Plan::parse(wrong).is_err(), "{wrong}");
        }
    }
}
