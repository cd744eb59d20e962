//! Guesses for raw executions: which unit comes next, and which words it takes. Packer and unpacker make the same
//! ones from the same executions; all are forgotten at the start of a chunk.
//!
//! A *place* is a unit behind the two that came before it. It knows which unit came behind it last, and which one before that; what
//! its words were, each from the last time at this place; and how they were told. So a thread that goes where it went before is followed
//! from place to place, and all that is looked at lies together.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Register, Width};

use crate::bytes::Parse;
use crate::chain::Unit;
use crate::error::Flaw;
use crate::hash::QuickMap;

/// How a word is told: as its place expects.
pub(crate) const EXPECTED: u32 = 0;
/// As far from the place's last word as that was from the one before.
const STRIDE: u32 = 1;
/// As far from its register's last word, in whatever unit, as it was the last time.
const REGISTER: u32 = 2;
/// The place's last word.
const SAME: u32 = 3;
/// As far from the slot's last word as when that was the same.
const CONTEXT: u32 = 4;
/// As far from the slot's last word as the place's last two are from each other.
const SLOT: u32 = 5;
/// Written out, as its difference from the slot's last word.
pub(crate) const WRITTEN: u32 = 6;

/// How the next unit is told: as the place before expects.
pub(crate) const NEXT: u64 = 0;
/// The one that came before the one that is expected.
pub(crate) const SECOND: u64 = 1;
/// By its number.
pub(crate) const OTHER: u64 = 2;

/// The most places, and words of them, that are known at a time; if there are to be more, all but one are forgotten.
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

    #[inline(always)]
    const fn register(self) -> usize {
        (self.0 >> 1) as usize % Register::COUNT
    }

    /// The bits that a word has.
    #[inline(always)]
    const fn mask(self) -> u64 {
        if self.is_wide() { u64::MAX } else { 0xffff_ffff }
    }

    /// A difference of such words with its sign.
    const fn signed(self, difference: u64) -> u64 {
        if self.is_wide() { difference } else { difference as u32 as i32 as u64 }
    }
}

/// What is known of a word of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    last: u64,
    /// How far the next is expected from the last, or from its register's last word.
    difference: u64,
    /// How far it was from the other one, when that was last learned.
    other: u64,
    pub(crate) slot: u32,
    pub(crate) taken: Taken,
    by_register: bool,
}

const _: () = assert!(size_of::<Known>() == 32);

impl Known {
    /// The word that is expected, if its register's last was this. Of a short word the lower half counts.
    #[inline(always)]
    const fn guess(&self, register: u64) -> u64 {
        let base = if self.by_register { register } else { self.last };
        base.wrapping_add(self.difference)
    }

    /// How far the next word is from the last, and from its register's last, if these guesses are right.
    const fn differences(&self) -> (u64, u64) {
        if self.by_register { (self.other, self.difference) } else { (self.difference, self.other) }
    }

    /// A word came that was not expected, but told like this.
    const fn learn(&mut self, word: u64, (step, offset): (u64, u64), told: u32) {
        match told {
            STRIDE | SAME => self.by_register = false,
            REGISTER => self.by_register = true,
            _ => {}
        }
        self.last = word;
        (self.difference, self.other) =
            if self.by_register { (offset, step) } else { (step, offset) };
    }
}

/// What is known of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The unit's number and one more, and those of the two before it; nothing is 0.
    unit: u32,
    before: [u32; 2],
    /// Where the thread went from here the last time, and before that; 0 if it never did.
    pub(crate) next: u32,
    second: u32,
    first_word: u32,
    words: u32,
    /// How its words were told the last time.
    pub(crate) code: u64,
    /// What a packer wants to know with it.
    pub(crate) note: Note,
}

const _: () = assert!(size_of::<Place>() == 64);

impl Place {
    const NOWHERE: Self = Self {
        unit: 0,
        before: [0; 2],
        next: 0,
        second: 0,
        first_word: 0,
        words: 0,
        code: 0,
        note: Note::NONE,
    };

    /// Whether this unit is here.
    #[inline(always)]
    pub(crate) const fn is(&self, unit: Unit) -> bool {
        self.unit == unit.0 + 1
    }

    /// Where what is known of its words lies.
    #[inline(always)]
    pub(crate) fn all(&self) -> std::ops::Range<usize> {
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
    /// Bytes of its words.
    pub(crate) len: u32,
    /// The way by which the one before was left.
    pub(crate) way: u32,
    /// How far that moved the register that is followed.
    pub(crate) moves: i32,
    /// How often that happened, and was not counted yet.
    pub(crate) runs: u32,
}

impl Note {
    /// No identifier.
    pub(crate) const NO_IDENTIFIER: u32 = u32::MAX;

    const NONE: Self =
        Self { identifier: Self::NO_IDENTIFIER, lore: 0, len: 0, way: 0, moves: 0, runs: 0 };
}

/// How many slots have a page together.
const PAGE: usize = 512;

/// All guesses of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    pub(crate) places: Vec<Place>,
    pub(crate) known: Vec<Known>,
    pub(crate) words: Words,
    /// Places by their units.
    table: Vec<u32>,
    bits: u32,
    /// Which slots are in use.
    used: Used,
    /// The last addresses of slots whose accesses are told one by one.
    flexible: QuickMap<u32, u64>,
}

/// Which slots a chunk uses, those of units that have places: a trace of many processes has millions, of which a chunk uses few.
#[derive(Debug, Default)]
struct Used {
    is_used: Vec<bool>,
    /// The pages that are.
    pages: Vec<u32>,
}

impl Used {
    /// Another chunk begins: there are so many slots, and the last words of all are 0.
    fn clear(&mut self, slots: &mut Vec<u64>, len: usize) {
        for page in self.pages.drain(..) {
            let first = page as usize * PAGE;
            let end = slots.len().min(first + PAGE);
            slots.get_mut(first..end).unwrap_or_default().fill(0);
            self.is_used[page as usize] = false;
        }
        slots.resize(len, 0);
        self.is_used.resize(len.div_ceil(PAGE), false);
    }

    /// The last word of a slot that is used from now on; 0 if there is no such slot.
    fn last(&mut self, slots: &[u64], slot: u32) -> u64 {
        let page = slot as usize / PAGE;
        if let Some(is_used) = self.is_used.get_mut(page)
            && !std::mem::replace(is_used, true)
        {
            self.pages.push(page as u32);
        }
        slots.get(slot as usize).copied().unwrap_or(0)
    }
}

/// What is known of words, wherever they are.
#[derive(Debug)]
pub(crate) struct Words {
    /// The last ones of all registers and slots.
    registers: [u64; Register::COUNT],
    slots: Vec<u64>,
    contexts: Vec<u32>,
    bits: u32,
}

impl Default for Words {
    fn default() -> Self {
        Self { registers: [0; Register::COUNT], slots: Vec::new(), contexts: Vec::new(), bits: 0 }
    }
}

impl Guesses {
    /// A chunk begins, with tables of so many places.
    pub(crate) fn begin(&mut self, slots: u32, bits: u32) {
        (self.bits, self.words.bits) = (bits, bits);
        self.words.registers = [0; Register::COUNT];
        self.used.clear(&mut self.words.slots, slots as usize);
        refill(&mut self.words.contexts, 1 << bits, 0);
        refill(&mut self.table, 1 << bits, 0);
        refill(&mut self.places, 1, Place::NOWHERE);
        self.known.clear();
        self.flexible.clear();
    }

    /// The unit that is expected behind a place, or the one before it.
    #[inline(always)]
    pub(crate) fn follows(&self, at: usize, told: u64) -> Option<Unit> {
        let Place { next, second, .. } = self.places[at];
        let to = if told == NEXT { next } else { second };
        self.places[to as usize].unit.checked_sub(1).map(Unit)
    }

    /// Another unit comes behind a place than is expected: where that is, and how it is told. Somebody hears of all places before they are
    /// forgotten.
    pub(crate) fn turn(
        &mut self,
        at: usize,
        (unit, words): (Unit, impl ExactSizeIterator<Item = (u32, Taken)>),
        before_forgetting: impl FnOnce(&[Place]),
    ) -> (usize, u64) {
        let from = &mut self.places[at];
        (from.next, from.second) = (from.second, from.next);
        let (to, before) = (from.next as usize, [from.unit, from.before[0]]);
        if to != NOWHERE && self.places[to].is(unit) {
            return (to, SECOND);
        }
        let key = u64::from(before[0]) << 32 ^ u64::from(before[1]) << 16;
        let slot = place(key ^ u64::from(unit.0).wrapping_mul(0x9e37_79b1), self.bits);
        let found = self.table[slot];
        let there = &self.places[found as usize];
        if there.is(unit) && there.before == before {
            self.places[at].next = found;
            return (found as usize, OTHER);
        }
        let mut at = at;
        if self.places.len() >= MOST_PLACES || self.known.len() + words.len() > MOST_WORDS {
            before_forgetting(&self.places);
            at = self.forget(at);
        }
        let (first_word, count) = (self.known.len() as u32, words.len() as u32);
        let (slots, used) = (&self.words.slots, &mut self.used);
        self.known.extend(words.map(|(slot, taken)| Known {
            last: used.last(slots, slot),
            difference: 0,
            other: 0,
            slot,
            taken,
            by_register: false,
        }));
        let to = self.places.len();
        self.places[at].next = to as u32;
        self.table[slot] = to as u32;
        let unit = unit.0 + 1;
        self.places.push(Place { unit, before, first_word, words: count, ..Place::NOWHERE });
        (to, OTHER)
    }

    /// Forgets all places but one; where that is now.
    #[cold]
    fn forget(&mut self, at: usize) -> usize {
        self.table.fill(0);
        if at == NOWHERE {
            self.places.truncate(1);
            self.places[NOWHERE] = Place::NOWHERE;
            self.known.clear();
            return NOWHERE;
        }
        let Place { unit, before, code, note, .. } = self.places[at];
        let words = self.places[at].all();
        let count = words.len();
        self.known.copy_within(words, 0);
        self.known.truncate(count);
        let note = Note { runs: 0, ..note };
        let words = count as u32;
        let kept = Place { unit, before, code, note, words, ..Place::NOWHERE };
        self.places.clear();
        self.places.extend([Place::NOWHERE, kept]);
        1
    }

    /// The last address of a slot whose accesses are told one by one.
    pub(crate) fn last_mut(&mut self, slot: u32) -> &mut u64 {
        self.flexible.entry(slot).or_default()
    }
}

fn refill<T: Clone>(list: &mut Vec<T>, len: usize, with: T) {
    list.clear();
    list.resize(len, with);
}

/// A word that was not expected, with the last ones of its register and slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surprise {
    word: u64,
    register: u64,
    slot: u64,
}

impl Words {
    /// A word came: answers nothing if it was expected.
    #[inline(always)]
    pub(crate) fn surprise(&mut self, known: &mut Known, word: u64) -> Option<Surprise> {
        let register = std::mem::replace(&mut self.registers[known.taken.register()], word);
        let slot = std::mem::replace(&mut self.slots[known.slot as usize], word);
        let difference = known.guess(register) ^ word;
        let is_guess = if known.taken.is_wide() { difference == 0 } else { difference as u32 == 0 };
        if is_guess {
            known.last = word;
            return None;
        }
        Some(Surprise { word, register, slot })
    }

    /// How a word is told that was not expected; if it is written out, the difference that stands for it.
    #[inline]
    pub(crate) fn encode(&mut self, known: &mut Known, surprise: Surprise) -> (u32, u64) {
        let Surprise { word, register, slot } = surprise;
        let mask = known.taken.mask();
        let from = |last: u64| word.wrapping_sub(last) & mask;
        let news = (from(known.last), from(register));
        let (step, offset) = known.differences();
        let (by_step, by_register) = (news.0 == step & mask, news.1 == offset & mask);
        let by_slot = from(slot);
        let told = if by_step | by_register | (news.0 == 0) {
            match () {
                () if by_step => STRIDE,
                () if by_register => REGISTER,
                () => SAME,
            }
        } else {
            let context = self.context(known.slot, slot);
            let short = shorten(by_slot, mask);
            let was = std::mem::replace(context, short.unwrap_or(0));
            match () {
                () if short == Some(was) => CONTEXT,
                () if by_slot == step & mask => SLOT,
                () => WRITTEN,
            }
        };
        known.learn(word, news, told);
        (told, known.taken.signed(by_slot))
    }

    /// The word that is told so; `written` reads the difference of one that is written out.
    #[inline]
    pub(crate) fn decode(
        &mut self,
        known: &mut Known,
        told: u32,
        written: impl FnOnce() -> Parse<u64>,
    ) -> Parse<u64> {
        let mask = known.taken.mask();
        let register = self.registers[known.taken.register()];
        let slot = *self.slots.get(known.slot as usize).ok_or(Flaw("it names no slot"))?;
        let word;
        if told == EXPECTED {
            word = known.guess(register) & mask;
            known.last = word;
        } else {
            let (step, offset) = known.differences();
            word = match told {
                STRIDE => known.last.wrapping_add(step),
                REGISTER => register.wrapping_add(offset),
                SAME => known.last,
                CONTEXT => slot.wrapping_add(lengthen(*self.context(known.slot, slot))),
                SLOT => slot.wrapping_add(step),
                WRITTEN => slot.wrapping_add(written()?),
                _ => return Err(Flaw("a word is told in no known way")),
            } & mask;
            let from = |last: u64| word.wrapping_sub(last) & mask;
            let (news, by_slot) = ((from(known.last), from(register)), from(slot));
            if told >= CONTEXT {
                *self.context(known.slot, slot) = shorten(by_slot, mask).unwrap_or(0);
            }
            known.learn(word, news, told);
        }
        self.registers[known.taken.register()] = word;
        self.slots[known.slot as usize] = word;
        Ok(word)
    }

    /// What the table of contexts tells of a slot with this last word.
    #[inline(always)]
    fn context(&mut self, slot: u32, last: u64) -> &mut u32 {
        &mut self.contexts[place(last ^ u64::from(slot) << 40, self.bits)]
    }
}

/// A difference in four bytes, if they are enough.
#[inline(always)]
const fn shorten(difference: u64, mask: u64) -> Option<u32> {
    let short = difference as u32;
    if lengthen(short) & mask == difference { Some(short) } else { None }
}

#[inline(always)]
const fn lengthen(short: u32) -> u64 {
    short as i32 as u64
}

/// Where a table of two to so many places tells of a key.
#[inline(always)]
fn place(key: u64, bits: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - bits)) as usize
}
