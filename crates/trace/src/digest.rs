//! What packing needs to know of each block, laid out flat: half a cache line a block, and the slots of all
//! blocks in one list. The roadmap itself is looked at once per block, not once per execution.
//!
//! Executions are counted here, too: what a chunk's records come to is added up when it ends.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{BlockId, ExitKind, GuestVa, Totals};

use crate::block::Tally;
use crate::roadmap::{Entry, Roadmap};

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// Without an exit, or by one that always goes the same way: the block says it all.
    Plain,
    /// By a branch that may be taken.
    Conditional,
    /// By a transfer to wherever the next block is.
    Indirect,
}

/// One block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest {
    pub(crate) entry: GuestVa,
    /// Where its last exit goes.
    pub(crate) target: GuestVa,
    first: u32,
    words: u16,
    pub(crate) insns: u16,
    pub(crate) accesses: u16,
    pub(crate) ending: Ending,
    /// Executions in this chunk.
    runs: u32,
}

/// All blocks.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    blocks: Vec<Digest>,
    slots: Vec<u32>,
    tallies: Vec<Tally>,
}

impl Digests {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Nothing was executed: a chunk begins.
    pub(crate) fn begin(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.runs = 0);
    }

    /// Looks at blocks that appeared since.
    #[cold]
    pub(crate) fn grow(&mut self, roadmap: &Roadmap) {
        for id in self.blocks.len()..roadmap.len() {
            self.push(roadmap.get(BlockId(id as u32)));
        }
    }

    /// Adds a block; a lost one, which nobody executes, is empty. Planned ones are packed elsewhere.
    fn push(&mut self, entry: Option<&Entry>) {
        let mut digest = Digest {
            entry: GuestVa(0),
            target: GuestVa(0),
            first: self.slots.len() as u32,
            words: 0,
            insns: 0,
            accesses: 0,
            ending: Ending::Plain,
            runs: 0,
        };
        if let Some(entry) = entry {
            let shape = &entry.shape;
            let (kind, target) = shape.last_exit.unzip();
            digest.entry = entry.block.entry;
            digest.target = target.unwrap_or_default();
            digest.words = shape.words.len() as u16;
            let mut totals = Totals::default();
            shape.tally.add_to(&mut totals);
            digest.insns = totals.insns as u16;
            digest.accesses =
                (totals.loads + totals.stores + totals.prefetches + totals.flushes) as u16;
            digest.ending = match kind {
                None | Some(ExitKind::Direct) => Ending::Plain,
                Some(ExitKind::Conditional) => Ending::Conditional,
                Some(ExitKind::Indirect) => Ending::Indirect,
            };
            self.slots.extend(shape.words.iter().map(|word| word.slot.0));
        }
        self.tallies.push(entry.map(|entry| entry.shape.tally).unwrap_or_default());
        self.blocks.push(digest);
    }

    /// A block, which is there.
    #[inline]
    pub(crate) fn get(&self, id: BlockId) -> &Digest {
        &self.blocks[id.index()]
    }

    /// The slots of a block's words, in order.
    #[inline]
    pub(crate) fn slots(&self, block: &Digest) -> &[u32] {
        &self.slots[block.first as usize..block.first as usize + usize::from(block.words)]
    }

    /// A block was executed to its end.
    #[inline]
    pub(crate) fn ran(&mut self, id: BlockId) {
        self.blocks[id.index()].runs += 1;
    }

    /// What all executions to the end count, their last branches taken.
    pub(crate) fn add_to(&self, totals: &mut Totals) {
        for (block, tally) in self.blocks.iter().zip(&self.tallies) {
            if block.runs > 0 {
                tally.add_times(u64::from(block.runs), totals);
            }
        }
    }
}

const _: () = assert!(size_of::<Digest>() == 32);
