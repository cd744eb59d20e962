//! TLBs behind a filter: a collector tells only the references to pages that it
//! does not know to hit, and asks which pages may pass henceforth. See
//! `crate::cache::filter` for the idea; here a page passes either while it is
//! present (FIFO and random replacement), or until another page of its set is
//! used.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, ThreadId};

use super::config::TlbConfig;
use super::model::{PAGE_NUMBER, TlbModel, TlbObserve, Translator, UNSETTLED, key};
use crate::cache::{AnyArray, Filterable, Index, Resident, Stamps, entry};
use crate::{ByKind, Kind, Replacement};

/// What became of a reference that was answered at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlbAtOnce {
    /// Whether its page was absent, and was walked to.
    pub missed: bool,
    /// The page that had to go for it, by its first byte.
    pub departed: Option<GuestVa>,
}

/// What a filter in front of a first-level TLB must know.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) filterable: Filterable,
    /// Keys of pages that may no longer pass.
    pub(super) departed: Vec<u64>,
    index: Index,
    /// The page last used of each set, where only that may pass; key + 1.
    recent: Box<[u64]>,
}

impl Front {
    pub(super) fn new(config: &TlbConfig, fill_settles: bool) -> Self {
        let filterable = match config.replacement {
            Replacement::Fifo | Replacement::Random { .. } => Filterable::Present,
            _ if fill_settles => Filterable::Recent,
            _ => Filterable::Nothing,
        };
        Self {
            filterable,
            departed: Vec::new(),
            index: Index::new(&config.as_cache()),
            recent: vec![0; (config.entries / config.ways) as usize].into_boxed_slice(),
        }
    }

    /// A page is looked up.
    pub(super) fn used(&mut self, page: u64) {
        if self.filterable == Filterable::Recent {
            let before = std::mem::replace(&mut self.recent[self.index.set(page)], page + 1);
            if before != 0 && before != page + 1 {
                self.departed.push(before - 1);
            }
        }
    }
}

impl<O: TlbObserve> TlbModel<O> {
    /// One reference told singly. Whether further ones to its page may pass;
    /// pages that no longer may are told by their first byte.
    pub fn reference(
        &mut self,
        id: ThreadId,
        kind: Kind,
        (addr, size): (GuestVa, u32),
        mut departed: impl FnMut(GuestVa),
    ) -> Filterable {
        if let Some(answer) = self.reference_at_once(id, kind, (addr, size)) {
            if answer.missed {
                self.observer.missed(self.report.instructions, kind, 1, true);
            }
            answer.departed.into_iter().for_each(departed);
            return Filterable::Present;
        }
        let mut thread = self.take(id);
        let first = if kind == Kind::Fetch { self.code[0] } else { self.data[0] };
        self.translate(&mut thread, kind, addr, size);
        let shift = self.config.pages.base.trailing_zeros();
        let space = thread.space;
        for front in &mut thread.fronts {
            for page in front.departed.drain(..) {
                let number = page & PAGE_NUMBER;
                departed(GuestVa((number << shift) ^ space));
            }
        }
        let filterable = thread.fronts.get(first).map_or(Filterable::Nothing, |f| f.filterable);
        self.recent = Some((id, thread));
        if self.config.pages.regions.is_empty() { filterable } else { Filterable::Nothing }
    }

    /// Answers a reference as [`reference`](Self::reference) does, in one step and
    /// without telling the observer: its page may pass henceforth. None, and nothing
    /// changed, unless it is to one page by the last thread, and there is one level of
    /// FIFO TLBs.
    #[inline(always)]
    pub fn reference_at_once(
        &mut self,
        id: ThreadId,
        kind: Kind,
        (addr, size): (GuestVa, u32),
    ) -> Option<TlbAtOnce> {
        let (recent, thread) = self.recent.as_mut()?;
        let shift = self.page_shift;
        let at = addr.0 ^ thread.space;
        let last = at.wrapping_add(u64::from(size.max(1)) - 1);
        if *recent != id || !self.usual || (at ^ last) >> shift != 0 {
            return None;
        }
        let &tlb = if kind == Kind::Fetch { self.code.first() } else { self.data.first() }?;
        let page = key(at, shift);
        let brought = match thread.arrays.get_mut(tlb)? {
            AnyArray::SmallFifo(array) => array.bring(page),
            AnyArray::Fifo(array) => array.bring(page),
            _ => return None,
        };
        thread.settled = UNSETTLED;
        let stats = self.report.tlbs.get_mut(tlb)?;
        stats.accesses[kind] += 1;
        let Some(evicted) = brought else { return Some(TlbAtOnce::default()) };
        stats.misses[kind] += 1;
        let accesses = u64::from(thread.walker.walk(at, shift));
        let walks = &mut self.report.walks;
        walks.walks[kind] += 1;
        walks.accesses += accesses;
        walks.cycles += accesses * u64::from(self.config.walk.cycles_per_access);
        let first_byte = |page: Resident| ((page.line() & PAGE_NUMBER) << shift) ^ thread.space;
        let departed = evicted.map(|page| GuestVa(first_byte(page)));
        Some(TlbAtOnce { missed: true, departed })
    }

    /// A thread's TLB, if a filter may bring pages into it by itself: one for code and
    /// data together, of one level, FIFO, of at most 64 entries, before walks that all
    /// take the same. What it holds as [`Ring`](crate::Ring) says, how many pages that may be, what
    /// addresses are combined with by exclusive or, and what the word of a page has
    /// besides eight times its number.
    pub fn ring(&mut self, id: ThreadId) -> Option<(Stamps, u64, u64, u64)> {
        let (&code, &data) = (self.code.first()?, self.data.first()?);
        if !self.usual || code != data || self.config.walk.cache_entries > 0 {
            return None;
        }
        let (_, thread) = self.turn_to(id);
        let AnyArray::SmallFifo(array) = thread.arrays.get(data)? else { return None };
        let ((words, capacity), space) = (array.ring(), thread.space);
        Some((words, capacity, space, entry(key(0, self.page_shift))))
    }

    fn turn_to(&mut self, id: ThreadId) -> &mut (ThreadId, Box<Translator>) {
        let thread = self.take(id);
        self.recent.insert((id, thread))
    }

    /// Counts pages that somebody else brought into the [`ring`](Self::ring).
    pub fn add_misses(&mut self, id: ThreadId, kind: Kind, count: u64) {
        let shift = self.page_shift;
        let (_, thread) = self.turn_to(id);
        let accesses = u64::from(thread.walker.walk(0, shift)) * count;
        let first = if kind == Kind::Fetch { self.code.first() } else { self.data.first() };
        let Some(stats) = first.and_then(|&tlb| self.report.tlbs.get_mut(tlb)) else { return };
        stats.accesses[kind] += count;
        stats.misses[kind] += count;
        let walks = &mut self.report.walks;
        walks.walks[kind] += count;
        walks.accesses += accesses;
        walks.cycles += accesses * u64::from(self.config.walk.cycles_per_access);
    }

    /// The bytes of a page, where all have one size.
    #[must_use]
    pub const fn page_bytes(&self) -> u64 {
        self.config.pages.base
    }

    /// Says how many instructions and look-ups of first-level TLBs there were,
    /// those that the filter kept back included.
    pub fn count_accesses(&mut self, instructions: u64, accesses: ByKind) {
        self.report.instructions = instructions;
        for kind in Kind::ALL {
            let first = if kind == Kind::Fetch { self.code[0] } else { self.data[0] };
            self.report.tlbs[first].accesses[kind] = accesses[kind];
        }
    }
}
