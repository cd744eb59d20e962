//! How requests and lines travel between the caches of a hierarchy.
//!
//! # A request for part of a line at node N
//!
//! 1. Present: done. A store under write-through is passed on as a store. An
//!    exclusive node gives the line away.
//! 2. Absent, and it is a store that does not allocate: the store is passed on.
//! 3. Absent otherwise: the next node is asked (for a read, even if a store
//!    caused it), then the line is filled here unless N is exclusive, then the
//!    line that had to go is disposed of: if the next node is exclusive it goes
//!    there, clean or dirty; else only if it is dirty, as a write-back, which
//!    allocates at the next node when absent there without reading memory. An
//!    inclusive N first takes the line away from every cache above it.
//!
//! A request that spans two lines ([`Straddle::One`](super::Straddle)) touches
//! and fills both first and then asks the next node for the whole if either
//! missed. Only non-inclusive hierarchies allow that.
//!
//! The recursion goes one node deeper at each step, so it is as deep as the
//! hierarchy, at most twice 16 with victim caches.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, LineAddr};

use super::config::{Allocate, Inclusion, WritePolicy};
use super::entry::{PREFETCHED, Resident};
use super::node::{Met, Node, Part, Quick};
use super::stats::MemoryStats;
use crate::ByKind;
use crate::prefetch::{Fill, Outcome, Seen, Wanted};

/// The node number that means memory.
pub(crate) const MEMORY: usize = usize::MAX;

/// A request on its way through the graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) part: Part,
    pub(crate) pc: GuestVa,
}

/// Where a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Served {
    /// The level that had the line; the number of levels means memory.
    pub(crate) level: u32,
    /// The dirty flag, if the line comes so out of an exclusive level.
    dirty: u64,
}

/// All caches and memory.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) memory: MemoryStats,
    levels: u32,
}

impl Graph {
    /// A graph without nodes for a hierarchy of so many levels.
    pub(crate) fn new(levels: u32) -> Self {
        Self { nodes: Vec::new(), memory: MemoryStats::default(), levels }
    }

    /// Serves a request at a node, counting the access.
    pub(crate) fn request(&mut self, id: usize, request: Request) -> Served {
        let Some(node) = self.nodes.get_mut(id) else { return self.ask_memory(request) };
        let Part { addr, size, kind, .. } = request.part;
        node.stats.accesses[kind] += 1;
        if node.crosses(addr, size) {
            return self.request_two(id, request);
        }
        let line = addr >> node.shift;
        match node.demand(line, request.part) {
            Met::Hit { dirty, prefetched } => {
                let served = self.hit(id, line, request, dirty);
                let outcome = if prefetched { Outcome::PrefetchHit } else { Outcome::Hit };
                self.prefetch(id, line, request, outcome);
                served
            }
            Met::Sector => self.read_next(id, request),
            Met::Miss => {
                let served = self.miss(id, line, request);
                self.prefetch(id, line, request, Outcome::Miss);
                served
            }
        }
    }

    fn ask_memory(&mut self, request: Request) -> Served {
        if request.part.write {
            self.memory.writes += 1;
        } else {
            self.memory.reads[request.part.kind] += 1;
        }
        Served { level: self.levels, dirty: 0 }
    }

    /// How many levels there are; as a level, memory.
    pub(crate) const fn levels(&self) -> u32 {
        self.levels
    }

    /// Counts references that the filter in front of node `id` settled.
    pub(crate) fn count_settled(&mut self, id: usize, settled: ByKind) {
        match self.nodes.get_mut(id) {
            Some(node) => node.stats.accesses += settled,
            None => {
                self.memory.writes += settled.store;
                self.memory.reads += ByKind { store: 0, ..settled };
            }
        }
    }

    fn hit(&mut self, id: usize, line: u64, request: Request, dirty: u64) -> Served {
        let node = &mut self.nodes[id];
        let level = node.level;
        if request.part.write && node.write == WritePolicy::Through {
            node.stats.write_throughs += 1;
            let next = node.next;
            self.request(next, request);
        } else if node.inclusion == Inclusion::Exclusive && !request.part.write {
            node.remove(line);
            return Served { level, dirty };
        }
        Served { level, dirty: 0 }
    }

    /// Serves a request that missed node `id`, miss and access counted.
    #[inline(never)]
    pub(crate) fn miss(&mut self, id: usize, line: u64, request: Request) -> Served {
        let node = &mut self.nodes[id];
        let exclusive = node.inclusion == Inclusion::Exclusive;
        let passes = node.allocate == Allocate::OnReadOnly || exclusive;
        if request.part.write && passes && node.write != WritePolicy::Ignore {
            node.stats.write_throughs += u64::from(!exclusive);
            return self.write_next(id, request);
        }
        let served = self.read_next(id, request);
        if exclusive {
            return served;
        }
        self.fill(id, line, request, served.dirty);
        if request.part.write && self.nodes[id].write == WritePolicy::Through {
            self.nodes[id].stats.write_throughs += 1;
            self.write_next(id, request);
        }
        Served { level: served.level, dirty: 0 }
    }

    /// Serves a request that misses node `id` and puts its line in the place of one that is there, which may be dirty:
    /// where it ended. `None`, and nothing happens, if that one is not there or the node is not a plain LRU cache.
    pub(super) fn exchange(
        &mut self,
        id: usize,
        request: Request,
        (gone, dirty): (u64, u64),
    ) -> Option<u32> {
        let node = self.nodes.get_mut(id)?;
        let line = request.part.addr >> node.shift;
        let next = node.next;
        let gone = node.exchange(gone >> node.shift, line, request.part)?;
        let served = self.read(next, request);
        if served.dirty != 0 {
            self.nodes[id].receive_dirt(line);
        }
        self.dispose(id, gone.line(), gone.dirty() | dirty);
        Some(served.level)
    }

    /// Asks a node for the bytes of a request that lie in one of its lines: as [`Graph::request`] does, in fewer steps if it
    /// is a plain cache.
    fn read(&mut self, id: usize, request: Request) -> Served {
        let request = Request { part: Part { write: false, ..request.part }, ..request };
        let Some(node) = self.nodes.get_mut(id) else { return self.ask_memory(request) };
        let (line, kind) = (request.part.addr >> node.shift, request.part.kind);
        match node.quick_read(line, kind) {
            Quick::Hit => Served { level: node.level, dirty: 0 },
            Quick::Miss => {
                node.count_quick_miss(kind);
                self.miss(id, line, request)
            }
            Quick::Unknown => self.request(id, request),
        }
    }

    /// Asks the next node for the bytes of a request.
    pub(super) fn read_next(&mut self, id: usize, request: Request) -> Served {
        let next = self.nodes[id].next;
        self.request(next, Request { part: Part { write: false, ..request.part }, ..request })
    }

    /// Tells the next node to store the bytes of a request.
    fn write_next(&mut self, id: usize, request: Request) -> Served {
        let next = self.nodes[id].next;
        self.request(next, Request { part: Part { write: true, ..request.part }, ..request })
    }

    fn fill(&mut self, id: usize, line: u64, request: Request, dirty: u64) {
        let node = &mut self.nodes[id];
        let evicted = node.fill_demand(line, request.part, dirty);
        if let Some(prefetcher) = &mut node.prefetcher {
            prefetcher.filled(LineAddr(line), Fill::Demand);
        }
        if let Some(evicted) = evicted {
            self.dispose(id, evicted.line(), evicted.dirty());
        }
    }

    /// A request over two lines, counted as one access and at most one miss.
    #[cold]
    fn request_two(&mut self, id: usize, request: Request) -> Served {
        let node = &mut self.nodes[id];
        let level = node.level;
        let first = request.part.addr >> node.shift;
        // The second line begins at address 0 when the access wraps around.
        let second = node.address(first + 1) >> node.shift;
        let mut missed = false;
        for line in [first, second] {
            let before = self.nodes[id].stats;
            if self.nodes[id].demand(line, request.part) != Met::Miss {
                continue;
            }
            if missed {
                // The second miss of one access is none.
                self.nodes[id].stats = before;
            }
            missed = true;
            if !(request.part.write && self.nodes[id].allocate == Allocate::OnReadOnly) {
                self.fill(id, line, request, 0);
            }
        }
        let node = &mut self.nodes[id];
        let through = request.part.write
            && (node.write == WritePolicy::Through || node.allocate == Allocate::OnReadOnly);
        if missed && !through {
            return self.read_next(id, request);
        }
        if through && (missed || node.write == WritePolicy::Through) {
            node.stats.write_throughs += 1;
            return self.write_next(id, request);
        }
        Served { level, dirty: 0 }
    }

    /// Gets rid of a line that node `id` evicted.
    pub(super) fn dispose(&mut self, id: usize, line: u64, mut dirty: u64) {
        let (addr, bytes) = {
            let node = &self.nodes[id];
            (node.address(line), node.line_mask + 1)
        };
        if self.nodes[id].inclusion == Inclusion::Inclusive {
            dirty |= self.take_from_above(id, addr, bytes);
        }
        let next = self.nodes[id].next;
        let exclusive =
            self.nodes.get(next).is_some_and(|node| node.inclusion == Inclusion::Exclusive);
        if dirty != 0 {
            self.nodes[id].stats.write_backs += 1;
        }
        if dirty != 0 || exclusive {
            self.receive(next, addr, dirty);
        }
    }

    /// Gives an evicted line to a node.
    fn receive(&mut self, id: usize, addr: u64, dirty: u64) {
        let Some(node) = self.nodes.get_mut(id) else {
            self.memory.write_backs += 1;
            return;
        };
        let line = addr >> node.shift;
        let present = node.receive(line, dirty);
        let exclusive = node.inclusion == Inclusion::Exclusive;
        let (keeps, dirty) = match node.write {
            // A node that ignores writes keeps a line only if it lives on
            // evictions, and drops the news otherwise.
            WritePolicy::Ignore if !exclusive => return,
            WritePolicy::Ignore => (true, 0),
            WritePolicy::Back => {
                (present || exclusive || node.allocate == Allocate::OnWrite, dirty)
            }
            WritePolicy::Through => (exclusive, dirty),
        };
        if !keeps {
            let next = node.next;
            return self.receive(next, addr, dirty);
        }
        if !present && let Some(evicted) = node.fill_other(line, dirty) {
            self.dispose(id, evicted.line(), evicted.dirty());
        }
    }

    /// Takes `bytes` bytes at `addr` from all caches above a node; the dirty
    /// flag if any of them was.
    fn take_from_above(&mut self, id: usize, addr: u64, bytes: u64) -> u64 {
        let mut dirty = 0;
        for above in 0..self.nodes.len() {
            if self.nodes[above].next != id {
                continue;
            }
            dirty |= self.take_from_above(above, addr, bytes);
            let node = &mut self.nodes[above];
            let (first, last) = (addr >> node.shift, (addr + (bytes - 1)) >> node.shift);
            for line in first..=last {
                if let Some(removed) = node.remove(line) {
                    node.stats.back_invalidations += 1;
                    dirty |= removed.dirty();
                }
            }
        }
        dirty
    }

    /// Lets the node's prefetcher see an access and fills what it asks for.
    #[inline]
    fn prefetch(&mut self, id: usize, line: u64, request: Request, outcome: Outcome) {
        if self.nodes[id].prefetcher.is_some() {
            self.prefetch_wanted(id, line, request, outcome);
        }
    }

    fn prefetch_wanted(&mut self, id: usize, line: u64, request: Request, outcome: Outcome) {
        let node = &mut self.nodes[id];
        let Some(prefetcher) = &mut node.prefetcher else { return };
        let addr = GuestVa(request.part.addr);
        let mut wanted = Wanted::new();
        let seen = Seen { pc: request.pc, addr, line: LineAddr(line), outcome };
        prefetcher.access(&seen, &mut wanted);
        let highest = u64::MAX >> node.shift;
        for &LineAddr(line) in wanted.lines() {
            self.bring(id, line & highest);
        }
    }

    /// Brings a line into node `id` without a demand for it, through all nodes
    /// below that do not have it.
    pub(crate) fn bring(&mut self, id: usize, line: u64) {
        let Some(node) = self.nodes.get(id) else {
            self.memory.prefetches += 1;
            return;
        };
        if node.contains(line) {
            return;
        }
        let (addr, next) = (node.address(line), node.next);
        let exclusive = node.inclusion == Inclusion::Exclusive;
        let dirty = match self.nodes.get(next).map(|below| (below.inclusion, below.shift)) {
            Some((Inclusion::Exclusive, _)) if self.nodes[next].contains(line) => {
                self.nodes[next].remove(line).map_or(0, Resident::dirty)
            }
            Some((_, shift)) => {
                self.bring(next, addr >> shift);
                0
            }
            None => {
                self.memory.prefetches += 1;
                0
            }
        };
        if exclusive {
            return;
        }
        let node = &mut self.nodes[id];
        let evicted = node.fill_other(line, dirty | PREFETCHED);
        if let Some(prefetcher) = &mut node.prefetcher {
            prefetcher.filled(LineAddr(line), Fill::Prefetch);
        }
        if let Some(evicted) = evicted {
            self.dispose(id, evicted.line(), evicted.dirty());
        }
    }

    /// Drops the line that holds an address from every cache; dirty data goes
    /// to memory.
    pub(crate) fn flush(&mut self, addr: u64) {
        let mut dirty = 0;
        for node in &mut self.nodes {
            if let Some(removed) = node.remove(addr >> node.shift) {
                node.stats.flushed += 1;
                dirty |= removed.dirty();
            }
        }
        self.memory.write_backs += u64::from(dirty != 0);
    }
}
