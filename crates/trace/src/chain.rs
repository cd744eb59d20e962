//! Chains: planned blocks that mostly follow each other, whose executions are stored together. A collector tells many that
//! begin alike, the first two blocks of a path, its first three, and so on; what such chains have in common lies in memory once.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BlockId, Chain};

use crate::block::{MAX_STEPS, Word};

/// The most chains a trace may have.
pub const MAX_CHAINS: u32 = 1 << 24;

// What a chain counts fits 16 bits, and so does how many bytes its words have.
const _: () = assert!(Chain::MOST_BLOCKS * MAX_STEPS <= u16::MAX as usize);
const _: () = assert!(Chain::MOST_WORDS * 8 <= u16::MAX as usize);

/// What raw executions are executions of, as one number: a block or a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit(pub(crate) u32);

/// The same taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Block(BlockId),
    /// A chain, by its number.
    Chain(u32),
}

impl Unit {
    pub(crate) const fn block(id: BlockId) -> Self {
        Self(id.0 << 1)
    }

    pub(crate) const fn chain(number: u32) -> Self {
        Self(number << 1 | 1)
    }

    #[inline]
    pub(crate) const fn which(self) -> Which {
        if self.0 & 1 == 0 { Which::Block(BlockId(self.0 >> 1)) } else { Which::Chain(self.0 >> 1) }
    }
}

/// All chains of a roadmap.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    list: Vec<Option<Place>>,
    /// The blocks and words of all of them.
    blocks: Vec<BlockId>,
    words: Vec<Word>,
}

/// Where a chain's blocks and words lie.
#[derive(Clone, Copy, Debug)]
struct Place {
    first_block: u32,
    first_word: u32,
    words: u16,
    blocks: u8,
}

/// What a number takes in the list.
const PLACE: usize = size_of::<Option<Place>>();

/// How much chains take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    list: usize,
    blocks: usize,
    words: usize,
}

impl Chains {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The blocks and the words of a chain, unless it does not exist or was lost.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<(&[BlockId], &[Word])> {
        let place = self.list.get(number as usize)?.as_ref()?;
        let blocks = self.blocks.get(place.first_block as usize..)?.get(..place.blocks.into())?;
        let words = self.words.get(place.first_word as usize..)?.get(..place.words.into())?;
        Some((blocks, words))
    }

    /// Adds a chain that is lost.
    pub(crate) fn push_lost(&mut self) {
        self.list.push(None);
    }

    /// Leaves numbers up to `first` empty.
    pub(crate) fn skip_to(&mut self, first: u32) {
        self.list.resize(first as usize, None);
    }

    /// Adds a chain of so many blocks and words as there may be, given a block's words.
    pub(crate) fn push<'w>(&mut self, blocks: &[BlockId], words: impl Fn(BlockId) -> &'w [Word]) {
        let last = self.list.last().copied().flatten();
        let last = last.unwrap_or(Place { first_block: 0, first_word: 0, words: 0, blocks: 0 });
        let before = self.blocks.get(last.first_block as usize..).unwrap_or_default();
        let before = before.iter().take(last.blocks.into());
        let shared = before.zip(blocks).take_while(|(a, b)| a == b).count();
        let shared_words = blocks[..shared].iter().map(|id| words(*id).len()).sum();
        let more = blocks[shared..].iter().flat_map(|id| words(*id)).copied();
        let all = shared_words + more.clone().count();
        let from = (last.first_word as usize, shared_words);
        let first_word = append(&mut self.words, from, more) as u32;
        let from = (last.first_block as usize, shared);
        let first_block = append(&mut self.blocks, from, blocks[shared..].iter().copied()) as u32;
        let (words, blocks) = (all as u16, blocks.len() as u8);
        self.list.push(Some(Place { first_block, first_word, words, blocks }));
    }

    /// How much they take.
    pub(crate) fn size(&self) -> Size {
        Size { list: self.list.len(), blocks: self.blocks.len(), words: self.words.len() }
    }

    /// Forgets all that came after they took so much.
    pub(crate) fn truncate(&mut self, size: Size) {
        self.list.truncate(size.list);
        self.blocks.truncate(size.blocks);
        self.words.truncate(size.words);
    }
}

impl Size {
    /// With so many more chains, and at most so many more blocks and words.
    pub(crate) const fn and(self, list: usize, blocks: usize, words: usize) -> Self {
        Self { list: self.list + list, blocks: self.blocks + blocks, words: self.words + words }
    }

    pub(crate) const fn bytes(self) -> u64 {
        let lists = self.blocks * size_of::<BlockId>() + self.words * size_of::<Word>();
        (self.list * PLACE + lists) as u64
    }
}

/// Appends what begins like the stretch at `from`, by so many, and goes on with `more`; where it begins. Whatever is there already is used
/// again: the stretch itself, if it is the last of the list.
pub(crate) fn append<T: Copy>(
    list: &mut Vec<T>,
    (from, shared): (usize, usize),
    more: impl Iterator<Item = T>,
) -> usize {
    let mut more = more.peekable();
    if more.peek().is_none() || from + shared == list.len() {
        list.extend(more);
        return from;
    }
    let first = list.len();
    list.extend_from_within(from..from + shared);
    list.extend(more);
    first
}

#[cfg(test)]
mod tests {
    use ichnos_base::Slot;

    use super::*;
    use crate::places::Taken;

    /// Block n takes n words.
    fn words() -> Vec<Vec<Word>> {
        let word = |slot| Word { slot: Slot(slot), record: 0, taken: Taken::ADDRESS };
        (0..8).map(|n| (0..n).map(|i| word(n * 10 + i)).collect()).collect()
    }

    #[test]
    fn what_chains_share_lies_there_once() {
        let (words, mut chains) = (words(), Chains::default());
        let told: [&[u32]; 7] =
            [&[1, 2], &[1, 2, 3], &[1, 2, 3, 0, 4], &[1, 2], &[1, 2, 5], &[0, 0], &[7, 6]];
        let ids = |blocks: &[u32]| blocks.iter().copied().map(BlockId).collect::<Vec<_>>();
        for blocks in told {
            chains.push(&ids(blocks), |id| &words[id.index()]);
        }
        for (number, blocks) in told.iter().enumerate() {
            let (got, taken) = chains.get(number as u32).expect("a chain");
            assert_eq!(got, ids(blocks));
            let slots: Vec<_> = taken.iter().map(|word| word.slot.0).collect();
            let wanted = blocks.iter().flat_map(|n| (0..*n).map(move |i| n * 10 + i));
            assert!(slots.into_iter().eq(wanted), "{blocks:?}");
        }
        // Five for the first three, none for the fourth, three for the fifth, and two for each of the others.
        assert_eq!((chains.blocks.len(), chains.len()), (12, 7));
        let size = chains.size();
        chains.push_lost();
        chains.skip_to(12);
        chains.push(&ids(&[7, 6, 5]), |id| &words[id.index()]);
        assert!(chains.get(7).is_none() && chains.get(12).is_some());
        chains.truncate(size);
        assert_eq!((chains.len(), chains.size().bytes()), (7, size.bytes()));
        assert!(chains.get(6).is_some() && chains.get(12).is_none());
    }
}
