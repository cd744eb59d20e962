//! A hierarchy that is told less than everything: what may be kept back from it, and how that is counted.
//!
//! In front of a cache that fills whole lines in sets and in which using a line again at once changes
//! nothing, references to the last line used of each set can be kept back ([`Sieve`]), as long as nobody but
//! the thread itself changes the cache. Of an LRU cache, those to all lines that it has: their order it need not know, because it
//! is told which one has to go. Who tells lines without that begins with all lines of the set in their order.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Gone, GuestVa, Held, Known, Line, Lines, Sieve, Use};

use super::check::named;
use super::config::{
    Allocate, CacheConfig, Caches, HierarchyConfig, Placement, Sharing, Straddle, WritePolicy,
};
use super::entry::DIRTY;
use super::graph::{MEMORY, Request};
use super::hierarchy::{Hierarchy, Thread};
use super::node::{Node, Part};
use super::observe::Observe;
use crate::prefetch::PrefetchConfig;
use crate::{ByKind, Kind, Replacement};

/// What may be kept back from such a hierarchy; it must also take blocks ([`super::pass::by_blocks`]).
pub(super) fn sieve(config: &HierarchyConfig) -> Option<Sieve> {
    let first = config.levels.first()?;
    // What lies in two lines is two references, each to one of them.
    let by_lines = config.straddle == Straddle::Split;
    if first.sharing != Sharing::Private || config.cores != 0 || !by_lines {
        return None;
    }
    let Caches::Split { code, data } = &first.caches else { return None };
    let stores_settle = data.write != WritePolicy::Through && data.allocate == Allocate::OnWrite;
    // Who foresees misses looks at the instruction, which is not told of references behind a sieve.
    let foresees = |(_, cache): (String, &CacheConfig)| cache.prefetch != PrefetchConfig::None;
    if !stores_settle || config.levels.iter().flat_map(named).any(foresees) {
        return None;
    }
    Some(Sieve { code: lines(code)?, data: lines(data)? })
}

fn lines(cache: &CacheConfig) -> Option<Lines> {
    let regular = cache.placement == Placement::Modulo && cache.sets().is_power_of_two();
    if !regular || !Node::new(cache, 0, 0).repeats_settle() {
        return None;
    }
    let known = if cache.replacement == Replacement::Lru { Known::All } else { Known::Last };
    let (shift, sets) = (cache.line.trailing_zeros(), cache.sets().trailing_zeros());
    Some(Lines { shift, sets, ways: cache.ways, known })
}

/// For how many lines at once the next level's sets are looked at before they are asked: most lines that are told miss
/// the first level, the tables of a large cache do not fit into those of the host, and the host waits for
/// many words at once no longer than for one.
const AT_ONCE: usize = 16;

impl<O: Observe> Hierarchy<O> {
    /// Lines that were told.
    pub(super) fn told_lines(&mut self, thread: &Thread, lines: &[Line]) {
        let below = self.graph.nodes.get(thread.ports.data).map_or(MEMORY, |node| node.next);
        for lines in lines.chunks(AT_ONCE) {
            if let Some(node) = self.graph.nodes.get(below) {
                for line in lines {
                    if let Line::Instead { line, .. } = line {
                        node.look_ahead(line.0 ^ thread.space);
                    }
                }
            }
            for &line in lines {
                self.told_line(thread, line);
            }
        }
    }

    /// A line that was told.
    fn told_line(&mut self, thread: &Thread, line: Line) {
        match line {
            Line::Fetch(addr) => {
                self.count_instructions(thread.core, 1);
                self.touch(thread, Kind::Fetch, addr, 1);
            }
            Line::Load(addr) => self.touch(thread, Kind::Load, addr, 1),
            Line::Store(addr) => self.touch(thread, Kind::Store, addr, 1),
            Line::Prefetch(addr) => self.hint_prefetch(thread, addr),
            Line::Flush(addr) => self.hint_flush(thread, addr),
            Line::Instead { comes, line, goes } => {
                let kind = match comes {
                    Use::Fetch => {
                        self.count_instructions(thread.core, 1);
                        Kind::Fetch
                    }
                    Use::Load => Kind::Load,
                    Use::Store => Kind::Store,
                };
                self.exchange(thread, kind, line, goes);
            }
        }
    }

    /// A line comes in the place of another one.
    fn exchange(&mut self, thread: &Thread, kind: Kind, line: GuestVa, goes: Gone) {
        let port = if kind == Kind::Fetch { thread.ports.code } else { thread.ports.data };
        let (gone, dirty) = match goes {
            Gone::Clean(gone) => (gone, 0),
            Gone::Dirty(gone) => (gone, DIRTY),
        };
        let at = line.0 ^ thread.space;
        let part = Part { addr: at, size: 1, kind, write: kind == Kind::Store };
        let request = Request { part, pc: thread.pc };
        match self.graph.exchange(port, request, (gone.0 ^ thread.space, dirty)) {
            Some(level) => self.tell(thread, kind, line, level),
            // Somebody else took the line away.
            None => self.touch(thread, kind, line, 1),
        }
    }

    /// Counts what was kept back from the caches of a core: hits of the first level.
    pub(super) fn count_held(&mut self, thread: &Thread, held: &Held) {
        self.count_instructions(thread.core, held.insns);
        let ports = thread.ports;
        let fetches = held.insns.wrapping_add(held.across);
        self.graph.count_settled(ports.code, ByKind::new(fetches, 0, 0));
        self.graph.count_settled(ports.data, ByKind::new(0, held.loads, held.stores));
    }
}
