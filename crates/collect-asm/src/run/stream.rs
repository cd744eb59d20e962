//! One context's words into records.
//!
//! Which exit a block was left by is known only when the next one is, so the last block is held
//! until then. A block that a signal interrupts is played up to the interrupted instruction and
//! goes on from there when the handler has returned; its remaining words are read then. Blocks that are left
//! in the usual way need no such care, and are played by their tables (`table.rs`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{GuestVa, Record};
use ichnos_trace::{Register, Run};

use super::raw::{KNOWN, Known};
use super::table::{FS, Left, Link, Reached, SLOTS, Tables, evaluate, total};
use crate::code::{Block, Exit, Op, Payload};
use crate::note::{u32_at, u64_at};

/// Below a return to other code, all within this distance go to copied code.
const NEAR: u64 = 1 << 20;

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// The thread went on there, in copied code.
    Next(GuestVa),
    /// The instruction there has not been executed.
    Cut(GuestVa),
    /// The thread left copied code.
    Outside,
    /// Nobody knows.
    Unknown,
}

/// A block that is not finished.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// Its number among the copy's blocks.
    pub(crate) block: usize,
    /// Where its words lie in the buffer.
    pub(crate) at: u64,
    /// Its words.
    pub(crate) words: Vec<u8>,
    /// What was done of it.
    pub(crate) done: Done,
    /// How many turns it had when it was left, if it is a loop and that was told.
    pub(crate) left: Option<usize>,
}

/// How far a block was played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    op: usize,
    word: usize,
    pc: GuestVa,
    turn: usize,
}

impl Done {
    /// Nothing of a block yet.
    pub(crate) const fn nothing(block: &Block) -> Self {
        Self { op: 0, word: 0, pc: block.entry, turn: 0 }
    }

    /// The instruction that comes next.
    pub(crate) const fn pc(self) -> GuestVa {
        self.pc
    }
}

/// A thread's state as replay knows it.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    /// The registers, the base of `fs`, and what tables compute.
    slots: [u64; SLOTS],
    /// Return addresses outside copied code: where on the stack, and which.
    pub(crate) outside: Vec<(u64, GuestVa)>,
    target: GuestVa,
    /// The lowest address of the last reference.
    last: u64,
    /// Registers that were changed before the instruction that comes next, whatever was stored of them for it.
    changed: Vec<(Register, u64)>,
}

/// How many turns a block had when the thread went on at `next`; `left` is what was told.
pub(crate) fn turns(block: &Block, left: Option<usize>, next: GuestVa) -> usize {
    turns_of(block.turns, left, next == block.entry)
}

/// The same of a block that can have so many.
pub(super) const fn turns_of(most: usize, left: Option<usize>, goes_on: bool) -> usize {
    match left {
        Some(turns) if turns < most => turns,
        Some(_) => most,
        None if goes_on && most > 1 => most,
        None => 0,
    }
}

/// What was played.
#[derive(Debug)]
pub(crate) struct Out {
    /// The records.
    pub(crate) records: Vec<Record>,
    /// Instructions among them, or that would be.
    pub(crate) insns: u64,
    /// Accesses that were too many to be made records, and how many of the records come before them.
    pub(crate) long: Option<(usize, Vec<Run>)>,
    /// Which records are made.
    pub(crate) made: Made,
}

/// Which records are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Made {
    /// All.
    All,
    /// References alone.
    References,
    /// None; registers are followed and instructions counted.
    Nothing,
}

impl Out {
    /// Nothing yet.
    pub(crate) const fn new(made: Made) -> Self {
        Self { records: Vec::new(), insns: 0, long: None, made }
    }

    #[inline]
    fn insn(&mut self, record: Record) {
        self.insns += 1;
        self.other(record);
    }

    #[inline]
    fn reference(&mut self, record: Record) {
        if self.made != Made::Nothing {
            self.records.push(record);
        }
    }

    /// The accesses of an instruction for which this was stored.
    fn varying(&mut self, payload: &Payload, stored: &[u8], fs: u64) {
        match payload.runs(stored, fs) {
            Some(runs) => self.long = Some((self.records.len(), runs)),
            None => drop(payload.evaluate(stored, fs, &mut self.records)),
        }
    }

    /// How much was played.
    const fn mark(&self) -> (usize, u64) {
        (self.records.len(), self.insns)
    }

    /// Takes back what was played since.
    fn take_back(&mut self, (records, insns): (usize, u64)) {
        self.records.truncate(records);
        self.insns = insns;
    }

    /// What is no reference.
    #[inline]
    pub(super) fn other(&mut self, record: Record) {
        if self.made == Made::All {
            self.records.push(record);
        }
    }
}

/// How a transfer was passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Passed {
    /// It was taken.
    By(GuestVa),
    /// It was not taken.
    Not,
    /// Nobody knows.
    Unknown,
}

/// What playing a block came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Played {
    /// It is over; the thread is at this address, if that is known.
    Over(Option<GuestVa>),
    /// It was interrupted.
    Paused(Done),
}

impl Shadow {
    /// A thread of which nothing is known.
    pub(crate) const fn new() -> Self {
        Self {
            slots: [0; SLOTS],
            outside: Vec::new(),
            target: GuestVa(0),
            last: 0,
            changed: Vec::new(),
        }
    }

    /// A function was entered from outside: stack pointer, return address, base of `fs`.
    pub(crate) fn entered(&mut self, rsp: u64, back: GuestVa, fs: u64) {
        self.called(rsp, fs);
        self.outside.retain(|(slot, _)| *slot != rsp);
        self.outside.push((rsp, back));
    }

    /// Goes on with these registers and this base of `fs`.
    pub(crate) fn resumed(&mut self, registers: &[u64], fs: u64) {
        for (place, register) in self.slots.iter_mut().zip(registers) {
            *place = *register;
        }
        self.slots[usize::from(FS)] = fs;
    }

    /// Goes on with these registers changed. If that is inside a block, words that were stored for the instruction that comes next do not say so.
    pub(crate) fn change(&mut self, registers: &[(Register, u64)], is_inside: bool) {
        self.changed.retain(|old| registers.iter().all(|new| new.0 != old.0));
        self.changed.extend_from_slice(registers);
        self.apply_changes();
        if !is_inside {
            self.changed.clear();
        }
    }

    /// Whether words that were stored do not say what registers hold.
    pub(crate) const fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    fn apply_changes(&mut self) {
        for (register, value) in self.changed.clone() {
            *self.register(register) = value;
        }
    }

    /// The return that reads its address at `rsp` goes to code that is not copied.
    pub(crate) fn goes_back(&mut self, rsp: u64, back: GuestVa) {
        self.outside.retain(|(slot, _)| *slot != rsp);
        self.outside.push((rsp, back));
    }

    /// A function was entered by a computed call in copied code.
    pub(crate) fn called(&mut self, rsp: u64, fs: u64) {
        self.slots[4] = rsp;
        self.slots[usize::from(FS)] = fs;
    }

    /// Plays a block by its table up to where the thread went on (`Tables::play`); where the thread is then.
    #[inline(always)]
    pub(super) fn pass(
        &mut self,
        tables: &Tables,
        number: usize,
        (words, left, next): (&[u8], Option<usize>, GuestVa),
        out: &mut Out,
    ) -> Option<GuestVa> {
        match tables.play(number, (words, left, next), &mut self.slots, out)? {
            Left::To(target) => Some(target),
            Left::Return(slot) => {
                let target = self.back_outside(slot).unwrap_or(next);
                out.other(Record::Branch { taken: true, target });
                Some(target)
            }
        }
    }

    /// Plays the longest chain of blocks that begins with one (`Tables::play_chain`).
    #[inline(always)]
    pub(super) fn pass_chain(
        &mut self,
        tables: &Tables,
        link: Link,
        words: &[u8],
        out: &mut Out,
    ) -> Option<Reached> {
        let innermost = self.outside.last().map_or(u64::MAX, |(slot, _)| *slot);
        // Far below the innermost return to other code there is none.
        let none = self.outside.is_empty();
        let inside = |slot: u64| none || slot < innermost && innermost - slot < NEAR;
        tables.play_chain(link, words, &mut self.slots, inside, out)
    }

    /// Plays a block with so many turns finished before the one that `until` is about.
    #[inline]
    pub(crate) fn play(
        &mut self,
        block: &Block,
        words: &[u8],
        (done, turns): (Done, usize),
        until: Until,
        out: &mut Out,
    ) -> Played {
        if block.turns == 1 {
            return self.play_once(block, words, done, until, out);
        }
        let each = block.len / block.turns;
        let of = |turn: usize| words.get(turn * each..).unwrap_or_default();
        let mut done = done;
        while done.turn < turns {
            self.play_once(block, of(done.turn), done, Until::Next(block.entry), out);
            done = Done { turn: done.turn + 1, ..Done::nothing(block) };
        }
        if done.turn == block.turns {
            return Played::Over(Some(block.entry));
        }
        self.play_once(block, of(done.turn), done, until, out)
    }

    #[inline]
    fn play_once(
        &mut self,
        block: &Block,
        words: &[u8],
        done: Done,
        until: Until,
        out: &mut Out,
    ) -> Played {
        let Done { op: first, mut word, mut pc, turn } = done;
        // Where the block goes on if it is interrupted before the next instruction: words
        // that precede it may not be stored yet.
        let mut safe = (first, word);
        let mut before = out.mark();
        for (i, op) in block.ops.iter().enumerate().skip(first) {
            match *op {
                Op::Take4(register) => {
                    let low = u32_at(words, word).unwrap_or(0);
                    let place = self.register(register);
                    *place = *place & !0xffff_ffff | u64::from(low);
                    word += 4;
                    continue;
                }
                Op::Take8(register) => {
                    *self.register(register) = u64_at(words, word).unwrap_or(0);
                    word += 8;
                    continue;
                }
                Op::Insn(len, kind) => {
                    if until == Until::Cut(pc) {
                        return Played::Paused(Done { op: safe.0, word: safe.1, pc, turn });
                    }
                    if self.is_changed() {
                        self.apply_changes();
                        self.changed.clear();
                    }
                    before = out.mark();
                    out.insn(Record::Insn { len, kind, pc });
                    pc = pc.offset(u64::from(len));
                }
                Op::Ref(kind, flags, size, sum) => {
                    self.last = total(sum, &self.slots);
                    out.reference(kind.record(flags, size, GuestVa(self.last)));
                }
                Op::FsRef(kind, flags, size, sum) => {
                    let addr = total(sum, &self.slots).wrapping_add(self.fs());
                    out.reference(kind.record(flags, size, GuestVa(addr)));
                }
                Op::Derive(register, value) => {
                    *self.register(register) = evaluate(value, &self.slots);
                }
                Op::Forget(register) => *self.register(register) = 0,
                Op::Target(sum) => self.target = GuestVa(total(sum, &self.slots)),
                Op::Flex => {
                    let payload = block.payload.as_ref().filter(|_| out.made != Made::Nothing);
                    if let Some(payload) = payload {
                        let stored = words.get(block.len - payload.len()..).unwrap_or_default();
                        out.varying(payload, stored, self.fs());
                    }
                }
                Op::Exit(exit) => {
                    let rest = block.ops.len() - (i + 1);
                    match self.leave((exit, rest), until, out) {
                        Passed::By(target) => return Played::Over(Some(target)),
                        Passed::Not => {}
                        Passed::Unknown => {
                            out.take_back(before);
                            return Played::Over(None);
                        }
                    }
                }
            }
            safe = (i + 1, word);
        }
        match until {
            Until::Cut(at) if at != pc => Played::Over(None),
            _ => Played::Over(Some(pc)),
        }
    }

    /// Records a transfer, behind which there is so much of the block. If nobody knows whether and where it went, there is none: a
    /// killed thread may not have come to it.
    fn leave(&mut self, (exit, rest): (Exit, usize), until: Until, out: &mut Out) -> Passed {
        let (taken, target) = match (exit, until) {
            (Exit::Direct(target), _) => (true, target),
            (Exit::Known, _) => (true, self.target),
            (Exit::Cond(target), Until::Next(next)) => (next == target, target),
            (Exit::Cond(target), Until::Cut(_)) => (false, target),
            // A branch to code without a copy ends its block; after any other there would be one.
            (Exit::Cond(target), Until::Outside) => (rest == 0, target),
            (Exit::Computed, Until::Next(next) | Until::Cut(next)) => (true, next),
            (Exit::Return, _) => match (self.back_outside(self.last), until) {
                (Some(back), _) => (true, back),
                (None, Until::Next(next) | Until::Cut(next)) => (true, next),
                (None, _) => return Passed::Unknown,
            },
            _ => return Passed::Unknown,
        };
        out.other(Record::Branch { taken, target });
        if taken { Passed::By(target) } else { Passed::Not }
    }

    /// Where the return instruction goes that just read its address at `slot`, if that is outside copied
    /// code. Frames nest, so it is the innermost such return; only after a jump out of one,
    /// or with several stacks, it may be another.
    fn back_outside(&mut self, slot: u64) -> Option<GuestVa> {
        let (innermost, back) = *self.outside.last()?;
        if innermost == slot {
            self.outside.pop();
            return Some(back);
        }
        if slot < innermost && innermost - slot < NEAR {
            return None;
        }
        let i = self.outside.iter().rposition(|(s, _)| *s == slot)?;
        Some(self.outside.remove(i).1)
    }

    pub(super) fn register(&mut self, register: Register) -> &mut u64 {
        &mut self.slots[usize::from(register.0) % Register::COUNT]
    }

    /// The registers that are known across blocks.
    pub(super) fn known(&self) -> Known {
        let slot = |r: Register| if r == ichnos_lift::FS { FS } else { r.0 };
        KNOWN.map(|register| self.slots[usize::from(slot(register))])
    }

    /// The stack pointer and the base of `fs`.
    pub(super) const fn stack(&self) -> (u64, u64) {
        (self.slots[4], self.fs())
    }

    /// The base of `fs`.
    pub(super) const fn fs(&self) -> u64 {
        self.slots[FS as usize]
    }
}

#[cfg(test)]
mod tests;
