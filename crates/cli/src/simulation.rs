//! Caches, TLBs and a branch predictor side by side in one pass.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;
use std::num::NonZeroUsize;

use anyhow::{Context, Result};
use ichnos_base::{About, Batch, Blocks, Event, Held, Line, Sieve, Sink, ThreadId, ThreadStart};
use ichnos_model::{
    BranchModel, BranchReport, Hierarchy, HierarchyReport, Parallel, PerThread, TlbModel, TlbReport,
};
use ichnos_plugin::{Finding, UserModel, Value};
use ichnos_report::{
    Cell, Rows, Table, branch_table, breakdown_table, cache_json, cache_table, memory_text, number,
    time_table, tlb_table, walk_json, walk_text,
};

use crate::answer::Answer;
use crate::hierarchy::Models;
use crate::regions::ByRegion;

/// An answer with what models counted.
pub fn counted(
    caches: &HierarchyReport,
    tlbs: Option<&TlbReport>,
    branch: Option<&BranchReport>,
    rows: Rows,
) -> Answer {
    let headline = format!("{} instructions", number::thousands(caches.instructions));
    let mut answer = Answer::new(headline);
    let json = cache_json(caches, rows);
    answer.fact("instructions", caches.instructions).fact("memory", json["memory"].clone());
    answer.table("caches", "", cache_table(caches, rows)).note(&memory_text(caches));
    if let Some(report) = tlbs {
        answer.table("tlbs", "", tlb_table(report)).note(&walk_text(report));
        answer.fact("walks", walk_json(report));
    }
    if let Some(report) = branch {
        answer.table("branches", "", branch_table(report));
    }
    answer
}

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
    users: Vec<UserModel>,
    levels: Vec<String>,
    marks: Vec<HierarchyReport>,
    /// How threads began, where they have rows of their own.
    threads: HashMap<ThreadId, ThreadStart>,
}

/// One model on its way through a thread of its own.
pub enum Model {
    Caches(Box<Hierarchy>),
    Tlbs(Box<TlbModel>),
    Branch(Box<BranchModel>),
}

/// The caches, and who watches them: decided once, not per access.
enum Watched {
    Plain(Box<Hierarchy>),
    ByThread(Box<Hierarchy<PerThread>>),
    ByRegion(Box<Hierarchy<ByRegion>>),
    /// Nobody: the models are apart, in threads of their own.
    Apart,
}

impl Simulation {
    /// Cold models.
    pub fn new(models: &Models, breakdown: Breakdown) -> Result<Self> {
        let config = &models.caches;
        let caches = match breakdown {
            Breakdown::None => Watched::Plain(Box::new(Hierarchy::new(config)?)),
            Breakdown::Thread => {
                Watched::ByThread(Box::new(Hierarchy::observed(config, PerThread::default())?))
            }
            Breakdown::Region => {
                Watched::ByRegion(Box::new(Hierarchy::observed(config, ByRegion::default())?))
            }
        };
        Ok(Self {
            caches,
            tlbs: models.tlbs.as_ref().map(TlbModel::new).transpose()?,
            branch: models.branch.as_ref().map(BranchModel::new).transpose()?,
            users: Vec::new(),
            levels: config.levels.iter().map(|level| level.name.clone()).collect(),
            marks: Vec::new(),
            threads: HashMap::new(),
        })
    }

    /// Adds models of the user, `PATH` or `PATH:ARGS` each.
    pub fn add_users(&mut self, libraries: &[String]) -> Result<()> {
        for text in libraries {
            self.users.push(UserModel::load(text).context("--model")?);
        }
        Ok(())
    }

    /// Takes the models apart, to run beside each other and beside their source, if
    /// there is nothing that must be done in step with the source.
    pub fn split(&mut self, jobs: NonZeroUsize) -> Option<Parallel<Model>> {
        if jobs.get() == 1 || !self.users.is_empty() {
            return None;
        }
        let empty = Watched::Apart;
        let caches = match std::mem::replace(&mut self.caches, empty) {
            Watched::Plain(caches) => caches,
            watched => {
                self.caches = watched;
                return None;
            }
        };
        let mut models = vec![Model::Caches(caches)];
        models.extend(self.tlbs.take().map(|model| Model::Tlbs(Box::new(model))));
        models.extend(self.branch.take().map(|model| Model::Branch(Box::new(model))));
        Some(Parallel::new(models, jobs))
    }

    /// Puts the models together again.
    pub fn join(&mut self, models: Parallel<Model>) {
        for model in models.into_models() {
            match model {
                Model::Caches(model) => self.caches = Watched::Plain(model),
                Model::Tlbs(model) => self.tlbs = Some(*model),
                Model::Branch(model) => self.branch = Some(*model),
            }
        }
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
            Watched::Apart => {}
        }
        for model in &mut self.users {
            model.reset_counts();
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

    /// What was counted since the last warm-up, by model: misses or
    /// mispredictions, and what they are a part of.
    pub fn counts(&self) -> Vec<(String, (u64, u64))> {
        let report = self.caches.report();
        let total = |name: &str| report.total(name).unwrap_or_default();
        let names = report.names().into_iter();
        let mut counts: Vec<_> = names
            .map(|name| {
                (name.to_owned(), (total(name).misses.total(), total(name).accesses.total()))
            })
            .collect();
        if let Some(model) = &self.tlbs {
            let tlbs = model.report().tlbs.into_iter();
            counts.extend(tlbs.map(|t| (t.name, (t.misses.total(), t.accesses.total()))));
        }
        if let Some(model) = &self.branch {
            let report = model.report();
            for (name, count) in [
                ("conditional branches", report.conditional),
                ("indirect branches", report.indirect),
                ("returns", report.returns),
            ] {
                counts.push((name.to_owned(), (count.wrong, count.predicted)));
            }
        }
        counts
    }

    /// What was counted.
    pub fn answer(&mut self, rows: Rows) -> Answer {
        let tlbs = self.tlbs.as_ref().map(TlbModel::report);
        let branch = self.branch.as_ref().map(BranchModel::report);
        let mut answer = counted(&self.caches.report(), tlbs.as_ref(), branch.as_ref(), rows);
        self.break_down(&mut answer);
        for (at, model) in self.users.iter_mut().enumerate() {
            let key = if at == 0 { "model".to_owned() } else { format!("model{}", at + 1) };
            let mut table = Table::new(&[("key", model.name()), ("value", "")]);
            for Finding { key, value } in model.findings() {
                let value = match value {
                    Value::Count(count) => Cell::Count(count),
                    Value::Number(number) => Cell::Number(number, 6),
                    Value::Text(text) => Cell::Text(text),
                };
                table.row([Cell::Text(key), value]);
            }
            answer.fact(&format!("{key}_name"), model.name());
            answer.table(&key, "", table);
        }
        answer
    }

    fn break_down(&self, answer: &mut Answer) {
        match &self.caches {
            Watched::Plain(_) | Watched::Apart => {}
            Watched::ByThread(model) => {
                let named = |thread: ThreadId| {
                    let start = self.threads.get(&thread);
                    let number = |of: fn(&ThreadStart) -> u32| {
                        start.map_or(Cell::Empty, |start| Cell::Id(of(start).into()))
                    };
                    vec![Cell::Id(thread.0.into()), number(|s| s.os_pid), number(|s| s.os_tid)]
                };
                let parts = model.observer().counts().map(|(thread, c)| (named(thread), c));
                let table = breakdown_table(&["thread", "pid", "tid"], &self.levels, parts);
                answer.table("by_thread", "", table);
            }
            Watched::ByRegion(model) => {
                let parts = model.observer().counts().into_iter();
                let parts = parts.map(|(name, c)| (vec![name.into()], c));
                let table = breakdown_table(&["region"], &self.levels, parts);
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
            Self::Apart => HierarchyReport::default(),
        }
    }
}

impl Simulation {
    /// The caches, if there is nothing else.
    fn plain(&self) -> Option<&Hierarchy> {
        let alone = self.tlbs.is_none() && self.branch.is_none() && self.users.is_empty();
        match &self.caches {
            Watched::Plain(model) if alone => Some(model),
            _ => None,
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
            Watched::Apart => true,
        };
        if let Some(model) = &mut self.tlbs {
            model.records(batch)?;
        }
        if let Some(model) = &mut self.branch {
            model.records(batch)?;
        }
        for model in &mut self.users {
            model.records(batch)?;
        }
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        self.plain().is_some_and(Sink::takes_blocks)
    }

    fn sieve(&self) -> Option<Sieve> {
        self.plain()?.sieve()
    }

    fn sifted(&mut self, thread: ThreadId, lines: &[Line]) -> Result<bool, Infallible> {
        match &mut self.caches {
            Watched::Plain(model) => model.sifted(thread, lines),
            _ => Ok(true),
        }
    }

    fn held(&mut self, thread: ThreadId, held: &Held) -> Result<bool, Infallible> {
        match &mut self.caches {
            Watched::Plain(model) => model.held(thread, held),
            _ => Ok(true),
        }
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        match &mut self.caches {
            Watched::Plain(model) => model.blocks(blocks),
            _ => Ok(true),
        }
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        if let Watched::Plain(model) = &mut self.caches {
            model.begin(about)?;
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match &mut self.caches {
            Watched::Plain(model) => model.event(thread, event)?,
            Watched::ByThread(model) => {
                if let Event::ThreadStart(start) = event {
                    self.threads.insert(thread, *start);
                }
                model.event(thread, event)?
            }
            Watched::ByRegion(model) => {
                model.observer_mut().event(thread, event);
                model.event(thread, event)?
            }
            Watched::Apart => true,
        };
        if let Some(model) = &mut self.tlbs {
            model.event(thread, event)?;
        }
        if let Some(model) = &mut self.branch {
            model.event(thread, event)?;
        }
        for model in &mut self.users {
            model.event(thread, event)?;
        }
        Ok(true)
    }
}

impl Sink for Model {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        match self {
            Self::Caches(model) => model.records(batch),
            Self::Tlbs(model) => model.records(batch),
            Self::Branch(model) => model.records(batch),
        }
    }

    fn takes_blocks(&self) -> bool {
        matches!(self, Self::Caches(model) if model.takes_blocks())
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        match self {
            Self::Caches(model) => model.blocks(blocks),
            Self::Tlbs(_) | Self::Branch(_) => Ok(true),
        }
    }

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        match self {
            Self::Caches(model) => model.begin(about),
            Self::Tlbs(_) | Self::Branch(_) => Ok(true),
        }
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match self {
            Self::Caches(model) => model.event(thread, event),
            Self::Tlbs(model) => model.event(thread, event),
            Self::Branch(model) => model.event(thread, event),
        }
    }
}
