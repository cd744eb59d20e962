//! What is expected of raw executions: which block or chain comes next, and which words it takes.
//!
//! Packing must keep up with a program that runs, so this is little: a block or chain is expected to come where it came after the
//! same three before, and a word is one of four guesses, of which each slot tries the one first that was right last. As long as
//! a slot is right with one of the three that are cheap, nothing but its last word changes; only where that one is wrong, or is
//! the one that takes a look at another table, is more to be done.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Register, Width};

use crate::bytes::Parse;
use crate::chain::Unit;
use crate::error::Flaw;
use crate::hash::QuickMap;
use crate::raw_pack::take;

/// Bits by which a unit's number moves in the history for every unit behind it: three fit.
const AGE: u32 = 21;

/// How a word is told: as expected.
pub(crate) const EXPECTED: u32 = 0;
/// The guesses by number follow; then, written out.
pub(crate) const WRITTEN: u32 = GUESSES + 1;

/// How many guesses there are for a word.
const GUESSES: u32 = 4;
/// As far from its register's last word, in whatever block, as it was the last time.
const REGISTER: u32 = 0;
/// As far from the slot's last word as that was from the one before.
const STRIDE: u32 = 1;
/// As far from the slot's last word as it was the last time that these units came before.
const PATH: u32 = 2;
/// As far from the slot's last word as when that was the same.
const CONTEXT: u32 = 3;

/// So many words of an execution are told apart in what is known of its path; later ones share the last place.
const PATH_WORDS: usize = 4;

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

/// What is known of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    last: u64,
    /// From the slot's last word if its first guess is the stride, and otherwise from its register's: when that was last learned.
    difference: u64,
    /// From the other one.
    other: u64,
    /// The guess that is tried first.
    first: u32,
}

impl Known {
    /// The next word by a first guess that is cheap.
    #[inline(always)]
    const fn cheap(&self, register: u64, path: u32) -> u64 {
        let base = if self.first == REGISTER { register } else { self.last };
        base.wrapping_add(if self.first == PATH { lengthen(path) } else { self.difference })
    }

    /// How far the next word is from its register's last, and how far from the slot's, if these guesses are right.
    const fn differences(&self) -> (u64, u64) {
        if self.first == STRIDE {
            (self.other, self.difference)
        } else {
            (self.difference, self.other)
        }
    }

    /// A word came that was not told by the cheap guess that is tried first: so far from its register's last and from the slot's. This
    /// guess is tried first from now on.
    const fn learn(&mut self, word: u64, (offset, step): (u64, u64), first: u32) {
        self.first = first;
        self.last = word;
        (self.difference, self.other) =
            if first == STRIDE { (step, offset) } else { (offset, step) };
    }
}

/// What is known of a place in a program, which is where three units came one behind the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The number of the unit that is expected, and one more; nothing is at first.
    id: u32,
    /// How far its words were from the last of their slots.
    steps: [u32; PATH_WORDS],
    /// What a packer wants to know with it; nothing at first.
    pub(crate) note: Note,
}

const _: () = assert!(size_of::<Place>() == 32);

impl Place {
    /// The unit that is expected.
    #[inline(always)]
    pub(crate) const fn expected(&self) -> Option<Unit> {
        match self.id {
            0 => None,
            id => Some(Unit(id - 1)),
        }
    }

    /// Whether this is the unit that is expected.
    #[inline(always)]
    pub(crate) const fn expects(&self, unit: Unit) -> bool {
        self.id == unit.0 + 1
    }

    /// This unit came.
    #[inline]
    pub(crate) const fn expect(&mut self, unit: Unit) {
        self.id = unit.0 + 1;
    }
}

/// How a packer knows the unit before a place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Note {
    /// The way by which it was left.
    pub(crate) way: u32,
    /// How often, and not counted yet.
    pub(crate) runs: u32,
    /// How far it moved the register that is followed.
    pub(crate) moves: i32,
}

/// All guesses of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    bits: u32,
    chunk: u32,
    slots: Vec<Known>,
    /// The chunks in which units were last seen.
    seen: Vec<u32>,
    registers: Registers,
    history: u64,
    places: Vec<Place>,
    contexts: Vec<u32>,
    /// The last addresses of slots whose accesses are told one by one.
    flexible: QuickMap<u32, u64>,
}

/// The last words of all registers.
#[derive(Debug)]
struct Registers([u64; Register::COUNT]);

impl Default for Registers {
    fn default() -> Self {
        Self([0; Register::COUNT])
    }
}

/// The same at hand, for a loop that goes on for long.
#[derive(Debug)]
pub(crate) struct Hand<'a> {
    chunk: u32,
    seen: &'a mut [u32],
    history: u64,
    places: &'a mut [Place],
    words: Words<'a>,
    kept: &'a mut u64,
}

/// What is expected of words.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    bits: u32,
    slots: &'a mut [Known],
    registers: &'a mut [u64; Register::COUNT],
    contexts: &'a mut [u32],
}

impl Guesses {
    /// A chunk begins, with tables of so many places.
    pub(crate) fn begin(&mut self, (units, slots): (usize, u32), bits: u32) {
        self.bits = bits;
        self.history = 0;
        self.registers = Registers::default();
        self.chunk = self.chunk.wrapping_add(1);
        if self.chunk == 0 {
            self.seen.clear();
            self.chunk = 1;
        }
        if self.slots.len() < slots as usize {
            self.slots.resize(slots as usize, Known::default());
        }
        if self.seen.len() < units {
            self.seen.resize(units, 0);
        }
        self.places.clear();
        self.places.resize(1 << bits, Place::default());
        self.contexts.clear();
        self.contexts.resize(1 << bits, 0);
        self.flexible.clear();
    }

    /// All of it, until [`Hand::put_back`].
    #[inline(always)]
    pub(crate) fn hand(&mut self) -> Hand<'_> {
        let words = Words {
            bits: self.bits,
            slots: &mut self.slots,
            registers: &mut self.registers.0,
            contexts: &mut self.contexts,
        };
        Hand {
            chunk: self.chunk,
            seen: &mut self.seen,
            history: self.history,
            places: &mut self.places,
            words,
            kept: &mut self.history,
        }
    }

    /// All places.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// The last address of a slot whose accesses are told one by one.
    pub(crate) fn last_mut(&mut self, slot: u32) -> &mut u64 {
        self.flexible.entry(slot).or_default()
    }
}

impl<'a> Hand<'a> {
    /// What was learned stays.
    #[inline(always)]
    pub(crate) fn put_back(self) {
        *self.kept = self.history;
    }

    /// Where in its tables the program is.
    #[inline(always)]
    pub(crate) fn here(&self) -> usize {
        place(self.history, self.words.bits)
    }

    /// What is known of a place, which is there, and of words.
    #[inline(always)]
    pub(crate) fn at(&mut self, at: usize) -> (&mut Place, &mut Words<'a>) {
        (&mut self.places[at], &mut self.words)
    }

    /// A unit came; its words were told before.
    #[inline(always)]
    pub(crate) const fn came(&mut self, unit: Unit) {
        self.history = self.history << AGE ^ (unit.0 as u64).wrapping_mul(0x9e37_79b1);
    }

    /// Whether a unit comes for the first time in this chunk. Nothing is known of a block's slots then.
    #[inline]
    pub(crate) fn is_new(&mut self, unit: Unit) -> bool {
        let seen = self.seen.get_mut(unit.index());
        seen.is_some_and(|seen| std::mem::replace(seen, self.chunk) != self.chunk)
    }

    /// Nothing is known of a slot.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(known) = self.words.slots.get_mut(slot as usize) {
            *known = Known::default();
        }
    }
}

impl Words<'_> {
    /// Takes the next word from these bytes, which are there, the `nth` of the unit that came to a place; answers it unless it is what its
    /// slot's first guess tells.
    #[inline(always)]
    pub(crate) fn surprise(
        &mut self,
        (place, nth): (&mut Place, usize),
        (slot, taken): (u32, Taken),
        bytes: &mut &[u8],
    ) -> Option<u64> {
        let register = &mut self.registers[taken.register()];
        let known = &mut self.slots[slot as usize];
        let path = &mut place.steps[nth.min(PATH_WORDS - 1)];
        if known.first == CONTEXT {
            let word = take(bytes, taken.is_wide());
            let step = self.contexts[context_of(slot, known.last, self.bits)];
            let mask = taken.mask();
            if word != known.last.wrapping_add(lengthen(step)) & mask {
                return Some(word);
            }
            let register = std::mem::replace(register, word);
            *path = step;
            known.learn(word, (word.wrapping_sub(register) & mask, lengthen(step) & mask), CONTEXT);
            return None;
        }
        let guess = known.cheap(*register, *path);
        let (word, is_guess) = if taken.is_wide() {
            let word = take(bytes, true);
            (word, word == guess)
        } else {
            let word = take(bytes, false);
            (word, word as u32 == guess as u32)
        };
        if !is_guess {
            return Some(word);
        }
        (*register, known.last) = (word, word);
        None
    }

    /// How a word is told that was a surprise; if it is written out, the difference that stands for it.
    pub(crate) fn encode(
        &mut self,
        (place, nth): (&mut Place, usize),
        (slot, taken): (u32, Taken),
        word: u64,
    ) -> (u32, u64) {
        let register = std::mem::replace(&mut self.registers[taken.register()], word);
        let known = &mut self.slots[slot as usize];
        let path = &mut place.steps[nth.min(PATH_WORDS - 1)];
        let contexts = (&mut *self.contexts, context_of(slot, known.last, self.bits));
        look_up(known, path, contexts, taken, (word, register))
    }

    /// The word that is told so; `written` reads the difference of one that is written out.
    #[inline]
    pub(crate) fn decode(
        &mut self,
        (place, nth): (&mut Place, usize),
        (slot, taken): (u32, Taken),
        told: u32,
        written: impl FnOnce() -> Parse<u64>,
    ) -> Parse<u64> {
        let mask = taken.mask();
        let register = self.registers[taken.register()];
        let known = self.slots.get_mut(slot as usize).ok_or(Flaw("it names no slot"))?;
        let path = &mut place.steps[nth.min(PATH_WORDS - 1)];
        let word;
        if told == EXPECTED && known.first <= PATH {
            word = known.cheap(register, *path) & mask;
            known.last = word;
        } else {
            let context = &mut self.contexts[context_of(slot, known.last, self.bits)];
            let guess = if told == EXPECTED { known.first } else { told - 1 };
            let (offset, step) = known.differences();
            word = match guess {
                REGISTER => register.wrapping_add(offset),
                STRIDE => known.last.wrapping_add(step),
                PATH => known.last.wrapping_add(lengthen(*path)),
                CONTEXT => known.last.wrapping_add(lengthen(*context)),
                GUESSES => known.last.wrapping_add(written()?),
                _ => return Err(Flaw("a word is told in no known way")),
            } & mask;
            let step = word.wrapping_sub(known.last) & mask;
            *path = shorten(step, mask).unwrap_or(0);
            if known.first == CONTEXT || guess >= CONTEXT {
                *context = *path;
            }
            let first = if guess < GUESSES { guess } else { known.first };
            known.learn(word, (word.wrapping_sub(register) & mask, step), first);
        }
        self.registers[taken.register()] = word;
        Ok(word)
    }
}

/// How a word is told that its slot's first guess does not tell, or that takes a look at the tables. The larger of them is left
/// alone where others are right.
#[inline(always)]
fn look_up(
    known: &mut Known,
    path: &mut u32,
    (contexts, context): (&mut [u32], usize),
    taken: Taken,
    (word, register): (u64, u64),
) -> (u32, u64) {
    let mask = taken.mask();
    let offset = word.wrapping_sub(register) & mask;
    let step = word.wrapping_sub(known.last) & mask;
    let short = shorten(step, mask);
    let stored = short.unwrap_or(0);
    let by_path = std::mem::replace(path, stored) == stored && short.is_some();
    let (known_offset, known_step) = known.differences();
    let mut right = u32::from(offset == known_offset) << REGISTER
        | u32::from(step == known_step) << STRIDE
        | u32::from(by_path) << PATH;
    if right == 0 || known.first == CONTEXT {
        let told = std::mem::replace(&mut contexts[context], stored);
        right |= u32::from(told == stored && short.is_some()) << CONTEXT;
    }
    if right == 0 {
        known.learn(word, (offset, step), known.first);
        return (WRITTEN, taken.signed(step));
    }
    let told = if right >> known.first & 1 != 0 { EXPECTED } else { right.trailing_zeros() + 1 };
    let first = if told == EXPECTED { known.first } else { told - 1 };
    known.learn(word, (offset, step), first);
    (told, 0)
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

/// Where the table of contexts tells of a slot with this last word.
#[inline(always)]
fn context_of(slot: u32, last: u64, bits: u32) -> usize {
    place(last ^ u64::from(slot) << 40, bits)
}

#[inline(always)]
fn place(key: u64, bits: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - bits)) as usize
}
