//! Prediction of the block sequence: the block that followed the last three
//! blocks the last time, or else the block that followed the last one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::BlockId;

/// The table of contexts guessed right.
pub(crate) const BY_HISTORY: u8 = 0;
/// The last successor guessed right.
pub(crate) const BY_LAST: u8 = 1;
/// Neither: the number is written out.
pub(crate) const WRITTEN: u8 = 2;

const TABLE_BITS: u32 = 16;

/// Guesses the next block of one stream. Empty at the start of a chunk.
#[derive(Debug)]
pub(crate) struct Sequence {
    history: u64,
    previous: u32,
    table: Vec<u32>,
    successor: Vec<u32>,
}

impl Sequence {
    pub(crate) fn new() -> Self {
        Self { history: 0, previous: 0, table: vec![0; 1 << TABLE_BITS], successor: Vec::new() }
    }

    /// Forgets everything: a chunk begins.
    pub(crate) fn reset(&mut self, blocks: usize) {
        self.history = 0;
        self.previous = 0;
        self.table.fill(0);
        self.successor.clear();
        self.successor.resize(blocks, 0);
    }

    /// Makes room for blocks that appeared since.
    pub(crate) fn grow(&mut self, blocks: usize) {
        if self.successor.len() < blocks {
            self.successor.resize(blocks, 0);
        }
    }

    /// What the table says.
    #[inline]
    pub(crate) fn by_history(&self) -> BlockId {
        BlockId(self.table[self.index()])
    }

    /// What followed the last block.
    #[inline]
    pub(crate) fn by_last(&self) -> BlockId {
        BlockId(self.successor.get(self.previous as usize).copied().unwrap_or(0))
    }

    /// This block it was. The caller made sure that the block exists.
    #[inline]
    pub(crate) fn update(&mut self, block: BlockId) {
        let index = self.index();
        self.table[index] = block.0;
        if let Some(successor) = self.successor.get_mut(self.previous as usize) {
            *successor = block.0;
        }
        self.previous = block.0;
        self.history = self.history << 21 | u64::from(block.0 & 0x1f_ffff);
    }

    #[inline]
    fn index(&self) -> usize {
        (self.history.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TABLE_BITS)) as usize
    }
}
