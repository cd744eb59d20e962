//! The roadmap: all blocks of a trace by number, with their shapes, and all chains of them. Numbers are
//! dense; a number whose roadmap chunk was lost stays empty, and whatever needs
//! it is refused.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;

use ichnos_base::{BlockId, Chain, GuestVa, Leave, Step};

use crate::block::{Block, LeftAt, Shape, Word};
use crate::chain::{Chains, MAX_CHAINS, Size};
use crate::error::Flaw;
use crate::twins::{Parts, Twins};

/// The most blocks a trace may have. At some 350 bytes a block this bounds what
/// a reader holds; real programs stay far below a million.
pub const MAX_BLOCKS: u32 = 1 << 24;

/// The most slots a trace may have. A decoder keeps less than 200 bytes for each.
pub const MAX_SLOTS: u32 = 1 << 22;

/// The most bytes that all blocks and chains of a trace may take in memory, lost numbers included. Real
/// programs need some hundred megabytes at most; a small hostile file could ask for far more.
pub const MAX_ROADMAP: u64 = 2 << 30;

/// What a number takes in the list, its block there or lost.
const PLACE: u64 = size_of::<Option<Entry>>() as u64;

/// All blocks of a trace.
#[derive(Debug, Default)]
pub struct Roadmap {
    entries: Vec<Option<Entry>>,
    chains: Chains,
    slots: u32,
    /// Blocks by what they are, so that others that are the same share it.
    twins: Twins,
    /// Bytes taken, by account.
    taken: u64,
}

/// A block with what it comes to.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The block.
    pub block: Arc<Block>,
    /// What it comes to.
    pub shape: Shape,
    /// Whether its lists are those of a block before it.
    is_twin: bool,
}

impl Entry {
    /// What the entry takes beside its place in the list.
    fn bytes(&self) -> u64 {
        let Self { block, shape, is_twin } = self;
        // The block is apart from its place, with two counts, and so are its lists.
        let counts = 2 * size_of::<usize>();
        let apart = size_of::<Block>() + counts;
        if *is_twin {
            return apart as u64;
        }
        let steps = size_of_val(&*block.steps) + size_of_val(&*block.code);
        let lists = steps + size_of_val(&*shape.template) + size_of_val(&*shape.words);
        (apart + lists + 4 * counts) as u64
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
        (0..).zip(&self.entries).filter_map(|(i, e)| Some((BlockId(i), &*e.as_ref()?.block)))
    }

    /// A block that is the same as this one, but perhaps of another process and with other slots.
    pub(crate) fn twin(&self, of: &Parts<'_>) -> Option<BlockId> {
        let id = self.twins.find(of)?;
        let block = &self.get(id)?.block;
        of.is_like(&block.parts()).then_some(id)
    }

    /// Adds a valid block.
    pub(crate) fn push(&mut self, mut block: Block) -> Result<BlockId, Flaw> {
        let twin = self.twin(&block.parts()).and_then(|id| self.get(id));
        if let Some(Entry { block: twin, shape, .. }) =
            twin.filter(|t| t.block.steps == block.steps)
        {
            (block.steps, block.code) = (Arc::clone(&twin.steps), Arc::clone(&twin.code));
            return self.push_shaped(Arc::new(block), shape.clone(), true);
        }
        block.check()?;
        let shape = block.shape();
        self.push_shaped(Arc::new(block), shape, false)
    }

    /// Adds a valid block that somebody planned, who never asks for its records. If it has a twin, its lists are that one's.
    pub(crate) fn push_planned(
        &mut self,
        block: Arc<Block>,
        twin: Option<BlockId>,
    ) -> Result<BlockId, Flaw> {
        if let Some(twin) = twin.and_then(|id| self.get(id)) {
            let shape = twin.shape.clone();
            return self.push_shaped(block, shape, true);
        }
        block.check()?;
        let shape = Shape { template: Arc::default(), ..block.shape() };
        self.push_shaped(block, shape, false)
    }

    fn push_shaped(
        &mut self,
        block: Arc<Block>,
        shape: Shape,
        is_twin: bool,
    ) -> Result<BlockId, Flaw> {
        let id = self.entries.len() as u32;
        if id >= MAX_BLOCKS {
            return Err(Flaw("there are too many blocks"));
        }
        for slot in block.steps.iter().filter_map(Step::slot) {
            if slot.0 >= MAX_SLOTS {
                return Err(Flaw("a slot's number is too large"));
            }
            self.slots = self.slots.max(slot.0 + 1);
        }
        let entry = Entry { block, shape, is_twin };
        self.take(entry.bytes() + PLACE)?;
        if !is_twin {
            self.twins.add(&entry.block.parts(), BlockId(id));
        }
        self.entries.push(Some(entry));
        Ok(BlockId(id))
    }

    /// How many chain numbers are given out, lost ones included.
    #[must_use]
    pub fn chains(&self) -> usize {
        self.chains.len()
    }

    /// The blocks of a chain and their words one behind the other, unless it does not exist or was lost.
    #[inline]
    pub(crate) fn chain(&self, number: u32) -> Option<(&[BlockId], &[Word])> {
        self.chains.get(number)
    }

    /// Adds a valid chain. One whose blocks are lost is lost, too.
    pub(crate) fn push_chain(&mut self, blocks: &[BlockId]) -> Result<u32, Flaw> {
        let number = self.chains.len() as u32;
        if number >= MAX_CHAINS {
            return Err(Flaw("there are too many chains"));
        }
        if !(2..=Chain::MOST_BLOCKS).contains(&blocks.len()) {
            return Err(Flaw("a chain has too few blocks, or too many"));
        }
        let (mut words, mut process, mut is_lost) = (0, None, false);
        for id in blocks {
            let none = Flaw("a chain has a block that does not exist");
            let Some(entry) = self.entries.get(id.index()).ok_or(none)? else {
                is_lost = true;
                continue;
            };
            if entry.shape.is_silent() || entry.shape.flexes > 0 {
                return Err(Flaw("a chain has a block without instructions, or one that varies"));
            }
            if *process.get_or_insert(entry.block.process) != entry.block.process {
                return Err(Flaw("a chain has blocks of several processes"));
            }
            words += entry.shape.words.len();
        }
        if words > Chain::MOST_WORDS {
            return Err(Flaw("a chain takes too many words"));
        }
        let before = self.chains.size();
        if is_lost {
            self.take(before.and(1, 0, 0).bytes() - before.bytes())?;
            self.chains.push_lost();
            return Ok(number);
        }
        let most = before.and(1, blocks.len(), words).bytes() - before.bytes();
        self.take(most)?;
        let entries = &self.entries;
        let words = |id: BlockId| -> &[Word] {
            entries.get(id.index()).and_then(Option::as_ref).map_or(&[], |e| &e.shape.words)
        };
        self.chains.push(blocks, words);
        self.taken -= most - (self.chains.size().bytes() - before.bytes());
        Ok(number)
    }

    /// Leaves numbers of chains up to `first` empty: their chunk was lost.
    pub(crate) fn skip_chains_to(&mut self, first: u32) -> Result<(), Flaw> {
        if first < self.chains.len() as u32 || first > MAX_CHAINS {
            return Err(Flaw("its chains are numbered out of order"));
        }
        let before = self.chains.size();
        let lost = first as usize - self.chains.len();
        self.take(before.and(lost, 0, 0).bytes() - before.bytes())?;
        self.chains.skip_to(first);
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<(), Flaw> {
        let taken = self.taken.saturating_add(bytes);
        if taken > MAX_ROADMAP {
            return Err(Flaw("its blocks and chains take more than 2 GiB"));
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

    /// How much there is.
    pub(crate) fn extent(&self) -> (usize, Size) {
        (self.entries.len(), self.chains.size())
    }

    /// Forgets what came after there was so much.
    pub(crate) fn truncate(&mut self, (len, chains): (usize, Size)) {
        self.taken = self.taken.saturating_sub(self.chains.size().bytes() - chains.bytes());
        self.chains.truncate(chains);
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
    use ichnos_base::{InsnKind, ProcessId, Register, Slot, Width};

    use super::*;
    use crate::block::Exits;

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
        roadmap.truncate((10, roadmap.chains.size()));
        assert_eq!((roadmap.len(), roadmap.taken), (10, 10 * PLACE));
    }

    fn block(process: u32, steps: Vec<Step>) -> Block {
        let (process, entry, exits) = (ProcessId(process), GuestVa(0x1000), Exits::Side);
        Block { process, entry, exits, steps: steps.into(), code: Arc::default() }
    }

    /// Blocks 0 and 1 are fit for chains; then one of another process, a silent one, one that varies, one that takes a
    /// thousand words, and a lost one.
    fn blocks() -> Roadmap {
        let insn = Step::Insn { len: 1, kind: InsnKind::OTHER };
        let take = |slot| Step::Take { register: Register(0), width: Width::Eight, slot };
        let many = (0..1000).map(|slot| take(Slot(slot))).chain([insn]);
        let mut roadmap = Roadmap::default();
        for block in [
            block(1, vec![take(Slot(0)), insn]),
            block(1, vec![take(Slot(1)), take(Slot(2)), insn]),
            block(2, vec![insn]),
            block(1, vec![take(Slot(3))]),
            block(1, vec![insn, Step::Flex { slot: Slot(4) }]),
            block(1, many.collect()),
        ] {
            roadmap.push(block).unwrap();
        }
        roadmap.skip_to(7).unwrap();
        roadmap
    }

    #[test]
    fn chains_of_what_cannot_be_chained_are_refused() {
        let mut roadmap = blocks();
        let mut push =
            |ids: &[u32]| roadmap.push_chain(&ids.iter().copied().map(BlockId).collect::<Vec<_>>());
        for bad in [&[][..], &[0], &[0, 2], &[0, 3], &[4, 0], &[0, 7], &[0, u32::MAX]] {
            assert!(push(bad).is_err(), "{bad:?}");
        }
        assert!(push(&[0; 64]).is_err() && push(&[5; 5]).is_err());
        assert_eq!(push(&[0; 63]), Ok(0));
        assert_eq!(push(&[5; 4]), Ok(1));
        assert_eq!(push(&[0, 1]), Ok(2));
        // Its second block was lost, and so is the chain.
        assert_eq!(push(&[0, 6]), Ok(3));
        assert_eq!(roadmap.chain(2).map(|c| (c.0.len(), c.1.len())), Some((2, 3)));
        assert!(roadmap.chain(3).is_none() && roadmap.chain(4).is_none());
    }

    #[test]
    fn blocks_of_several_processes_that_are_the_same_share_their_lists() {
        let insn = Step::Insn { len: 1, kind: InsnKind::OTHER };
        let take = |slot| Step::Take { register: Register(0), width: Width::Eight, slot };
        let mut roadmap = Roadmap::default();
        let first = roadmap.push(block(1, vec![take(Slot(7)), insn])).unwrap();
        let (taken, extent) = (roadmap.taken, roadmap.extent());
        let second = roadmap.push(block(2, vec![take(Slot(7)), insn])).unwrap();
        let [a, b] = [first, second].map(|id| roadmap.get(id).unwrap());
        assert!(Arc::ptr_eq(&a.block.steps, &b.block.steps));
        assert!(Arc::ptr_eq(&a.shape.words, &b.shape.words));
        assert_eq!((a.block.process.0, b.block.process.0), (1, 2));
        assert!(roadmap.taken - taken < taken);
        // A file may give the same block other slots, and another block may be at the same place.
        let other = roadmap.push(block(3, vec![take(Slot(8)), insn])).unwrap();
        let longer = roadmap.push(block(3, vec![take(Slot(7)), insn, insn])).unwrap();
        for id in [other, longer] {
            let entry = roadmap.get(id).unwrap();
            assert!(!Arc::ptr_eq(&entry.block.steps, &roadmap.get(first).unwrap().block.steps));
        }
        let parts = block(4, vec![take(Slot(0)), insn]);
        assert_eq!(roadmap.twin(&parts.parts()), Some(other));
        let code = Block { code: [1].into(), ..parts.clone() };
        let elsewhere = Block { entry: GuestVa(0x1001), ..parts };
        assert!([code, elsewhere].iter().all(|block| roadmap.twin(&block.parts()).is_none()));
        roadmap.truncate(extent);
        assert_eq!(roadmap.taken, taken);
        // What the list of twins still says of them is no more.
        assert_eq!(roadmap.twin(&block(4, vec![take(Slot(0)), insn]).parts()), None);
    }

    #[test]
    fn chains_take_room_and_give_it_back() {
        let mut roadmap = blocks();
        let (taken, extent) = (roadmap.taken, roadmap.extent());
        let path: Vec<_> = (0..63).map(|i| BlockId(i % 2)).collect();
        for len in 2..=63 {
            roadmap.push_chain(&path[..len]).unwrap();
        }
        let once = roadmap.taken - taken;
        // All 62 together take no more than the longest of them and a little for each.
        assert!(once < 63 * 4 + 95 * 8 + 62 * 20, "{once}");
        roadmap.push_chain(&[BlockId(0), BlockId(6)]).unwrap();
        roadmap.skip_chains_to(1000).unwrap();
        assert!(roadmap.taken > taken + once);
        assert!(roadmap.skip_chains_to(10).is_err());
        assert!(roadmap.skip_chains_to(MAX_CHAINS + 1).is_err());
        roadmap.truncate(extent);
        assert_eq!((roadmap.taken, roadmap.chains()), (taken, 0));
    }
}
