//! Prediction of words: each slot remembers its past, two tables remember
//! contexts, and a word that a prediction gets right costs next to nothing.
//!
//! Packer and unpacker run the same code on the same words, so their states are
//! equal at every word; all state is empty at the start of a chunk.
//!
//! Eight predictors, in the order in which tokens name them (1 to 8): the last word plus the
//! last difference; the last word plus the difference that followed the last two
//! differences (finite context); the word before in the stream, whatever its
//! slot, plus the distance last seen there; the word that followed, in this slot, the
//! last word anywhere that had moved; the last word; the word two before in the
//! stream plus the distance last seen there; the fourth plus the step that it was last off by; what
//! the slot's wire says (see `wire`).
//!
//! Where all are wrong the word is written as its difference from a reference: the slot's
//! last word (token 9), the word before in the stream (10), the slot's anchor (11), its first
//! written word in the chunk, or what its wire says (12).
//!
//! Token 0 means "as expected": each slot expects the predictor that was right last, or,
//! once two words running were written out, to be written out again. So both a
//! regular slot and a random one cost no token.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bytes::{Parse, zigzag};
use crate::error::Flaw;
use crate::learn::Coded;
use crate::misses::{Misses, put_miss};
use crate::slot::{LOOK, PATIENCE, State, WIRED, pass_by};
use crate::token::Tokens;
use crate::wire::{Drift, Told, Wire, Wires, is_near};

const PREDICTORS: u8 = 8;
const BY_WIRE: u8 = 7;
const FROM_LAST: u8 = 9;
const FROM_BEFORE: u8 = 10;
const FROM_ANCHOR: u8 = 11;
const FROM_WIRE: u8 = 12;

/// How often running a predictor must be right to be trusted again.
const STREAK: u8 = 3;

/// Whether a token's predictor needs no table. Where such a predictor goes on being right, the tables learn
/// nothing: they are for what is harder, and looking at them takes time.
#[inline]
const fn is_calm(token: u8) -> bool {
    const CALM: u16 = 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8;
    CALM >> token & 1 != 0
}

/// How many lessons may wait: enough that the host fetches the places of several at once.
const LESSONS: usize = 16;

/// What a word teaches the tables.
#[derive(Clone, Copy, Debug)]
struct Lesson {
    place: Place,
    slot: u32,
    word: u64,
    delta: u64,
}

/// The predictors of one stream.
#[derive(Debug)]
pub(crate) struct Predictors {
    slots: Vec<State>,
    pub(crate) tokens: Tokens,
    context: Vec<u64>,
    follower: Vec<u64>,
    /// Both tables have two to this many places.
    bits: u32,
    /// The last word, the last that differed from its slot's last (the *mover*), and the last but one. In this order: the
    /// outer two, which are written one by one, are then not loaded as one.
    recent: [u64; 3],
    pub(crate) wires: Wires,
    /// Unpacker only: what the tables, and the steps of slots, are still to learn. It is learned before anybody asks them. Mostly nobody
    /// does for a while, and the places lie far apart in the host's memory.
    lessons: [Lesson; LESSONS],
    waiting: usize,
    /// Packer only: by how much each slot's wire was wrong last.
    offs: Vec<u64>,
}

/// The places of a word in both tables.
#[derive(Clone, Copy, Debug)]
struct Place {
    context: u32,
    follower: u32,
}

impl Predictors {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            tokens: Tokens::new(),
            context: Vec::new(),
            follower: Vec::new(),
            bits: 0,
            recent: [0; 3],
            wires: Wires::new(),
            lessons: [Lesson {
                place: Place { context: 0, follower: 0 },
                slot: 0,
                word: 0,
                delta: 0,
            }; LESSONS],
            waiting: 0,
            offs: Vec::new(),
        }
    }

    /// Forgets everything: a chunk begins.
    pub(crate) fn reset(&mut self, slots: u32, bits: u32) {
        self.bits = bits;
        self.slots.clear();
        self.slots.resize(slots as usize, State::default());
        self.tokens.reset(slots);
        for table in [&mut self.context, &mut self.follower] {
            table.clear();
            table.resize(1 << bits, 0);
        }
        self.recent = [0; 3];
        self.wires.reset(bits);
        self.waiting = 0;
        self.offs.clear();
    }

    /// Makes room for slots that appeared since.
    pub(crate) fn grow(&mut self, slots: u32) {
        if self.slots.len() < slots as usize {
            self.slots.resize(slots as usize, State::default());
            self.tokens.grow(slots);
        }
    }

    /// Gives a slot another wire.
    pub(crate) fn set_wire(&mut self, slot: u32, wire: Wire) -> Parse<()> {
        let state = self.slots.get_mut(slot as usize).ok_or(Flaw("a slot is out of range"))?;
        state.wired = true;
        state.settle();
        self.wires.set(slot, wire);
        Ok(())
    }

    /// Packs words as long as each is what its slot expects: their tokens are 0. Answers how many there were.
    #[inline]
    pub(crate) fn pass(&mut self, slots: &[u32], words: &[u64]) -> usize {
        let mut words_of = slots.iter().zip(words);
        let stops = |(slot, word): (&u32, &u64)| self.quick(*slot, |w| w == *word).is_none();
        words_of.position(stops).unwrap_or(slots.len().min(words.len()))
    }

    /// The word that a slot expects, if that is a predictor's and `is` agrees; what it teaches is learned.
    #[inline(always)]
    fn quick(&mut self, slot: u32, is: impl FnOnce(u64) -> bool) -> Option<u64> {
        let state = self.slots.get_mut(slot as usize)?;
        let Some(word) = state.expects(self.recent) else { return self.quick_else(slot, is) };
        if !is(word) {
            return None;
        }
        state.was_right(word, &mut self.recent);
        Some(word)
    }

    /// The same where that takes a table or a wire.
    #[inline(always)]
    fn quick_else(&mut self, slot: u32, is: impl FnOnce(u64) -> bool) -> Option<u64> {
        match self.slots.get(slot as usize)?.quick {
            LOOK => None,
            quick if quick >= WIRED => self.quick_wired(slot, is),
            _ => self.quick_by_table(slot, is),
        }
    }

    /// The same where the slot has a wire, whose part comes last.
    #[inline(never)]
    fn quick_wired(&mut self, slot: u32, is: impl FnOnce(u64) -> bool) -> Option<u64> {
        let word = match self.slots[slot as usize].favourite {
            1 | 3 | 6 => self.quick_by_table(slot, is)?,
            favourite => {
                let word = self.predict_alone((favourite, slot), &self.slots[slot as usize]);
                if !is(word) {
                    return None;
                }
                self.slots[slot as usize].was_right(word, &mut self.recent);
                word
            }
        };
        self.wires.update(slot, word, Drift::Unclear);
        Some(word)
    }

    /// The same where the favourite has a table.
    #[inline(always)]
    fn quick_by_table(&mut self, slot: u32, is: impl FnOnce(u64) -> bool) -> Option<u64> {
        self.teach_all();
        let place = self.place(slot, self.slots.get(slot as usize)?);
        let state = self.slots.get_mut(slot as usize)?;
        let followed = self.follower[place.follower as usize];
        let word = match state.favourite {
            1 => state.last.wrapping_add(self.context[place.context as usize]),
            3 => followed,
            _ => followed.wrapping_add(state.step),
        };
        if !is(word) {
            return None;
        }
        state.was_right(word, &mut self.recent);
        state.step = word.wrapping_sub(followed);
        self.context[place.context as usize] = state.delta;
        self.follower[place.follower as usize] = word;
        Some(word)
    }

    /// The token of a word; what the token does not tell goes to `misses`, and what it told of memory stands in
    /// the wires' `told` afterwards.
    #[inline]
    pub(crate) fn encode(&mut self, slot: u32, word: u64, misses: &mut [Vec<u8>]) -> (u8, Coded) {
        self.wires.told = Told::default();
        let favourite = self.slots[slot as usize].favourite;
        if self.quick(slot, |w| w == word).is_some() {
            return (0, if favourite == BY_WIRE { Coded::Wired } else { Coded::Guessed });
        }
        self.encode_slowly(slot, word, misses)
    }

    /// The same for a word that is not expected, or that is expected to be written.
    fn encode_slowly(&mut self, slot: u32, word: u64, misses: &mut [Vec<u8>]) -> (u8, Coded) {
        let state = &self.slots[slot as usize];
        let wired = state.wired;
        let place = self.place(slot, state);
        let expects_miss = state.misses >= PATIENCE;
        let (token, means) = if wired && self.wires.predict(slot) == word {
            (BY_WIRE + 1, BY_WIRE + 1)
        } else if let Some(p) = self.right_one(slot, word, &place) {
            (p + 1, p + 1)
        } else {
            let state = self.slots[slot as usize];
            let best = self.best_reference(slot, &state, word);
            let token = if expects_miss && best == state.reference { 0 } else { best };
            put_miss(misses, slot, word.wrapping_sub(self.reference((best, slot), &state)));
            (token, best)
        };
        let coded = match means {
            _ if means > PREDICTORS => Coded::Written,
            _ if means == BY_WIRE + 1 => Coded::Wired,
            _ => Coded::Guessed,
        };
        if let Some(delta) = self.update(slot, word, means) {
            self.teach(&Lesson { place, slot, word, delta });
        }
        (token, coded)
    }

    /// What is learned from a calm word.
    #[inline]
    fn update_calm(&mut self, slot: u32, word: u64) {
        let state = &mut self.slots[slot as usize];
        state.was_right(word, &mut self.recent);
        if state.wired {
            self.update_wire(slot, word, Drift::Unclear);
        }
    }

    #[inline(never)]
    fn update_wire(&mut self, slot: u32, word: u64, drift: Drift) {
        self.wires.update(slot, word, drift);
    }

    /// The predictor to name, if one is right. A slot that expects written words is not
    /// disturbed by a chance hit: the predictor must have been right for some time.
    fn right_one(&mut self, slot: u32, word: u64, place: &Place) -> Option<u8> {
        let state = self.slots[slot as usize];
        let right = (0..BY_WIRE).find(|p| self.predict((*p, slot), &state, place) == word);
        if state.misses < PATIENCE {
            return right;
        }
        let state = &mut self.slots[slot as usize];
        state.streak = match right {
            Some(p) if p == state.rising => state.streak + 1,
            Some(_) => 1,
            None => 0,
        };
        state.rising = right?;
        if state.streak < STREAK {
            return None;
        }
        state.streak = 0;
        right
    }

    /// The words of slots' tokens. The last words of the stream stay in registers as long as all is simple.
    #[inline(always)]
    pub(crate) fn decode_all(
        &mut self,
        coded: impl Iterator<Item = (u32, u8)>,
        misses: &mut Misses<'_>,
        words: &mut [u64],
    ) -> Parse<()> {
        let mut recent = self.recent;
        for ((slot, token), word) in coded.zip(words) {
            if token == 0
                && let Some(state) = self.slots.get_mut(slot as usize)
                && let Some(expected) = state.expects(recent)
            {
                state.was_right(expected, &mut recent);
                *word = expected;
                continue;
            }
            self.recent = recent;
            *word = self.decode_else(slot, token, misses)?;
            recent = self.recent;
        }
        self.recent = recent;
        Ok(())
    }

    /// The word of a token where it takes more than the slot itself.
    #[inline(never)]
    fn decode_else(&mut self, slot: u32, token: u8, misses: &mut Misses<'_>) -> Parse<u64> {
        if token == 0
            && let Some(word) = self.quick_else(slot, |_| true)
        {
            return Ok(word);
        }
        self.decode(slot, token, misses)
    }

    /// The word of a token.
    fn decode(&mut self, slot: u32, token: u8, misses: &mut Misses<'_>) -> Parse<u64> {
        let state = *self.slots.get(slot as usize).ok_or(Flaw("a slot is out of range"))?;
        let place = self.place(slot, &state);
        let means = match token {
            0 if state.misses >= PATIENCE => state.reference,
            0 => state.favourite + 1,
            1..=FROM_WIRE => token,
            _ => return Err(Flaw("a word's token is unknown")),
        };
        let word = match means {
            2 | 4 | 7 => {
                self.teach_all();
                let state = self.slots[slot as usize];
                self.predict((means - 1, slot), &state, &place)
            }
            _ if means <= PREDICTORS => self.predict_alone((means - 1, slot), &state),
            _ => self.reference((means, slot), &state).wrapping_add(misses.next(slot)?),
        };
        if let Some(delta) = self.update(slot, word, means) {
            self.teach_later(Lesson { place, slot, word, delta });
        }
        Ok(word)
    }

    /// Lets the tables learn something before they are asked next.
    #[inline]
    fn teach_later(&mut self, lesson: Lesson) {
        self.lessons[self.waiting % LESSONS] = lesson;
        self.waiting += 1;
        if self.waiting == LESSONS {
            self.teach_all();
        }
    }

    /// Nothing waits any more.
    #[inline(always)]
    fn teach_all(&mut self) {
        if self.waiting > 0 {
            self.teach_waiting();
        }
    }

    #[inline(never)]
    fn teach_waiting(&mut self) {
        for at in 0..std::mem::take(&mut self.waiting) {
            let lesson = self.lessons[at % LESSONS];
            self.teach(&lesson);
        }
    }

    /// The tables, and the slot's step, learn from a word.
    #[inline(always)]
    fn teach(&mut self, lesson: &Lesson) {
        let Lesson { place, slot, word, delta } = *lesson;
        self.context[place.context as usize] = delta;
        let followed = std::mem::replace(&mut self.follower[place.follower as usize], word);
        self.slots[slot as usize].step = word.wrapping_sub(followed);
    }

    /// The last word of a slot, for those who code words by other means.
    pub(crate) fn last_mut(&mut self, slot: u32) -> &mut u64 {
        &mut self.slots[slot as usize].last
    }

    #[inline]
    fn place(&self, slot: u32, state: &State) -> Place {
        let salt = u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Place {
            context: self.index(state.delta.wrapping_mul(31).wrapping_add(state.older) ^ salt),
            follower: self.index(self.recent[1] ^ salt),
        }
    }

    #[inline]
    fn index(&self, key: u64) -> u32 {
        (key.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (64 - self.bits)) as u32
    }

    #[inline(always)]
    fn predict(&self, (which, slot): (u8, u32), state: &State, place: &Place) -> u64 {
        match which {
            1 => state.last.wrapping_add(self.context[place.context as usize]),
            3 => self.follower[place.follower as usize],
            6 => self.follower[place.follower as usize].wrapping_add(state.step),
            _ => self.predict_alone((which, slot), state),
        }
    }

    /// What a predictor without a table says.
    #[inline(always)]
    fn predict_alone(&self, (which, slot): (u8, u32), state: &State) -> u64 {
        match which {
            0 => state.last.wrapping_add(state.delta),
            2 => self.recent[0].wrapping_add(state.offset),
            4 => state.last,
            5 => self.recent[2].wrapping_add(state.offset2),
            _ => self.wires.predict(slot),
        }
    }

    #[inline]
    fn reference(&self, (token, slot): (u8, u32), state: &State) -> u64 {
        match token {
            FROM_LAST => state.last,
            FROM_BEFORE => self.recent[0],
            FROM_ANCHOR => state.anchor,
            _ => self.wires.predict(slot),
        }
    }

    /// The reference from which `word` is written shortest; the anchor wins if it is not
    /// much worse, because table look-ups scatter around it evenly.
    fn best_reference(&mut self, slot: u32, state: &State, word: u64) -> u8 {
        if state.wired {
            let off = word.wrapping_sub(self.wires.predict(slot));
            if self.offs.len() <= slot as usize {
                self.offs.resize(slot as usize + 1, 0);
            }
            if is_near(off) || off == std::mem::replace(&mut self.offs[slot as usize], off) {
                return FROM_WIRE;
            }
        }
        let cost = |token| zigzag(word.wrapping_sub(self.reference((token, slot), state)) as i64);
        let (last, before, anchor) = (cost(FROM_LAST), cost(FROM_BEFORE), cost(FROM_ANCHOR));
        if state.misses >= PATIENCE && cost(state.reference) / 16 <= last.min(before) {
            return state.reference;
        }
        if state.seen && anchor / 4 <= last.min(before) {
            FROM_ANCHOR
        } else if last <= before {
            FROM_LAST
        } else {
            FROM_BEFORE
        }
    }

    /// The word of a slot was this one. By how much it moved, if that is for the tables to learn.
    #[inline]
    fn update(&mut self, slot: u32, word: u64, means: u8) -> Option<u64> {
        let state = &mut self.slots[slot as usize];
        if means == state.favourite + 1 && state.misses < PATIENCE && is_calm(means) {
            self.update_calm(slot, word);
            return None;
        }
        let delta = state.went(word, (self.recent[0], self.recent[2]));
        if means <= PREDICTORS {
            state.favourite = means - 1;
            state.misses = state.misses.min(PATIENCE).saturating_sub(1);
        } else if means != FROM_WIRE {
            state.misses = state.misses.saturating_add(1);
            state.reference = means;
            if !state.seen {
                state.seen = true;
                state.anchor = word;
            }
        }
        state.settle();
        let wired = state.wired;
        pass_by(&mut self.recent, word, delta);
        if wired {
            let drift = match means {
                FROM_WIRE => Drift::Constant,
                _ if means > PREDICTORS => Drift::Content,
                _ => Drift::Unclear,
            };
            self.update_wire(slot, word, drift);
        }
        Some(delta)
    }
}
