//! Finds wires: watches the words that had to be written out, guesses what they follow
//! from, and proposes a wire once the evidence is there. Packer only: what it finds is
//! written into the chunk, so a reader need not repeat it and any other way of finding
//! wires makes valid chunks, too.
//!
//! A slot whose words cost much becomes a *study*. At each costly word, every slot seen shortly
//! before is a candidate: did its word move by the same distance, but for a shift (address)?
//! Did what memory holds there (content)? Was it at an address where it stood before, when
//! the studied word was the same (content of memory not yet known)? A store whose
//! place is later found to hold what a load had found elsewhere is a copy (put).
//!
//! Memory: a few words per slot, a bounded number of studies, one table of stores. Time: one
//! look at a ring per word, more only for studied slots.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Address, BlockId, RefKind, Step};

use crate::copy::Copies;
use crate::predict::Predictors;
use crate::roadmap::Roadmap;
use crate::study::{Follows, Found, Study};
use crate::wire::{CELLS, Told, Wire, Wires};

/// How many words back a cause is looked for.
pub(crate) const RING: usize = 32;

/// Only loads of at least two to this many bytes are taken for indices and pointers.
const INDEX_GRAIN: u8 = 2;

/// How many words back a load may be whose content a use tells.
const LATE: usize = 12;

/// How many slots are studied at a time.
const STUDIES: usize = 8;

/// A study without a trial for so many costly words of others is given up.
const STALE: u64 = 4096;

/// Of the stores that are known to be copies, one in so many is looked at again.
const SAMPLE: u32 = 5;

/// After so many looks at a store, only one in so many is looked at, whatever it is.
const NOVEL: u32 = 1 << 17;
const OLD_SAMPLE: u32 = 16;

/// Costly words after which a slot is studied for the first time.
const TROUBLE: u32 = 48;

/// So many times more costly words a slot needs for its next study if the last one found nothing.
const IN_VAIN: u32 = 6;

/// The cell that is never known: stores of unknown values put it.
const NEVER: u16 = CELLS as u16 - 1;

/// Chunks without use after which a wire is dropped.
const IDLE: u8 = 2;

/// A study without a trial for so many watches is given up, too.
const STALE_WATCHES: u64 = 256;

/// For how many watches everything is looked at after something was found, and at first.
const AWAKE: u32 = 64;

/// After so many watches, everything is looked at during one in so many at the most.
const YOUNG: u64 = 1 << 17;
const OLD_WATCHES: u64 = 2;

/// The same where few words are written out: fewer than this for each of the last watches.
const FEW: u64 = 16;
const FEW_YOUNG: u64 = 1 << 13;
const FEW_WATCHES: u64 = 16;

/// Over about how many watches that is told.
const LATELY: u64 = 256;

/// Every so many watches copies are looked for.
const COPY_WATCHES: u64 = 8;

/// A word seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) slot: u32,
    pub(crate) word: u64,
    /// What memory held there; 0 if unknown or not a load.
    pub(crate) value: u64,
    /// The place in memory, plus one, of a load; 0 if there are no wires yet.
    place: u32,
}

/// The last words, whatever their slots.
#[derive(Debug)]
pub(crate) struct Ring {
    words: [Seen; RING],
    head: usize,
}

impl Ring {
    #[inline]
    fn push(&mut self, seen: Seen) {
        self.words[self.head % RING] = seen;
        self.head += 1;
    }

    /// A use told what a load must have found.
    #[inline]
    fn told(&mut self, told: Told) {
        for back in 1..=LATE.min(self.head) {
            let seen = &mut self.words[(self.head - back) % RING];
            if seen.place == told.place {
                seen.value = told.value;
            }
        }
    }

    /// The last word, the one before it, and so on.
    pub(crate) fn back(&self) -> impl Iterator<Item = &Seen> {
        (1..=RING.min(self.head)).map(|back| &self.words[(self.head - back) % RING])
    }
}

/// What a slot accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sort {
    load: bool,
    store: bool,
    grain: u8,
}

/// How a slot gets on.
#[derive(Clone, Copy, Debug)]
struct Progress {
    sort: Sort,
    /// The number of its study, plus one; 0 if none.
    study: u8,
    /// Chunks in which its wire was of no use.
    idle: u8,
    /// How often it was taken to follow from contents.
    founded: u8,
    /// How often it was seen to store.
    stores: u32,
    /// Words written out since it was last studied, and after how many it is studied.
    trouble: u32,
    patience: u32,
    /// Words that its wire told in this chunk, and words that it should have told.
    good: u32,
    bad: u32,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            sort: Sort::default(),
            study: 0,
            idle: 0,
            founded: 0,
            stores: 0,
            trouble: 0,
            patience: TROUBLE,
            good: 0,
            bad: 0,
        }
    }
}

/// How a word was coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coded {
    Wired,
    Guessed,
    Written,
}

/// The search for wires of one stream.
#[derive(Debug)]
pub(crate) struct Learner {
    slots: Vec<Progress>,
    blocks: usize,
    ring: Ring,
    studies: Vec<Option<Study>>,
    copies: Copies,
    /// All wires found, by slot.
    found: Vec<Wire>,
    cells: u16,
    /// Words written out so far.
    misses: u64,
    /// How often [`Learner::watch`] was called, and how often it will be until only costly words are looked at.
    watches: u64,
    awake: u32,
    /// Whether everything is looked at only now and then.
    is_old: bool,
    /// Words written out lately, as a sum that shrinks by one part in [`LATELY`] at each watch; and all up to the last one.
    lately: u64,
    told: u64,
    /// Wires that changed and are to be written down before the next execution.
    pub(crate) changes: Vec<(u32, Wire)>,
}

impl Learner {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            blocks: 0,
            ring: Ring { words: [Seen::default(); RING], head: 0 },
            studies: Vec::new(),
            copies: Copies::default(),
            found: Vec::new(),
            cells: 0,
            misses: 0,
            watches: 0,
            awake: AWAKE,
            is_old: false,
            lately: 0,
            told: 0,
            changes: Vec::new(),
        }
    }

    /// Whether words are looked at that were expected.
    #[inline]
    pub(crate) const fn is_awake(&self) -> bool {
        self.awake > 0
    }

    /// Some executions have passed. Expected words are looked at while a slot is studied, and for a while after a wire
    /// was found; else only now and then, for copies: looking at every word takes half of all time, and most
    /// programs have little to learn after the first few millions.
    pub(crate) fn watch(&mut self, wires: &Wires) {
        self.watches += 1;
        for at in 0..self.studies.len() {
            let idle = |s: &Study| self.watches - s.touched > STALE_WATCHES;
            if self.studies[at].as_ref().is_some_and(idle) {
                self.drop_study(at);
            }
        }
        let now = wires.is_active() && self.watches.is_multiple_of(COPY_WATCHES);
        if now || self.studies.iter().any(Option::is_some) {
            self.wake(1);
        } else {
            self.awake = self.awake.saturating_sub(1);
        }
        // Later on, what is learned slowly is learned, too. And where little is written out there is little to find.
        self.lately += self.misses - self.told;
        self.told = self.misses;
        self.lately -= self.lately / LATELY;
        let few = self.lately < FEW * LATELY;
        let (young, often) = if few { (FEW_YOUNG, FEW_WATCHES) } else { (YOUNG, OLD_WATCHES) };
        self.is_old = self.watches > young;
        if self.is_old && !self.watches.is_multiple_of(often) {
            self.awake = 0;
        }
    }

    fn wake(&mut self, watches: u32) {
        if self.awake == 0 {
            self.ring.head = 0;
        }
        self.awake = self.awake.max(watches);
    }

    /// A chunk begins: `last` are the wires as the last one left them.
    pub(crate) fn begin(&mut self, last: &Wires) {
        self.copies.clear();
        self.ring.head = 0;
        self.changes.clear();
        let mut used = vec![false; CELLS];
        for (wire, slot) in self.found.iter_mut().zip(&mut self.slots) {
            if wire.from == 0 {
                continue;
            }
            slot.idle = if slot.good >= 16 { 0 } else { slot.idle + 1 };
            if slot.idle > IDLE {
                wire.from = 0;
            } else {
                used[usize::from(wire.from)] = true;
            }
        }
        // What is put into memory may be loaded through any other cell.
        for wire in self.found.iter_mut().filter(|w| w.put != 0) {
            used[usize::from(wire.put)] = true;
        }
        used[0] = false;
        for (slot, wire) in (0..).zip(&mut self.found) {
            for cell in [&mut wire.address, &mut wire.content, &mut wire.put] {
                if !used[usize::from(*cell)] {
                    *cell = 0;
                }
            }
            if [wire.from, wire.address, wire.content, wire.put] != [0; 4] {
                let now = last.get(slot);
                if now.from == wire.from {
                    wire.add = now.add;
                }
                self.changes.push((slot, *wire));
            }
        }
        for slot in &mut self.slots {
            (slot.good, slot.bad) = (0, 0);
        }
    }

    /// Looks at blocks that appeared since.
    #[inline]
    pub(crate) fn grow(&mut self, roadmap: &Roadmap) {
        if self.blocks < roadmap.len() {
            self.look_at(roadmap);
        }
    }

    #[cold]
    fn look_at(&mut self, roadmap: &Roadmap) {
        let slots = roadmap.slots() as usize;
        self.slots.resize(slots.max(self.slots.len()), Progress::default());
        self.found.resize(self.slots.len(), Wire::default());
        for id in self.blocks..roadmap.len() {
            let Some(entry) = roadmap.get(BlockId(id as u32)) else { continue };
            for step in entry.block.steps.iter() {
                let Step::Ref(r) = step else { continue };
                let Address::Word(slot) = r.address else { continue };
                self.slots[slot.0 as usize].sort = Sort {
                    load: r.kind == RefKind::Load,
                    store: r.kind == RefKind::Store,
                    grain: r.size.clamp(1, 8).ilog2() as u8,
                };
            }
        }
        self.blocks = roadmap.len();
    }

    /// A word was packed.
    #[inline]
    pub(crate) fn saw(&mut self, predictors: &Predictors, (slot, word): (u32, u64), coded: Coded) {
        let (wires, told) = (&predictors.wires, predictors.wires.told);
        if self.awake == 0 {
            match coded {
                Coded::Guessed => {}
                Coded::Wired => self.slots[slot as usize].good += 1,
                Coded::Written if told.news => {}
                Coded::Written => self.missed(slot, word),
            }
            return;
        }
        let sort = self.slots[slot as usize].sort;
        let mut seen = Seen { slot, word, value: 0, place: 0 };
        if wires.is_active() {
            if told.place != 0 {
                self.ring.told(told);
                if let Some(copy) = self.copies.resolve(told) {
                    self.copied(copy);
                }
            }
            let place = wires.place(word, sort.grain) as u32 + 1;
            if sort.load && sort.grain >= INDEX_GRAIN {
                (seen.place, seen.value) = (place, wires.content(word, sort.grain));
            } else if sort.store {
                let progress = &mut self.slots[slot as usize];
                progress.stores = progress.stores.wrapping_add(1);
                let settled = !matches!(self.found[slot as usize].put, 0 | NEVER);
                let often = if settled { SAMPLE } else { 1 };
                let often = if progress.stores < NOVEL { often } else { OLD_SAMPLE };
                if progress.stores.is_multiple_of(often) {
                    self.copies.stored(slot, place, &self.ring);
                }
            }
        }
        match coded {
            Coded::Guessed => {}
            Coded::Wired => self.slots[slot as usize].good += 1,
            Coded::Written if told.news => {}
            Coded::Written => self.missed(slot, word),
        }
        self.ring.push(seen);
    }

    /// A free place for a study: a new one, or that of a slot that is no longer in trouble.
    fn free(&mut self) -> Option<usize> {
        if let Some(at) = self.studies.iter().position(Option::is_none) {
            return Some(at);
        }
        if self.studies.len() < STUDIES {
            self.studies.push(None);
            return Some(self.studies.len() - 1);
        }
        let misses = self.misses;
        let stale = |s: &Option<Study>| s.as_ref().is_some_and(|s| misses - s.misses > STALE);
        let at = self.studies.iter().position(stale)?;
        self.drop_study(at);
        Some(at)
    }

    fn drop_study(&mut self, at: usize) {
        let Some(old) = self.studies[at].take() else { return };
        let progress = &mut self.slots[old.slot as usize];
        (progress.study, progress.trouble) = (0, 0);
    }

    fn missed(&mut self, slot: u32, word: u64) {
        self.misses += 1;
        let progress = &mut self.slots[slot as usize];
        progress.trouble += 1;
        progress.bad += 1;
        if progress.bad.is_multiple_of(256) && progress.good < progress.bad / 4 {
            self.give_up(slot);
        }
        let progress = &mut self.slots[slot as usize];
        if self.awake == 0 && self.is_old {
            return;
        }
        if progress.study == 0 {
            if progress.trouble < progress.patience {
                return;
            }
            let Some(free) = self.free() else { return };
            self.studies[free] = Some(Study::new(slot));
            self.slots[slot as usize].study = free as u8 + 1;
            self.wake(1);
        }
        let at = usize::from(self.slots[slot as usize].study) - 1;
        let Some(study) = &mut self.studies[at] else { return };
        (study.misses, study.touched) = (self.misses, self.watches);
        let slots = &self.slots;
        // An array of four-byte indices into itself is rare; a table whose next place depends on
        // the last, as in tables of pairs of letters, is not.
        let own = slots[slot as usize].sort.grain;
        let index = |slot: u32| {
            slots.get(slot as usize).is_some_and(|s| {
                s.sort.load
                    && s.sort.grain >= INDEX_GRAIN
                    && (s.sort.grain > INDEX_GRAIN || own != INDEX_GRAIN)
            })
        };
        study.trial(word, &self.ring, index);
        let Some(verdict) = study.verdict(self.slots[slot as usize].founded) else { return };
        self.studies[at] = None;
        let progress = &mut self.slots[slot as usize];
        progress.study = 0;
        progress.trouble = 0;
        let in_vain = verdict.is_none();
        progress.patience = progress.patience.saturating_mul(if in_vain { IN_VAIN } else { 4 });
        match verdict {
            Some(found) => {
                let founded = &mut self.slots[slot as usize].founded;
                *founded = founded.saturating_add(u8::from(found.follows == Follows::Content));
                self.wire_up(slot, &found);
            }
            None => self.give_up(slot),
        }
    }

    /// No cause was found: a wire that is mostly wrong goes.
    fn give_up(&mut self, slot: u32) {
        let progress = &self.slots[slot as usize];
        let mut wire = self.found[slot as usize];
        if wire.from != 0 && progress.good < progress.bad / 4 {
            wire.from = 0;
            self.change(slot, wire);
        }
    }

    fn wire_up(&mut self, slot: u32, found: &Found) {
        let mut wire = self.found[slot as usize];
        let sort = self.slots[slot as usize].sort;
        wire.grain = sort.grain;
        let Some(cell) = self.cell_for(found) else { return };
        if (wire.from, wire.shift) != (cell, found.shift) {
            (wire.from, wire.shift, wire.add) = (cell, found.shift, found.add);
            self.change(slot, wire);
            let progress = &mut self.slots[slot as usize];
            (progress.good, progress.bad) = (0, 0);
        }
        for cause in &found.causes {
            let mut wire = self.found[*cause as usize];
            wire.grain = self.slots[*cause as usize].sort.grain;
            let to = match found.follows {
                Follows::Content => &mut wire.content,
                Follows::Word => &mut wire.address,
            };
            let old = std::mem::replace(to, cell);
            if old != cell {
                self.change(*cause, wire);
            }
            if old != 0 && old != cell {
                self.rename(old, cell);
            }
        }
    }

    /// The cell that a cause goes to already, or a new one.
    fn cell_for(&mut self, found: &Found) -> Option<u16> {
        let goes_to = |slot: &u32| {
            let wire = &self.found[*slot as usize];
            let cell = match found.follows {
                Follows::Content => wire.content,
                Follows::Word => wire.address,
            };
            Some(cell).filter(|c| *c != 0)
        };
        if let Some(cell) = found.causes.iter().find_map(goes_to) {
            return Some(cell);
        }
        self.new_cell()
    }

    fn new_cell(&mut self) -> Option<u16> {
        if self.cells + 1 >= NEVER {
            return None;
        }
        self.cells += 1;
        Some(self.cells)
    }

    /// A store was found to be a copy of what a load finds, or of nothing known.
    fn copied(&mut self, (store, source): (u32, Option<(u32, u64)>)) {
        let mut put = NEVER;
        let mut add = 0;
        if source.is_none() && self.found[store as usize].put != 0 {
            return;
        }
        if let Some((load, difference)) = source {
            let mut wire = self.found[load as usize];
            wire.grain = self.slots[load as usize].sort.grain;
            if wire.content == 0 {
                let Some(cell) = self.new_cell() else { return };
                wire.content = cell;
                self.change(load, wire);
            }
            (put, add) = (wire.content, difference);
        }
        let mut wire = self.found[store as usize];
        wire.grain = self.slots[store as usize].sort.grain;
        if (wire.put, wire.put_add) != (put, add) {
            (wire.put, wire.put_add) = (put, add);
            self.change(store, wire);
        }
    }

    /// Whatever goes to or comes from one cell does so with another.
    fn rename(&mut self, old: u16, new: u16) {
        for slot in 0..self.found.len() {
            let mut wire = self.found[slot];
            for cell in [&mut wire.from, &mut wire.address, &mut wire.content, &mut wire.put] {
                if *cell == old {
                    *cell = new;
                }
            }
            if wire != self.found[slot] {
                self.change(slot as u32, wire);
            }
        }
    }

    fn change(&mut self, slot: u32, wire: Wire) {
        self.wake(AWAKE);
        self.found[slot as usize] = wire;
        self.changes.retain(|(s, _)| *s != slot);
        self.changes.push((slot, wire));
    }
}
