//! One thread's tables, and what generated code is handed of them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::AtomicU64;

use ichnos_base::ThreadId;

use super::arcs::NOWHERE;
use super::book::Book;
use super::line::Line;
use super::lines::{Lines, Page};
use super::models::{Models, ReferenceKind, Ring, Sets, Shape};
use crate::ram::PAGE_SHIFT;
use crate::trap::Access;

/// Entries of the table of computed transfers. A power of two.
pub(crate) const INDIRECT_ENTRIES: usize = 1 << 13;

/// A computed transfer that generated code knows: where it leads, and how often
/// it was made since it was entered here.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Indirect {
    pub(crate) tag: u64,
    pub(crate) site: u64,
    pub(crate) count: u64,
    pub(crate) code: u64,
}

pub(super) const NO_INDIRECT: Indirect = Indirect { tag: 1, site: u64::MAX, count: 0, code: 0 };

/// The place of a computed transfer in the table.
pub(super) const fn indirect_slot(site: u32, target: u64) -> usize {
    (target >> 1 ^ site_mix(site) as u64) as usize & (INDIRECT_ENTRIES - 1)
}

/// What a site adds to that place.
pub(crate) const fn site_mix(site: u32) -> u32 {
    (site.wrapping_mul(0x9e37_79b1) >> 16) & (INDIRECT_ENTRIES as u32 - 1)
}

/// A memory access in generated code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) pc: u64,
    pub(crate) size: u64,
    pub(crate) access: Access,
    /// The next instruction if it follows in the same line of the same block.
    pub(crate) next: Option<u64>,
    /// The instruction's number, counted over all threads.
    pub(crate) clock: u64,
}

/// What generated code needs to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) arena: *mut u64,
    pub(crate) lines: *const Line,
    pub(crate) indirect: *mut Indirect,
    pub(crate) clock: u64,
    /// How far a line's mark is from its time of use.
    pub(crate) mark_distance: u64,
    /// Where generated code brings lines in by itself, if it may.
    pub(crate) own: Own,
}

/// The first-level cache of data, as generated code needs it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Own {
    /// The records of pages; zero if no lines may be brought in.
    pub(crate) pages: u64,
    pub(crate) words: u64,
    /// How far a line's time of use is from its word.
    pub(crate) distance: u64,
    pub(crate) mask: u64,
    pub(crate) space: u64,
    pub(crate) turn: Turn,
}

/// The TLB that is replaced in turn, and what must be known of pages that leave it, as
/// generated code needs it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Turn {
    /// The words of its [`Ring`]; zero if no pages may be brought in.
    pub(crate) words: u64,
    pub(crate) capacity: u64,
    /// The part of the space that pages' numbers are combined with.
    pub(crate) space: u64,
    pub(crate) tag: u64,
    /// The records of pages of data, and of code.
    pub(crate) data_pages: u64,
    pub(crate) code_pages: u64,
    /// Which pages have frames, and the frames of recent ones, see [`Book::tables`].
    pub(crate) seen: u64,
    pub(crate) recent: u64,
}

impl Turn {
    fn new((data, code): (&Lines, &Lines), book: &Book, ring: &Ring) -> Option<Self> {
        let (seen, recent) = book.tables();
        let possible = ring.words.len() == Ring::WORDS && (1..=64).contains(&ring.capacity);
        let (data_pages, code_pages) = (data.records()?, code.records().filter(|_| possible)?);
        Some(Self {
            words: ring.words.as_ptr() as u64,
            capacity: ring.capacity,
            space: ring.space >> PAGE_SHIFT,
            tag: ring.tag,
            data_pages: data_pages as u64,
            code_pages: code_pages as u64,
            seen: seen as u64,
            recent: recent as u64,
        })
    }
}

impl Own {
    fn new(pages: *const Page, sets: &Sets) -> Option<Self> {
        let slots = sets.mask.checked_add(1)?.checked_mul(8)?;
        let whole = (sets.mask + 1).is_power_of_two()
            && [&sets.words, &sets.stamps].iter().all(|array| array.len() as u64 == slots);
        let words = sets.words.as_ptr() as u64;
        whole.then(|| Self {
            pages: pages as u64,
            words,
            distance: (sets.stamps.as_ptr() as u64).wrapping_sub(words),
            mask: sets.mask,
            space: sets.space,
            turn: Turn::default(),
        })
    }
}

/// One thread's tables.
#[derive(Debug)]
pub(super) struct Tables {
    /// Where it goes on if nothing jumps, while another thread runs.
    pub(super) next: u64,
    pub(super) data: Lines,
    /// Lines of code, for the interpreter; pages of code, for all.
    pub(super) code: Lines,
    /// Words of generated code.
    pub(super) arena: Vec<u64>,
    pub(super) indirect: Vec<Indirect>,
    /// The first-level cache of data, if generated code may bring lines into it, and as
    /// that needs it.
    sets: Option<Sets>,
    /// The TLB, the same way.
    ring: Option<Ring>,
    own: Own,
    /// How many events there were when it was asked for.
    sets_of: u64,
}

impl Tables {
    /// Where generated code brings lines in, after so many events.
    #[inline]
    pub(super) fn own<M: Models>(
        &mut self,
        models: &mut M,
        book: &Book,
        who: (ThreadId, u64),
    ) -> Own {
        if self.sets_of != who.1 {
            self.find_own(models, book, who);
        }
        if self.data.records().is_some() { self.own } else { Own::default() }
    }

    #[cold]
    fn find_own<M: Models>(
        &mut self,
        models: &mut M,
        book: &Book,
        (thread, events): (ThreadId, u64),
    ) {
        let sets = models.sets(thread).filter(|sets| self.data.is_of(sets));
        (self.sets, self.sets_of) = (sets, events);
        let own = self.data.records().zip(self.sets.as_ref());
        self.own = own.and_then(|(pages, sets)| Own::new(pages, sets)).unwrap_or_default();
        self.ring = models.ring(thread);
        let turn =
            self.ring.as_ref().and_then(|ring| Turn::new((&self.data, &self.code), book, ring));
        self.own.turn = turn.unwrap_or_default();
    }
}

/// Empty tables.
pub(super) fn new_tables<M: Models>(
    models: &mut M,
    shape: &Shape,
    thread: ThreadId,
) -> Box<Tables> {
    let mut lines = |bytes: u64, kind| {
        let stamps = models.stamps(thread, kind);
        let stamps = stamps.unwrap_or_else(|| [AtomicU64::new(0)].into());
        let mut lines = Lines::new((bytes.trailing_zeros(), shape.page.trailing_zeros()), stamps);
        lines.select(0);
        lines
    };
    let mut data = lines(shape.data_line, ReferenceKind::Load);
    let code = lines(shape.code_line, ReferenceKind::Fetch);
    data.mark_in(models.marks(thread));
    Box::new(Tables {
        next: NOWHERE,
        data,
        code,
        arena: Vec::new(),
        indirect: Vec::new(),
        sets: None,
        ring: None,
        own: Own::default(),
        sets_of: u64::MAX,
    })
}

impl Indirect {
    /// The guest address it leads to: the tag's, without the key in its upper
    /// bits, which are copies of bit 47.
    pub(super) const fn target(&self) -> u64 {
        ((self.tag << 16) as i64 >> 16) as u64
    }
}
