//! What is remembered of a slot, and the predictors that need nothing else: see `predict`.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// After so many words written out a slot expects the next to be, too.
pub(crate) const PATIENCE: u8 = 4;

/// In the place of a predictor: look more closely.
pub(crate) const LOOK: u8 = u8::MAX;
/// Beside a predictor: the slot has a wire.
pub(crate) const WIRED: u8 = 8;

/// Just one cache line: most time goes by waiting for these.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct State {
    pub(crate) last: u64,
    pub(crate) delta: u64,
    pub(crate) older: u64,
    pub(crate) offset: u64,
    pub(crate) offset2: u64,
    pub(crate) anchor: u64,
    /// By how much the last word differed from what had followed the same mover before.
    pub(crate) step: u64,
    /// The predictor that was right last, from 0.
    pub(crate) favourite: u8,
    /// The token of the last word written out.
    pub(crate) reference: u8,
    /// Words written out running.
    pub(crate) misses: u8,
    pub(crate) seen: bool,
    /// Whether the slot has a wire.
    pub(crate) wired: bool,
    /// Packer only: the predictor that was right while written words were expected,
    /// and for how many words running.
    pub(crate) rising: u8,
    pub(crate) streak: u8,
    /// The favourite, and [`WIRED`] if there is a wire, if the next word is expected by it; else [`LOOK`].
    pub(crate) quick: u8,
}

impl State {
    /// What else changed may change this.
    #[inline]
    pub(crate) const fn settle(&mut self) {
        let wired = if self.wired { WIRED } else { 0 };
        self.quick = if self.misses < PATIENCE { self.favourite | wired } else { LOOK };
    }

    /// The word that is expected, if that takes neither a table nor a wire.
    #[inline(always)]
    pub(crate) const fn expects(&self, [before, _, before2]: [u64; 3]) -> Option<u64> {
        Some(match self.quick {
            0 => self.last.wrapping_add(self.delta),
            2 => before.wrapping_add(self.offset),
            4 => self.last,
            5 => before2.wrapping_add(self.offset2),
            _ => return None,
        })
    }

    /// The slot's word was the expected one, after those given, which move on.
    #[inline(always)]
    pub(crate) fn was_right(&mut self, word: u64, recent: &mut [u64; 3]) {
        self.misses = self.misses.saturating_sub(1);
        let delta = self.went(word, (recent[0], recent[2]));
        pass_by(recent, word, delta);
    }

    /// The slot's word was this one, after two others in the stream. By how much it moved.
    #[inline]
    pub(crate) fn went(&mut self, word: u64, (before, before2): (u64, u64)) -> u64 {
        let delta = word.wrapping_sub(self.last);
        self.older = self.delta;
        self.delta = delta;
        self.offset = word.wrapping_sub(before);
        self.offset2 = word.wrapping_sub(before2);
        self.last = word;
        delta
    }
}

/// The stream has gone past a word that moved by `delta`.
#[inline(always)]
pub(crate) const fn pass_by(recent: &mut [u64; 3], word: u64, delta: u64) {
    recent[1] = if delta != 0 { word } else { recent[1] };
    recent[2] = recent[0];
    recent[0] = word;
}

const _: () = assert!(size_of::<State>() == 64);
