//! Caches, TLBs and a branch predictor side by side in one pass.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use anyhow::Result;
use ichnos_base::{Batch, Event, Sink, ThreadId};
use ichnos_model::{BranchModel, Hierarchy, HierarchyReport, PerThread, TlbModel};
use ichnos_report::{
    Rows, branch_table, breakdown_table, cache_json, cache_table, number, time_table, tlb_table,
    walk_json, walk_text,
};

use crate::answer::Answer;
use crate::hierarchy::Models;
use crate::regions::ByRegion;

/// How the caches' counts are broken down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Breakdown {
    /// Not at all.
    None,
    /// By thread.
    Thread,
    /// By mapping.
    Region,
}

/// All models of one run.
pub struct Simulation {
    caches: Watched,
    tlbs: Option<TlbModel>,
    branch: Option<BranchModel>,
    levels: Vec<String>,
    marks: Vec<HierarchyReport>,
}

/// The caches, and who watches them: decided once, not per access.
enum Watched {
    Plain(Hierarchy),
    ByThread(Hierarchy<PerThread>),
    ByRegion(Hierarchy<ByRegion>),
}

impl Simulation {
    /// Cold models.
    pub fn new(models: &Models, breakdown: Breakdown) -> Result<Self> {
        let config = &models.caches;
        let caches = match breakdown {
            Breakdown::None => Watched::Plain(Hierarchy::new(config)?),
            Breakdown::Thread => {
                Watched::ByThread(Hierarchy::observed(config, PerThread::default())?)
            }
            Breakdown::Region => {
                Watched::ByRegion(Hierarchy::observed(config, ByRegion::default())?)
            }
        };
        Ok(Self {
            caches,
            tlbs: models.tlbs.as_ref().map(TlbModel::new).transpose()?,
            branch: models.branch.as_ref().map(BranchModel::new).transpose()?,
            levels: config.levels.iter().map(|level| level.name.clone()).collect(),
            marks: Vec::new(),
        })
    }

    /// Forgets all counts and keeps the contents.
    pub fn end_warmup(&mut self) {
        match &mut self.caches {
            Watched::Plain(model) => model.reset_counts(),
            Watched::ByThread(model) => {
                model.reset_counts();
                *model.observer_mut() = PerThread::default();
            }
            Watched::ByRegion(model) => {
                model.reset_counts();
                model.observer_mut().reset();
            }
        }
        if let Some(model) = &mut self.tlbs {
            model.reset_counts();
        }
        if let Some(model) = &mut self.branch {
            model.reset_counts();
        }
    }

    /// Remembers the counts at the end of a window.
    pub fn mark(&mut self) {
        let report = self.caches.report();
        self.marks.push(report);
    }

    /// What was counted.
    pub fn answer(&self, rows: Rows) -> Answer {
        let report = self.caches.report();
        let headline = format!("{} instructions", number::thousands(report.instructions));
        let mut answer = Answer::new(headline);
        let json = cache_json(&report, rows);
        answer.fact("instructions", report.instructions).fact("memory", json["memory"].clone());
        answer.table("caches", "", cache_table(&report, rows));
        if let Some(model) = &self.tlbs {
            let report = model.report();
            answer.table("tlbs", "", tlb_table(&report)).note(&walk_text(&report));
            answer.fact("walks", walk_json(&report));
        }
        if let Some(model) = &self.branch {
            answer.table("branches", "", branch_table(&model.report()));
        }
        self.break_down(&mut answer);
        answer
    }

    fn break_down(&self, answer: &mut Answer) {
        match &self.caches {
            Watched::Plain(_) => {}
            Watched::ByThread(model) => {
                let parts = model.observer().counts().map(|(thread, c)| (thread.0.to_string(), c));
                let table = breakdown_table("thread", &self.levels, parts);
                answer.table("by_thread", "", table);
            }
            Watched::ByRegion(model) => {
                let table = breakdown_table("region", &self.levels, model.observer().counts());
                answer.table("by_region", "", table);
            }
        }
        if !self.marks.is_empty() {
            answer.table("by_time", "", time_table(&self.marks));
        }
    }
}

impl Watched {
    fn report(&self) -> HierarchyReport {
        match self {
            Self::Plain(model) => model.report(),
            Self::ByThread(model) => model.report(),
            Self::ByRegion(model) => model.report(),
        }
    }
}

impl Sink for Simulation {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        match &mut self.caches {
            Watched::Plain(model) => model.records(batch)?,
            Watched::ByThread(model) => model.records(batch)?,
            Watched::ByRegion(model) => model.records(batch)?,
        };
        if let Some(model) = &mut self.tlbs {
            model.records(batch)?;
        }
        if let Some(model) = &mut self.branch {
            model.records(batch)?;
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match &mut self.caches {
            Watched::Plain(model) => model.event(thread, event)?,
            Watched::ByThread(model) => model.event(thread, event)?,
            Watched::ByRegion(model) => {
                model.observer_mut().event(thread, event);
                model.event(thread, event)?
            }
        };
        if let Some(model) = &mut self.tlbs {
            model.event(thread, event)?;
        }
        if let Some(model) = &mut self.branch {
            model.event(thread, event)?;
        }
        Ok(true)
    }
}
