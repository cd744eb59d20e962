//! The roadmap: all blocks of a trace by number, with their shapes. Numbers are
//! dense; a number whose roadmap chunk was lost stays empty, and whatever needs
//! it is refused.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Address, BlockId, GuestVa, Leave, Step};

use crate::block::{Block, LeftAt, Shape};
use crate::error::Flaw;

/// The most blocks a trace may have. At some 350 bytes a block this bounds what
/// a reader holds; real programs stay far below a million.
pub const MAX_BLOCKS: u32 = 1 << 24;

/// The most slots a trace may have. A decoder keeps less than 200 bytes for each.
pub const MAX_SLOTS: u32 = 1 << 22;

/// The most bytes that all blocks of a trace may take in memory, lost numbers included. Real
/// programs need some hundred megabytes at most; a small hostile file could ask for far more.
pub const MAX_ROADMAP: u64 = 2 << 30;

/// What a number takes in the list, its block there or lost.
const PLACE: u64 = size_of::<Option<Entry>>() as u64;

/// All blocks of a trace.
#[derive(Debug, Default)]
pub struct Roadmap {
    entries: Vec<Option<Entry>>,
    slots: u32,
    /// Bytes taken, by account.
    taken: u64,
}

/// A block with what it comes to.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The block.
    pub block: Block,
    /// What it comes to.
    pub shape: Shape,
}

impl Entry {
    /// What the entry takes beside its place in the list.
    fn bytes(&self) -> u64 {
        let Self { block, shape } = self;
        let lists = size_of_val(&*block.steps) + size_of_val(&*block.code);
        (lists + size_of_val(&*shape.template) + size_of_val(&*shape.words)) as u64
    }

    /// Where an execution ended, given how it was left. Flexible accesses are not
    /// counted.
    #[must_use]
    pub fn left_at(&self, leave: Leave) -> LeftAt {
        self.block.left_at(leave)
    }
}

impl Roadmap {
    /// How many block numbers are given out, lost ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many slots the blocks use.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// A block with its shape, unless it does not exist or was lost.
    #[inline]
    #[must_use]
    pub fn get(&self, id: BlockId) -> Option<&Entry> {
        self.entries.get(id.index())?.as_ref()
    }

    /// All blocks that are there.
    pub fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        (0..).zip(&self.entries).filter_map(|(i, e)| Some((BlockId(i), &e.as_ref()?.block)))
    }

    /// Adds a valid block.
    pub(crate) fn push(&mut self, block: Block) -> Result<BlockId, Flaw> {
        block.check()?;
        let id = self.entries.len() as u32;
        if id >= MAX_BLOCKS {
            return Err(Flaw("there are too many blocks"));
        }
        for step in &block.steps {
            if let Step::Take { slot, .. }
            | Step::Flex { slot }
            | Step::Ref(crate::Ref { address: Address::Word(slot), .. }) = step
            {
                if slot.0 >= MAX_SLOTS {
                    return Err(Flaw("a slot's number is too large"));
                }
                self.slots = self.slots.max(slot.0 + 1);
            }
        }
        let shape = block.shape();
        let entry = Entry { block, shape };
        self.take(entry.bytes() + PLACE)?;
        self.entries.push(Some(entry));
        Ok(BlockId(id))
    }

    fn take(&mut self, bytes: u64) -> Result<(), Flaw> {
        let taken = self.taken.saturating_add(bytes);
        if taken > MAX_ROADMAP {
            return Err(Flaw("the blocks take more than 2 GiB"));
        }
        self.taken = taken;
        Ok(())
    }

    /// Leaves numbers up to `first` empty: their chunk was lost.
    pub(crate) fn skip_to(&mut self, first: u32) -> Result<(), Flaw> {
        if first < self.entries.len() as u32 || first > MAX_BLOCKS {
            return Err(Flaw("its blocks are numbered out of order"));
        }
        let lost = u64::from(first) - self.entries.len() as u64;
        self.take(lost * PLACE)?;
        self.entries.resize_with(first as usize, || None);
        Ok(())
    }

    /// Forgets the numbers from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        let gone = self.entries.get(len..).unwrap_or_default();
        let bytes = |entry: &Option<Entry>| PLACE + entry.as_ref().map_or(0, Entry::bytes);
        self.taken = self.taken.saturating_sub(gone.iter().map(bytes).sum());
        self.entries.truncate(len);
    }

    /// Where a block begins; 0 for a lost one.
    pub(crate) fn entry_pc(&self, id: BlockId) -> Option<GuestVa> {
        Some(self.get(id)?.shape.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_numbers_take_room_and_give_it_back() {
        let mut roadmap = Roadmap::default();
        roadmap.skip_to(1000).unwrap();
        assert_eq!(roadmap.taken, 1000 * PLACE);
        // A chunk that claims so many lost blocks is refused before any is allocated.
        let most = (MAX_ROADMAP / PLACE) as u32;
        assert!(most < MAX_BLOCKS);
        assert!(roadmap.skip_to(most + 1).is_err());
        assert_eq!((roadmap.len(), roadmap.taken), (1000, 1000 * PLACE));
        roadmap.truncate(10);
        assert_eq!((roadmap.len(), roadmap.taken), (10, 10 * PLACE));
    }
}
