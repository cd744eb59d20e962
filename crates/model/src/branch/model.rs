//! The sink: a front end per living thread, and counts of what it got wrong.
//!
//! For each control transfer: a conditional branch asks the direction
//! predictor; a return asks the return stack; an indirect jump or call asks the
//! indirect predictor; a call pushes the address behind it. Every taken transfer
//! but a return also asks the target buffer, whose misses are counted apart: a
//! direct branch predicted right but unknown there costs a fetch bubble, not a
//! misprediction.
//!
//! Where the trace has a gap, what a thread has learnt stays, but its return stack is empty, and returns
//! whose call was not seen since are not counted ([`super::ReturnStack`]): the untraced C library calls back, as
//! `qsort` does, and that call is not in the trace.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;

use ichnos_base::{Batch, Event, GuestVa, InsnKind, Record, Sink, ThreadId};

use super::btb::TargetBuffer;
use super::config::{BranchConfig, IndirectConfig};
use super::indirect::PathTargets;
use super::returns::{Return, ReturnStack};
use super::{Conditional, Direction};
use crate::Error;

/// How often something was predicted, and how often wrongly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PredictionCount {
    /// Predictions.
    pub predicted: u64,
    /// Wrong ones.
    pub wrong: u64,
}

impl PredictionCount {
    fn count(&mut self, right: bool) {
        self.predicted += 1;
        self.wrong += u64::from(!right);
    }

    /// The share of wrong predictions; 0 if there were none at all.
    #[must_use]
    pub fn wrong_ratio(&self) -> f64 {
        if self.predicted == 0 { 0.0 } else { self.wrong as f64 / self.predicted as f64 }
    }
}

/// The counts of a branch model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BranchReport {
    /// Instructions seen.
    pub instructions: u64,
    /// Conditional branches.
    pub conditional: PredictionCount,
    /// Those taken.
    pub taken: u64,
    /// Indirect jumps and calls.
    pub indirect: PredictionCount,
    /// Returns, but for those whose call lies before or in a gap.
    pub returns: PredictionCount,
    /// Calls, direct and indirect.
    pub calls: u64,
    /// Direct jumps and calls, which are always predicted right.
    pub direct: u64,
    /// Look-ups of taken transfers in the target buffer, and those it did not
    /// know or knew wrongly.
    pub targets: PredictionCount,
}

impl BranchReport {
    /// All mispredictions: directions, indirect targets, returns.
    #[must_use]
    pub const fn mispredictions(&self) -> u64 {
        self.conditional.wrong + self.indirect.wrong + self.returns.wrong
    }

    /// Mispredictions per thousand instructions.
    #[must_use]
    pub fn mpki(&self) -> f64 {
        match self.instructions {
            0 => 0.0,
            instructions => self.mispredictions() as f64 * 1000.0 / instructions as f64,
        }
    }
}

/// Told about every conditional branch, indirect transfer and return.
pub trait BranchObserve {
    /// Takes the instruction, what it is, and whether it was predicted right.
    fn transfer(&mut self, pc: GuestVa, kind: InsnKind, right: bool);
}

impl BranchObserve for () {
    #[inline]
    fn transfer(&mut self, _pc: GuestVa, _kind: InsnKind, _right: bool) {}
}

/// A simulated front end for each thread.
#[derive(Debug)]
pub struct BranchModel<O = ()> {
    config: BranchConfig,
    report: BranchReport,
    fronts: HashMap<ThreadId, Front>,
    observer: O,
}

/// The front end of one thread.
#[derive(Debug)]
struct Front {
    direction: Box<dyn Direction>,
    buffer: TargetBuffer,
    returns: ReturnStack,
    indirect: Option<PathTargets>,
    pc: GuestVa,
    kind: InsnKind,
    behind: GuestVa,
}

impl BranchModel {
    /// A cold model.
    ///
    /// # Errors
    ///
    /// See [`BranchConfig::check`].
    pub fn new(config: &BranchConfig) -> Result<Self, Error> {
        Self::observed(config, ())
    }
}

impl<O: BranchObserve> BranchModel<O> {
    /// A cold model whose transfers are told to `observer`.
    ///
    /// # Errors
    ///
    /// See [`BranchConfig::check`].
    pub fn observed(config: &BranchConfig, observer: O) -> Result<Self, Error> {
        config.check()?;
        let (report, fronts) = (BranchReport::default(), HashMap::new());
        Ok(Self { config: *config, report, fronts, observer })
    }

    /// The counts so far.
    #[must_use]
    pub const fn report(&self) -> BranchReport {
        self.report
    }

    /// Says how many instructions there were, if only transfers were told.
    pub const fn count_instructions(&mut self, instructions: u64) {
        self.report.instructions = instructions;
    }

    /// Forgets all counts and keeps what was learnt: the end of a warm-up.
    pub fn reset_counts(&mut self) {
        self.report = BranchReport::default();
    }

    /// The observer.
    pub const fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer, to empty it.
    pub const fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }
}

impl Front {
    fn new(config: &BranchConfig) -> Self {
        Self {
            direction: config.direction.build(),
            buffer: TargetBuffer::new(config.btb_sets, config.btb_ways),
            returns: ReturnStack::new(config.returns),
            indirect: match config.indirect {
                IndirectConfig::LastTarget => None,
                IndirectConfig::Path { log_entries } => Some(PathTargets::new(log_entries)),
            },
            pc: GuestVa(0),
            kind: InsnKind::OTHER,
            behind: GuestVa(0),
        }
    }

    /// One control transfer. Whether it was predicted right, where that is a
    /// question.
    fn transfer(
        &mut self,
        taken: bool,
        target: GuestVa,
        report: &mut BranchReport,
    ) -> Option<bool> {
        let (pc, kind) = (self.pc, self.kind);
        if matches!(kind, InsnKind::CALL | InsnKind::CALL_INDIRECT) {
            report.calls += 1;
            self.returns.call(self.behind);
        }
        if kind == InsnKind::RETURN {
            let found = self.returns.ret();
            self.direction.unconditional(pc);
            let Return::To(predicted) = found else { return None };
            report.returns.count(predicted == Some(target));
            return Some(predicted == Some(target));
        }
        let known = if taken { self.buffer.predict(pc, target) } else { None };
        if taken {
            report.targets.count(known == Some(target));
        }
        match kind {
            InsnKind::BRANCH => {
                let predicted = self.direction.predict(&Conditional { pc, target, taken });
                report.conditional.count(predicted == taken);
                report.taken += u64::from(taken);
                Some(predicted == taken)
            }
            InsnKind::JUMP_INDIRECT | InsnKind::CALL_INDIRECT => {
                let predicted = match &mut self.indirect {
                    Some(path) => path.predict(pc, target),
                    None => known,
                };
                report.indirect.count(predicted == Some(target));
                self.direction.unconditional(pc);
                Some(predicted == Some(target))
            }
            _ => {
                report.direct += 1;
                self.direction.unconditional(pc);
                None
            }
        }
    }
}

impl<O: BranchObserve> Sink for BranchModel<O> {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let config = &self.config;
        let front = self.fronts.entry(batch.thread).or_insert_with(|| Front::new(config));
        for record in batch.records {
            match *record {
                Record::Insn { len, kind, pc } => {
                    self.report.instructions += 1;
                    front.pc = pc;
                    front.kind = kind;
                    front.behind = pc.offset(u64::from(len));
                }
                Record::Branch { taken, target } => {
                    if let Some(right) = front.transfer(taken, target, &mut self.report) {
                        self.observer.transfer(front.pc, front.kind, right);
                    }
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::ThreadEnd(_) => {
                self.fronts.remove(&thread);
            }
            Event::Gap { .. } => {
                let config = &self.config;
                let front = self.fronts.entry(thread).or_insert_with(|| Front::new(config));
                front.returns.gap();
            }
            _ => {}
        }
        Ok(true)
    }
}
