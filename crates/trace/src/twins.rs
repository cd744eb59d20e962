//! Blocks that are the same but for their processes and slots: processes of a tree often run the same program at the same addresses,
//! and each of them has blocks of its own. What such blocks consist of lies in memory once.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::hash::{Hash, Hasher};

use ichnos_base::{BlockId, GuestVa, Slot, Step};

use crate::block::{Block, Exits};
use crate::hash::{Quick, QuickMap};

/// What a block consists of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'b> {
    pub(crate) entry: GuestVa,
    pub(crate) exits: Exits,
    pub(crate) steps: &'b [Step],
    pub(crate) code: &'b [u8],
}

impl Parts<'_> {
    /// Whether two blocks are the same but for their processes and slots.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let (steps, others) = (self.steps.iter(), other.steps.iter());
        (self.entry, self.exits, self.code) == (other.entry, other.exits, other.code)
            && steps.map(without_slot).eq(others.map(without_slot))
    }

    fn hash(&self) -> u64 {
        let mut hash = Quick::default();
        hash.write_u64(self.entry.0);
        let (words, rest) = self.code.as_chunks();
        words.iter().for_each(|word| hash.write_u64(u64::from_le_bytes(*word)));
        hash.write(rest);
        self.steps.iter().for_each(|step| without_slot(step).hash(&mut hash));
        hash.finish()
    }
}

impl Block {
    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts { entry: self.entry, exits: self.exits, steps: &self.steps, code: &self.code }
    }
}

/// A step as if it had another slot, if it has one.
fn without_slot(step: &Step) -> Step {
    let mut step = *step;
    if let Some(slot) = step.slot_mut() {
        *slot = Slot(0);
    }
    step
}

/// Blocks by what they consist of.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    /// By hash; of those that have the same, the last.
    blocks: QuickMap<u64, BlockId>,
}

impl Twins {
    /// A block that may be like this one.
    pub(crate) fn find(&self, parts: &Parts<'_>) -> Option<BlockId> {
        self.blocks.get(&parts.hash()).copied()
    }

    pub(crate) fn add(&mut self, parts: &Parts<'_>, id: BlockId) {
        self.blocks.insert(parts.hash(), id);
    }
}
