//! Prediction of the block sequence: the block that followed the last three
//! blocks the last time, or else one of those that followed the last one. How the guesses
//! fared is coded by chances of the blocks concerned.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::BlockId;

use crate::coder::{Chance, Decoding, Encoder};

/// How many successors of a block are remembered.
const SUCCESSORS: usize = 4;

/// Which guess told the next block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guess {
    /// The table of contexts.
    History,
    /// The successor of this rank, the latest first.
    Successor(u8),
    /// None: the number is written out.
    None,
}

/// What is known of a block, in one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct After {
    /// The blocks that followed it, the latest first.
    successors: [u32; SUCCESSORS],
    /// Whether what follows it is not all as expected: block and words.
    uneasy: Chance,
    /// Whether a guess is wrong: the table, then each successor.
    wrong: [Chance; SUCCESSORS + 1],
    /// Whether its own words are not all as expected.
    missed: Chance,
}

/// Guesses the next block of one stream. Empty at the start of a chunk.
#[derive(Debug)]
pub(crate) struct Sequence {
    history: u64,
    previous: u32,
    /// The table has two to this many places.
    bits: u32,
    table: Vec<u32>,
    after: Vec<After>,
}

impl Sequence {
    pub(crate) const fn new() -> Self {
        Self { history: 0, previous: 0, bits: 0, table: Vec::new(), after: Vec::new() }
    }

    /// Forgets everything: a chunk begins.
    pub(crate) fn reset(&mut self, blocks: usize, bits: u32) {
        self.bits = bits;
        self.history = 0;
        self.previous = 0;
        self.table.clear();
        self.table.resize(1 << bits, 0);
        self.after.clear();
        self.after.resize(blocks.max(1), After::default());
    }

    /// Makes room for blocks that appeared since.
    pub(crate) fn grow(&mut self, blocks: usize) {
        if self.after.len() < blocks {
            self.after.resize(blocks, After::default());
        }
    }

    /// Codes the next block, and whether not all its words are as expected; then this block it was. Answers which
    /// guess told it.
    #[inline]
    pub(crate) fn encode(
        &mut self,
        to: (&mut Encoder, &mut Vec<u8>),
        block: BlockId,
        missed: bool,
    ) -> Guess {
        let (encoder, out) = to;
        let index = self.index();
        let mut guess = Guess::History;
        if self.table[index] == block.0 && !missed {
            encoder.put(out, &mut self.after[self.previous as usize].uneasy, false);
        } else {
            guess = self.encode_uneasy((encoder, out), (index, block), missed);
        }
        self.update_at(index, block);
        guess
    }

    /// The same where something is not as expected.
    #[inline(never)]
    fn encode_uneasy(
        &mut self,
        (encoder, out): (&mut Encoder, &mut Vec<u8>),
        (index, block): (usize, BlockId),
        missed: bool,
    ) -> Guess {
        let after = &mut self.after[self.previous as usize];
        let rank = after.successors.iter().position(|s| *s == block.0);
        let guess = match rank {
            _ if self.table[index] == block.0 => Guess::History,
            Some(rank) => Guess::Successor(rank as u8),
            None => Guess::None,
        };
        encoder.put(out, &mut after.uneasy, true);
        let wrong = match guess {
            Guess::History => 0,
            Guess::Successor(rank) => usize::from(rank) + 1,
            Guess::None => after.wrong.len(),
        };
        for (i, chance) in after.wrong.iter_mut().enumerate().take(wrong + 1) {
            encoder.put(out, chance, i < wrong);
        }
        if guess != Guess::History {
            encoder.put(out, &mut self.after[block.0 as usize].missed, missed);
        }
        guess
    }

    /// Whether something of what follows is not as expected; [`Sequence::decode`] comes next if so.
    #[inline(always)]
    pub(crate) fn is_uneasy(&mut self, from: &mut Decoding, bytes: &[u8]) -> bool {
        from.get(bytes, &mut self.after[self.previous as usize].uneasy)
    }

    /// Which guess tells the next block; [`Sequence::decode_missed`] comes next.
    #[inline(always)]
    pub(crate) fn decode(&mut self, from: &mut Decoding, bytes: &[u8]) -> Guess {
        let after = &mut self.after[self.previous as usize];
        let right = after.wrong.iter_mut().position(|chance| !from.get(bytes, chance));
        match right {
            Some(0) => Guess::History,
            Some(rank) => Guess::Successor(rank as u8 - 1),
            None => Guess::None,
        }
    }

    /// Whether not all words of a block are as expected, if its guess was not the table's.
    pub(crate) fn decode_missed(
        &mut self,
        from: &mut Decoding,
        bytes: &[u8],
        block: BlockId,
    ) -> bool {
        self.after.get_mut(block.0 as usize).is_some_and(|b| from.get(bytes, &mut b.missed))
    }

    /// What the table says.
    #[inline]
    pub(crate) fn by_history(&self) -> BlockId {
        BlockId(self.table[self.index()])
    }

    /// One of the blocks that followed the last block, the latest first.
    #[inline]
    pub(crate) fn successor(&self, rank: u8) -> BlockId {
        let after = &self.after[self.previous as usize];
        BlockId(after.successors.get(usize::from(rank)).copied().unwrap_or(0))
    }

    /// This block it was. The caller made sure that the block exists.
    #[inline]
    pub(crate) fn update(&mut self, block: BlockId) {
        self.update_at(self.index(), block);
    }

    #[inline]
    fn update_at(&mut self, index: usize, block: BlockId) {
        self.table[index] = block.0;
        let successors = &mut self.after[self.previous as usize].successors;
        if successors[0] != block.0 {
            let mut next = block.0;
            for successor in successors {
                std::mem::swap(successor, &mut next);
                if next == block.0 {
                    break;
                }
            }
        }
        self.previous = block.0;
        self.history = self.history << 21 | u64::from(block.0 & 0x1f_ffff);
    }

    #[inline]
    fn index(&self) -> usize {
        (self.history.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.bits)) as usize
    }
}
