//! Consecutive executions of a burst that wait to be told as blocks.
//!
//! As long as all of them are plain blocks, they are told as they lie in the burst, and only counted here. Executions of planned
//! blocks have other numbers and addresses than the burst says, so from the first of them on both are written out.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::BlockId;
use ichnos_trace::Burst;

/// Executions that were written out; kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Written {
    blocks: Vec<BlockId>,
    /// The addresses of their accesses.
    pub(crate) words: Vec<u64>,
}

/// Executions that wait. Its ends stand between two executions of the burst.
#[derive(Debug)]
pub(crate) struct Stretch<'a> {
    burst: &'a Burst,
    /// What waits in the burst, unless something is written out.
    blocks: Range<usize>,
    words: Range<usize>,
    written: &'a mut Written,
}

impl<'a> Stretch<'a> {
    pub(crate) fn new(burst: &'a Burst, written: &'a mut Written) -> Self {
        written.blocks.clear();
        written.words.clear();
        Self { burst, blocks: 0..0, words: 0..0, written }
    }

    /// The burst's next execution is of a plain block, and waits.
    #[inline]
    pub(crate) fn plain(&mut self, words: usize) {
        self.blocks.end += 1;
        self.words.end += words;
        if !self.written.blocks.is_empty() {
            self.write();
        }
    }

    /// The burst's next execution is of a planned block and took so many words; it waits as this way, whose
    /// addresses were added to [`Stretch::addresses`].
    #[inline]
    pub(crate) fn planned(&mut self, way: BlockId, words: usize) {
        self.written.blocks.push(way);
        self.skip(words);
    }

    /// Where a planned block's addresses go.
    #[inline]
    pub(crate) fn addresses(&mut self) -> &mut Vec<u64> {
        if !self.blocks.is_empty() {
            self.write();
        }
        &mut self.written.words
    }

    /// The burst's next execution is not told as a block.
    #[inline]
    pub(crate) fn skip(&mut self, words: usize) {
        self.blocks.end += 1;
        self.words.end += words;
        self.blocks.start = self.blocks.end;
        self.words.start = self.words.end;
    }

    /// What waits.
    pub(crate) fn waiting(&self) -> (&[BlockId], &[u64]) {
        if !self.written.blocks.is_empty() {
            return (&self.written.blocks, &self.written.words);
        }
        let blocks = self.burst.blocks.get(self.blocks.clone());
        let words = self.burst.words.get(self.words.clone());
        (blocks.unwrap_or_default(), words.unwrap_or_default())
    }

    /// It was told.
    pub(crate) fn told(&mut self) {
        self.written.blocks.clear();
        self.written.words.clear();
        self.blocks.start = self.blocks.end;
        self.words.start = self.words.end;
    }

    /// Writes out what waits in the burst.
    fn write(&mut self) {
        let blocks = self.burst.blocks.get(self.blocks.clone()).unwrap_or_default();
        let words = self.burst.words.get(self.words.clone()).unwrap_or_default();
        self.written.blocks.extend_from_slice(blocks);
        self.written.words.extend_from_slice(words);
        self.blocks.start = self.blocks.end;
        self.words.start = self.words.end;
    }
}
