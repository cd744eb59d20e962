//! A long global history and its foldings.
//!
//! A predictor with long histories indexes small tables by `length` outcomes
//! folded by exclusive-or into a few bits. Folding anew for each branch would
//! cost its length; [`Folded`] keeps the folding up to date in constant time: a
//! rotation, the new bit in, the bit that leaves the window out.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The last outcomes, as many as the longest window needs.
#[derive(Clone, Debug)]
pub(super) struct History {
    bits: Box<[bool]>,
    newest: usize,
}

impl History {
    /// A history of not-taken outcomes for windows up to `longest`.
    pub(super) fn new(longest: usize) -> Self {
        Self { bits: vec![false; (longest + 1).next_power_of_two()].into_boxed_slice(), newest: 0 }
    }

    /// The outcome `age` branches ago; 0 is the latest.
    #[inline]
    fn get(&self, age: usize) -> bool {
        self.bits[(self.newest + age) & (self.bits.len() - 1)]
    }

    #[inline]
    pub(super) fn push(&mut self, taken: bool) {
        self.newest = self.newest.wrapping_sub(1) & (self.bits.len() - 1);
        self.bits[self.newest] = taken;
    }
}

/// A window of the history folded into `width` bits: bit `i` is the exclusive-or
/// of the outcomes whose age is `i` modulo `width`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folded {
    pub(super) value: u32,
    length: usize,
    width: u32,
}

impl Folded {
    /// Of an empty history.
    pub(super) const fn new(length: usize, width: u32) -> Self {
        Self { value: 0, length, width }
    }

    /// Takes in the latest outcome, which is in `history` already.
    #[inline]
    pub(super) fn update(&mut self, history: &History) {
        let top = (self.value >> (self.width - 1)) & 1;
        self.value = ((self.value << 1) | top) & ((1u64 << self.width) - 1) as u32;
        self.value ^= u32::from(history.get(0));
        // The outcome that just left sits one place beyond the window's end.
        let left = u32::from(history.get(self.length));
        self.value ^= left << (self.length as u32 % self.width);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn folding_step_by_step_equals_folding_at_once(
            outcomes in prop::collection::vec(any::<bool>(), 1..200),
            length in 1usize..40,
            width in 1u32..14,
        ) {
            let mut history = History::new(length);
            let mut folded = Folded::new(length, width);
            for at in 0..outcomes.len() {
                history.push(outcomes[at]);
                folded.update(&history);
                let mut want = 0;
                for age in 0..length.min(at + 1) {
                    want ^= u32::from(outcomes[at - age]) << (age as u32 % width);
                }
                prop_assert_eq!(folded.value, want);
            }
        }
    }
}
