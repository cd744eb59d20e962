//! Making a block's table: its steps, worked through with symbols.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record};
use ichnos_trace::{Register, Sum, Value};

use super::super::raw::KNOWN;
use super::super::stream::Made;
use super::{FIRST, FS, Last, Place, Row, SLOTS, Set, Take, Way, Write, ZERO};
use crate::code::{Block, Exit, Op};

/// A block being worked through.
pub(super) struct Maker<'a> {
    block: &'a Block,
    made: Made,
    /// What each register is.
    registers: [Place; Register::COUNT],
    /// Slots that something was computed from.
    asked: [bool; SLOTS],
    /// Whether registers may be changed before it is certain that all is as expected.
    at_once: bool,
    next: u8,
    word: u32,
    pc: GuestVa,
    insns: u32,
    /// The last reference, and where control goes.
    latest: Place,
    target: Place,
    pub(super) takes: Vec<Take>,
    pub(super) sets: Vec<Set>,
    pub(super) rows: Vec<Row>,
    pub(super) ways: Vec<Way>,
    pub(super) writes: Vec<Write>,
    /// Where return addresses lie that lead to the next block.
    pub(super) returns: Vec<Place>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(block: &'a Block, made: Made) -> Self {
        let mut registers = [Place::constant(0); Register::COUNT];
        for (slot, register) in (0..).zip(&mut registers) {
            *register = Place::of_slot(slot);
        }
        let (takes, sets, rows, ways, writes, returns) = Default::default();
        let (latest, target) = (Place::constant(0), Place::constant(0));
        let (next, word, pc, insns) = (FIRST, 0, block.entry, 0);
        Self {
            block,
            made,
            registers,
            asked: [false; SLOTS],
            at_once: true,
            next,
            word,
            pc,
            insns,
            latest,
            target,
            takes,
            sets,
            rows,
            ways,
            writes,
            returns,
        }
    }

    /// Works through blocks that follow each other, the last of which leads to `leads`; nothing if that cannot be known.
    /// So many bytes lie between the words of two.
    pub(super) fn chain(
        blocks: &[&'a Block],
        leads: GuestVa,
        (made, between): (Made, usize),
    ) -> Option<Self> {
        let mut maker = Self::new(blocks.first()?, made);
        let returns = |block: &&Block| matches!(block.ops.last(), Some(Op::Exit(Exit::Return)));
        maker.at_once = !blocks.iter().any(returns);
        let mut words = 0;
        for (i, block) in blocks.iter().enumerate() {
            (maker.block, maker.word) = (block, u32::try_from(words).ok()?);
            maker.through(blocks.get(i + 1).map_or(leads, |next| next.entry))?;
            words += block.len + between;
        }
        maker.way(GuestVa(0), None)?;
        Some(maker)
    }

    /// Works through a block that leads to `next`.
    fn through(&mut self, next: GuestVa) -> Option<()> {
        let Block { entry, turns, .. } = *self.block;
        for _ in 0..if next == entry { turns } else { 1 } {
            self.pc = entry;
            let leads = self.turn_to(next)?;
            if leads != next {
                return None;
            }
        }
        Some(())
    }

    /// Works through a turn of a block; where it leads, if the next block is at `next`.
    fn turn_to(&mut self, next: GuestVa) -> Option<GuestVa> {
        for op in &self.block.ops {
            let Op::Exit(exit) = *op else {
                self.op(*op)?;
                continue;
            };
            let (taken, target) = match exit {
                Exit::Cond(target) => (target == next, target),
                Exit::Direct(target) => (true, target),
                Exit::Computed => (true, next),
                Exit::Return => {
                    self.returns.push(self.latest);
                    (true, next)
                }
                Exit::Known => return None,
            };
            self.other(Record::Branch { taken, target });
            if taken {
                return Some(target);
            }
        }
        Some(self.pc)
    }

    /// Works through the block; nothing if it must be played step by step.
    pub(super) fn all(&mut self) -> Option<Last> {
        let (last, body) = self.block.ops.split_last()?;
        if self.block.turns > 1 {
            let mut leads = self.block.entry;
            for _ in 0..self.block.turns {
                self.pc = self.block.entry;
                body.iter().try_for_each(|op| self.op(*op))?;
                leads = self.turn(*last)?;
            }
            self.way(GuestVa(0), None)?;
            return Some(Last::Turns(leads));
        }
        // Nothing comes behind a transfer that is always made.
        body.iter().try_for_each(|op| self.op(*op))?;
        let last = match *last {
            Op::Exit(Exit::Direct(target)) => {
                self.other(Record::Branch { taken: true, target });
                Last::Fixed(target)
            }
            Op::Exit(Exit::Known) => Last::Known(self.target),
            Op::Exit(Exit::Computed) => Last::Computed,
            Op::Exit(Exit::Return) => Last::Return(self.latest),
            op => {
                self.op(op)?;
                Last::Fixed(self.pc)
            }
        };
        self.way(GuestVa(0), None)?;
        Some(last)
    }

    /// The end of a turn of several; where it leads if it is the last one.
    fn turn(&mut self, last: Op) -> Option<GuestVa> {
        let target = self.block.entry;
        let leads = match last {
            Op::Exit(Exit::Cond(to)) if to == target => {
                self.way(target, None)?;
                self.way(GuestVa(0), Some(target))?;
                self.other(Record::Branch { taken: true, target });
                self.pc
            }
            Op::Exit(Exit::Direct(to)) if to == target => {
                self.other(Record::Branch { taken: true, target });
                self.way(GuestVa(0), None)?;
                target
            }
            _ => return None,
        };
        Some(leads)
    }

    fn op(&mut self, op: Op) -> Option<()> {
        match op {
            Op::Insn(len, kind) => {
                self.insns += 1;
                self.other(Record::Insn { len, kind, pc: self.pc });
                self.pc = self.pc.offset(u64::from(len));
            }
            Op::Take4(register) => self.take(register, !0xffff_ffff, 4)?,
            Op::Take8(register) => self.take(register, 0, 8)?,
            Op::Derive(register, value) => {
                let place = self.value(value)?;
                self.set(register, place);
            }
            Op::Forget(register) => self.set(register, Place::constant(0)),
            Op::Ref(..) | Op::FsRef(..) if !self.asks_for_references() => {}
            Op::Ref(kind, flags, size, sum) => {
                let place = self.sum(sum, None)?;
                self.latest = place;
                self.row(kind.record(flags, size, GuestVa(0)), place);
            }
            Op::FsRef(kind, flags, size, sum) => {
                let place = self.sum(sum, Some(FS))?;
                self.row(kind.record(flags, size, GuestVa(0)), place);
            }
            Op::Target(sum) => self.target = self.sum(sum, None)?,
            Op::Exit(Exit::Cond(target)) => {
                self.way(target, None)?;
                self.other(Record::Branch { taken: false, target });
            }
            Op::Flex | Op::Exit(_) => return None,
        }
        Some(())
    }

    fn set(&mut self, register: Register, place: Place) {
        self.registers[usize::from(register.0) % Register::COUNT] = place;
    }

    fn get(&self, register: Register) -> Place {
        self.registers[usize::from(register.0) % Register::COUNT]
    }

    /// What something is computed from.
    fn ask(&mut self, register: Register) -> Place {
        let place = self.get(register);
        place.terms().for_each(|(slot, _)| self.asked[usize::from(slot)] = true);
        place
    }

    fn slot(&mut self) -> Option<u8> {
        let slot = self.next;
        self.next = slot.checked_add(1)?;
        Some(slot)
    }

    fn take(&mut self, register: Register, keep: u64, bytes: u32) -> Option<()> {
        let at = self.word;
        self.word += bytes;
        let own = register.0 % ZERO;
        // If nobody asks for what the register was before, the word is what it was.
        if self.at_once
            && self.ways.is_empty()
            && self.get(register) == Place::of_slot(own)
            && !self.asked[usize::from(own)]
        {
            self.takes.push(Take { at, slot: own, from: own, keep });
            return Some(());
        }
        let from = match keep {
            0 => ZERO,
            _ => {
                let place = self.ask(register);
                self.bare(place)?
            }
        };
        let slot = self.slot()?;
        let take = Take { at, slot, from, keep };
        // What is made of words and of registers before the block alone can come first.
        match from < FIRST {
            true => self.takes.push(take),
            false => self.sets.push(Set::Take(take)),
        }
        self.set(register, Place::of_slot(slot));
        Some(())
    }

    /// A slot that holds what is at a place.
    fn bare(&mut self, place: Place) -> Option<u8> {
        if place == Place::of_slot(place.base) {
            return Some(place.base);
        }
        let same = |set: &Set| match set {
            Set::Sum(slot, of) if *of == place => Some(*slot),
            _ => None,
        };
        if let Some(slot) = self.sets.iter().find_map(same) {
            return Some(slot);
        }
        let slot = self.slot()?;
        self.sets.push(Set::Sum(slot, place));
        Some(slot)
    }

    /// A sum of registers, to which a slot is added.
    fn sum(&mut self, sum: Sum, plus: Option<u8>) -> Option<Place> {
        let base = sum.base.map_or(Place::constant(0), |r| self.ask(r));
        let (index, scale) = sum.index.map_or((Place::constant(0), 1), |(r, n)| (self.ask(r), n));
        let plus = plus.map_or(Place::constant(0), Place::of_slot);
        let constant = |base: Place, index: Place| {
            let times = index.disp.wrapping_mul(u64::from(scale));
            base.disp.wrapping_add(times).wrapping_add(sum.disp as u64)
        };
        if let Some(place) = joined([plus, base], (index, scale), constant(base, index)) {
            return Some(place);
        }
        let (base, index) = (self.held(base)?, self.held(index)?);
        if let Some(place) = joined([plus, base], (index, scale), constant(base, index)) {
            return Some(place);
        }
        // Three slots: two of them first.
        let both = joined([Place::constant(0), base], (index, scale), constant(base, index))?;
        let both = self.held(both)?;
        joined([plus, both], (Place::constant(0), 1), both.disp)
    }

    /// The same in a slot of its own, unless it is a constant.
    fn held(&mut self, place: Place) -> Option<Place> {
        match place.terms().next() {
            None => Some(place),
            Some(_) => self.bare(place).map(Place::of_slot),
        }
    }

    fn value(&mut self, value: Value) -> Option<Place> {
        let constant = |place: Place| place.terms().next().is_none().then_some(place.disp);
        let of = match value {
            Value::Sum(sum) => return self.sum(sum, None),
            Value::Difference(a, b) => {
                let (a, b) = (self.ask(a), self.ask(b));
                if let Some(less) = constant(b) {
                    return Some(Place { disp: a.disp.wrapping_sub(less), ..a });
                }
                Value::Difference(Register(self.bare(a)?), Register(self.bare(b)?))
            }
            Value::And(r, mask) => Value::And(self.operand(r)?, mask),
            Value::ShiftLeft(r, n) => Value::ShiftLeft(self.operand(r)?, n),
            Value::ShiftRight(r, n) => Value::ShiftRight(self.operand(r)?, n),
            Value::ShiftRightSigned(r, n) => Value::ShiftRightSigned(self.operand(r)?, n),
            Value::Low32(r) => {
                let place = self.ask(r);
                let whole = self.whole(place);
                Value::Low32(Register(self.bare(whole)?))
            }
            Value::Low32Signed(r) => Value::Low32Signed(self.operand(r)?),
        };
        let slot = self.slot()?;
        self.sets.push(Set::Value(slot, of));
        Some(Place::of_slot(slot))
    }

    /// Of what is at a place, or something with the same lower half, which is computed from less.
    fn whole(&self, place: Place) -> Place {
        let halved = |set: &Set| match set {
            Set::Value(slot, Value::Low32(of)) if *slot == place.base => Some(of.0),
            _ => None,
        };
        let Some(of) = self.sets.iter().find_map(halved).filter(|_| place.index == ZERO) else {
            return place;
        };
        let summed = |set: &Set| match set {
            Set::Sum(slot, sum) if *slot == of => Some(*sum),
            _ => None,
        };
        let sum = self.sets.iter().find_map(summed).unwrap_or(Place::of_slot(of));
        Place { disp: sum.disp.wrapping_add(place.disp), ..sum }
    }

    fn operand(&mut self, register: Register) -> Option<Register> {
        let place = self.ask(register);
        self.bare(place).map(Register)
    }

    /// Whether addresses are wanted: as records, or since that of the last one may be where a return address lies.
    fn asks_for_references(&self) -> bool {
        self.made != Made::Nothing || matches!(self.block.ops.last(), Some(Op::Exit(Exit::Return)))
    }

    fn row(&mut self, record: Record, place: Place) {
        if self.made == Made::Nothing {
            return;
        }
        let Place { base, index, scale, disp } = place;
        self.rows.push(Row { record: record.moved(disp), base, index, scale });
    }

    /// What is no reference.
    fn other(&mut self, record: Record) {
        if self.made == Made::All {
            self.row(record, Place::constant(0));
        }
    }

    /// The block can be left here.
    fn way(&mut self, target: GuestVa, untaken: Option<GuestVa>) -> Option<()> {
        let from = u32::try_from(self.writes.len()).ok()?;
        let mut written = [false; SLOTS];
        for register in 0..ZERO {
            let mut place = self.get(Register(register));
            // If there are no records, what is known within instructions alone does not matter.
            let is_inner = self.made == Made::Nothing && !KNOWN.contains(&Register(register));
            if is_inner || place == Place::of_slot(register) {
                continue;
            }
            // A register that was just written is not what it was before the block.
            if place.terms().any(|(slot, _)| written[usize::from(slot)]) {
                place = Place::of_slot(self.own(place)?);
            }
            written[usize::from(register)] = true;
            self.writes.push(Write { register, place });
        }
        let (rows, insns) = (u32::try_from(self.rows.len()).ok()?, self.insns);
        let writes = from..u32::try_from(self.writes.len()).ok()?;
        self.ways.push(Way { target, rows, insns, writes, untaken });
        Some(())
    }

    /// Drops what was computed and is not asked for when the blocks are left, if there are no records.
    pub(super) fn drop_unused(&mut self, last: Last) {
        if self.made != Made::Nothing {
            return;
        }
        let mut used = [false; SLOTS];
        let mut places: Vec<Place> = self.writes.iter().map(|write| write.place).collect();
        places.extend(&self.returns);
        if let Last::Known(place) | Last::Return(place) = last {
            places.push(place);
        }
        let slots = places.into_iter().flat_map(Place::terms);
        slots.for_each(|(slot, _)| used[usize::from(slot)] = true);
        let mut sets = std::mem::take(&mut self.sets);
        sets.reverse();
        sets.retain(|set| {
            let (slot, from): (_, Vec<u8>) = match *set {
                Set::Take(take) => (take.slot, vec![take.from]),
                Set::Sum(slot, place) => (slot, place.terms().map(|(slot, _)| slot).collect()),
                Set::Value(slot, value) => (slot, registers(value)),
            };
            if used[usize::from(slot)] {
                from.into_iter().for_each(|slot| used[usize::from(slot)] = true);
            }
            used[usize::from(slot)]
        });
        sets.reverse();
        self.sets = sets;
        self.takes.retain(|take| take.slot < ZERO || used[usize::from(take.slot)]);
    }

    /// A slot that is no register's and holds what is at a place.
    fn own(&mut self, place: Place) -> Option<u8> {
        match self.bare(place)? {
            register if register < ZERO => {
                let slot = self.slot()?;
                self.sets.push(Set::Sum(slot, place));
                Some(slot)
            }
            slot => Some(slot),
        }
    }
}

/// The slots of a value whose registers stand for slots.
fn registers(value: Value) -> Vec<u8> {
    match value {
        Value::Sum(Sum { base, index, .. }) => {
            base.into_iter().chain(index.map(|(r, _)| r)).map(|r| r.0).collect()
        }
        Value::Difference(a, b) => vec![a.0, b.0],
        Value::And(r, _)
        | Value::ShiftLeft(r, _)
        | Value::ShiftRight(r, _)
        | Value::ShiftRightSigned(r, _)
        | Value::Low32(r)
        | Value::Low32Signed(r) => vec![r.0],
    }
}

/// The sum of places and of one that counts several times, with this constant; nothing if it has more than two slots, or
/// both count several times.
fn joined(places: [Place; 2], (index, times): (Place, u8), disp: u64) -> Option<Place> {
    let mut terms = [(ZERO, 0_u8); 2];
    let multiplied = index.terms().map(|(slot, scale)| (slot, scale.checked_mul(times)));
    let plain = places.into_iter().flat_map(Place::terms).map(|(slot, scale)| (slot, Some(scale)));
    for (slot, scale) in plain.chain(multiplied) {
        let term = terms.iter_mut().find(|term| [slot, ZERO].contains(&term.0))?;
        *term = (slot, term.1.checked_add(scale?)?);
    }
    let [(base, once), (index, scale)] = terms;
    match (once, scale) {
        (0 | 1, 0) => Some(Place { disp, ..Place::of_slot(base) }),
        (0 | 1, _) => Some(Place { base, index, scale, disp }),
        (_, 0 | 1) => Some(Place { base: index, index: base, scale: once, disp }),
        _ => None,
    }
}
