//! The sink: from records to requests, and from threads to caches.
//!
//! Each thread runs on a core; each core has its private caches and enters the
//! shared ones behind them. Where every thread has a core of its own, the core of
//! a thread that ended is given to the next one as it is, so memory grows with
//! the threads alive at once, not with all there ever were. Threads of different processes use different lines
//! even where their addresses are equal (`crate::spaces`). Coherence between
//! private caches is not modelled here: a store does not take the line from
//! other cores.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;

use ichnos_base::{About, Batch, Blocks, Event, GuestVa, Held, Line, Sieve, Sink, ThreadId};

use super::check::named;
use super::config::{
    CacheConfig, Caches, HierarchyConfig, Hints, Inclusion, LevelConfig, Modify, Sharing, Straddle,
};
use super::filter::Placing;
use super::graph::{Graph, MEMORY, Request};
use super::node::{Node, Part, Quick};
use super::observe::{Access, Observe, Unobserved};
use super::pass::by_blocks;
use super::sifted;
use super::stats::{CacheStats, HierarchyReport, InstanceReport};
use crate::outline::Outlines;
use crate::spaces::space;
use crate::{Error, Kind, Replacement};

/// A simulated cache hierarchy.
///
/// ```
/// use ichnos_base::{Batch, GuestVa, InsnKind, Record, Sink, ThreadId};
/// use ichnos_model::{CacheConfig, Caches, Hierarchy, HierarchyConfig, LevelConfig, Sharing};
///
/// let l1d = CacheConfig::new(32 << 10, 8, 64);
/// let level = LevelConfig { name: "l1".into(), caches: Caches::Data(l1d), sharing: Sharing::Private };
/// let config = HierarchyConfig { levels: vec![level], ..HierarchyConfig::default() };
/// let mut model = Hierarchy::new(&config)?;
/// let records = [
///     Record::insn(GuestVa(0x401000), 4, InsnKind::OTHER),
///     Record::load(GuestVa(0x7000), 8),
///     Record::store(GuestVa(0x7008), 8),
/// ];
/// model.records(&Batch::new(ThreadId(0), 0, &records)).unwrap();
/// let l1d = model.report().total("l1d").unwrap();
/// assert_eq!((l1d.accesses.data(), l1d.misses.data()), (2, 1));
/// # Ok::<(), ichnos_model::Error>(())
/// ```
#[derive(Debug)]
pub struct Hierarchy<O = Unobserved> {
    pub(super) config: HierarchyConfig,
    pub(super) graph: Graph,
    labels: Vec<Label>,
    /// Where the private caches of a core lead.
    shared: Ports,
    cores: HashMap<u32, Ports>,
    /// Cores whose thread has ended, for threads to come.
    idle: BTreeSet<u32>,
    threads: HashMap<ThreadId, Thread>,
    pub(super) instructions: u64,
    /// The instructions of each core.
    by_core: Vec<u64>,
    longest: u32,
    pub(super) behind_filter: bool,
    /// The thread of the last single reference.
    pub(super) last: Option<Thread>,
    observer: O,
    /// Whether executions may be told as blocks, and what those are.
    by_blocks: bool,
    pub(super) outlines: Outlines,
}

/// The nodes at which a core's fetches and data accesses enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ports {
    pub(super) code: usize,
    pub(super) data: usize,
}

/// What a node is called in reports.
#[derive(Clone, Debug)]
struct Label {
    name: String,
    level: u32,
    /// The place among the caches of the level, and of a victim cache behind its
    /// cache.
    order: (usize, u8),
    core: Option<u32>,
}

/// What is remembered of a thread between batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub(super) id: ThreadId,
    pub(super) core: u32,
    pub(super) ports: Ports,
    pub(super) space: u64,
    pub(super) pc: GuestVa,
    pub(super) last_load: (GuestVa, u32),
}

/// No load: no access has this size.
pub(super) const NO_LOAD: (GuestVa, u32) = (GuestVa(0), 0);

impl Hierarchy {
    /// A cold hierarchy.
    ///
    /// # Errors
    ///
    /// See [`HierarchyConfig::check`].
    pub fn new(config: &HierarchyConfig) -> Result<Self, Error> {
        Self::observed(config, Unobserved)
    }
}

impl<O: Observe> Hierarchy<O> {
    /// A cold hierarchy whose every access is told to `observer`.
    ///
    /// # Errors
    ///
    /// See [`HierarchyConfig::check`].
    pub fn observed(config: &HierarchyConfig, observer: O) -> Result<Self, Error> {
        Self::placed(config, observer, Placing::Alone)
    }

    /// A cold hierarchy, alone or behind a filter.
    pub(super) fn placed(
        config: &HierarchyConfig,
        observer: O,
        filter: Placing,
    ) -> Result<Self, Error> {
        config.check()?;
        let shortest = config
            .levels
            .iter()
            .flat_map(|level| named(level))
            .map(|(_, cache)| cache.line)
            .min()
            .unwrap_or(u32::MAX);
        let alone = filter == Placing::Alone && !O::ACTIVE;
        let fetches = by_blocks(config).filter(|_| alone);
        let mut model = Self {
            by_blocks: fetches.is_some(),
            outlines: Outlines::new(fetches.unwrap_or_default()),
            graph: Graph::new(config.levels.len() as u32),
            labels: Vec::new(),
            shared: Ports { code: MEMORY, data: MEMORY },
            cores: HashMap::new(),
            idle: BTreeSet::new(),
            threads: HashMap::new(),
            instructions: 0,
            by_core: Vec::new(),
            longest: if config.straddle == Straddle::One { shortest } else { u32::MAX },
            behind_filter: filter == Placing::BehindFilter,
            last: None,
            observer,
            config: config.clone(),
        };
        model.shared = model.build(Sharing::Shared, model.shared, None);
        Ok(model)
    }

    /// Builds the shared or the private levels, farthest first, in front of
    /// `ports`.
    fn build(&mut self, sharing: Sharing, mut ports: Ports, core: Option<u32>) -> Ports {
        let levels = std::mem::take(&mut self.config.levels);
        for (at, level) in levels.iter().enumerate().rev() {
            if level.sharing == sharing {
                ports = self.build_level(at as u32, level, ports, core);
            }
        }
        self.config.levels = levels;
        ports
    }

    fn build_level(
        &mut self,
        at: u32,
        level: &LevelConfig,
        next: Ports,
        core: Option<u32>,
    ) -> Ports {
        let caches = named(level);
        let mut add = |which: usize, next: usize| {
            let (name, cache) = &caches[which];
            let order = (which, 0);
            self.add(cache, Label { name: name.clone(), level: at, order, core }, next)
        };
        match level.caches {
            Caches::Unified(_) => {
                let node = add(0, next.data);
                Ports { code: node, data: node }
            }
            Caches::Split { .. } => Ports { code: add(0, next.code), data: add(1, next.data) },
            Caches::Code(_) => Ports { code: add(0, next.code), ..next },
            Caches::Data(_) => Ports { data: add(0, next.data), ..next },
        }
    }

    /// Adds a cache, and its victim cache behind it, in front of node `next`.
    fn add(&mut self, cache: &CacheConfig, label: Label, mut next: usize) -> usize {
        if cache.victim_lines > 0 {
            let victim = CacheConfig {
                inclusion: Inclusion::Exclusive,
                replacement: Replacement::Lru,
                write: cache.write,
                ..CacheConfig::new(
                    u64::from(cache.victim_lines) * u64::from(cache.line),
                    cache.victim_lines,
                    cache.line,
                )
            };
            let name = format!("{}-victim", label.name);
            self.graph.nodes.push(Node::new(&victim, label.level, next));
            let order = (label.order.0, 1);
            self.labels.push(Label { name, order, ..label.clone() });
            next = self.graph.nodes.len() - 1;
        }
        let mut node = Node::new(cache, label.level, next);
        if self.behind_filter && label.level == 0 {
            node.put_behind_filter(cache);
        }
        self.graph.nodes.push(node);
        self.labels.push(label);
        self.graph.nodes.len() - 1
    }

    /// The caches of a core, built when it is first heard of.
    fn core(&mut self, core: u32) -> Ports {
        if let Some(&ports) = self.cores.get(&core) {
            return ports;
        }
        let ports = self.build(Sharing::Private, self.shared, Some(core));
        self.cores.insert(core, ports);
        if self.by_core.len() <= core as usize {
            self.by_core.resize(core as usize + 1, 0);
        }
        ports
    }

    pub(super) fn thread(&mut self, id: ThreadId) -> Thread {
        if let Some(&thread) = self.threads.get(&id) {
            return thread;
        }
        let core = match self.config.cores {
            0 => self.idle.pop_first().unwrap_or(self.cores.len() as u32),
            cores => id.0 % cores,
        };
        let ports = self.core(core);
        let thread = Thread { id, core, ports, space: 0, pc: GuestVa(0), last_load: NO_LOAD };
        self.threads.insert(id, thread);
        thread
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> HierarchyReport {
        let mut labelled: Vec<(&Label, &Node)> =
            self.labels.iter().zip(&self.graph.nodes).collect();
        labelled.sort_by_key(|(label, _)| (label.level, label.order, label.core));
        let caches = labelled
            .into_iter()
            .map(|(label, node)| InstanceReport {
                name: label.name.clone(),
                level: label.level,
                core: label.core,
                classified: node.classifies(),
                stats: node.stats,
            })
            .collect();
        HierarchyReport {
            instructions: self.instructions,
            by_core: self.by_core.clone(),
            caches,
            memory: self.graph.memory,
        }
    }

    /// Forgets all counts and keeps the contents: the end of a warm-up.
    pub fn reset_counts(&mut self) {
        for node in &mut self.graph.nodes {
            node.stats = CacheStats::default();
        }
        self.graph.memory = Default::default();
        self.instructions = 0;
        self.by_core.fill(0);
    }

    /// Counts instructions of a core; a later count may take some of them back.
    #[inline]
    pub(super) fn count_instructions(&mut self, core: u32, count: u64) {
        self.instructions = self.instructions.wrapping_add(count);
        if let Some(own) = self.by_core.get_mut(core as usize) {
            *own = own.wrapping_add(count);
        }
    }

    /// The caches themselves, for tests of their contents.
    #[cfg(test)]
    pub(super) const fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The observer.
    pub const fn observer(&self) -> &O {
        &self.observer
    }

    /// The observer, to empty it or to tell it more.
    pub const fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// A reference that the filters do not settle.
    #[inline(never)]
    pub(super) fn touch(&mut self, thread: &Thread, kind: Kind, addr: GuestVa, size: u32) {
        let entry = if matches!(kind, Kind::Fetch) { thread.ports.code } else { thread.ports.data };
        let at = addr.0 ^ thread.space;
        let Some(node) = self.graph.nodes.get_mut(entry).filter(|node| !node.crosses(at, size))
        else {
            return self.enter(thread, kind, addr, size);
        };
        let line = at >> node.shift;
        let level = match node.quick(line, kind) {
            Quick::Hit => node.level,
            Quick::Miss => {
                let size = size.clamp(1, self.longest);
                let part = Part { addr: at, size, kind, write: kind == Kind::Store };
                node.count_quick_miss(kind);
                self.graph.miss(entry, line, Request { part, pc: thread.pc }).level
            }
            Quick::Unknown => return self.enter(thread, kind, addr, size),
        };
        self.tell(thread, kind, addr, level);
    }

    /// A reference whose outcome is not known yet.
    #[cold]
    pub(super) fn enter(&mut self, thread: &Thread, kind: Kind, addr: GuestVa, size: u32) {
        let entry = if kind == Kind::Fetch { thread.ports.code } else { thread.ports.data };
        let at = addr.0 ^ thread.space;
        let size = size.clamp(1, self.longest);
        let write = kind == Kind::Store;
        let crosses = self.graph.nodes.get(entry).is_some_and(|node| node.crosses(at, size));
        if crosses && self.config.straddle == Straddle::Split {
            return self.split(thread, kind, addr, size);
        }
        let part = Part { addr: at, size, kind, write };
        let served = self.graph.request(entry, Request { part, pc: thread.pc });
        self.tell(thread, kind, addr, served.level);
    }

    /// A reference to several lines, one after the other.
    #[cold]
    fn split(&mut self, thread: &Thread, kind: Kind, addr: GuestVa, size: u32) {
        let entry = if kind == Kind::Fetch { thread.ports.code } else { thread.ports.data };
        let Some(node) = self.graph.nodes.get(entry) else { return };
        let line_bytes = node.line_mask + 1;
        let (mut addr, mut left) = (addr, u64::from(size));
        while left > 0 {
            let room = line_bytes - (addr.0 & (line_bytes - 1));
            let bytes = room.min(left);
            self.touch(thread, kind, addr, bytes as u32);
            addr = addr.offset(bytes);
            left -= bytes;
        }
    }

    #[inline]
    pub(super) fn tell(&mut self, thread: &Thread, kind: Kind, addr: GuestVa, served: u32) {
        if O::ACTIVE {
            self.observer.access(&Access { thread: thread.id, pc: thread.pc, addr, kind, served });
        }
    }

    #[cold]
    pub(super) fn hint_prefetch(&mut self, thread: &Thread, addr: GuestVa) {
        let entry = thread.ports.data;
        if self.config.hints == Hints::Obey
            && let Some(node) = self.graph.nodes.get(entry)
        {
            let line = (addr.0 ^ thread.space) >> node.shift;
            self.graph.bring(entry, line);
        }
    }

    #[cold]
    pub(super) fn hint_flush(&mut self, thread: &Thread, addr: GuestVa) {
        if self.config.hints == Hints::Obey {
            self.graph.flush(addr.0 ^ thread.space);
        }
    }
}

impl<O: Observe> Sink for Hierarchy<O> {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let thread = self.thread(batch.thread);
        let thread = match self.config.modify {
            Modify::Both => self.run::<false>(thread, batch.records),
            Modify::LoadOnly => self.run::<true>(thread, batch.records),
        };
        self.threads.insert(batch.thread, thread);
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        self.by_blocks
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        let thread = self.thread(blocks.thread);
        let thread = self.run_blocks(thread, blocks);
        self.threads.insert(blocks.thread, thread);
        Ok(true)
    }

    fn sieve(&self) -> Option<Sieve> {
        sifted::sieve(&self.config).filter(|_| self.by_blocks)
    }

    fn sifted(&mut self, id: ThreadId, lines: &[Line]) -> Result<bool, Infallible> {
        let thread = self.thread(id);
        self.told_lines(&thread, lines);
        Ok(true)
    }

    fn held(&mut self, id: ThreadId, held: &Held) -> Result<bool, Infallible> {
        let thread = self.thread(id);
        self.count_held(&thread, held);
        Ok(true)
    }

    fn begin(&mut self, _: &About<'_>) -> Result<bool, Infallible> {
        self.outlines.forget();
        Ok(true)
    }

    fn event(&mut self, id: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.last = None;
        match event {
            Event::ThreadStart(start) => {
                let mut thread = self.thread(id);
                thread.space = space(start.process);
                self.threads.insert(id, thread);
            }
            Event::Migrate { cpu } if self.config.cores > 0 => {
                let mut thread = self.thread(id);
                thread.core = cpu % self.config.cores;
                thread.ports = self.core(thread.core);
                self.threads.insert(id, thread);
            }
            Event::ThreadEnd(_) => {
                if let Some(thread) = self.threads.remove(&id)
                    && self.config.cores == 0
                {
                    self.idle.insert(thread.core);
                }
            }
            _ => {}
        }
        Ok(true)
    }
}
