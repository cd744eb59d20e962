//! Which instructions of a thread are recorded, when not all are.
//!
//! Then there are fragments of two kinds, recorded ones and plain ones, and both count: before each block
//! stands code that takes its instructions off the thread's budget, and leaves the cache when
//! nothing is left. The dispatcher looks at the thread's plan and gives the next budget; if the thread is to
//! go on in the other kind, it does so from that block on.
//!
//! Invariants: `granted` is what the thread has been given so far, the budget what is left of it (less
//! one, so that it becomes negative when it is used up), so the difference is what the thread has done.
//! What was counted and did not run is put back, at faults and signals. Whatever is told while
//! nothing is recorded comes behind a gap that counts exactly what ran since the last thing told.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicU64, Ordering};

use super::ctx::{Ctx, reg};
use super::{gates, glue, state, tap, trace};
use crate::words;

/// How many instructions run at most before the user's switch is looked at. It is also looked at behind each system
/// call: a program that mostly waits needs long for so many.
const CHUNK: u64 = 1 << 20;

/// What is to be recorded, in instructions of each thread's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// From here on.
    pub start: u64,
    /// Until here.
    pub stop: u64,
    /// In turns: so many not recorded, then so many recorded. Without the latter there are no turns.
    pub turns: (u64, u64),
}

/// What a plan says about a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stretch {
    recorded: bool,
    /// Where this ends.
    end: u64,
}

impl Plan {
    fn at(&self, done: u64) -> Stretch {
        if done < self.start {
            return Stretch { recorded: false, end: self.start };
        }
        if done >= self.stop {
            return Stretch { recorded: false, end: u64::MAX };
        }
        let (plain, recorded) = self.turns;
        if recorded == 0 {
            return Stretch { recorded: true, end: self.stop };
        }
        let turn = plain.saturating_add(recorded);
        let inside = (done - self.start) % turn;
        let begin = done - inside;
        let len = if inside < plain { plain } else { turn };
        let end = begin.saturating_add(len);
        Stretch { recorded: inside >= plain, end: end.min(self.stop) }
    }
}

static START: AtomicU64 = AtomicU64::new(0);
static STOP: AtomicU64 = AtomicU64::new(u64::MAX);
static PLAIN: AtomicU64 = AtomicU64::new(0);
static RECORDED: AtomicU64 = AtomicU64::new(0);

/// Sets the plan of all threads, before there are any.
pub fn set(plan: Plan) {
    START.store(plan.start, Ordering::Relaxed);
    STOP.store(plan.stop, Ordering::Relaxed);
    PLAIN.store(plan.turns.0, Ordering::Relaxed);
    RECORDED.store(plan.turns.1, Ordering::Relaxed);
}

fn plan() -> Plan {
    let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
    Plan { start: get(&START), stop: get(&STOP), turns: (get(&PLAIN), get(&RECORDED)) }
}

/// A thread begins: it has done nothing.
pub fn begin(ctx: &mut Ctx) {
    let state = state::get();
    record(ctx, state.traced);
    (ctx.granted, ctx.gap_from) = (0, 0);
    ctx.budget = u64::MAX;
    if state.counted {
        let recorded = grant(ctx, 0);
        record(ctx, recorded);
    }
}

/// How many instructions a thread has done.
fn done(ctx: &Ctx) -> u64 {
    ctx.granted.wrapping_sub(ctx.budget.wrapping_add(1))
}

/// Gives a thread its next budget; whether it is recorded meanwhile.
fn grant(ctx: &mut Ctx, done: u64) -> bool {
    let stretch = plan().at(done);
    let off = tap::header().paused.load(Ordering::Relaxed) != 0;
    let budget = (stretch.end - done).min(CHUNK);
    ctx.granted = done + budget;
    ctx.budget = budget - 1;
    // SAFETY: the thread's data lives as long as its context.
    let outside = gates::any() && unsafe { !(*ctx.thread).inside };
    stretch.recorded && !off && !outside
}

/// A thread has used up its budget and stands before a block.
pub fn expired(ctx: &mut Ctx) {
    let done = done(ctx);
    let recorded = grant(ctx, done);
    if recorded == (ctx.recorded != 0) {
        return;
    }
    if recorded {
        tell_gap(ctx);
        record(ctx, true);
        trace::time(ctx);
        trace::event(ctx, words::FS_BASE, ctx.fs);
        trace::event(ctx, words::GS_BASE, ctx.gs);
        trace::event(ctx, words::STACK, ctx.regs[reg::RSP]);
    } else {
        trace::event(ctx, words::LEFT, ctx.rip);
        ctx.gap_from = done;
        record(ctx, false);
    }
}

/// A thread stands behind a system call, before a block: the user's switch may have changed meanwhile.
pub fn look(ctx: &mut Ctx) {
    if state::get().counted {
        expired(ctx);
    }
}

/// Lets a thread go on in fragments of the one or the other kind, by the ways that belong to them.
fn record(ctx: &mut Ctx, recorded: bool) {
    ctx.recorded = u64::from(recorded);
    let sifted = state::get().sieve.is_some();
    (ctx.glue_exit, ctx.glue_enter) = match recorded {
        true if sifted => glue::sifted_ways(),
        recorded => glue::ways(recorded),
    };
}

/// Puts back what was counted and did not run.
pub fn put_back(ctx: &mut Ctx, insns: u64) {
    if state::get().counted {
        ctx.budget = ctx.budget.wrapping_add(insns);
    }
}

/// Tells how much has run since the last thing told, if nothing is recorded.
pub fn tell_gap(ctx: &mut Ctx) {
    if ctx.recorded != 0 || !state::get().counted {
        return;
    }
    let done = done(ctx);
    let missing = done.wrapping_sub(ctx.gap_from);
    if missing != 0 {
        ctx.gap_from = done;
        let sampled = u64::from(RECORDED.load(Ordering::Relaxed) != 0);
        trace::gap(ctx, missing << 1 | sampled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_follow_each_other() {
        let plan = Plan { start: 100, stop: 1000, turns: (30, 20) };
        let (mut at, mut recorded) = (0, 0);
        while at < 1000 {
            let stretch = plan.at(at);
            assert!(stretch.end > at);
            if stretch.recorded {
                recorded += stretch.end - at;
            }
            assert!((at..stretch.end).all(|i| plan.at(i) == stretch));
            at = stretch.end;
        }
        assert_eq!((at, recorded), (1000, 18 * 20));
        assert_eq!(plan.at(1000), Stretch { recorded: false, end: u64::MAX });
        let whole = Plan { start: 0, stop: u64::MAX, turns: (0, 0) };
        assert_eq!(whole.at(5), Stretch { recorded: true, end: u64::MAX });
    }
}
