//! What packing raw executions needs to know of planned blocks, laid out flat: looked up by the
//! collector's identifiers, and counted by the ways in which they were left.
//!
//! A writer keeps a list of all plans ([`Plans`]); each packer has a layout of its own ([`Lore`]), which it brings up to date before
//! every chunk, so that packers need not wait for each other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::{Arc, PoisonError, RwLock};

use ichnos_base::{BlockId, ExitKind, GuestVa, Leave, ProcessId, Step, Totals};

use crate::block::{Block, Tally};
use crate::guess::Taken;
use crate::hash::QuickMap;

/// Identifiers from here on are few, and lie in a table of their own.
const HIGH: u32 = u32::MAX - 0xff;

/// A planned block as a writer knows it.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) id: BlockId,
    pub(crate) process: ProcessId,
    pub(crate) identifier: u32,
    /// Without its code.
    pub(crate) block: Arc<Block>,
}

/// All plans, in the order in which they were told.
pub(crate) type Plans = Arc<RwLock<Vec<Planned>>>;

/// A block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    pub(crate) id: BlockId,
    pub(crate) entry: GuestVa,
    first_word: u32,
    first_way: u32,
    words: u16,
    /// Bytes of its words.
    pub(crate) len: u16,
    pub(crate) sort: Sort,
}

/// What must be done for an execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    /// It takes words.
    Plain,
    /// The same, and leaves the block before it open.
    Silent,
    /// Accesses are among what it takes.
    Flexible,
}

/// A word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) slot: u32,
    pub(crate) taken: Taken,
}

/// A way in which a block may be left.
#[derive(Clone, Copy, Debug)]
struct Way {
    target: GuestVa,
    /// The block, by its place in the lore.
    block: u32,
    /// How often, in this chunk.
    runs: u32,
    tally: Tally,
    /// Nothing if it is the block's end.
    exit: Option<ExitKind>,
}

/// The blocks of a process, by identifier; their places in the lore, one more.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    low: Vec<u32>,
    high: [u32; 256],
}

impl Default for Numbers {
    fn default() -> Self {
        Self { low: Vec::new(), high: [0; 256] }
    }
}

/// The ways in which blocks may be left, and how often they were.
#[derive(Debug, Default)]
pub(crate) struct Ways(Vec<Way>);

/// All blocks as a packer knows them.
#[derive(Debug, Default)]
pub(crate) struct Lore {
    blocks: Vec<Brief>,
    words: Vec<Word>,
    whole: Vec<Arc<Block>>,
    processes: QuickMap<u32, Arc<Numbers>>,
    /// How many slots there are, and blocks of the roadmap.
    pub(crate) slots: u32,
    pub(crate) ids: u32,
}

impl Numbers {
    fn place(&mut self, identifier: u32) -> &mut u32 {
        if identifier >= HIGH {
            return &mut self.high[(identifier - HIGH) as usize];
        }
        let at = identifier as usize;
        if self.low.len() <= at {
            self.low.resize(at + 1, 0);
        }
        &mut self.low[at]
    }

    /// The place of a block in the lore.
    #[inline]
    pub(crate) fn find(&self, identifier: u32) -> Option<u32> {
        let place = if identifier >= HIGH {
            self.high[(identifier - HIGH) as usize]
        } else {
            *self.low.get(identifier as usize)?
        };
        place.checked_sub(1)
    }
}

impl Lore {
    /// Learns what was planned since.
    pub(crate) fn learn(&mut self, ways: &mut Ways, plans: &Plans) {
        let plans = plans.read().unwrap_or_else(PoisonError::into_inner);
        for planned in plans.iter().skip(self.blocks.len()) {
            self.add(ways, planned);
        }
    }

    fn add(&mut self, ways: &mut Ways, planned: &Planned) {
        let (block, place) = (&planned.block, self.blocks.len() as u32);
        let numbers = self.processes.entry(planned.process.0).or_default();
        // Nobody else has it between chunks.
        *Arc::make_mut(numbers).place(planned.identifier) = place + 1;
        let (first_word, first_way) = (self.words.len() as u32, ways.0.len() as u32);
        let shape = block.shape();
        self.words.extend(shape.words.iter().map(|w| Word { slot: w.slot.0, taken: w.taken }));
        for step in &block.steps {
            if let Step::Take { slot, .. } | Step::Flex { slot } = step {
                self.slots = self.slots.max(slot.0 + 1);
            }
        }
        let slots = shape.words.iter().map(|w| w.slot.0 + 1);
        self.slots = slots.fold(self.slots, u32::max);
        let len = shape.words.iter().map(|w| if w.taken.is_wide() { 8 } else { 4 }).sum::<usize>();
        let sort = match () {
            () if shape.is_silent() => Sort::Silent,
            () if shape.flexes > 0 => Sort::Flexible,
            () => Sort::Plain,
        };
        ways.add(block, place);
        self.ids = self.ids.max(planned.id.0 + 1);
        self.blocks.push(Brief {
            id: planned.id,
            entry: block.entry,
            first_word,
            first_way,
            words: shape.words.len() as u16,
            len: len as u16,
            sort,
        });
        self.whole.push(Arc::clone(block));
    }

    /// The blocks of a process.
    pub(crate) fn numbers(&self, process: ProcessId) -> Arc<Numbers> {
        self.processes.get(&process.0).map(Arc::clone).unwrap_or_default()
    }

    /// A block, which is there.
    #[inline]
    pub(crate) fn get(&self, place: u32) -> &Brief {
        &self.blocks[place as usize]
    }

    /// A block with its steps.
    pub(crate) fn whole(&self, place: u32) -> &Arc<Block> {
        &self.whole[place as usize]
    }

    /// The words of a block, in order.
    #[inline]
    pub(crate) fn words(&self, brief: &Brief) -> &[Word] {
        &self.words[brief.first_word as usize..][..usize::from(brief.words)]
    }
}

impl Ways {
    fn add(&mut self, block: &Block, place: u32) {
        let exits = block.steps.iter().filter_map(|step| match *step {
            Step::Exit { kind, target } => Some((kind, target)),
            _ => None,
        });
        let mut way = |exit: Option<ExitKind>, target: GuestVa, leave: Leave| {
            let tally = Tally::new(&block.left_at(leave).totals);
            self.0.push(Way { target, block: place, runs: 0, tally, exit });
        };
        // Where no branch of the block goes.
        let is_target = |pc: &u64| exits.clone().any(|(_, target)| target.0 == *pc);
        let elsewhere = (1..).find(|pc| !is_target(pc)).map_or(GuestVa(1), GuestVa);
        for (kind, target) in exits.clone() {
            let to = if kind == ExitKind::Indirect { elsewhere } else { target };
            way(Some(kind), target, Leave::Next(to));
            if kind != ExitKind::Conditional {
                return;
            }
        }
        way(None, GuestVa(0), Leave::Next(elsewhere));
    }

    /// A chunk begins: nothing was executed.
    pub(crate) fn begin(&mut self) {
        self.0.iter_mut().for_each(|way| way.runs = 0);
    }

    /// A block was left for this address: by which way. It is `guess` if that is one of its ways, which was so for the
    /// same two blocks before.
    #[inline]
    pub(crate) fn left(
        &mut self,
        lore: &Lore,
        place: u32,
        next: GuestVa,
        guess: Option<u32>,
    ) -> u32 {
        if let Some(guess) = guess
            && let Some(way) = self.0.get_mut(guess as usize)
            && way.block == place
        {
            way.runs += 1;
            return guess;
        }
        let mut at = lore.get(place).first_way;
        loop {
            let way = &mut self.0[at as usize];
            if way.exit != Some(ExitKind::Conditional) || way.target == next {
                way.runs += 1;
                return at;
            }
            at += 1;
        }
    }

    /// What all that were left count.
    pub(crate) fn add_to(&self, totals: &mut Totals) {
        for way in self.0.iter().filter(|way| way.runs > 0) {
            way.tally.add_times(u64::from(way.runs), totals);
        }
    }
}
