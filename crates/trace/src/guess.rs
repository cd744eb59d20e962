//! What is expected of raw executions: which block comes next, and which words it takes.
//!
//! Packing must keep up with a program that runs, so this is little: a block is expected to come where it came after the
//! same three blocks before, and a word is one of four guesses, of which each slot tries the one first that was right last. Only where that
//! one is wrong, or is one that takes a look at a table, are the tables touched.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BlockId, Register, Width};

use crate::bytes::{Parse, unzigzag, zigzag};
use crate::error::Flaw;

/// The tables of words are so many times larger than that of blocks.
const WORD_BITS: u32 = 1;

/// Bits by which a block's number moves in the history for every block behind it: three fit.
const AGE: u32 = 21;

/// How a word is told: as expected.
pub(crate) const EXPECTED: u32 = 0;
/// The guesses by number follow; then, written out.
pub(crate) const WRITTEN: u32 = GUESSES + 1;

/// How many guesses there are for a word.
const GUESSES: u32 = 4;
/// As far from its register's last word, in whatever block, as it was the last time.
const REGISTER: u32 = 0;
/// As far from the slot's last word as that was from the one before, twice the same.
const STRIDE: u32 = 1;
/// What came after the same word and difference.
const CONTEXT: u32 = 2;
/// As far from the slot's last word as it was the last time that these blocks came before.
const PATH: u32 = 3;

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

    pub(crate) const fn is_wide(self) -> bool {
        self.0 & 1 != 0
    }

    const fn register(self) -> usize {
        (self.0 >> 1) as usize % Register::COUNT
    }

    /// The bits that a word has.
    const fn mask(self) -> u64 {
        if self.is_wide() { u64::MAX } else { 0xffff_ffff }
    }
}

/// What is known of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    last: u64,
    /// The last difference, and the last that came twice.
    step: u64,
    stride: u64,
    /// From the register's last word.
    offset: u64,
    /// In which chunk that was seen: nothing is known from others.
    chunk: u32,
    /// The guess that is tried first.
    first: u32,
}

impl Known {
    /// What is known of it in this chunk.
    #[inline(always)]
    fn of(&mut self, chunk: u32) -> &mut Self {
        if self.chunk != chunk {
            *self = Self { chunk, ..Self::default() };
        }
        self
    }

    /// A word came, so far from the last, where its register had another.
    #[inline(always)]
    const fn see(&mut self, word: u64, step: u64, register: u64) {
        self.offset = word.wrapping_sub(register);
        self.last = word;
        if step == self.step {
            self.stride = step;
        }
        self.step = step;
    }
}

/// A block that is expected.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Next {
    pub(crate) id: u32,
    /// What a packer wants to know with it; 0 at first.
    pub(crate) note: u32,
}

/// The last words of all registers.
#[derive(Debug)]
struct Registers([u64; Register::COUNT]);

impl Default for Registers {
    fn default() -> Self {
        Self([0; Register::COUNT])
    }
}

/// All guesses of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    bits: u32,
    chunk: u32,
    slots: Vec<Known>,
    registers: Registers,
    history: u64,
    paths: Vec<Next>,
    contexts: Vec<u64>,
    steps: Vec<u64>,
}

impl Guesses {
    /// A chunk begins, with tables of so many places.
    pub(crate) fn begin(&mut self, slots: u32, bits: u32) {
        self.bits = bits;
        self.history = 0;
        self.registers = Registers::default();
        self.chunk = self.chunk.wrapping_add(1);
        if self.chunk == 0 {
            self.slots.clear();
            self.chunk = 1;
        }
        if self.slots.len() < slots as usize {
            self.slots.resize(slots as usize, Known::default());
        }
        let (blocks, words) = (1 << bits, 1 << (bits + WORD_BITS));
        self.paths.clear();
        self.paths.resize(blocks, Next::default());
        for table in [&mut self.contexts, &mut self.steps] {
            table.clear();
            table.resize(words, 0);
        }
    }

    /// The block that is expected now.
    #[inline]
    pub(crate) fn next(&mut self) -> &mut Next {
        let place = place(self.history, self.bits);
        &mut self.paths[place]
    }

    /// A block came; its words were told before.
    #[inline]
    pub(crate) fn came(&mut self, id: BlockId) {
        self.history = self.history << AGE ^ u64::from(id.0).wrapping_mul(0x9e37_79b1);
    }

    /// How a word is told; if it is written out, the number that stands for it.
    #[inline(always)]
    pub(crate) fn encode(&mut self, slot: u32, taken: Taken, word: u64) -> (u32, u64) {
        let (mask, chunk) = (taken.mask(), self.chunk);
        let register = std::mem::replace(&mut self.registers.0[taken.register()], word);
        let known = self.slots[slot as usize].of(chunk);
        let before = *known;
        let step = word.wrapping_sub(before.last) & mask;
        known.see(word, step, register);
        let by_register = word == register.wrapping_add(before.offset) & mask;
        let by_stride = step == before.stride & mask;
        let easy = if before.first == REGISTER { by_register } else { by_stride };
        if before.first <= STRIDE && easy {
            return (EXPECTED, 0);
        }
        let right = u32::from(by_register) << REGISTER | u32::from(by_stride) << STRIDE;
        self.look_up((slot, &before), (taken, word, step), right)
    }

    /// The same where the tables are asked, too; `right` are the other guesses that are.
    #[inline(never)]
    fn look_up(
        &mut self,
        (slot, before): (u32, &Known),
        (taken, word, step): (Taken, u64, u64),
        right: u32,
    ) -> (u32, u64) {
        let (context, path) = self.places(slot, before);
        let by_context = std::mem::replace(&mut self.contexts[context], word) == word;
        let by_path = std::mem::replace(&mut self.steps[path], step) == step;
        let right = right | u32::from(by_context) << CONTEXT | u32::from(by_path) << PATH;
        if right >> before.first & 1 != 0 {
            return (EXPECTED, 0);
        }
        if right == 0 {
            let far = if taken.is_wide() { step as i64 } else { i64::from(step as u32 as i32) };
            return (WRITTEN, zigzag(far));
        }
        let guess = right.trailing_zeros();
        self.slots[slot as usize].first = guess;
        (guess + 1, 0)
    }

    /// The word that is told so; `written` reads the number of one that is written out.
    #[inline]
    pub(crate) fn decode(
        &mut self,
        slot: u32,
        taken: Taken,
        told: u32,
        written: impl FnOnce() -> Parse<u64>,
    ) -> Parse<u64> {
        let (mask, chunk) = (taken.mask(), self.chunk);
        let register = self.registers.0[taken.register()];
        let known = self.slots.get_mut(slot as usize).ok_or(Flaw("it names no slot"))?;
        let before = *known.of(chunk);
        let guess = if told == EXPECTED { before.first } else { told - 1 };
        let word;
        if told == EXPECTED && guess <= STRIDE {
            word = match guess {
                REGISTER => register.wrapping_add(before.offset),
                _ => before.last.wrapping_add(before.stride),
            } & mask;
        } else {
            let (context, path) = self.places(slot, &before);
            word = match guess {
                REGISTER => register.wrapping_add(before.offset),
                STRIDE => before.last.wrapping_add(before.stride),
                CONTEXT => self.contexts[context],
                PATH => before.last.wrapping_add(self.steps[path]),
                GUESSES => before.last.wrapping_add(unzigzag(written()?) as u64),
                _ => return Err(Flaw("a word is told in no known way")),
            } & mask;
            self.contexts[context] = word;
            self.steps[path] = word.wrapping_sub(before.last) & mask;
        }
        let known = &mut self.slots[slot as usize];
        if told != EXPECTED && guess < GUESSES {
            known.first = guess;
        }
        known.see(word, word.wrapping_sub(before.last) & mask, register);
        self.registers.0[taken.register()] = word;
        Ok(word)
    }

    /// Where the tables tell of a slot.
    #[inline]
    fn places(&self, slot: u32, known: &Known) -> (usize, usize) {
        let (slot, bits) = (u64::from(slot), self.bits + WORD_BITS);
        let context = known.last ^ slot << 40 ^ known.step.rotate_left(20);
        (place(context, bits), place(self.history ^ slot << 13, bits))
    }

    /// The last address of a slot whose accesses are told one by one.
    pub(crate) fn last_mut(&mut self, slot: u32) -> &mut u64 {
        &mut self.slots[slot as usize].of(self.chunk).last
    }
}

#[inline]
fn place(key: u64, bits: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - bits)) as usize
}
