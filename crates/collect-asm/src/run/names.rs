//! What blocks are called, alone or several together, where executions are told as they were stored.
//!
//! A block gets its identifier when it is planned. What is often executed together, turns of a loop or blocks of which one follows
//! the other, gets one too: then it is one execution to whoever takes it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Chain, GuestVa};

use super::table::{Link, Tables};
use crate::code::{Block, Op, TAG};

/// What is executed together gets an identifier when that happened so often.
const OFTEN: u32 = 32;
/// The most words of what gets one: so many are packed quickly.
const MOST_WORDS: usize = 20;

/// Whether blocks that follow each other, the last of which leads there, can have an identifier.
pub(super) fn can_be_one(blocks: &[&Block], leads: GuestVa) -> bool {
    let next = blocks.iter().skip(1).map(|block| block.entry).chain([leads]);
    let (mut all, mut words) = (0, 0);
    for (block, next) in blocks.iter().zip(next) {
        let turns = if next == block.entry { block.turns } else { 1 };
        all += turns;
        words += turns * takes(block);
    }
    all <= Chain::MOST_BLOCKS && words <= MOST_WORDS
}

/// The words that a turn of a block takes.
fn takes(block: &Block) -> usize {
    block.ops.iter().filter(|op| matches!(op, Op::Take4(_) | Op::Take8(_))).count()
}

/// The identifiers of a process.
#[derive(Default)]
pub(super) struct Names {
    /// The last that was given; programs that the process had before may have used all up to it.
    last: u32,
    /// Those of blocks, by number.
    blocks: Vec<Named>,
    /// Those of two and more turns of loops, for one loop after the other.
    turns: Vec<Name>,
    /// Those of chains, by their places in the tables.
    chains: Vec<Name>,
    /// Where the words of chains' blocks lie, counted from those of the first, and how many bytes they have.
    parts: Vec<(u32, u32)>,
}

/// A block.
#[derive(Clone, Copy, Default)]
struct Named {
    /// Zero if it was not planned.
    identifier: u32,
    /// The words of a turn.
    words: u32,
    /// Where the identifiers of several turns begin.
    turns: u32,
}

/// Several executions together.
#[derive(Clone, Copy, Default)]
struct Name {
    /// How often they were met before they got an identifier. If that is often, and there is none, there never will be.
    met: u32,
    identifier: u32,
    first_part: u32,
    parts: u32,
}

/// A chain that a sink has to be told: its identifier, and those of its blocks.
pub(super) type Fresh = (u32, Vec<u32>);

impl Names {
    /// For the next program of a process.
    pub(super) fn after(before: &Self) -> Self {
        Self { last: before.last, ..Self::default() }
    }

    /// A block is planned: its identifier.
    pub(super) fn plan(&mut self, number: usize, block: &Block) -> u32 {
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, Named::default());
        }
        self.last += 1;
        let (words, turns) = (takes(block) as u32, self.turns.len() as u32);
        self.blocks[number] = Named { identifier: self.last, words, turns };
        self.turns.resize(self.turns.len() + block.turns.saturating_sub(1), Name::default());
        self.last
    }

    /// The identifier of a block; zero if it was not planned.
    #[inline]
    pub(super) fn block(&self, number: usize) -> u32 {
        self.blocks.get(number).map_or(0, |block| block.identifier)
    }

    /// The identifier of so many turns of a block together, at least two, if they have one. Chains that get theirs now go to `fresh`.
    #[inline]
    pub(super) fn turns(
        &mut self,
        number: usize,
        turns: usize,
        fresh: &mut Vec<Fresh>,
    ) -> Option<u32> {
        let Named { identifier, words, turns: first } = *self.blocks.get(number)?;
        let name = self.turns.get_mut(first as usize + turns.checked_sub(2)?)?;
        if name.is_due() && words as usize * turns <= MOST_WORDS {
            self.last += 1;
            name.identifier = self.last;
            fresh.push((self.last, vec![identifier; turns]));
        }
        (name.identifier != 0).then_some(name.identifier)
    }

    /// The identifier of a chain of the tables, without its last block, and where the words of its blocks lie; if it has one.
    #[inline]
    pub(super) fn chain(
        &mut self,
        link: Link,
        tables: &Tables,
        fresh: &mut Vec<Fresh>,
    ) -> Option<(u32, &[(u32, u32)])> {
        let at = link.place();
        if self.chains.len() <= at {
            self.chains.resize(at + 1, Name::default());
        }
        if self.chains[at].is_due() {
            self.give(at, &tables.path(link), tables, fresh);
        }
        let Name { identifier, first_part, parts, .. } = self.chains[at];
        let parts = &self.parts[first_part as usize..][..parts as usize];
        (identifier != 0).then_some((identifier, parts))
    }

    /// Gives an identifier to blocks that follow each other, of which the last does not count, and which [can be
    /// one](can_be_one).
    #[cold]
    fn give(&mut self, at: usize, path: &[usize], tables: &Tables, fresh: &mut Vec<Fresh>) {
        let (mut blocks, mut from) = (Vec::new(), 0);
        let first = self.parts.len();
        for pair in path.windows(2) {
            let (Some(block), Some(next)) = (tables.get(pair[0]), tables.get(pair[1])) else {
                return;
            };
            let turns = if next.entry == block.entry { block.turns } else { 1 };
            blocks.resize(blocks.len() + turns, self.block(pair[0]));
            let len = block.len / block.turns * turns;
            self.parts.extend((len > 0).then_some((from as u32, len as u32)));
            from += block.len + TAG;
        }
        if blocks.contains(&0) {
            return;
        }
        let identifier = match blocks[..] {
            [alone] => alone,
            _ => {
                self.last += 1;
                fresh.push((self.last, blocks));
                self.last
            }
        };
        let parts = (self.parts.len() - first) as u32;
        self.chains[at] = Name { met: OFTEN, identifier, first_part: first as u32, parts };
    }
}

impl Name {
    /// Executions are met together: whether they should get an identifier now.
    #[inline]
    fn is_due(&mut self) -> bool {
        if self.met >= OFTEN {
            return false;
        }
        self.met += 1;
        self.met == OFTEN
    }
}
