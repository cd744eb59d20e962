//! Where a thread of raw executions goes: from place to place. Packer and unpacker know the same places from the same
//! executions; all are forgotten at the start of a chunk.
//!
//! A *place* is a unit behind the two that came before it. It knows which unit came behind it last, and which one before that, so that
//! a thread that goes where it went before is followed without looking anything up; and for each word of its unit, where among the words of
//! these three units its register was told last.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Register, Width};

use crate::chain::Unit;
use crate::hash::QuickMap;

/// How the next unit is told, if not as the place before expects: the one that came there before the expected one.
pub(crate) const SECOND: u64 = 0;
/// By its number.
pub(crate) const OTHER: u64 = 1;

/// The most places that tell units apart by what came before them, and the most words of them. Those made later stand for their units,
/// whatever came before.
const MOST_PLACES: usize = 1 << 16;
const MOST_WORDS: usize = 1 << 18;

/// Where nothing came before.
pub(crate) const NOWHERE: usize = 0;

/// Which register a word fills, and how much of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Taken(u8);

impl Taken {
    /// A word that is an address.
    pub(crate) const ADDRESS: Self = Self::new(Register((Register::COUNT - 1) as u8), Width::Eight);

    pub(crate) const fn new(register: Register, width: Width) -> Self {
        Self(register.0 << 1 | matches!(width, Width::Eight) as u8)
    }

    #[inline(always)]
    pub(crate) const fn is_wide(self) -> bool {
        self.0 & 1 != 0
    }

    /// Bytes that it has.
    #[inline(always)]
    pub(crate) const fn len(self) -> usize {
        if self.is_wide() { 8 } else { 4 }
    }

    /// A word cut to that.
    #[inline(always)]
    pub(crate) const fn cut(self, word: u64) -> u64 {
        if self.is_wide() { word } else { word as u32 as u64 }
    }

    #[inline(always)]
    const fn register(self) -> usize {
        (self.0 >> 1) as usize % Register::COUNT
    }
}

/// What an execution of a unit takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taking<W> {
    pub(crate) words: W,
    /// Whether accesses are among them.
    pub(crate) is_apart: bool,
}

/// What is known of a word of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) taken: Taken,
    /// The bytes before it among those of the execution.
    pub(crate) offset: u16,
    pub(crate) base: Base,
}

/// Where the word of the same register stands that was told last before a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    /// So many executions before, and the number of the word in that.
    place: u16,
    is_wide: bool,
    /// How far from the first word of the execution, in bytes as they were stored.
    from: i32,
}

impl Base {
    /// In no unit of the place.
    pub(crate) const NONE: Self = Self { place: u16::MAX, is_wide: false, from: 0 };

    const SHIFT: u32 = 13;

    /// The number of a word, so many executions before, whose words begin that far behind those of this one.
    pub(crate) const fn new(back: u16, nth: usize, known: &Known, from: i32) -> Self {
        let place = back << Self::SHIFT | nth as u16;
        Self { place, is_wide: known.taken.is_wide(), from: from + known.offset as i32 }
    }

    /// So many executions before, and the number of the word in that; if anywhere. Only if the table it is for is of one place is it
    /// known what came before.
    #[inline(always)]
    pub(crate) const fn at(self, is_own: bool) -> Option<(usize, usize)> {
        let back = (self.place >> Self::SHIFT) as usize;
        if self.place == Self::NONE.place || (back > 0 && !is_own) {
            return None;
        }
        Some((back, (self.place & ((1 << Self::SHIFT) - 1)) as usize))
    }

    /// The same by its bytes: how far from the first word, and whether it is wide.
    #[inline(always)]
    pub(crate) const fn from(self, is_own: bool) -> Option<(isize, bool)> {
        match self.at(is_own) {
            Some(_) => Some((self.from as isize, self.is_wide)),
            None => None,
        }
    }
}

// A unit has fewer words than a base can count.
const _: () = assert!(ichnos_base::Chain::MOST_WORDS < 1 << Base::SHIFT);
const _: () = assert!(crate::block::MAX_STEPS < 1 << Base::SHIFT);

/// What is known of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The unit's number and one more, and those of the two before it; nothing is 0.
    unit: u32,
    before: [u32; 2],
    /// A place of the unit before, if there is one.
    from: u32,
    /// Where the thread went from here the last time, and before that; 0 if it never did.
    pub(crate) next: u32,
    pub(crate) second: u32,
    first_word: u32,
    words: u16,
    /// Whether accesses are among its words, so that these do not lie in one piece.
    is_apart: bool,
    /// Whether it stands for its unit, whatever came before.
    is_common: bool,
    /// What a packer wants to know with it.
    pub(crate) note: Note,
}

const _: () = assert!(size_of::<Place>() <= 64);

impl Place {
    const NOWHERE: Self = Self {
        unit: 0,
        before: [0; 2],
        from: 0,
        next: 0,
        second: 0,
        first_word: 0,
        words: 0,
        is_apart: false,
        is_common: false,
        note: Note::NONE,
    };

    /// Whether this unit is here.
    #[inline(always)]
    pub(crate) const fn is(&self, unit: Unit) -> bool {
        self.unit == unit.0 + 1
    }

    /// Whether its words do not lie in one piece.
    pub(crate) const fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// Whether it stands for its unit, whatever came before.
    pub(crate) const fn is_common(&self) -> bool {
        self.is_common
    }

    /// How many words its unit takes.
    #[inline(always)]
    pub(crate) const fn words(&self) -> usize {
        self.words as usize
    }

    /// Where what is known of its words lies.
    fn all(&self) -> std::ops::Range<usize> {
        let first = self.first_word as usize;
        first..first + self.words as usize
    }
}

/// How a packer knows the unit of a place, and what becomes of the one before it if that is left for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    /// By its identifier, if it is plain.
    pub(crate) identifier: u32,
    /// By its place in the lore.
    pub(crate) lore: u32,
    /// The way by which the one before was left.
    pub(crate) way: u32,
    /// How far that moved the register that is followed.
    pub(crate) moves: i32,
    /// How often that happened.
    pub(crate) runs: u32,
    /// Where the next row of its table goes, and where there is no more room.
    pub(crate) row: u32,
    pub(crate) end: u32,
    /// Bytes of its words.
    pub(crate) len: u16,
    /// How many executions were rows of its unit's table.
    pub(crate) few: u8,
}

impl Note {
    /// No identifier.
    pub(crate) const NO_IDENTIFIER: u32 = u32::MAX;

    /// Notes among these where the words of the place's next row begin, if there is room for it; whether there is.
    #[inline(always)]
    pub(crate) fn put_row(&mut self, rows: &mut [u32], at: u32) -> bool {
        if self.row >= self.end {
            return false;
        }
        rows[self.row as usize] = at;
        self.row += 1;
        true
    }

    const NONE: Self = Self {
        identifier: Self::NO_IDENTIFIER,
        lore: 0,
        way: 0,
        moves: 0,
        runs: 0,
        row: 0,
        end: 0,
        len: 0,
        few: 0,
    };
}

/// All places of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) list: Vec<Place>,
    known: Vec<Known>,
    /// Which of the chunk's units each place is of.
    nth_units: Vec<u32>,
    /// Places by their units and those before them.
    table: Vec<u32>,
    bits: u32,
    /// Which of the chunk's units each is, and the places that stand for units, whatever came before; 0 if there is none.
    units: QuickMap<u32, u32>,
    common: Vec<u32>,
}

impl Places {
    /// A chunk begins, with a table of so many places.
    pub(crate) fn begin(&mut self, bits: u32) {
        self.bits = bits;
        refill(&mut self.table, 1 << bits, 0);
        refill(&mut self.list, 1, Place::NOWHERE);
        self.known.clear();
        refill(&mut self.nth_units, 1, 0);
        self.units.clear();
        self.common.clear();
    }

    /// How many different units the chunk has had so far.
    pub(crate) const fn units(&self) -> usize {
        self.common.len()
    }

    /// Which of the chunk's units a place is of.
    #[inline(always)]
    pub(crate) fn nth_unit(&self, place: usize) -> usize {
        self.nth_units[place] as usize
    }

    /// What is known of the words of a place.
    pub(crate) fn known(&self, place: usize) -> &[Known] {
        &self.known[self.list[place].all()]
    }

    /// The place that is expected behind a place, or the one before it, and its unit.
    #[inline(always)]
    pub(crate) fn next(&self, at: usize) -> Option<(usize, Unit)> {
        self.place(self.list[at].next)
    }

    pub(crate) fn second(&self, at: usize) -> Option<(usize, Unit)> {
        self.place(self.list[at].second)
    }

    /// The unit of a place; nothing is nowhere.
    #[inline(always)]
    pub(crate) fn unit(&self, place: usize) -> Option<Unit> {
        self.list[place].unit.checked_sub(1).map(Unit)
    }

    #[inline(always)]
    fn place(&self, to: u32) -> Option<(usize, Unit)> {
        Some((to as usize, self.unit(to as usize)?))
    }

    /// Another unit comes behind a place than is expected: where that is, and how it is told.
    pub(crate) fn turn(
        &mut self,
        at: usize,
        unit: Unit,
        taking: Taking<impl ExactSizeIterator<Item = Taken>>,
    ) -> (usize, u64) {
        let from = &mut self.list[at];
        (from.next, from.second) = (from.second, from.next);
        let (to, before) = (from.next as usize, [from.unit, from.before[0]]);
        if to != NOWHERE && self.list[to].is(unit) {
            return (to, SECOND);
        }
        let to = self.find(at, before, unit, taking);
        self.list[at].next = to as u32;
        (to, OTHER)
    }

    /// Where a unit is behind these two, of which the first is here.
    fn find(
        &mut self,
        at: usize,
        before: [u32; 2],
        unit: Unit,
        Taking { words, is_apart }: Taking<impl ExactSizeIterator<Item = Taken>>,
    ) -> usize {
        let key = u64::from(before[0]) << 32 ^ u64::from(before[1]) << 16;
        let key = key ^ u64::from(unit.0).wrapping_mul(0x9e37_79b1);
        let slot = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - self.bits)) as usize;
        let found = self.table[slot] as usize;
        let there = &self.list[found];
        if there.is(unit) && there.before == before {
            return found;
        }
        let count = self.common.len() as u32;
        let nth_unit = *self.units.entry(unit.0).or_insert(count);
        if nth_unit == count {
            self.common.push(0);
        }
        let is_full = self.list.len() >= MOST_PLACES || self.known.len() + words.len() > MOST_WORDS;
        let common = self.common[nth_unit as usize] as usize;
        if is_full && common != NOWHERE {
            return common;
        }
        let to = self.list.len();
        let (first_word, count) = (self.known.len() as u32, words.len() as u16);
        let (at, before) = if is_full { (NOWHERE, [0; 2]) } else { (at, before) };
        self.know(at, is_apart, words);
        if is_full {
            self.common[nth_unit as usize] = to as u32;
        } else {
            self.table[slot] = to as u32;
        }
        let unit = unit.0 + 1;
        let from = at as u32;
        self.nth_units.push(nth_unit);
        self.list.push(Place {
            unit,
            before,
            from,
            first_word,
            words: count,
            is_apart,
            is_common: is_full,
            ..Place::NOWHERE
        });
        to
    }

    /// Takes up the words of a new place behind another one.
    fn know(&mut self, at: usize, is_apart: bool, words: impl Iterator<Item = Taken>) {
        let mut told = [Base::NONE; Register::COUNT];
        // How far before the first word of this place those of the ones before it begin: each has an identifier and its words.
        let (one, other) = (&self.list[at], &self.list[self.list[at].from as usize]);
        let len = |place: &Place| {
            let last = self.known[place.all()].last();
            last.map_or(0, |known| i32::from(known.offset) + known.taken.len() as i32)
        };
        let mut begin = [-4 - len(one); 2];
        begin[1] -= 4 + len(other);
        for (back, place) in [(2, other), (1, one)] {
            if is_apart || one.is_apart || place.is_apart {
                continue;
            }
            for (nth, known) in self.known[place.all()].iter().enumerate() {
                let from = begin[usize::from(back) - 1];
                told[known.taken.register()] = Base::new(back, nth, known, from);
            }
        }
        let mut offset = 0;
        for (nth, taken) in words.enumerate() {
            let last = &mut told[taken.register()];
            let known = Known { taken, offset, base: *last };
            *last = Base::new(0, nth, &known, 0);
            self.known.push(known);
            offset += taken.len() as u16;
        }
    }
}

fn refill<T: Clone>(list: &mut Vec<T>, len: usize, with: T) {
    list.clear();
    list.resize(len, with);
}
