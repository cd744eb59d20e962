//! A first-level cache that a filter works on by itself, without asking who else
//! there is: LRU of eight ways of 64 bytes, written back, in front of memory. What it
//! does to the lines is what [`Hierarchy::reference_at_once`] does to the same ones; what
//! it counts is added to the hierarchy's counts when it is given back.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ichnos_base::{GuestVa, ThreadId};

use super::array::AnyArray;
use super::config::{Inclusion, Modify, WritePolicy};
use super::entry::{DIRTY, Resident, entry};
use super::graph::MEMORY;
use super::hierarchy::Hierarchy;
use super::observe::Observe;
use super::stamped::{EIGHT, Stamps, Words, may_hold, oldest_of_eight, replace, way_of};
use crate::{ByKind, Kind};

/// The bit of a line's word that says that it was written, see
/// [`Hierarchy::marks`].
pub const WRITTEN: u64 = DIRTY;

/// Bytes of a line as a power of two.
const SHIFT: u32 = 6;

/// A first-level cache in the hands of a filter.
#[derive(Debug)]
pub struct Direct {
    thread: ThreadId,
    words: Words,
    stamps: Stamps,
    /// Sets, less one.
    mask: u64,
    space: u64,
    accesses: ByKind,
    misses: ByKind,
    evictions: u64,
    write_backs: u64,
}

/// What became of a reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brought {
    /// Where its line is.
    pub slot: u32,
    /// Whether stores to it may pass, as well as loads.
    pub written: bool,
    /// Whether it was absent.
    pub missed: bool,
    /// The line that had to go for it, by its first byte.
    pub departed: Option<GuestVa>,
}

impl Direct {
    /// Whose cache it is.
    #[must_use]
    #[inline(always)]
    pub const fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Whether bytes lie in one line.
    #[must_use]
    #[inline(always)]
    pub const fn is_one_line(&self, addr: GuestVa, size: u32) -> bool {
        let last = addr.0.wrapping_add(size as u64).wrapping_sub(1);
        (addr.0 ^ last) >> SHIFT == 0
    }

    /// Uses the line of an address at a time, and brings it in if it is absent.
    #[inline(always)]
    pub fn bring(&mut self, addr: GuestVa, kind: Kind, now: u64) -> Brought {
        let line = (addr.0 ^ self.space) >> SHIFT;
        let set = (line & self.mask) as usize;
        let dirties = if kind == Kind::Store { DIRTY } else { 0 };
        let (words, stamps) =
            (self.words.as_chunks::<EIGHT>().0, self.stamps.as_chunks::<EIGHT>().0);
        let (Some(words), Some(stamps)) = (words.get(set), stamps.get(set)) else {
            // There are as many sets as the mask says.
            return Brought { slot: 0, written: false, missed: false, departed: None };
        };
        self.accesses[kind] += 1;
        let slot = |way: usize| (EIGHT * set + way) as u32;
        if let Some(way) = way_of(words, entry(line)) {
            let word = words[way].load(Relaxed) | dirties;
            words[way].store(word, Relaxed);
            stamps[way].store(now, Relaxed);
            let written = word & DIRTY != 0;
            return Brought { slot: slot(way), written, missed: false, departed: None };
        }
        let way = oldest_of_eight(stamps);
        stamps[way].store(now, Relaxed);
        let evicted = Resident::from_word(replace(&words[way], entry(line) | dirties));
        self.misses[kind] += 1;
        if let Some(evicted) = evicted {
            self.evictions += 1;
            self.write_backs += u64::from(evicted.dirty() != 0);
        }
        let departed = evicted.map(|old| GuestVa((old.line() << SHIFT) ^ self.space));
        Brought { slot: slot(way), written: dirties != 0, missed: true, departed }
    }
}

impl Direct {
    /// Brings the line of an address in at a time, if it is absent: its slot, and the
    /// line that had to go, if one had to. None, and nothing changed, if it is there.
    /// The access is not counted, only the miss.
    #[inline(always)]
    pub fn miss(&mut self, addr: GuestVa, kind: Kind, now: u64) -> Option<(u32, Option<GuestVa>)> {
        let line = (addr.0 ^ self.space) >> SHIFT;
        let set = (line & self.mask) as usize;
        let words = self.words.as_chunks::<EIGHT>().0.get(set)?;
        let stamps = self.stamps.as_chunks::<EIGHT>().0.get(set)?;
        if may_hold(words, entry(line)) {
            return None;
        }
        let way = oldest_of_eight(stamps);
        stamps[way].store(now, Relaxed);
        let dirties = if kind == Kind::Store { DIRTY } else { 0 };
        let evicted = replace(&words[way], entry(line) | dirties);
        self.misses[kind] += 1;
        self.evictions += u64::from(evicted != 0);
        self.write_backs += evicted / DIRTY % 2;
        let departed = Resident::from_word(evicted);
        let departed = departed.map(|old| GuestVa((old.line() << SHIFT) ^ self.space));
        Some(((EIGHT * set + way) as u32, departed))
    }
}

impl Direct {
    /// The lines by slot and their times of use; the sets less one, which is a mask of a
    /// line's number; and what addresses are combined with before.
    #[must_use]
    pub fn sets(&self) -> (Stamps, Stamps, u64, u64) {
        (Arc::clone(&self.words), Arc::clone(&self.stamps), self.mask, self.space)
    }

    /// Counts lines that somebody else brought in, as [`miss`](Self::miss) would.
    pub fn add_misses(&mut self, kind: Kind, count: u64) {
        self.misses[kind] += count;
    }

    /// Counts lines that had to go for them, and those of them that were written.
    pub fn add_evictions(&mut self, evictions: u64, write_backs: u64) {
        self.evictions += evictions;
        self.write_backs += write_backs;
    }
}

impl<O: Observe> Hierarchy<O> {
    /// A thread's first-level cache for fetches or for data, if it is of the usual
    /// sort. It must be given back before counts are asked for, and before events
    /// that tell who the thread is.
    pub fn direct(&mut self, id: ThreadId, kind: Kind) -> Option<Direct> {
        if self.config.modify == Modify::LoadOnly {
            return None;
        }
        let (ports, space) = self.where_from(id);
        let node = self.graph.nodes.get_mut(Self::entry(ports, kind))?;
        let usual = node.at_once
            && node.next == MEMORY
            && node.inclusion != Inclusion::Inclusive
            && node.write == WritePolicy::Back
            && node.shift == SHIFT;
        if !usual {
            return None;
        }
        let AnyArray::Stamped(array) = node.array_mut() else { return None };
        let (words, mask) = array.in_sets_of_eight()?;
        Some(Direct {
            thread: id,
            words,
            stamps: array.stamps(),
            mask,
            space,
            accesses: ByKind::default(),
            misses: ByKind::default(),
            evictions: 0,
            write_backs: 0,
        })
    }

    /// Takes the counts of a cache that [`direct`](Self::direct) gave for this kind.
    pub fn give_back(&mut self, direct: &Direct, kind: Kind) {
        let (ports, _) = self.where_from(direct.thread);
        self.graph.memory.reads += direct.misses;
        self.graph.memory.write_backs += direct.write_backs;
        if let Some(node) = self.graph.nodes.get_mut(Self::entry(ports, kind)) {
            node.stats.accesses += direct.accesses;
            node.stats.misses += direct.misses;
            node.stats.evictions += direct.evictions;
            node.stats.write_backs += direct.write_backs;
        }
    }

    /// The words of the lines of a thread's first-level data cache, by slot: a filter
    /// that lets a store pass to a line of which only loads may so far sets
    /// [`WRITTEN`] in its word, instead of telling the store. None if stores must be
    /// told.
    pub fn marks(&mut self, id: ThreadId) -> Option<Stamps> {
        let (ports, _) = self.where_from(id);
        let node = self.graph.nodes.get_mut(ports.data)?;
        let back = node.write == WritePolicy::Back && node.at_once;
        if !back || self.config.modify == Modify::LoadOnly {
            return None;
        }
        let AnyArray::Stamped(array) = node.array_mut() else { return None };
        Some(array.words())
    }
}
