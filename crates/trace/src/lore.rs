//! What packing raw executions needs to know of planned blocks and chains of them, laid out flat: looked up by the
//! collector's identifiers, and counted by the ways in which they were left.
//!
//! A writer keeps a list of all plans ([`Plans`]); each packer has a layout of its own ([`Lore`]), which it brings up to date before
//! every chunk, so that packers need not wait for each other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::{Arc, PoisonError, RwLock};

use ichnos_base::{BlockId, ExitKind, GuestVa, Leave, ProcessId, Register, Step};

use crate::block::{Block, Tally};
use crate::chain::{Unit, append};
use crate::followed::{Change, change};
use crate::hash::QuickMap;
use crate::numbered::Numbered;
use crate::places::Taken;

/// Identifiers from here on are few, and lie in a table of their own.
pub(crate) const HIGH: u32 = u32::MAX - 0xff;

/// A planned block as a writer knows it.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) id: BlockId,
    pub(crate) process: ProcessId,
    pub(crate) identifier: u32,
    pub(crate) block: Arc<Block>,
}

/// A chain as a writer knows it.
#[derive(Clone, Debug)]
pub(crate) struct Chained {
    pub(crate) number: u32,
    pub(crate) process: ProcessId,
    pub(crate) identifier: u32,
    /// So many of its first blocks are those of the chain that was told before it.
    pub(crate) shared: usize,
    /// Where the others are among the plans.
    pub(crate) more: Box<[u32]>,
}

/// A block or a chain.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Block(Planned),
    Chain(Chained),
}

/// All plans and chains, in the order in which they were told.
pub(crate) type Plans = Arc<RwLock<Vec<Told>>>;

/// A block or chain, in little room: it is looked at for every execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brief {
    pub(crate) unit: Unit,
    first_word: u32,
    first_way: u32,
    ways: u16,
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
    /// It takes words, and leaves the block before it open.
    Silent,
    /// Accesses are among what it takes.
    Flexible,
}

/// A way in which a block, or the last of a chain, may be left; what is counted is all that was executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    target: GuestVa,
    pub(crate) tally: Tally,
    /// Nothing if it is the block's end.
    exit: Option<ExitKind>,
    /// What becomes of the register that is followed.
    pub(crate) change: Change,
}

/// The way of no block, which counts nothing.
pub(crate) const NO_WAY: u32 = 0;

/// The blocks and chains of a process, by identifier; their places in the lore, one more.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    low: Numbered<u32>,
    high: [u32; 256],
}

impl Default for Numbers {
    fn default() -> Self {
        Self { low: Numbered::default(), high: [0; 256] }
    }
}

/// What the first blocks of a chain come to, if each is left for the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner {
    pub(crate) tally: Tally,
    change: Change,
    /// Bytes of their words.
    len: u16,
}

impl Inner {
    /// Those of no block.
    const NONE: Self = Self { tally: Tally::NONE, change: Change::Moves(0), len: 0 };
}

/// What is seldom looked at.
#[derive(Debug)]
pub(crate) struct Whole {
    /// Where it begins.
    pub(crate) entry: GuestVa,
    /// The block, or the last of a chain.
    pub(crate) last: Arc<Block>,
    /// What the others of a chain come to.
    pub(crate) inner: Inner,
    /// Where the places of a chain's blocks are listed, and how many there are. None of a block.
    first_member: u32,
    members: u32,
}

/// All blocks and chains as a packer knows them.
#[derive(Debug)]
pub(crate) struct Lore {
    /// By their places.
    briefs: Vec<Brief>,
    words: Vec<Taken>,
    ways: Vec<Way>,
    whole: Vec<Whole>,
    /// The places of the blocks of chains, and what those before each come to.
    members: Vec<(u32, Inner)>,
    /// The place of the last chain.
    last_chain: Option<u32>,
    /// The first block with each list of steps, by where that is: all others that have it take and do the same.
    twins: QuickMap<usize, u32>,
    processes: QuickMap<u32, Arc<Numbers>>,
    /// The register that is followed, if any.
    follows: Option<Register>,
    /// How many blocks of the roadmap there are.
    pub(crate) ids: u32,
}

impl Default for Lore {
    fn default() -> Self {
        let none =
            Way { target: GuestVa(0), tally: Tally::NONE, exit: None, change: Change::Moves(0) };
        Self {
            briefs: Vec::new(),
            words: Vec::new(),
            ways: vec![none],
            whole: Vec::new(),
            members: Vec::new(),
            last_chain: None,
            twins: QuickMap::default(),
            processes: QuickMap::default(),
            follows: None,
            ids: 0,
        }
    }
}

impl Numbers {
    fn place(&mut self, identifier: u32) -> &mut u32 {
        if identifier >= HIGH {
            return &mut self.high[(identifier - HIGH) as usize];
        }
        self.low.place(identifier)
    }

    /// The place of a block in the lore whose identifier is one of the many.
    #[inline]
    pub(crate) fn low(&self, identifier: u32) -> Option<u32> {
        self.low.get(identifier)?.checked_sub(1)
    }

    /// The place of a block in the lore.
    #[inline]
    pub(crate) fn find(&self, identifier: u32) -> Option<u32> {
        let place = if identifier >= HIGH {
            self.high[(identifier - HIGH) as usize]
        } else {
            *self.low.get(identifier)?
        };
        place.checked_sub(1)
    }
}

impl Lore {
    /// Learns what was planned since. From now on this register is followed; another one only if none was before.
    pub(crate) fn learn(&mut self, plans: &Plans, follows: Option<Register>) {
        if self.follows.is_none() && follows.is_some() {
            *self = Self { follows, ..Self::default() };
        }
        let plans = plans.read().unwrap_or_else(PoisonError::into_inner);
        for told in plans.iter().skip(self.briefs.len()) {
            match told {
                Told::Block(planned) => self.add(planned),
                Told::Chain(chained) => self.add_chain(chained),
            }
        }
    }

    fn number(&mut self, process: ProcessId, identifier: u32) {
        let place = self.briefs.len() as u32;
        let numbers = self.processes.entry(process.0).or_default();
        // Nobody else has it between chunks.
        *Arc::make_mut(numbers).place(identifier) = place + 1;
    }

    fn add(&mut self, planned: &Planned) {
        self.number(planned.process, planned.identifier);
        self.ids = self.ids.max(planned.id.0 + 1);
        let (block, unit) = (&planned.block, Unit::block(planned.id));
        let (entry, last) = (block.entry, Arc::clone(block));
        let whole = Whole { entry, last, inner: Inner::NONE, first_member: 0, members: 0 };
        self.whole.push(whole);
        let place = self.briefs.len() as u32;
        let twin = *self.twins.entry(block.steps.as_ptr() as usize).or_insert(place);
        if let Some(brief) = self.briefs.get(twin as usize).copied() {
            self.briefs.push(Brief { unit, ..brief });
            return;
        }
        let first_word = self.words.len() as u32;
        let shape = block.shape();
        self.words.extend(shape.words.iter().map(|word| word.taken));
        let len = shape.words.iter().map(|word| word.taken.len()).sum::<usize>();
        let (words, len) = (shape.words.len() as u16, len as u16);
        let sort = match () {
            () if shape.is_silent() => Sort::Silent,
            () if shape.flexes > 0 => Sort::Flexible,
            () => Sort::Plain,
        };
        let (first_way, ways) = (0, 0);
        self.briefs.push(Brief { unit, first_word, first_way, ways, words, len, sort });
        self.add_ways();
    }

    fn add_chain(&mut self, chained: &Chained) {
        let Chained { number, process, identifier, shared, ref more } = *chained;
        self.number(process, identifier);
        let place = self.briefs.len() as u32;
        // What the chain before has in common with this one is not stored again.
        let before = self.last_chain.replace(place);
        let first = before.map_or(0, |before| self.whole(before).first_member as usize);
        let common = self.members.get(first..first + shared).unwrap_or_default();
        let mut last = common.last().copied();
        let news: Vec<_> = more.iter().map(|next| *last.insert(self.member(last, *next))).collect();
        let Some((last, inner)) = last else { return };
        let common = common.iter().map(|(place, _)| usize::from(self.get(*place).words)).sum();
        let words = more.iter().flat_map(|place| self.words(self.get(*place)));
        let words: Vec<Taken> = words.copied().collect();
        let count = (common + words.len()) as u16;
        let from = before.map_or(0, |before| self.get(before).first_word as usize);
        let first_word = append(&mut self.words, (from, common), words.into_iter()) as u32;
        let first_member = append(&mut self.members, (first, shared), news.into_iter());
        let entry = self.whole(self.members[first_member].0).entry;
        let (len, last) = (inner.len + self.get(last).len, Arc::clone(&self.whole(last).last));
        let (unit, first_way, ways, sort) = (Unit::chain(number), 0, 0, Sort::Plain);
        self.briefs.push(Brief { unit, first_word, first_way, ways, words: count, len, sort });
        let (first_member, members) = (first_member as u32, (shared + more.len()) as u32);
        self.whole.push(Whole { entry, last, inner, first_member, members });
        self.add_ways();
    }

    /// The next block of a chain, behind another one if it is not the first.
    fn member(&self, before: Option<(u32, Inner)>, next: u32) -> (u32, Inner) {
        let Some((place, inner)) = before else { return (next, Inner::NONE) };
        let (block, leave) = (&self.whole(place).last, Leave::Next(self.whole(next).entry));
        let change = inner.change.then(change(block, self.follows, leave), inner.len);
        let tally = inner.tally.and(&Tally::new(&block.left_at(leave).totals));
        (next, Inner { tally, change, len: inner.len + self.get(place).len })
    }

    /// Adds the ways of the last block or chain.
    fn add_ways(&mut self) {
        let (Some(brief), Some(whole)) = (self.briefs.last_mut(), self.whole.last()) else {
            return;
        };
        brief.first_way = self.ways.len() as u32;
        let Whole { last, inner, .. } = whole;
        self.ways.extend(leaves(last).map(|(exit, target, leave)| Way {
            target,
            tally: inner.tally.and(&Tally::new(&last.left_at(leave).totals)),
            exit,
            change: inner.change.then(change(last, self.follows, leave), inner.len),
        }));
        brief.ways = (self.ways.len() as u32 - brief.first_way) as u16;
    }

    /// The blocks and chains of a process.
    pub(crate) fn numbers(&self, process: ProcessId) -> Arc<Numbers> {
        self.processes.get(&process.0).map(Arc::clone).unwrap_or_default()
    }

    /// A block or chain, which is there.
    #[inline]
    pub(crate) fn get(&self, place: u32) -> &Brief {
        &self.briefs[place as usize]
    }

    /// The same with its steps.
    pub(crate) fn whole(&self, place: u32) -> &Whole {
        &self.whole[place as usize]
    }

    /// The places of a chain's blocks; none for a block.
    fn members(&self, place: u32) -> impl Iterator<Item = u32> {
        let whole = self.whole(place);
        let members = &self.members[whole.first_member as usize..][..whole.members as usize];
        members.iter().map(|member| member.0)
    }

    /// The places of a chain's blocks but the last, each with the one that follows it.
    pub(crate) fn inner(&self, place: u32) -> impl Iterator<Item = (u32, u32)> {
        self.members(place).zip(self.members(place).skip(1))
    }

    /// The words of a block or chain, in order.
    #[inline]
    pub(crate) fn words(&self, brief: &Brief) -> &[Taken] {
        &self.words[brief.first_word as usize..][..usize::from(brief.words)]
    }

    /// A way, which is there.
    pub(crate) fn way(&self, way: u32) -> &Way {
        &self.ways[way as usize]
    }

    /// A block or chain was left for this address: by which way.
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
