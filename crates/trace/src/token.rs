//! The chances of slots' tokens: whether a word is as its slot expects, which is token 0, and which of the others it has if not.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bytes::Parse;
use crate::coder::{Chance, Decoding, Encoder};
use crate::error::Flaw;

/// The chances of all slots.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// That a token is not 0: asked far more often than the others, and for the slots of a block one after the other.
    unexpected: Vec<Chance>,
    others: Vec<Tree>,
}

/// The chances of a slot's tokens that are not 0, in one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Tree([Chance; 16]);

impl Tokens {
    pub(crate) const fn new() -> Self {
        Self { unexpected: Vec::new(), others: Vec::new() }
    }

    /// Forgets everything: a chunk begins.
    pub(crate) fn reset(&mut self, slots: u32) {
        self.unexpected.clear();
        self.others.clear();
        self.grow(slots);
    }

    /// Makes room for slots that appeared since.
    pub(crate) fn grow(&mut self, slots: u32) {
        if self.others.len() < slots as usize {
            self.unexpected.resize(slots as usize, Chance::default());
            self.others.resize(slots as usize, Tree::default());
        }
    }

    /// Codes a token of a slot.
    #[inline]
    pub(crate) fn put(&mut self, to: (&mut Encoder, &mut Vec<u8>), slot: u32, token: u8) {
        let (encoder, out) = to;
        encoder.put(out, &mut self.unexpected[slot as usize], token != 0);
        if token != 0 {
            let Tree(tree) = &mut self.others[slot as usize];
            encoder.put_small(out, tree, token - 1);
        }
    }

    /// A token of a slot.
    #[inline(always)]
    pub(crate) fn get(&mut self, from: &mut Decoding, bytes: &[u8], slot: u32) -> Parse<u8> {
        let unexpected = self.unexpected.get_mut(slot as usize);
        if !from.get(bytes, unexpected.ok_or(Flaw("a slot is out of range"))?) {
            return Ok(0);
        }
        let Tree(tree) = &mut self.others[slot as usize];
        Ok(from.get_small(bytes, tree) + 1)
    }
}
