//! What each instruction costs in the models: the observer behind `annotate`.
//!
//! The models take a whole batch first, at their full speed, and write down
//! what happened; then the profile goes over the same batch and each instruction
//! is charged with its part of the notes. They are told apart so: cache accesses
//! of one instruction begin with the fetch at its own address; TLB misses carry
//! the number of the instruction; predicted transfers come one for each branch
//! record that is predicted at all.
// SPDX-License-Identifier: MIT OR Apache-2.0

use anyhow::Result;
use ichnos_analyze::profile::{Here, Observer};
use ichnos_base::{Batch, Event, GuestVa, InsnKind, Record, Sink, ThreadId};
use ichnos_model::{
    Access, BranchModel, BranchObserve, Hierarchy, Kind, Observe, Straddle, TlbModel, TlbObserve,
};

use crate::hierarchy::Models;

/// Every access of a batch, in order.
#[derive(Debug, Default)]
struct Accesses(Vec<Access>);

impl Observe for Accesses {
    #[inline]
    fn access(&mut self, access: &Access) {
        self.0.push(*access);
    }
}

/// Every TLB miss of a batch: the instruction's number, and what missed.
#[derive(Debug, Default)]
struct Misses(Vec<(u64, Kind, bool)>);

impl TlbObserve for Misses {
    fn missed(&mut self, instructions: u64, kind: Kind, _levels: usize, walked: bool) {
        self.0.push((instructions, kind, walked));
    }
}

/// Whether each predicted transfer of a batch was predicted right.
#[derive(Debug, Default)]
struct Outcomes(Vec<bool>);

impl BranchObserve for Outcomes {
    #[inline]
    fn transfer(&mut self, _pc: GuestVa, _kind: InsnKind, right: bool) {
        self.0.push(right);
    }
}

/// Charges instructions with what the models counted.
pub struct Charge {
    caches: Hierarchy<Accesses>,
    tlbs: Option<TlbModel<Misses>>,
    branch: Option<BranchModel<Outcomes>>,
    columns: Columns,
    /// References are counted as the caches count them, not as the trace has
    /// them: a read-modify-write may be one.
    as_caches_count: bool,
    /// How far the notes have been charged.
    at: At,
    /// Instructions of all batches before this one.
    before: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct At {
    access: usize,
    miss: usize,
    outcome: usize,
    /// Instructions of this batch so far.
    insns: u64,
}

/// Where each sort of cost stands.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// How many levels of caches there are.
    pub levels: usize,
    /// The first of four for TLBs.
    pub tlbs: Option<usize>,
    /// The first of six for branches.
    pub branches: Option<usize>,
}

impl Columns {
    /// The columns that these models fill.
    pub fn new(models: &Models) -> Self {
        let levels = models.caches.levels.len();
        let mut next = 3 * (1 + levels);
        let mut place = |wanted: bool, width: usize| {
            let at = wanted.then_some(next);
            next += if wanted { width } else { 0 };
            at
        };
        Self {
            levels,
            tlbs: place(models.tlbs.is_some(), 4),
            branches: place(models.branch.is_some(), 6),
        }
    }

    /// The references of a kind; its misses by level follow.
    pub const fn references(&self, kind: Kind) -> usize {
        (1 + self.levels) * kind as usize
    }

    /// The columns of a sort of transfer: those predicted, and wrongly.
    pub const fn transfers(&self, kind: InsnKind) -> Option<usize> {
        let Some(first) = self.branches else { return None };
        match kind {
            InsnKind::BRANCH => Some(first),
            InsnKind::JUMP_INDIRECT | InsnKind::CALL_INDIRECT => Some(first + 2),
            InsnKind::RETURN => Some(first + 4),
            _ => None,
        }
    }

    /// Cachegrind's names, as far as it has any: `Ir`, `I1mr`, ..., `Dr`,
    /// `D1mr`, ..., `Dw`, `D1mw`, ...; then `ITm`, `ITw`, `DTm`, `DTw` for first-level
    /// TLB misses and walks, and `Bc`, `Bcm`, `Bi`, `Bim`, `Rt`, `Rtm` for
    /// conditional branches, indirect transfers and returns and those
    /// mispredicted.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for (side, kind) in [("I", "r"), ("D", "r"), ("D", "w")] {
            names.push(format!("{side}{kind}"));
            for level in 0..self.levels {
                let mark = level_mark(level, self.levels);
                names.push(format!("{side}{mark}m{kind}"));
            }
        }
        if self.tlbs.is_some() {
            names.extend(["ITm", "ITw", "DTm", "DTw"].map(String::from));
        }
        if self.branches.is_some() {
            names.extend(["Bc", "Bcm", "Bi", "Bim", "Rt", "Rtm"].map(String::from));
        }
        names
    }
}

impl Charge {
    /// Cold models.
    pub fn new(models: &Models) -> Result<Self> {
        let tlbs = models.tlbs.as_ref().map(|c| TlbModel::observed(c, Misses::default()));
        let branch = models.branch.as_ref().map(|c| BranchModel::observed(c, Outcomes::default()));
        Ok(Self {
            caches: Hierarchy::observed(&models.caches, Accesses::default())?,
            tlbs: tlbs.transpose()?,
            branch: branch.transpose()?,
            columns: Columns::new(models),
            as_caches_count: models.caches.straddle == Straddle::One,
            at: At::default(),
            before: 0,
        })
    }

    /// Runs the models over a batch, before the profile charges it.
    pub fn simulate(&mut self, batch: &Batch<'_>) {
        self.before += self.at.insns;
        self.at = At::default();
        self.caches.observer_mut().0.clear();
        let Ok(_) = self.caches.records(batch);
        if let Some(model) = &mut self.tlbs {
            model.observer_mut().0.clear();
            let Ok(_) = model.records(batch);
        }
        if let Some(model) = &mut self.branch {
            model.observer_mut().0.clear();
            let Ok(_) = model.records(batch);
        }
    }

    /// Charges the accesses up to the next instruction's.
    fn charge_accesses(&mut self, costs: &mut [u64], from: Begin) {
        let notes = &self.caches.observer().0;
        let mut begin = from == Begin::Here;
        while let Some(access) = notes.get(self.at.access) {
            if access.kind == Kind::Fetch && access.addr == access.pc {
                if !begin {
                    break;
                }
                begin = false;
            } else if begin {
                // Left over from an instruction that began in an earlier batch
                // and that the profile does not know.
                self.at.access += 1;
                continue;
            }
            self.at.access += 1;
            let first = self.columns.references(access.kind);
            let missed = (access.served as usize).min(self.columns.levels);
            let Some(places) = costs.get_mut(first..=first + missed) else { continue };
            let skip = usize::from(access.kind == Kind::Fetch || !self.as_caches_count);
            places.iter_mut().skip(skip).for_each(|cost| *cost += 1);
        }
    }

    fn charge_misses(&mut self, costs: &mut [u64]) {
        let (Some(model), Some(first)) = (&mut self.tlbs, self.columns.tlbs) else { return };
        let now = self.before + self.at.insns;
        while let Some(&(number, kind, walked)) = model.observer_mut().0.get(self.at.miss) {
            if number > now {
                break;
            }
            self.at.miss += 1;
            let place = first + if kind == Kind::Fetch { 0 } else { 2 };
            let Some([missed, walks]) = costs.get_mut(place..place + 2) else { continue };
            *missed += 1;
            *walks += u64::from(walked);
        }
    }

    fn charge_branch(&mut self, kind: InsnKind, costs: &mut [u64]) {
        let (Some(model), Some(place)) = (&self.branch, self.columns.transfers(kind)) else {
            return;
        };
        let Some(&right) = model.observer().0.get(self.at.outcome) else { return };
        self.at.outcome += 1;
        if let Some([predicted, wrong]) = costs.get_mut(place..place + 2) {
            *predicted += 1;
            *wrong += u64::from(!right);
        }
    }

    fn count_reference(&self, kind: Kind, costs: &mut [u64]) {
        if !self.as_caches_count
            && let Some(cost) = costs.get_mut(self.columns.references(kind))
        {
            *cost += 1;
        }
    }
}

/// Where an instruction's notes begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    /// With its fetch, in this batch.
    Here,
    /// In an earlier batch.
    Earlier,
}

/// What cachegrind calls a level: the first is 1, the last is L.
fn level_mark(level: usize, levels: usize) -> String {
    if level > 0 && level + 1 == levels { "L".into() } else { (level + 1).to_string() }
}

impl Observer for Charge {
    fn columns(&self) -> Vec<String> {
        self.columns.names()
    }

    #[inline]
    fn observe(&mut self, here: &Here, record: &Record, costs: &mut [u64]) {
        match record {
            Record::Insn { .. } => {
                self.at.insns += 1;
                if let Some(executions) = costs.first_mut() {
                    *executions += 1;
                }
                self.charge_accesses(costs, Begin::Here);
                self.charge_misses(costs);
                return;
            }
            Record::Load { .. } => self.count_reference(Kind::Load, costs),
            Record::Store { .. } => self.count_reference(Kind::Store, costs),
            Record::Branch { .. } => self.charge_branch(here.kind, costs),
            _ => {}
        }
        if self.at.insns == 0 {
            self.charge_accesses(costs, Begin::Earlier);
            self.charge_misses(costs);
        }
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        let Ok(_) = self.caches.event(thread, event);
        if let Some(model) = &mut self.tlbs {
            let Ok(_) = model.event(thread, event);
        }
        if let Some(model) = &mut self.branch {
            let Ok(_) = model.event(thread, event);
        }
    }
}
