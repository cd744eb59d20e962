//! Blocks as tables: what a block's words come to, without a decision for each step.
//!
//! A block's steps are worked through once, when it is first met, with symbols for what is not known yet. What comes out
//! is a list of records whose addresses are sums over *slots* (the registers before the block, and what is computed from
//! words), and for each way out of the block how many of them count and what the registers are then. Additions
//! of constants along the way cost nothing later.
//!
//! Blocks that are not left in the usual way (interrupted, or with accesses that vary) are played step by step
//! (`stream.rs`), from the same registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod chain;
mod make;

use std::ops::Range;

use ichnos_base::{GuestVa, Record};
use ichnos_trace::{Register, Sum, Value};

use chain::Chains;
pub(super) use chain::{Link, Reached};
use make::Maker;

use super::stream::{Made, Out, turns_of};
use crate::code::Block;
use crate::note::u64_at;

/// How many slots there are.
pub(super) const SLOTS: usize = 256;
/// The slot that is always zero.
const ZERO: u8 = Register::COUNT as u8;
/// The slot of the base of `fs`.
pub(super) const FS: u8 = ZERO + 1;
/// The first slot for what a block computes.
const FIRST: u8 = FS + 1;

/// So many bytes must follow a block's words, whatever they are.
pub(super) const BEHIND: usize = 8;

/// A sum: two slots, the second one several times, and a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    base: u8,
    index: u8,
    scale: u8,
    disp: u64,
}

impl Place {
    const fn of_slot(slot: u8) -> Self {
        Self { base: slot, index: ZERO, scale: 1, disp: 0 }
    }

    const fn constant(disp: u64) -> Self {
        Self { disp, ..Self::of_slot(ZERO) }
    }

    /// The slots in it, and how often they count.
    fn terms(self) -> impl Iterator<Item = (u8, u8)> {
        [(self.base, 1), (self.index, self.scale)].into_iter().filter(|(slot, _)| *slot != ZERO)
    }

    #[inline]
    fn sum(self, slots: &[u64; SLOTS]) -> u64 {
        slots[usize::from(self.base)]
            .wrapping_add(slots[usize::from(self.index)].wrapping_mul(u64::from(self.scale)))
            .wrapping_add(self.disp)
    }
}

/// A word of the block goes into a slot; bits of `keep` stay those of another slot.
#[derive(Clone, Copy, Debug)]
struct Take {
    at: u32,
    slot: u8,
    from: u8,
    keep: u64,
}

impl Take {
    #[inline]
    fn apply(self, words: &[u8], slots: &mut [u64; SLOTS]) {
        let word = u64_at(words, self.at as usize).unwrap_or(0);
        let kept = slots[usize::from(self.from)] & self.keep;
        slots[usize::from(self.slot)] = kept | word & !self.keep;
    }
}

/// Something computed before the records.
#[derive(Clone, Copy, Debug)]
enum Set {
    Take(Take),
    Sum(u8, Place),
    /// Registers stand for slots.
    Value(u8, Value),
}

impl Set {
    #[inline(always)]
    fn apply(&self, words: &[u8], slots: &mut [u64; SLOTS]) {
        match *self {
            Self::Sum(slot, place) => slots[usize::from(slot)] = place.sum(slots),
            Self::Take(take) => take.apply(words, slots),
            Self::Value(slot, value) => slots[usize::from(slot)] = evaluate(value, slots),
        }
    }
}

/// A record: the constant part of its address is in it.
#[derive(Clone, Copy, Debug)]
struct Row {
    record: Record,
    base: u8,
    index: u8,
    scale: u8,
}

/// A register when the block is left.
#[derive(Clone, Copy, Debug)]
struct Write {
    register: u8,
    place: Place,
}

/// A way out.
#[derive(Clone, Debug)]
struct Way {
    /// Where to; of a turn's last way this says nothing.
    target: GuestVa,
    /// How many of the block's records come before the branch.
    rows: u32,
    insns: u32,
    writes: Range<u32>,
    /// A branch that was not made, if it is not among the records: there are more turns, and in them it is.
    untaken: Option<GuestVa>,
}

/// How the last way out goes.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// On, or to a fixed address.
    Fixed(GuestVa),
    /// The same behind a turn that is not the last one; behind that, to the block's beginning.
    Turns(GuestVa),
    /// To an address that is known.
    Known(Place),
    /// To the next block.
    Computed,
    /// To whoever called; the return address lies there.
    Return(Place),
}

#[derive(Clone, Debug)]
struct Head {
    takes: Range<u32>,
    sets: Range<u32>,
    rows: Range<u32>,
    /// Of each turn: conditional ones, in their order, then the last one. Behind those of all turns, if there are
    /// several, the one after all of them.
    ways: Range<u32>,
    last: Last,
}

/// A block.
#[derive(Clone, Debug)]
struct Met {
    entry: GuestVa,
    len: u32,
    turns: u32,
    event: bool,
    how: How,
}

/// The length of what has a number and is no block: nothing is so long.
const NOBODY: u32 = u32::MAX;

/// How a block is played.
#[derive(Clone, Debug)]
enum How {
    /// It was never met.
    New,
    /// Step by step.
    Steps,
    /// By a table.
    Table(Head),
}

/// What is to be known of a block whose identifier was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    /// Its first address.
    pub(super) entry: GuestVa,
    /// How many bytes follow its identifier.
    pub(super) len: usize,
    /// How many turns of a loop it tells of at the most.
    pub(super) turns: usize,
    /// Whether it begins with an event.
    pub(super) is_event: bool,
    /// Whether it was never met.
    pub(super) is_new: bool,
}

/// The tables of a copy's blocks, made when they are first met.
#[derive(Default)]
pub(super) struct Tables {
    blocks: Vec<Met>,
    takes: Vec<Take>,
    sets: Vec<Set>,
    rows: Vec<Row>,
    ways: Vec<Way>,
    writes: Vec<Write>,
    chains: Chains,
}

/// Where a block that was played leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// There.
    To(GuestVa),
    /// To the caller; the return address lies there.
    Return(u64),
}

impl Tables {
    /// For these blocks, of which some begin with an event.
    #[cfg(test)]
    pub(super) fn new(blocks: &[Block], events: &[bool]) -> Self {
        let mut tables = Self::default();
        tables.add(0, blocks, events);
        tables
    }

    /// Blocks from a number on are these, of which some begin with an event; no, if they were there before.
    pub(super) fn add(&mut self, first: usize, blocks: &[Block], events: &[bool]) -> bool {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        if self.blocks.len() < first + blocks.len() {
            let (entry, len, turns, event) = (GuestVa(0), NOBODY, 1, false);
            let nobody = Met { entry, len, turns, event, how: How::New };
            self.blocks.resize(first + blocks.len(), nobody);
            self.chains.make_room(self.blocks.len());
        }
        let places = self.blocks.iter_mut().skip(first);
        let events = events.iter().copied().chain(std::iter::repeat(false));
        let mut new = false;
        for ((place, block), event) in places.zip(blocks).zip(events) {
            if place.len == NOBODY {
                let (entry, len, turns) = (block.entry, number(block.len), number(block.turns));
                *place = Met { entry, len, turns, event, how: How::New };
                new = true;
            }
        }
        new
    }

    /// Whether a block was met.
    pub(super) fn is_met(&self, number: usize) -> bool {
        self.blocks.get(number).is_some_and(|met| !matches!(met.how, How::New))
    }

    /// A block, if there is such a one.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<Extent> {
        let met = self.blocks.get(number)?;
        let is_new = matches!(met.how, How::New);
        let (len, turns) = (met.len as usize, met.turns as usize);
        Some(Extent { entry: met.entry, len, turns, is_event: met.event, is_new })
    }

    /// Meets a block.
    pub(super) fn meet(&mut self, number: usize, block: &Block, made: Made) {
        let how = self.make(block, made).map_or(How::Steps, How::Table);
        self.blocks.get_mut(number).into_iter().for_each(|met| met.how = how.clone());
    }

    /// Meets a block that is played step by step.
    pub(super) fn meet_steps(&mut self, number: usize) {
        self.blocks.get_mut(number).into_iter().for_each(|met| met.how = How::Steps);
    }

    /// Plays a block from its beginning to where the thread went on, after so many turns of it; where it leads. Nothing
    /// if it has no table. [`BEHIND`] bytes must follow the block's words.
    #[inline(always)]
    pub(super) fn play(
        &self,
        number: usize,
        (words, left, next): (&[u8], Option<usize>, GuestVa),
        slots: &mut [u64; SLOTS],
        out: &mut Out,
    ) -> Option<Left> {
        let met = self.blocks.get(number)?;
        let How::Table(head) = &met.how else { return None };
        self.prepare(head, words, slots);
        let mut ways = of(&self.ways, &head.ways);
        if met.turns > 1 {
            let most = met.turns as usize;
            let (each, turns) = (ways.len() / most, turns_of(most, left, next == met.entry));
            ways = ways.get(turns * each..).unwrap_or_default();
            ways = ways.get(..each).unwrap_or(ways);
        }
        let (last, conditional) = ways.split_last()?;
        let taken = conditional.iter().find(|way| way.target == next);
        let way = taken.unwrap_or(last);
        let rows = of(&self.rows, &head.rows).get(..way.rows as usize).unwrap_or_default();
        Self::tell(rows, slots, out);
        out.insns += u64::from(way.insns);
        let (left, branch) = match head.last {
            _ if taken.is_some() => (Left::To(next), Some((true, next))),
            Last::Fixed(target) => (Left::To(target), None),
            Last::Turns(_) if conditional.is_empty() => (Left::To(met.entry), None),
            Last::Turns(target) => (Left::To(target), way.untaken.map(|target| (false, target))),
            Last::Known(place) => {
                let target = GuestVa(place.sum(slots));
                (Left::To(target), Some((true, target)))
            }
            Last::Computed => (Left::To(next), Some((true, next))),
            Last::Return(place) => (Left::Return(place.sum(slots)), None),
        };
        if let Some((taken, target)) = branch {
            out.other(Record::Branch { taken, target });
        }
        self.finish(way, slots);
        Some(left)
    }

    /// Computes what the records need.
    #[inline(always)]
    fn prepare(&self, head: &Head, words: &[u8], slots: &mut [u64; SLOTS]) {
        of(&self.takes, &head.takes).iter().for_each(|take| take.apply(words, slots));
        of(&self.sets, &head.sets).iter().for_each(|set| set.apply(words, slots));
    }

    /// Records.
    #[inline(always)]
    fn tell(rows: &[Row], slots: &[u64; SLOTS], out: &mut Out) {
        // Often there are none.
        if rows.is_empty() {
            return;
        }
        out.records.extend(rows.iter().map(|row| {
            let Row { record, base, index, scale } = *row;
            record.moved(Place { base, index, scale, disp: 0 }.sum(slots))
        }));
    }

    /// The registers behind a way out.
    #[inline(always)]
    fn finish(&self, way: &Way, slots: &mut [u64; SLOTS]) {
        for write in of(&self.writes, &way.writes) {
            slots[usize::from(write.register)] = write.place.sum(slots);
        }
    }

    fn make(&mut self, block: &Block, made: Made) -> Option<Head> {
        let mut maker = Maker::new(block, made);
        let last = maker.all()?;
        maker.drop_unused(last);
        self.keep(maker, last)
    }

    fn keep(&mut self, maker: Maker<'_>, last: Last) -> Option<Head> {
        let Maker { takes, sets, rows, ways, writes, .. } = maker;
        let first = u32::try_from(self.writes.len()).ok()?;
        let moved = |writes: Range<u32>| first + writes.start..first + writes.end;
        let ways = ways.into_iter().map(|way| Way { writes: moved(way.writes), ..way }).collect();
        append(&mut self.writes, writes)?;
        Some(Head {
            takes: append(&mut self.takes, takes)?,
            sets: append(&mut self.sets, sets)?,
            rows: append(&mut self.rows, rows)?,
            ways: append(&mut self.ways, ways)?,
            last,
        })
    }
}

#[inline]
fn of<'a, T>(all: &'a [T], range: &Range<u32>) -> &'a [T] {
    all.get(range.start as usize..range.end as usize).unwrap_or_default()
}

fn append<T>(all: &mut Vec<T>, mut some: Vec<T>) -> Option<Range<u32>> {
    let from = u32::try_from(all.len()).ok()?;
    all.append(&mut some);
    Some(from..u32::try_from(all.len()).ok()?)
}

/// A value whose registers are slots.
pub(super) fn evaluate(value: Value, slots: &[u64; SLOTS]) -> u64 {
    let get = |register: Register| slots[usize::from(register.0)];
    match value {
        Value::Sum(sum) => total(sum, slots),
        Value::Difference(a, b) => get(a).wrapping_sub(get(b)),
        Value::And(r, mask) => get(r) & mask,
        Value::ShiftLeft(r, n) => get(r) << (n & 63),
        Value::ShiftRight(r, n) => get(r) >> (n & 63),
        Value::ShiftRightSigned(r, n) => (get(r) as i64 >> (n & 63)) as u64,
        Value::Low32(r) => get(r) & 0xffff_ffff,
        Value::Low32Signed(r) => get(r) as u32 as i32 as i64 as u64,
    }
}

/// A sum whose registers are slots.
#[inline]
pub(super) fn total(sum: Sum, slots: &[u64; SLOTS]) -> u64 {
    let get = |register: Register| slots[usize::from(register.0)];
    let base = sum.base.map_or(0, get);
    let index = sum.index.map_or(0, |(r, n)| get(r).wrapping_mul(u64::from(n)));
    base.wrapping_add(index).wrapping_add(sum.disp as u64)
}

#[cfg(test)]
mod tests;
