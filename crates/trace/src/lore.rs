//! What packing raw executions needs to know of planned blocks, laid out flat: looked up by the
//! collector's identifiers, and counted by the ways in which they were left.
//!
//! A writer keeps a list of all plans ([`Plans`]); each packer has a layout of its own ([`Lore`]), which it brings up to date before
//! every chunk, so that packers need not wait for each other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::{Arc, PoisonError, RwLock};

use ichnos_base::{BlockId, ExitKind, GuestVa, Leave, ProcessId, Register, Step};

use crate::block::{Block, Tally};
use crate::followed::moves;
use crate::guess::Taken;
use crate::hash::QuickMap;
use crate::raw_pack::CODE_WORDS;

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

/// A block, in little room: it is looked at for every execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    pub(crate) id: BlockId,
    first_word: u32,
    pub(crate) first_way: u32,
    pub(crate) ways: u16,
    words: u16,
    /// Bytes of its words.
    pub(crate) len: u16,
    pub(crate) sort: Sort,
}

const _: () = assert!(size_of::<Brief>() == 20);

/// What must be done for an execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    /// It takes words.
    Plain,
    /// The same, but so many that a code has several numbers.
    Long,
    /// It takes words, and leaves the block before it open.
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
pub(crate) struct Way {
    target: GuestVa,
    pub(crate) tally: Tally,
    /// Nothing if it is the block's end.
    exit: Option<ExitKind>,
    /// How far the block moves the register that is followed; [`ODD`](crate::followed::ODD) if that is no constant.
    pub(crate) moves: i32,
}

/// The way of no block, which counts nothing.
pub(crate) const NO_WAY: u32 = 0;

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

/// All blocks as a packer knows them.
#[derive(Debug)]
pub(crate) struct Lore {
    blocks: Vec<Brief>,
    words: Vec<Word>,
    ways: Vec<Way>,
    whole: Vec<Arc<Block>>,
    processes: QuickMap<u32, Arc<Numbers>>,
    /// The register that is followed, if any.
    follows: Option<Register>,
    /// How many slots there are, and blocks of the roadmap.
    pub(crate) slots: u32,
    pub(crate) ids: u32,
}

impl Default for Lore {
    fn default() -> Self {
        let none = Way { target: GuestVa(0), tally: Tally::default(), exit: None, moves: 0 };
        Self {
            blocks: Vec::new(),
            words: Vec::new(),
            ways: vec![none],
            whole: Vec::new(),
            processes: QuickMap::default(),
            follows: None,
            slots: 0,
            ids: 0,
        }
    }
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

    /// The place of a block in the lore whose identifier is one of the many.
    #[inline(always)]
    pub(crate) fn low(&self, identifier: u32) -> Option<u32> {
        self.low.get(identifier as usize)?.checked_sub(1)
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
    /// Learns what was planned since. From now on this register is followed; another one only if none was before.
    pub(crate) fn learn(&mut self, plans: &Plans, follows: Option<Register>) {
        if self.follows.is_none() && follows.is_some() {
            self.follows = follows;
            for (brief, block) in self.blocks.iter().zip(&self.whole) {
                let ways = &mut self.ways[brief.first_way as usize..][..usize::from(brief.ways)];
                ways.iter_mut().zip(leaves(block)).for_each(|(way, (_, _, leave))| {
                    way.moves = moves(block, follows, leave);
                });
            }
        }
        let plans = plans.read().unwrap_or_else(PoisonError::into_inner);
        for planned in plans.iter().skip(self.blocks.len()) {
            self.add(planned);
        }
    }

    fn add(&mut self, planned: &Planned) {
        let (block, place) = (&planned.block, self.blocks.len() as u32);
        let numbers = self.processes.entry(planned.process.0).or_default();
        // Nobody else has it between chunks.
        *Arc::make_mut(numbers).place(planned.identifier) = place + 1;
        let (first_word, first_way) = (self.words.len() as u32, self.ways.len() as u32);
        let shape = block.shape();
        self.words.extend(shape.words.iter().map(|w| Word { slot: w.slot.0, taken: w.taken }));
        let slots = shape.words.iter().map(|w| w.slot.0 + 1);
        self.slots = slots.fold(self.slots, u32::max);
        let len = shape.words.iter().map(|w| if w.taken.is_wide() { 8 } else { 4 }).sum::<usize>();
        let sort = match () {
            () if shape.is_silent() => Sort::Silent,
            () if shape.flexes > 0 => Sort::Flexible,
            () if shape.words.len() > CODE_WORDS => Sort::Long,
            () => Sort::Plain,
        };
        self.ways.extend(leaves(block).map(|(exit, target, leave)| Way {
            target,
            tally: Tally::new(&block.left_at(leave).totals),
            exit,
            moves: moves(block, self.follows, leave),
        }));
        self.ids = self.ids.max(planned.id.0 + 1);
        self.blocks.push(Brief {
            id: planned.id,
            first_word,
            first_way,
            ways: (self.ways.len() as u32 - first_way) as u16,
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

    /// A way, which is there.
    pub(crate) fn way(&self, way: u32) -> &Way {
        &self.ways[way as usize]
    }

    /// A block was left for this address: by which way.
    pub(crate) fn left(&self, place: u32, next: GuestVa) -> u32 {
        let brief = self.get(place);
        let ways = &self.ways[brief.first_way as usize..][..usize::from(brief.ways)];
        let is_it = |way: &Way| way.exit != Some(ExitKind::Conditional) || way.target == next;
        // The last is the end, or an exit that is always taken.
        let at = ways.iter().position(is_it).unwrap_or(ways.len() - 1);
        brief.first_way + at as u32
    }
}

/// The ways in which a block may be left: by which exit, where that leads, and how that is said.
fn leaves(block: &Block) -> impl Iterator<Item = (Option<ExitKind>, GuestVa, Leave)> {
    let exits = block.steps.iter().filter_map(|step| match *step {
        Step::Exit { kind, target } => Some((kind, target)),
        _ => None,
    });
    // Where no branch of the block goes.
    let is_target = |pc: &u64| exits.clone().any(|(_, target)| target.0 == *pc);
    let elsewhere = (1..).find(|pc| !is_target(pc)).map_or(GuestVa(1), GuestVa);
    // An exit that is always taken is the last step.
    let ends = exits.clone().all(|(kind, _)| kind == ExitKind::Conditional);
    let by_exit = exits.map(move |(kind, target)| {
        let to = if kind == ExitKind::Indirect { elsewhere } else { target };
        (Some(kind), target, Leave::Next(to))
    });
    by_exit.chain(ends.then_some((None, GuestVa(0), Leave::Next(elsewhere))))
}
