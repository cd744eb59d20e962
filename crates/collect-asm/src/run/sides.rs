//! Which of the two copies a thread is in, as its words tell, and what it passed over in the other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GapReason, Mode};
use ichnos_rt::Clock;

use super::choice::NEVER;
use super::{Config, When};

/// How the threads of a recording switch.
pub(super) struct Plan {
    /// Events that are passed over and that are recorded, in turns, if threads count.
    counted: Option<(u64, u64)>,
    first: u64,
    /// Why something is missing.
    pub(super) reason: GapReason,
    clock: Clock,
}

/// Where a context is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Side {
    pub(super) mode: Mode,
    /// How many events there are from the last switch to the next one, at the most.
    from: u64,
    /// How many events it had since it was last switched on.
    pub(super) seen: u64,
    /// Whether it was just switched on: what comes next is no surprise.
    pub(super) fresh: bool,
    /// Whether it is known how many events it must have had when it is switched off.
    exact: bool,
}

impl Plan {
    pub(super) fn new(config: &Config, clock: Clock) -> Option<Self> {
        let counted = match config.choice.as_ref()?.when {
            When::Counted { recorded, skipped, .. } => Some((skipped.max(1), recorded.max(1))),
            _ => None,
        };
        let first = config.first_count();
        let reason = match config.choice.as_ref().map(|c| &c.when) {
            Some(When::Counted { skipped, .. }) if *skipped < NEVER => GapReason::Sampling,
            _ => GapReason::Window,
        };
        Some(Self { counted, first, reason, clock })
    }

    /// The time at which the processor's clock stood so, if times of switches are told: who counts
    /// wants equal runs to have equal traces.
    pub(super) fn stamp(&self, ticks: u64) -> Option<u64> {
        self.counted.is_none().then(|| self.clock.at(ticks))
    }
}

impl Side {
    /// A thread's beginning.
    pub(super) fn new(plan: Option<&Plan>) -> Self {
        let mode = if plan.is_some() { Mode::Exec } else { Mode::Inst };
        Self { mode, from: plan.map_or(0, |p| p.first), seen: 0, fresh: false, exact: true }
    }

    /// A handler that interrupts this begins in this mode, with so many events left.
    pub(super) fn in_handler(self, plan: Option<&Plan>, (mode, left): (Mode, u64)) -> Self {
        // An event may be counted whose block is not told yet, or the one that leads to the other side.
        let seen = match plan.and_then(|p| p.counted) {
            Some((_, recorded)) if mode == Mode::Inst => recorded.saturating_sub(left),
            _ => self.seen,
        };
        Self { mode, seen, exact: left <= i64::MAX as u64, ..self }
    }

    /// It was switched on with so many events left; answers how many it passed over.
    pub(super) fn on(&mut self, plan: &Plan, left: u64) -> Option<u64> {
        (self.mode, self.seen, self.fresh, self.exact) = (Mode::Inst, 0, true, true);
        // The event that led here was counted, and is recorded.
        self.skipped(plan, left.wrapping_add(1))
    }

    /// It was switched off; answers how many events it should have had, if that is known.
    pub(super) fn off(&mut self, plan: &Plan) -> Option<u64> {
        self.mode = Mode::Exec;
        let (skipped, recorded) = plan.counted?;
        self.from = skipped;
        Some(recorded).filter(|_| self.exact)
    }

    /// How many events it passed over if its thread ends with so many left; nothing if it is recorded.
    pub(super) fn skipped_at_end(self, plan: &Plan, left: u64) -> Option<Option<u64>> {
        (self.mode == Mode::Exec).then(|| self.skipped(plan, left).filter(|_| left != u64::MAX))
    }

    fn skipped(self, plan: &Plan, left: u64) -> Option<u64> {
        self.from.checked_sub(left).filter(|_| plan.counted.is_some())
    }
}
