//! A hierarchy behind a filter: a collector tells only the references whose
//! outcome it does not know, one by one, and asks which of those to come it may
//! keep to itself. All counts but the accesses of the first level are exactly
//! those of a hierarchy that sees everything; the hits kept back are added at
//! the end ([`Hierarchy::count_hits`]).
//!
//! Three sorts of first-level caches can be filtered so:
//!
//! * LRU in sets: a hit changes nothing but the line's time of use, which the
//!   filter writes itself ([`Stamps`]).
//! * FIFO and random replacement: a hit changes nothing at all.
//! * Others in which using a line again changes nothing: a line may pass until
//!   another one of its set is used.
//!
//! A line that may no longer pass is listed as departed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, ThreadId};

use super::array::{AnyArray, Array as _, Filled};
use super::config::{
    CacheConfig, HierarchyConfig, Inclusion, LevelConfig, Modify, Placement, Sharing, Straddle,
    WritePolicy,
};
use super::entry::DIRTY;
use super::graph::{MEMORY, Request};
use super::hierarchy::{Hierarchy, NO_LOAD, Ports, Thread};
use super::index::Index;
use super::node::Part;
use super::observe::Observe;
use super::stamped::{StampedLru, Stamps};
use crate::{ByKind, Error, Kind, Replacement};

/// Whether a hierarchy stands alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placing {
    Alone,
    BehindFilter,
}

/// What a filter may keep from a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filterable {
    /// Nothing: it must see every reference.
    Nothing,
    /// Hits on a line until another line of its set is used.
    Recent,
    /// All hits.
    Present,
}

/// How the line of a reference stands afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The next reference must be told.
    Seen,
    /// Loads and fetches may pass; their time of use belongs into this slot.
    Loads(u32),
    /// Stores may pass, too.
    All(u32),
}

/// What became of a reference that was answered at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtOnce {
    /// How its line stands.
    pub standing: Standing,
    /// The level that had it; the number of levels means memory.
    pub served: u32,
    /// The line that had to go for it, by its first byte; it is not listed as
    /// departed besides.
    pub departed: Option<GuestVa>,
}

/// A reference told singly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The instruction.
    pub pc: GuestVa,
    /// What it references.
    pub addr: GuestVa,
    /// How many bytes of it.
    pub size: u32,
    /// How.
    pub kind: Kind,
    /// The time: never less than that of an earlier reference.
    pub now: u64,
}

/// What a filter in front of a cache must know about it.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) filterable: Filterable,
    /// Lines that may no longer pass.
    pub(crate) departed: Vec<u64>,
    index: Index,
    /// The line last used of each set, where only that may pass; line + 1.
    recent: Box<[u64]>,
}

impl Front {
    pub(super) fn new(config: &CacheConfig, plain: bool, array: &mut AnyArray) -> Self {
        let in_sets = config.placement != Placement::Skewed;
        let filterable = match config.replacement {
            _ if !plain || !in_sets => Filterable::Nothing,
            Replacement::Lru => {
                *array = AnyArray::Stamped(StampedLru::new(config));
                Filterable::Present
            }
            Replacement::Fifo | Replacement::Random { .. } => Filterable::Present,
            _ if array.fill_settles() => Filterable::Recent,
            _ => Filterable::Nothing,
        };
        let sets = if filterable == Filterable::Recent { config.sets() as usize } else { 0 };
        Self {
            filterable,
            departed: Vec::new(),
            index: Index::new(config),
            recent: vec![0; sets].into_boxed_slice(),
        }
    }

    /// A line is used: another of its set no longer is the last one.
    #[inline]
    pub(super) fn used(&mut self, line: u64) {
        if self.filterable == Filterable::Recent {
            let before = std::mem::replace(&mut self.recent[self.index.set(line)], line + 1);
            if before != 0 && before != line + 1 {
                self.departed.push(before - 1);
            }
        }
    }
}

/// How a line in a slot stands that may be written unseen, or not.
const fn standing_of(slot: usize, stores: bool) -> Standing {
    if stores { Standing::All(slot as u32) } else { Standing::Loads(slot as u32) }
}

impl<O: Observe> Hierarchy<O> {
    /// A cold hierarchy behind a filter, whose every reference told is told on
    /// to `observer`. It is driven by [`reference`](Self::reference), not as a
    /// sink of records; events still come as to any sink.
    ///
    /// # Errors
    ///
    /// See [`HierarchyConfig::check`].
    pub fn behind_filter(config: &HierarchyConfig, observer: O) -> Result<Self, Error> {
        Self::placed(config, observer, Placing::BehindFilter)
    }

    fn last_thread(&mut self, id: ThreadId) -> Thread {
        match self.last {
            Some(thread) if thread.id == id => thread,
            _ => {
                let thread = self.thread(id);
                self.last = Some(thread);
                thread
            }
        }
    }

    /// By which caches a thread enters, and its space.
    pub(super) fn where_from(&mut self, id: ThreadId) -> (Ports, u64) {
        let thread = self.last_thread(id);
        (thread.ports, thread.space)
    }

    pub(super) fn entry(ports: Ports, kind: Kind) -> usize {
        if kind == Kind::Fetch { ports.code } else { ports.data }
    }

    /// One reference, and how its line stands afterwards.
    pub fn reference(&mut self, id: ThreadId, r: &Reference) -> Standing {
        let mut thread = self.last_thread(id);
        thread.pc = r.pc;
        if self.config.modify == Modify::LoadOnly {
            let same = r.kind == Kind::Store && thread.last_load == (r.addr, r.size);
            thread.last_load = if r.kind == Kind::Load { (r.addr, r.size) } else { NO_LOAD };
            self.last = Some(thread);
            if same {
                return Standing::Seen;
            }
        }
        let entry = Self::entry(thread.ports, r.kind);
        let at = r.addr.0 ^ thread.space;
        if let Some(node) = self.graph.nodes.get_mut(entry)
            && let AnyArray::Stamped(array) = node.array_mut()
        {
            array.now = r.now;
        }
        let crosses = self.graph.nodes.get(entry).is_some_and(|node| node.crosses(at, r.size));
        if crosses && self.config.straddle == Straddle::Split {
            self.in_two(&thread, r, entry);
            return Standing::Seen;
        }
        // The short way says nothing to a filter that must know who was used.
        if self.graph.nodes.get(entry).is_some_and(|n| n.filterable() == Filterable::Present) {
            self.touch(&thread, r.kind, r.addr, r.size);
        } else {
            self.enter(&thread, r.kind, r.addr, r.size);
        }
        if crosses { Standing::Seen } else { self.standing(entry, at) }
    }

    /// Answers a reference as [`reference`](Self::reference) does, in one step and
    /// without telling the observer. None, and nothing changed, unless it is to one
    /// line of an LRU cache whose misses take no other line from it.
    #[inline(always)]
    pub fn reference_at_once(&mut self, id: ThreadId, r: &Reference) -> Option<AtOnce> {
        let thread = self.last.as_ref().filter(|thread| thread.id == id)?;
        let (ports, space) = (thread.ports, thread.space);
        if self.config.modify == Modify::LoadOnly {
            return None;
        }
        let entry = Self::entry(ports, r.kind);
        let at = r.addr.0 ^ space;
        let node = self.graph.nodes.get_mut(entry)?;
        if !node.at_once || node.crosses(at, r.size) {
            return None;
        }
        if node.next != MEMORY || node.inclusion == Inclusion::Inclusive {
            return self.reference_with_more_behind((entry, at), space, r);
        }
        let (line, shift, level) = (at >> node.shift, node.shift, node.level);
        let back = node.write == WritePolicy::Back;
        let dirties = if r.kind == Kind::Store && back { DIRTY } else { 0 };
        let AnyArray::Stamped(array) = node.array_mut() else { return None };
        let brought = array.bring(line, dirties, r.now);
        node.stats.accesses[r.kind] += 1;
        let Filled { evicted, slot } = match brought {
            Ok((slot, flags)) => {
                let standing = standing_of(slot, !back || flags & DIRTY != 0);
                return Some(AtOnce { standing, served: level, departed: None });
            }
            Err(filled) => filled,
        };
        node.stats.misses[r.kind] += 1;
        self.graph.memory.reads[r.kind] += 1;
        if let Some(evicted) = evicted {
            node.stats.evictions += 1;
            let dirty = u64::from(evicted.dirty() != 0);
            node.stats.write_backs += dirty;
            self.graph.memory.write_backs += dirty;
        }
        let departed = evicted.map(|line| GuestVa((line.line() << shift) ^ space));
        let standing = standing_of(slot, !back || dirties != 0);
        Some(AtOnce { standing, served: self.graph.levels(), departed })
    }

    /// The same for a cache that has others behind it.
    #[inline(never)]
    fn reference_with_more_behind(
        &mut self,
        (entry, at): (usize, u64),
        space: u64,
        r: &Reference,
    ) -> Option<AtOnce> {
        let node = self.graph.nodes.get_mut(entry)?;
        let (shift, level, back) = (node.shift, node.level, node.write == WritePolicy::Back);
        let line = at >> shift;
        let dirties = if r.kind == Kind::Store && back { DIRTY } else { 0 };
        let AnyArray::Stamped(array) = node.array_mut() else { return None };
        if let Some((slot, flags)) = array.look(line, dirties, r.now) {
            node.stats.accesses[r.kind] += 1;
            let standing = standing_of(slot, !back || flags & DIRTY != 0);
            return Some(AtOnce { standing, served: level, departed: None });
        }
        if self.takes_lines_from_above(entry) {
            return None;
        }
        let served = self.ask_next(entry, at, r);
        let node = self.graph.nodes.get_mut(entry)?;
        node.count_quick_miss(r.kind);
        let AnyArray::Stamped(array) = node.array_mut() else { return None };
        array.now = r.now;
        let filled = array.fill(line, dirties);
        if let Some(evicted) = filled.evicted {
            node.stats.evictions += 1;
            self.graph.dispose(entry, evicted.line(), evicted.dirty());
        }
        let departed = filled.evicted.map(|line| GuestVa((line.line() << shift) ^ space));
        let standing = standing_of(filled.slot, !back || dirties != 0);
        Some(AtOnce { standing, served, departed })
    }

    /// Asks the caches behind the first one; the level that had the line.
    #[inline(never)]
    fn ask_next(&mut self, entry: usize, at: u64, r: &Reference) -> u32 {
        let part = Part { addr: at, size: r.size.max(1), kind: r.kind, write: false };
        self.graph.read_next(entry, Request { part, pc: r.pc }).level
    }

    /// Whether a cache behind this one may take lines from it, or give it dirty
    /// ones.
    #[inline(never)]
    fn takes_lines_from_above(&self, entry: usize) -> bool {
        let mut at = self.graph.nodes.get(entry).map_or(MEMORY, |node| node.next);
        while let Some(node) = self.graph.nodes.get(at) {
            if node.inclusion != Inclusion::NonInclusive {
                return true;
            }
            at = node.next;
        }
        false
    }

    /// A reference to two lines, the second of which is used later.
    #[cold]
    fn in_two(&mut self, thread: &Thread, r: &Reference, entry: usize) {
        let (mut addr, mut left, mut now) = (r.addr, u64::from(r.size), r.now);
        while left > 0 {
            let Some(node) = self.graph.nodes.get_mut(entry) else { return };
            let bytes = (node.line_mask + 1 - (addr.0 & node.line_mask)).min(left);
            if let AnyArray::Stamped(array) = node.array_mut() {
                array.now = now;
            }
            self.enter(thread, r.kind, addr, bytes as u32);
            addr = addr.offset(bytes);
            left -= bytes;
            now += 1;
        }
    }

    fn standing(&self, entry: usize, at: u64) -> Standing {
        let Some(node) = self.graph.nodes.get(entry) else { return Standing::Seen };
        if node.filterable() == Filterable::Nothing {
            return Standing::Seen;
        }
        let Some((slot, flags)) = node.array().place(at >> node.shift) else {
            return Standing::Seen;
        };
        let slot = if matches!(node.array(), AnyArray::Stamped(_)) { slot as u32 } else { 0 };
        match node.write {
            WritePolicy::Ignore => Standing::All(slot),
            WritePolicy::Back if flags & DIRTY != 0 => Standing::All(slot),
            WritePolicy::Back => Standing::Loads(slot),
            WritePolicy::Through => Standing::Seen,
        }
    }

    /// The lines of a thread's first-level cache that may no longer pass, by
    /// their first byte, each once; then forgets them.
    #[inline]
    pub fn departed(&mut self, id: ThreadId, kind: Kind, mut tell: impl FnMut(GuestVa)) {
        let (ports, space) = match &self.last {
            Some(thread) if thread.id == id => (thread.ports, thread.space),
            _ => {
                let thread = self.last_thread(id);
                (thread.ports, thread.space)
            }
        };
        let Some(node) = self.graph.nodes.get_mut(Self::entry(ports, kind)) else { return };
        let shift = node.shift;
        let Some(front) = &mut node.front else { return };
        while let Some(line) = front.departed.pop() {
            tell(GuestVa((line << shift) ^ space));
        }
    }

    /// What a filter may keep from a thread's first-level cache.
    pub fn filterable(&mut self, id: ThreadId, kind: Kind) -> Filterable {
        let ports = self.last_thread(id).ports;
        let node = self.graph.nodes.get(Self::entry(ports, kind));
        node.map_or(Filterable::Nothing, |node| node.filterable())
    }

    /// Whether a thread's fetches and data enter by the same cache.
    pub fn is_unified(&mut self, id: ThreadId) -> bool {
        let ports = self.last_thread(id).ports;
        ports.code == ports.data
    }

    /// Whether no two threads ever use one first-level cache at a time.
    #[must_use]
    pub fn has_core_of_its_own(&self) -> bool {
        let private = |level: &LevelConfig| level.sharing == Sharing::Private;
        self.config.cores == 0 && self.config.levels.first().is_some_and(private)
    }

    /// The bytes of a line of a thread's first-level cache; none without one.
    pub fn line_bytes(&mut self, id: ThreadId, kind: Kind) -> Option<u64> {
        let ports = self.last_thread(id).ports;
        self.graph.nodes.get(Self::entry(ports, kind)).map(|node| node.line_mask + 1)
    }

    /// Where the times of use of a thread's first-level cache are kept; none if
    /// it needs none.
    pub fn stamps(&mut self, id: ThreadId, kind: Kind) -> Option<Stamps> {
        let ports = self.last_thread(id).ports;
        match self.graph.nodes.get(Self::entry(ports, kind))?.array() {
            AnyArray::Stamped(array) => Some(array.stamps()),
            _ => None,
        }
    }

    /// Adds instructions, and hits of a thread's first-level caches, that the
    /// filter kept back.
    pub fn count_hits(&mut self, id: ThreadId, instructions: u64, hits: ByKind) {
        let thread = self.last_thread(id);
        let ports = thread.ports;
        self.count_instructions(thread.core, instructions);
        for kind in Kind::ALL {
            if let Some(node) = self.graph.nodes.get_mut(Self::entry(ports, kind)) {
                node.stats.accesses[kind] += hits[kind];
            }
        }
    }
}
