//! One cache of a hierarchy: its storage, its counts, and what hangs on it.
//!
//! A node knows nothing of other nodes; [`super::graph`] moves lines between
//! them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::array::{AnyArray, Filled, Found};
use super::classify::{Cause, Classifier};
use super::config::{Allocate, CacheConfig, Classify, Inclusion, WritePolicy};
use super::entry::{DIRTY, PREFETCHED, Resident};
use super::filter::{Filterable, Front};
use super::lru_array::Run;
use super::settled::{Settled, Stores};
use super::stats::CacheStats;
use crate::Kind;
use crate::outline::Step;
use crate::prefetch::Prefetcher;

/// One cache.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) settled: Settled,
    pub(crate) shift: u32,
    pub(crate) line_mask: u64,
    pub(crate) stats: CacheStats,
    pub(crate) next: usize,
    pub(crate) level: u32,
    pub(crate) write: WritePolicy,
    pub(crate) allocate: Allocate,
    pub(crate) inclusion: Inclusion,
    array: AnyArray,
    fill_settles: bool,
    /// Whether a hit concerns nobody but the storage, the counts and the filter.
    plain: bool,
    pub(crate) prefetcher: Option<Box<dyn Prefetcher>>,
    classifier: Option<Box<Classifier>>,
    sectors: Option<Box<Sectors>>,
    /// What a filter in front of this cache must know.
    pub(crate) front: Option<Box<Front>>,
    /// Whether it keeps times of use for a filter, and takes in every line that it
    /// misses.
    pub(crate) at_once: bool,
}

/// Which sectors of each slot are present and which are dirty.
#[derive(Debug)]
struct Sectors {
    shift: u32,
    present: Box<[u64]>,
}

/// What a node made of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Met {
    /// A hit; the flags tell what the line was before.
    Hit { dirty: u64, prefetched: bool },
    /// A miss of a sector whose line is present: only the sector is missing,
    /// and it is marked present now.
    Sector,
    /// A miss.
    Miss,
}

/// What a look at a plain cache came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quick {
    /// A hit, dealt with.
    Hit,
    /// A miss; nothing changed.
    Miss,
    /// The cache is not plain; nothing changed.
    Unknown,
}

impl Node {
    /// An empty cache of a checked configuration, in front of node `next`.
    pub(crate) fn new(config: &CacheConfig, level: u32, next: usize) -> Self {
        let shift = config.line.trailing_zeros();
        let array = AnyArray::new(config);
        let sectors = (config.sectors > 1).then(|| {
            Box::new(Sectors {
                shift: shift - config.sectors.trailing_zeros(),
                present: vec![0; config.lines() as usize].into_boxed_slice(),
            })
        });
        let prefetcher = config.prefetch.build(shift);
        let plain = prefetcher.is_none()
            && sectors.is_none()
            && config.classify == Classify::No
            && config.inclusion != Inclusion::Exclusive
            && config.write != WritePolicy::Through;
        Self {
            plain,
            settled: Settled::NONE,
            shift,
            line_mask: u64::from(config.line) - 1,
            stats: CacheStats::default(),
            next,
            level,
            write: config.write,
            allocate: config.allocate,
            inclusion: config.inclusion,
            fill_settles: array.fill_settles(),
            array,
            prefetcher,
            classifier: match config.classify {
                Classify::No => None,
                Classify::ThreeC => Some(Box::new(Classifier::new(config.lines()))),
            },
            sectors,
            front: None,
            at_once: false,
        }
    }

    /// Whether misses are sorted by their cause.
    pub(super) const fn classifies(&self) -> bool {
        self.classifier.is_some()
    }

    /// Makes an empty cache one that a filter may stand before.
    pub(crate) fn put_behind_filter(&mut self, config: &CacheConfig) {
        let front = Front::new(config, self.plain, &mut self.array);
        self.at_once = front.filterable == Filterable::Present
            && self.allocate == Allocate::OnWrite
            && matches!(self.array, AnyArray::Stamped(_));
        self.front = Some(Box::new(front));
    }

    /// What a filter may let pass.
    #[inline]
    pub(crate) fn filterable(&self) -> Filterable {
        self.front.as_ref().map_or(Filterable::Nothing, |front| front.filterable)
    }

    /// Whether using a line again at once is a hit that changes nothing, whatever brought it.
    pub(crate) const fn repeats_settle(&self) -> bool {
        self.plain && self.fill_settles
    }

    /// Whether a hit of the line last used of its set changes nothing, whenever it comes.
    pub(crate) const fn keeps_order(&self) -> bool {
        self.plain && matches!(self.array, AnyArray::Lru(_))
    }

    /// The storage.
    pub(crate) const fn array(&self) -> &AnyArray {
        &self.array
    }

    /// The storage, to set its clock.
    pub(crate) const fn array_mut(&mut self) -> &mut AnyArray {
        &mut self.array
    }

    /// The address of a line's first byte.
    #[inline]
    pub(crate) const fn address(&self, line: u64) -> u64 {
        line << self.shift
    }

    /// Whether `size` bytes at `addr` do not lie in one line.
    #[inline]
    pub(crate) const fn crosses(&self, addr: u64, size: u32) -> bool {
        (addr & self.line_mask) + size as u64 > self.line_mask + 1
    }

    /// Deals with an access to the line last used of its set where that changes nothing but
    /// the line's flag ([`Node::keeps_order`]), except for counting it; says whether it was one. A filter stays true.
    #[inline(always)]
    pub(crate) fn newest<const STORE: bool>(&mut self, at: u64, size: u32) -> bool {
        let AnyArray::Lru(array) = &mut self.array else { return false };
        let Some(word) = array.newest(at >> self.shift) else { return false };
        if *word & PREFETCHED != 0 || (at & self.line_mask) + u64::from(size) > self.line_mask + 1 {
            return false;
        }
        if STORE && self.write == WritePolicy::Back {
            *word |= DIRTY;
        }
        true
    }

    /// Makes loads and stores as long as they are hits of a plain LRU cache, each in one line, except for counting them; answers
    /// how many were made. Whoever asks clears the filter.
    #[inline]
    pub(crate) fn run(&mut self, steps: &[Step], words: &[u64], space: u64) -> usize {
        let AnyArray::Lru(array) = &mut self.array else { return 0 };
        let dirties = if self.write == WritePolicy::Back { DIRTY } else { 0 };
        let run = Run { steps, words, space, shift: self.shift, dirties };
        array.run(&run, &mut self.stats.prefetches_used)
    }

    /// Fetches a line if that is a hit of a plain LRU cache, except for counting it; says whether it was one. Whoever asks clears the
    /// filter.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, line: u64) -> bool {
        let AnyArray::Lru(array) = &mut self.array else { return false };
        array.fetch(line, &mut self.stats.prefetches_used)
    }

    /// Deals with the usual hits of a plain cache, except for counting them: under
    /// LRU those of the most recent line of a set, else all. Gives the filter that
    /// holds from then on, which whoever asks must keep; nothing changes if it is any other access.
    #[inline(always)]
    pub(crate) fn recent(&mut self, at: u64, size: u32, kind: Kind) -> Option<Settled> {
        if !self.plain || self.crosses(at, size) {
            return None;
        }
        let line = at >> self.shift;
        let back = self.write == WritePolicy::Back;
        let dirties = if kind as u8 == Kind::Store as u8 && back { DIRTY } else { 0 };
        let flags = match &mut self.array {
            AnyArray::Lru(array) => {
                let word = array.newest(line).filter(|word| **word & PREFETCHED == 0)?;
                *word |= dirties;
                *word
            }
            // Behind a filter every reference goes the long way.
            AnyArray::Stamped(_) => return None,
            array @ (AnyArray::Fifo(_) | AnyArray::SmallFifo(_) | AnyArray::Other(_)) => {
                let Found::Hit { flags, .. } = array.access(line, dirties, PREFETCHED) else {
                    return None;
                };
                self.stats.prefetches_used += u64::from(flags & PREFETCHED != 0);
                flags | dirties
            }
        };
        let settles = !back || flags & DIRTY != 0;
        let stores = if settles { Stores::Settle } else { Stores::Matter };
        Some(Settled::line(self.address(line), self.line_mask + 1, stores))
    }

    /// Deals with a hit in a plain cache, access counted and all; of a miss it only
    /// tells.
    #[inline]
    pub(crate) fn quick(&mut self, line: u64, kind: Kind) -> Quick {
        let back = self.write == WritePolicy::Back;
        let dirties = if kind as u8 == Kind::Store as u8 && back { DIRTY } else { 0 };
        self.quick_use(line, kind, dirties)
    }

    /// The same for a request from above, which reads whatever caused it.
    #[inline]
    pub(crate) fn quick_read(&mut self, line: u64, kind: Kind) -> Quick {
        self.quick_use(line, kind, 0)
    }

    #[inline(always)]
    fn quick_use(&mut self, line: u64, kind: Kind, dirties: u64) -> Quick {
        if !self.plain {
            return Quick::Unknown;
        }
        let back = self.write == WritePolicy::Back;
        let Found::Hit { flags, .. } = self.array.access(line, dirties, PREFETCHED) else {
            return Quick::Miss;
        };
        self.stats.accesses[kind] += 1;
        self.stats.prefetches_used += u64::from(flags & PREFETCHED != 0);
        let settles = !back || (flags | dirties) & DIRTY != 0;
        self.settle_line(line, if settles { Stores::Settle } else { Stores::Matter });
        Quick::Hit
    }

    /// Counts the miss that [`Node::quick`] told of.
    #[inline]
    pub(crate) fn count_quick_miss(&mut self, kind: Kind) {
        self.stats.accesses[kind] += 1;
        self.stats.misses[kind] += 1;
    }

    /// A demand access to a part of one line. Counts misses and their causes,
    /// not accesses.
    #[inline]
    pub(crate) fn demand(&mut self, line: u64, part: Part) -> Met {
        if let Some(front) = &mut self.front {
            front.used(line);
        }
        let cause = self.classifier.as_mut().map(|classifier| classifier.reference(line));
        let dirties = self.dirties(part);
        let found = self.array.access(line, dirties, PREFETCHED);
        let Found::Hit { flags, slot } = found else {
            self.count_miss(part.kind, cause);
            return Met::Miss;
        };
        let prefetched = flags & PREFETCHED != 0;
        self.stats.prefetches_used += u64::from(prefetched);
        if self.sectors.is_some() && !self.take_sectors(slot, part) {
            self.stats.sector_misses += 1;
            self.count_miss(part.kind, cause);
            return Met::Sector;
        }
        self.settle(line, (flags & DIRTY) | dirties);
        Met::Hit { dirty: flags & DIRTY, prefetched }
    }

    /// The dirty flag, if an access sets it.
    #[inline]
    fn dirties(&self, part: Part) -> u64 {
        if part.write && self.write == WritePolicy::Back { DIRTY } else { 0 }
    }

    #[cold]
    fn count_miss(&mut self, kind: Kind, cause: Option<Cause>) {
        self.stats.misses[kind] += 1;
        match cause {
            Some(Cause::Compulsory) => self.stats.compulsory[kind] += 1,
            Some(Cause::Capacity) => self.stats.capacity[kind] += 1,
            Some(Cause::Conflict) => self.stats.conflict[kind] += 1,
            None => {}
        }
    }

    /// Marks the sectors of an access present; says whether they were.
    fn take_sectors(&mut self, slot: usize, part: Part) -> bool {
        let Some(sectors) = &mut self.sectors else { return true };
        let mask = sectors.mask(part, self.line_mask);
        let present = &mut sectors.present[slot];
        let had = *present & mask == mask;
        *present |= mask;
        had
    }

    /// Takes note that `line`, dirty or not, was just used and stays as it is if
    /// used again.
    #[inline]
    fn settle(&mut self, line: u64, dirty: u64) {
        if self.prefetcher.is_some() || self.sectors.is_some() {
            return;
        }
        let settles = match self.write {
            WritePolicy::Back => dirty != 0,
            WritePolicy::Through => false,
            WritePolicy::Ignore => true,
        };
        self.settle_line(line, if settles { Stores::Settle } else { Stores::Matter });
    }

    #[inline]
    fn settle_line(&mut self, line: u64, stores: Stores) {
        self.settled = Settled::line(self.address(line), self.line_mask + 1, stores);
    }

    /// Puts an absent line in after a demand miss; `dirty` is the flag with which
    /// it comes.
    #[inline]
    pub(crate) fn fill_demand(&mut self, line: u64, part: Part, dirty: u64) -> Option<Resident> {
        let dirty = dirty | self.dirties(part);
        let filled = self.array.fill(line, dirty);
        if self.fill_settles {
            self.settle(line, dirty);
        } else {
            self.unsettle();
        }
        if let Some(sectors) = &mut self.sectors {
            sectors.present[filled.slot] = sectors.mask(part, self.line_mask);
        }
        self.evicted(filled)
    }

    /// Puts an absent line in that nobody asked for here: flags say whether it
    /// is dirty or prefetched.
    pub(crate) fn fill_other(&mut self, line: u64, flags: u64) -> Option<Resident> {
        self.unsettle();
        let filled = self.array.fill(line, flags);
        if let Some(sectors) = &mut self.sectors {
            sectors.present[filled.slot] = u64::MAX;
        }
        self.stats.prefetches += u64::from(flags & PREFETCHED != 0);
        self.evicted(filled)
    }

    fn evicted(&mut self, filled: Filled) -> Option<Resident> {
        let evicted = filled.evicted?;
        if let Some(front) = &mut self.front {
            front.departed.push(evicted.line());
        }
        self.stats.evictions += 1;
        self.stats.prefetches_wasted += u64::from(evicted.prefetched());
        Some(evicted)
    }

    /// A line evicted above arrives: whether it was here already. If so it is
    /// used, and dirty if it was or arrives so.
    pub(crate) fn receive(&mut self, line: u64, dirty: u64) -> bool {
        self.stats.received += 1;
        self.unsettle();
        let dirty = if self.write == WritePolicy::Back { dirty } else { 0 };
        matches!(self.array.access(line, dirty, 0), Found::Hit { .. })
    }

    /// Puts an absent line in the place of a present one, counting its miss; gives back the other. `None`, and nothing
    /// happens, if that one is not there or this is not a plain LRU cache.
    #[inline]
    pub(crate) fn exchange(&mut self, gone: u64, line: u64, part: Part) -> Option<Resident> {
        let dirties = self.dirties(part);
        let AnyArray::Lru(array) = &mut self.array else { return None };
        let gone = array.exchange(gone, line, dirties)?;
        self.count_quick_miss(part.kind);
        self.unsettle();
        self.stats.evictions += 1;
        self.stats.prefetches_wasted += u64::from(gone.prefetched());
        Some(gone)
    }

    /// Has the host fetch what an access to an address will need.
    #[inline]
    pub(crate) fn look_ahead(&self, at: u64) {
        if let AnyArray::Lru(array) = &self.array {
            array.look_ahead(at >> self.shift);
        }
    }

    /// A line that has just come is dirty already.
    pub(crate) fn receive_dirt(&mut self, line: u64) {
        if self.write == WritePolicy::Back {
            self.array.access(line, DIRTY, 0);
        }
    }

    /// Takes a line out.
    pub(crate) fn remove(&mut self, line: u64) -> Option<Resident> {
        self.unsettle();
        let removed = self.array.remove(line)?;
        if let Some(front) = &mut self.front {
            front.departed.push(line);
        }
        self.stats.prefetches_wasted += u64::from(removed.prefetched());
        Some(removed)
    }

    /// Whether a line is present.
    pub(crate) fn contains(&self, line: u64) -> bool {
        self.array.contains(line)
    }

    fn unsettle(&mut self) {
        self.settled = Settled::NONE;
    }
}

/// The part of a line that an access touches, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) addr: u64,
    pub(crate) size: u32,
    pub(crate) kind: Kind,
    /// Whether bytes are written into this cache, rather than read from it.
    pub(crate) write: bool,
}

impl Sectors {
    /// The sectors that hold the bytes of `part`.
    fn mask(&self, part: Part, line_mask: u64) -> u64 {
        let first = (part.addr & line_mask) >> self.shift;
        let end = (part.addr & line_mask) + u64::from(part.size.max(1)) - 1;
        let last = end.min(line_mask) >> self.shift;
        let many = last - first + 1;
        let ones = if many >= 64 { u64::MAX } else { (1 << many) - 1 };
        ones << first
    }
}
