//! Prediction of words: each slot remembers its past, two tables remember
//! contexts, and a word that a prediction gets right costs next to nothing.
//!
//! Packer and unpacker run the same code on the same words, so their states are
//! equal at every word; all state is empty at the start of a chunk.
//!
//! Four predictors, in the order in which tokens name them: the last word plus the last
//! difference; the last word plus the difference that followed the last
//! two differences (finite context); the word before in the stream, whatever
//! its slot, plus the distance last seen there; the word that followed
//! the word before, the last time that was seen.
//! Each slot keeps the predictor that was right last as its favourite, and token 0 means
//! that the favourite is right.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bytes::{Cursor, Parse, put_signed};
use crate::error::Flaw;

/// Tokens 1 to 4 name a predictor; this one says that the word differs from the
/// slot's last by a given number.
const FROM_LAST: u8 = 5;
/// The word differs from the word before by a given number.
const FROM_BEFORE: u8 = 6;

const TABLE_BITS: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct State {
    last: u64,
    delta: u64,
    older: u64,
    offset: u64,
    favourite: u8,
}

/// The predictors of one stream.
#[derive(Debug)]
pub(crate) struct Predictors {
    slots: Vec<State>,
    context: Vec<u64>,
    follower: Vec<u64>,
    before: u64,
}

struct Place {
    context: usize,
    follower: usize,
}

impl Predictors {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            context: vec![0; 1 << TABLE_BITS],
            follower: vec![0; 1 << TABLE_BITS],
            before: 0,
        }
    }

    /// Forgets everything: a chunk begins.
    pub(crate) fn reset(&mut self, slots: u32) {
        self.slots.clear();
        self.slots.resize(slots as usize, State::default());
        self.context.fill(0);
        self.follower.fill(0);
        self.before = 0;
    }

    /// Makes room for slots that appeared since.
    pub(crate) fn grow(&mut self, slots: u32) {
        if self.slots.len() < slots as usize {
            self.slots.resize(slots as usize, State::default());
        }
    }

    /// The token of a word; what the token does not tell goes to `misses`.
    #[inline]
    pub(crate) fn encode(&mut self, slot: u32, word: u64, misses: &mut Vec<u8>) -> u8 {
        let state = self.slots[slot as usize];
        let place = self.place(slot, &state);
        let token = if self.predict(state.favourite, &state, &place) == word {
            0
        } else if let Some(p) = (0..4).find(|p| self.predict(*p, &state, &place) == word) {
            p + 1
        } else {
            let from_last = word.wrapping_sub(state.last) as i64;
            let from_before = word.wrapping_sub(self.before) as i64;
            if from_last.unsigned_abs() <= from_before.unsigned_abs() {
                put_signed(misses, from_last);
                FROM_LAST
            } else {
                put_signed(misses, from_before);
                FROM_BEFORE
            }
        };
        self.update(slot, word, token, &place);
        token
    }

    /// The word of a token.
    #[inline]
    pub(crate) fn decode(&mut self, slot: u32, token: u8, misses: &mut Cursor<'_>) -> Parse<u64> {
        let state = *self.slots.get(slot as usize).ok_or(Flaw("a slot is out of range"))?;
        let place = self.place(slot, &state);
        let word = match token {
            0 => self.predict(state.favourite, &state, &place),
            1..=4 => self.predict(token - 1, &state, &place),
            FROM_LAST => state.last.wrapping_add(misses.signed()? as u64),
            FROM_BEFORE => self.before.wrapping_add(misses.signed()? as u64),
            _ => return Err(Flaw("a word's token is unknown")),
        };
        self.update(slot, word, token, &place);
        Ok(word)
    }

    /// The last word of a slot, for those who code words by other means.
    pub(crate) fn last_mut(&mut self, slot: u32) -> &mut u64 {
        &mut self.slots[slot as usize].last
    }

    #[inline]
    fn place(&self, slot: u32, state: &State) -> Place {
        let salt = u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Place {
            context: index(state.delta.wrapping_mul(31).wrapping_add(state.older) ^ salt),
            follower: index(self.before ^ salt),
        }
    }

    #[inline]
    fn predict(&self, which: u8, state: &State, place: &Place) -> u64 {
        match which {
            0 => state.last.wrapping_add(state.delta),
            1 => state.last.wrapping_add(self.context[place.context]),
            2 => self.before.wrapping_add(state.offset),
            _ => self.follower[place.follower],
        }
    }

    #[inline]
    fn update(&mut self, slot: u32, word: u64, token: u8, place: &Place) {
        let state = &mut self.slots[slot as usize];
        let delta = word.wrapping_sub(state.last);
        self.context[place.context] = delta;
        self.follower[place.follower] = word;
        state.older = state.delta;
        state.delta = delta;
        state.offset = word.wrapping_sub(self.before);
        state.last = word;
        if (1..=4).contains(&token) {
            state.favourite = token - 1;
        }
        self.before = word;
    }
}

#[inline]
fn index(key: u64) -> usize {
    (key.wrapping_mul(0xd6e8_feb8_6659_fd93) >> (64 - TABLE_BITS)) as usize
}
