//! The sink: TLBs per thread and their counts.
//!
//! Every fetch, load and store is one access to the first level for each page
//! it touches. A miss asks the next level and fills this one; a miss of the last
//! level walks. Addresses of different processes differ, as in caches. A thread's
//! TLBs begin empty and go with it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;

use ichnos_base::{Batch, Event, GuestVa, Record, Sink, ThreadId};

use super::config::{Pages, TlbConfig, TlbHierarchyConfig, Tlbs};
use super::filter::Front;
use super::walk::Walker;
use crate::cache::{AnyArray, Found};
use crate::spaces::space;
use crate::{ByKind, Error, Kind};

/// The counts of the TLBs of one name, over all threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlbStats {
    /// Its name, such as `tlb1d`.
    pub name: String,
    /// Look-ups.
    pub accesses: ByKind,
    /// Those that missed.
    pub misses: ByKind,
}

/// The counts of page walks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkStats {
    /// Walks, by the kind of reference that caused them.
    pub walks: ByKind,
    /// Accesses to page tables.
    pub accesses: u64,
    /// Cycles spent walking.
    pub cycles: u64,
}

/// The counts of a TLB hierarchy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlbReport {
    /// Instructions seen.
    pub instructions: u64,
    /// Each TLB, nearest first.
    pub tlbs: Vec<TlbStats>,
    /// The walks.
    pub walks: WalkStats,
}

/// Told about every look-up that missed.
pub trait TlbObserve {
    /// Takes the number of instructions so far, the one at hand included, the
    /// kind of reference, and how many levels it missed, from 1; `walked` says
    /// whether these were all.
    fn missed(&mut self, instructions: u64, kind: Kind, levels: usize, walked: bool);
}

impl TlbObserve for () {
    #[inline]
    fn missed(&mut self, _instructions: u64, _kind: Kind, _levels: usize, _walked: bool) {}
}

/// A simulated TLB hierarchy for each thread.
#[derive(Debug)]
pub struct TlbModel<O = ()> {
    pub(super) config: TlbHierarchyConfig,
    shapes: Vec<TlbConfig>,
    /// The numbers of the TLBs on the way of fetches and of data.
    pub(super) code: Vec<usize>,
    pub(super) data: Vec<usize>,
    pub(super) report: TlbReport,
    threads: HashMap<ThreadId, Box<Translator>>,
    /// The thread of the last single reference, if it is not among those.
    pub(super) recent: Option<(ThreadId, Box<Translator>)>,
    pub(super) observer: O,
    /// Whether it is driven by single references that are mostly misses.
    filtered: bool,
    /// Whether there is one level, and one size of pages; their shift.
    pub(super) usual: bool,
    pub(super) page_shift: u32,
}

/// No page is settled.
pub(super) const UNSETTLED: [(u64, u64); 2] = [(1, 0); 2];
/// The part of a key that is a page's number.
pub(super) const PAGE_NUMBER: u64 = (1 << 55) - 1;

/// The TLBs of one thread.
#[derive(Debug)]
pub(super) struct Translator {
    pub(super) arrays: Vec<AnyArray>,
    /// For each TLB, what a filter in front of it must know.
    pub(super) fronts: Vec<Front>,
    pub(super) walker: Walker,
    pub(super) space: u64,
    /// The pages of the last fetch and of the last data access: first address
    /// and mask. Looking them up again would change nothing.
    pub(super) settled: [(u64, u64); 2],
}

impl TlbModel {
    /// A cold model.
    ///
    /// # Errors
    ///
    /// See [`TlbHierarchyConfig::check`].
    pub fn new(config: &TlbHierarchyConfig) -> Result<Self, Error> {
        Self::observed(config, ())
    }
}

impl<O: TlbObserve> TlbModel<O> {
    /// A cold model whose misses are told to `observer`.
    ///
    /// # Errors
    ///
    /// See [`TlbHierarchyConfig::check`].
    pub fn observed(config: &TlbHierarchyConfig, observer: O) -> Result<Self, Error> {
        config.check()?;
        let mut model = Self {
            config: config.clone(),
            shapes: Vec::new(),
            code: Vec::new(),
            data: Vec::new(),
            report: TlbReport::default(),
            threads: HashMap::new(),
            recent: None,
            observer,
            filtered: false,
            usual: config.levels.len() == 1 && config.pages.regions.is_empty(),
            page_shift: config.pages.base.trailing_zeros(),
        };
        for level in &config.levels {
            match level.tlbs {
                Tlbs::Unified(tlb) => {
                    let at = model.add(level.name.clone(), tlb);
                    model.code.push(at);
                    model.data.push(at);
                }
                Tlbs::Split { code, data } => {
                    let at = model.add(format!("{}i", level.name), code);
                    model.code.push(at);
                    let at = model.add(format!("{}d", level.name), data);
                    model.data.push(at);
                }
            }
        }
        Ok(model)
    }

    /// A cold model behind a filter, driven by [`reference`](Self::reference).
    ///
    /// # Errors
    ///
    /// See [`TlbHierarchyConfig::check`].
    pub fn behind_filter(config: &TlbHierarchyConfig, observer: O) -> Result<Self, Error> {
        Ok(Self { filtered: true, ..Self::observed(config, observer)? })
    }

    fn add(&mut self, name: String, tlb: TlbConfig) -> usize {
        self.shapes.push(tlb);
        self.report.tlbs.push(TlbStats { name, ..TlbStats::default() });
        self.shapes.len() - 1
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> TlbReport {
        self.report.clone()
    }

    /// Forgets all counts and keeps the contents: the end of a warm-up.
    pub fn reset_counts(&mut self) {
        for tlb in &mut self.report.tlbs {
            *tlb = TlbStats { name: std::mem::take(&mut tlb.name), ..TlbStats::default() };
        }
        self.report.walks = WalkStats::default();
        self.report.instructions = 0;
    }

    /// The observer, to empty it.
    pub const fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    pub(super) fn take(&mut self, id: ThreadId) -> Box<Translator> {
        if let Some((recent, thread)) = self.recent.take() {
            if recent == id {
                return thread;
            }
            self.threads.insert(recent, thread);
        }
        self.threads.remove(&id).unwrap_or_else(|| {
            let array = if self.filtered { AnyArray::behind_filter } else { AnyArray::new };
            let arrays: Vec<_> = self.shapes.iter().map(|tlb| array(&tlb.as_cache())).collect();
            let shapes = self.shapes.iter().zip(&arrays);
            Box::new(Translator {
                fronts: shapes.map(|(s, a)| Front::new(s, a.fill_settles())).collect(),
                arrays,
                walker: Walker::new(self.config.walk),
                space: 0,
                settled: UNSETTLED,
            })
        })
    }

    #[inline]
    fn touch(&mut self, thread: &mut Translator, kind: Kind, addr: GuestVa, size: u32) {
        let at = addr.0 ^ thread.space;
        let last = addr.offset(u64::from(size.max(1)) - 1).0 ^ thread.space;
        let side = usize::from(kind != Kind::Fetch);
        let (page, mask) = thread.settled[side];
        if at & mask == page && last & mask == page {
            let first = if kind == Kind::Fetch { self.code[0] } else { self.data[0] };
            self.report.tlbs[first].accesses[kind] += 1;
            return;
        }
        self.translate(thread, kind, addr, size);
    }

    /// Looks up every page that an access touches.
    #[inline(never)]
    pub(super) fn translate(
        &mut self,
        thread: &mut Translator,
        kind: Kind,
        addr: GuestVa,
        size: u32,
    ) {
        let mut addr = addr;
        let mut left = u64::from(size.max(1));
        while left > 0 {
            let shift = self.config.pages.shift(addr);
            self.look_up(thread, kind, addr, shift);
            let room = (1u64 << shift) - (addr.0 & ((1 << shift) - 1));
            addr = addr.offset(room);
            left = left.saturating_sub(room);
        }
    }

    fn look_up(&mut self, thread: &mut Translator, kind: Kind, addr: GuestVa, shift: u32) {
        let at = addr.0 ^ thread.space;
        let key = key(at, shift);
        let way = if kind == Kind::Fetch { &self.code } else { &self.data };
        let mut hit = None;
        thread.fronts[way[0]].used(key);
        for (level, &tlb) in way.iter().enumerate() {
            self.report.tlbs[tlb].accesses[kind] += 1;
            if let Found::Hit { .. } = thread.arrays[tlb].access(key, 0, 0) {
                hit = Some(level);
                break;
            }
            self.report.tlbs[tlb].misses[kind] += 1;
        }
        if hit.is_none() {
            let accesses = thread.walker.walk(at, shift);
            self.report.walks.walks[kind] += 1;
            self.report.walks.accesses += u64::from(accesses);
            self.report.walks.cycles +=
                u64::from(accesses) * u64::from(self.config.walk.cycles_per_access);
        }
        let missed = hit.unwrap_or(way.len());
        for (level, &tlb) in way.iter().take(missed).enumerate() {
            let filled = thread.arrays[tlb].fill(key, 0);
            if let Some(evicted) = filled.evicted.filter(|_| level == 0) {
                thread.fronts[tlb].departed.push(evicted.line());
            }
        }
        if missed > 0 {
            self.observer.missed(self.report.instructions, kind, missed, hit.is_none());
        }
        // A first level for both sides sees them alternate: nothing is settled.
        let split = self.code[0] != self.data[0];
        let settles = || hit == Some(0) || thread.arrays[way[0]].fill_settles();
        if split && settles() && pages_are_uniform(&self.config.pages) {
            let mask = !((1u64 << shift) - 1);
            thread.settled[usize::from(kind != Kind::Fetch)] = (at & mask, mask);
        } else {
            thread.settled = UNSETTLED;
        }
    }
}

/// Whether an address in the same frame of a page's size is in the same page:
/// true unless regions begin or end inside such a frame.
fn pages_are_uniform(pages: &Pages) -> bool {
    pages.regions.is_empty()
}

/// A page as the line number of an array: its number, and its size above it.
#[inline]
pub(super) const fn key(addr: u64, shift: u32) -> u64 {
    (addr >> shift) | ((shift as u64 - 10) << 55)
}

impl<O: TlbObserve> Sink for TlbModel<O> {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let mut thread = self.take(batch.thread);
        thread.fronts.iter_mut().for_each(|front| front.departed.clear());
        for record in batch.records {
            match *record {
                Record::Insn { len, pc, .. } => {
                    self.report.instructions += 1;
                    self.touch(&mut thread, Kind::Fetch, pc, u32::from(len));
                }
                Record::Load { size, addr, .. } => self.touch(&mut thread, Kind::Load, addr, size),
                Record::Store { size, addr, .. } => {
                    self.touch(&mut thread, Kind::Store, addr, size)
                }
                _ => {}
            }
        }
        self.threads.insert(batch.thread, thread);
        Ok(true)
    }

    fn event(&mut self, id: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::ThreadStart(start) => {
                let mut thread = self.take(id);
                thread.space = space(start.process);
                self.threads.insert(id, thread);
            }
            Event::ThreadEnd(_) => {
                self.take(id);
            }
            _ => {}
        }
        Ok(true)
    }
}
