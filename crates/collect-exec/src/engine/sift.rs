//! The code before each instruction of a program that runs behind a sieve: it counts pieces, looks whether a
//! reference is to a known line, and if so stamps that with the time; if not it goes where lines are told.
//!
//! What is looked up lies in the thread's tables (`sieved`). The code needs flags and two registers: flags
//! and registers that are dead, the register that the fragment does not use (`home`), or such as are
//! saved meanwhile. Telling happens behind the fragment's code, and in the glue.
//!
//! Time goes on once a piece, by a tick for each of its references; each is stamped with its own.
//!
//! Flags that may be needed later are saved at the first reference and given back before the first instruction that
//! has to do with them. What a fault shows of flags that the program was about to overwrite is not what
//! it left there.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;
use std::ops::Range;

use ichnos_base::{Lines, Sieve};
use ichnos_isa_x86::{AddrExpr, Effects, Flags, Flow, Inst, MemOperand, Role, Scratch};

use super::ctx::{SIEVE_FETCHED, SIEVE_SET, SIEVE_SLOTS, at};
use super::emit::{Emit, Gp};
use super::fragment::{ExitKind, Spills};
use super::group::{self, Asked, Group, may_fault};
use super::home::Home;
use super::needed::{self, Live};
use super::slots::{self, MOV_FROM, MOV_TO, Place, Time, load_time};
use super::superblock::Decoded;
use super::translate::{Draft, Surroundings, Told};
use super::{sieved, thread};
use crate::sieve::{self, line};

/// Registers that can be borrowed, the likeliest dead first; not those whose encoding as a base is longer.
const BORROWED: [u8; 14] = [10, 9, 8, 0, 1, 2, 6, 7, 11, 3, 5, 13, 14, 15];
/// What is inserted into a superblock.
pub struct Sifter {
    first: u32,
    insts: Vec<Inst>,
    effects: Vec<Effects>,
    pieces: Vec<Range<usize>>,
    /// What is needed before each instruction.
    live: Vec<Live>,
    /// The lines that each instruction is the first to be fetched from, and their numbers.
    fetched: Vec<Vec<(u64, u32)>>,
    /// How many references each instruction's piece makes from that instruction on.
    left: Vec<u32>,
    /// Which accesses are looked up before each instruction.
    asked: Vec<Asked>,
    pub(super) sieve: Sieve,
}

/// A way behind the fragment's code, to who knows more lines of the set.
#[derive(Clone, Debug)]
pub struct Stub {
    /// The displacement that leads there.
    from: usize,
    /// Where it goes on.
    back: usize,
    asks: Asks,
}

#[derive(Clone, Debug)]
enum Asks {
    /// A fetch, by way of this register.
    Fetch(Fetch, Gp),
    /// An access: where, by way of this register, and what.
    Access(AddrExpr, Gp, u32),
    /// The accesses of a group, one by one, by way of these two registers.
    Members(Vec<Member>, (Gp, Gp), Lines),
}

/// An access of a group.
#[derive(Clone, Copy, Debug)]
struct Member {
    operand: MemOperand,
    /// How much earlier than the clock it is.
    ahead: u32,
}

/// A fetch from a line.
#[derive(Clone, Copy, Debug)]
struct Fetch {
    /// Of the instruction at this address.
    pc: u64,
    /// The line's address.
    line: u64,
    number: u32,
    set: u32,
    /// How much earlier than the clock it is.
    ahead: u32,
}

impl Sifter {
    /// For a superblock.
    pub fn new(around: &mut dyn Surroundings, insns: &[Decoded], sieve: Sieve) -> Self {
        let mut scratch = Scratch::new();
        let mut inst = |d: &Decoded| {
            d.inst.as_deref().copied().unwrap_or_else(|| Inst::from_raw_with(d.insn, &mut scratch))
        };
        let insts: Vec<Inst> = insns.iter().map(&mut inst).collect();
        let effects: Vec<Effects> = insts.iter().map(|i| i.effects_with(&mut scratch)).collect();
        let pieces = sieve::pieces(&insts);
        let live = needed::liveness(around, &insts, &effects);
        let fetched = fetched(around, &insts, sieve.code.shift);
        let left = references_left(&insts, &fetched, &pieces);
        let asked = group::asked(&insts, &effects, &pieces, 1 << sieve.data.shift);
        let first = around.identifiers(pieces.len());
        if first + pieces.len() as u32 > sieve::MOST_PIECES {
            sieved::too_much_code();
        }
        Self { first, insts, effects, pieces, live, fetched, left, asked, sieve }
    }

    /// What the host must know.
    pub fn told(&self, insns: &[Decoded]) -> Told {
        // What lies in a stream is no concern of anybody who looks for paths.
        Told::new(insns, self.first, vec![(0, 0); self.pieces.len()])
    }

    /// Writes what stands before an instruction.
    pub fn before(&self, draft: &mut Draft, insn: usize, pc: u64) {
        let inst = &self.insts[insn];
        if let Some(piece) = self.pieces.iter().position(|piece| piece.start == insn) {
            self.count(draft, piece, pc);
        }
        // Each is a tick earlier than the next one.
        let mut ahead = self.left[insn] * sieved::TICK;
        for &(line, number) in &self.fetched[insn] {
            ahead -= sieved::TICK;
            self.free_flags(draft, insn, pc);
            let set = line as u32 & sieved::sets(self.sieve.code);
            let line = line << self.sieve.code.shift;
            self.fetch(draft, insn, Fetch { pc, line, number, set, ahead });
            draft.site(pc, Spills::NONE);
        }
        match &self.asked[insn] {
            Asked::Own if sieve::is_simple(inst) => {
                for operand in inst.memory() {
                    ahead -= sieved::TICK;
                    self.free_flags(draft, insn, pc);
                    self.access(draft, insn, operand, ahead);
                    draft.site(pc, Spills::NONE);
                }
            }
            Asked::Group(group) => {
                self.free_flags(draft, insn, pc);
                self.group(draft, insn, group);
                draft.site(pc, Spills::NONE);
            }
            Asked::Own | Asked::Before => {}
        }
        if let Some(masked) = sieve::masked(inst) {
            self.masked(draft, insn, &masked, pc);
            return;
        }
        self.give_flags(draft, insn, pc);
        if !sieve::is_simple(inst) {
            leave(draft, pc);
        }
    }

    fn count(&self, draft: &mut Draft, piece: usize, pc: u64) {
        let (insns, home) = (self.pieces[piece].clone(), draft.now);
        let beside = match home {
            Home::Scratch(reg) if !draft.flags_saved && self.leaves_flags(&insns) => Some(reg),
            _ => None,
        };
        draft.rest = 0;
        if beside.is_none() {
            self.free_flags(draft, insns.start, pc);
        }
        draft.site(pc, Spills::NONE);
        draft.block = self.first + piece as u32;
        let counter = thread::COUNTERS_AT as u32 + 8 * draft.block;
        let ticks = self.left[insns.start] * sieved::TICK;
        let adds = [(counter, 1), (at::CLOCK, ticks)].into_iter().filter(|&(_, by)| by > 0);
        adds.for_each(|(place, by)| match beside {
            Some(reg) => draft.emit.add_by(reg, place, by),
            None => draft.emit.add(place, by),
        });
        draft.rest = insns.len() as u8;
        draft.site(pc, Spills::NONE);
    }

    /// Whether a piece begins with flags that are needed, and its references come when they no longer are: as between two
    /// branches after one comparison.
    fn leaves_flags(&self, insns: &Range<usize>) -> bool {
        if self.live[insns.start].flags.is_empty() {
            return false;
        }
        let refers = |&insn: &usize| {
            let next = if insn + 1 < insns.end { self.left[insn + 1] } else { 0 };
            self.left[insn] > next || !sieve::is_simple(&self.insts[insn])
        };
        let first = insns.clone().find(refers);
        first.is_none_or(|insn| self.live[insn].flags.is_empty())
    }

    /// Makes the flags free for use before an instruction.
    pub(super) fn free_flags(&self, draft: &mut Draft, insn: usize, pc: u64) {
        if draft.flags_saved || self.live[insn].flags.is_empty() {
            return;
        }
        draft.emit.save_flags();
        draft.flags_saved = true;
        draft.site(pc, Spills::NONE);
    }

    /// Gives the program its flags back before an instruction that has to do with them, or is the last.
    pub(super) fn give_flags(&self, draft: &mut Draft, insn: usize, pc: u64) {
        if !draft.flags_saved {
            return;
        }
        let flags = &self.effects[insn].flags;
        let reads = !flags.read.and(Flags::ARITHMETIC).is_empty();
        let changes = !flags.changed().and(Flags::ARITHMETIC).is_empty();
        let replaces = flags.replaced().has(Flags::ARITHMETIC);
        let goes_on = self.insts[insn].flow() == Flow::Next && insn + 1 < self.insts.len();
        if goes_on && !reads && (!changes || replaces) {
            draft.flags_saved = !replaces;
        } else {
            draft.emit.restore_flags();
            draft.flags_saved = false;
        }
        draft.site(pc, Spills::NONE);
    }

    fn fetch(&self, draft: &mut Draft, insn: usize, fetch: Fetch) {
        let place = SIEVE_FETCHED + 8 * fetch.number;
        let time = match draft.now {
            Home::Scratch(reg) => Borrow { reg, slot: None },
            _ => self.borrow(draft, insn, 1 << RSP, at::SPILL_FAR),
        };
        let emit = &mut draft.emit;
        emit.raw(&[0x65, 0x48, 0x83, 0x3c, 0x25]); // cmp qword gs:[place], 0
        emit.raw(&place.to_le_bytes());
        emit.raw(&[0]);
        let from = emit.jump_if(EQUAL);
        if may_fault(&self.insts[insn]) {
            emit.load(time.reg, place);
            emit.save(at::UNDO_FETCH, time.reg);
            emit.store32(at::UNDO_FETCH_PC, fetch.pc as u32);
        }
        load_time(emit, time.reg, fetch.ahead);
        emit.save(place, time.reg);
        let asks = Asks::Fetch(fetch, time.reg);
        draft.stubs.push(Stub { from, back: emit.offset(), asks });
        time.give_back(emit);
    }

    /// Looks the accesses of a group up. Those that are not all in one line are looked up one by one, behind the
    /// fragment's code.
    fn group(&self, draft: &mut Draft, insn: usize, group: &Group) {
        let (line, slot) = self.borrow_two(draft, insn, 1 << RSP);
        let members: Vec<Member> = group
            .members
            .iter()
            .map(|(insn, operand)| {
                let later = self.left[*insn] - self.fetched[*insn].len() as u32 - 1;
                Member { operand: *operand, ahead: later * sieved::TICK }
            })
            .collect();
        let last = members.last().map_or(0, |member| member.ahead);
        let (emit, lines) = (&mut draft.emit, self.sieve.data);
        emit.lea(line.reg, Some(Gp(RSP)), None, group.bytes.1);
        emit.lea(slot.reg, Some(Gp(RSP)), None, group.bytes.0);
        slots::find(emit, (line.reg, slot.reg), lines);
        let from = emit.jump_if(NOT_EQUAL);
        Place::In(slot.reg).way(emit, slot.reg);
        load_time(emit, line.reg, last);
        let time = if group.stores() { Time::Stored } else { Time::Loaded };
        time.op(emit, MOV_TO, line.reg, slot.reg);
        let back = emit.offset();
        let asks = Asks::Members(members, (line.reg, slot.reg), lines);
        draft.stubs.push(Stub { from, back, asks });
        slot.give_back(emit);
        line.give_back(emit);
    }

    fn access(&self, draft: &mut Draft, insn: usize, operand: &MemOperand, ahead: u32) {
        let used = used(operand);
        let (line, way) = self.borrow_two(draft, insn, used);
        let (what, time) = what(operand, ahead);
        let asks = Asks::Access(operand.address, line.reg, what);
        let emit = &mut draft.emit;
        let place = match self.fixed(operand) {
            Some(place) => {
                let keep = u64::MAX << self.sieve.data.shift;
                emit.set(line.reg, operand.address.disp as u64 & keep);
                Place::At(place).compare(emit, line.reg);
                Place::At(place)
            }
            None => {
                slots::address(emit, line.reg, &operand.address, operand.size.max(1) - 1);
                slots::look_up(emit, (line.reg, way.reg), operand.size, self.sieve.data);
                Place::In(way.reg)
            }
        };
        let from = emit.jump_if(NOT_EQUAL);
        place.way(emit, way.reg);
        if sieved::may_be_undone(operand) {
            time.op(emit, MOV_FROM, line.reg, way.reg);
            emit.save(at::UNDO, line.reg);
        }
        load_time(emit, line.reg, ahead);
        time.op(emit, MOV_TO, line.reg, way.reg);
        draft.stubs.push(Stub { from, back: emit.offset(), asks });
        way.give_back(emit);
        line.give_back(emit);
    }

    /// Eight times the number of the slot of an operand that is always in the same line.
    fn fixed(&self, operand: &MemOperand) -> Option<u32> {
        let (first, shift) = (operand.address.disp as u64, self.sieve.data.shift);
        let last = first.wrapping_add(u64::from(operand.size.max(1)) - 1);
        let fixed = operand.address.is_constant() && first >> shift == last >> shift;
        fixed.then(|| 8 * ((first >> shift) as u32 & ((1 << SIEVE_SLOTS) - 1)))
    }

    /// Two registers to use before an instruction, none of these.
    pub(super) fn borrow_two(&self, draft: &mut Draft, insn: usize, not: u16) -> (Borrow, Borrow) {
        let one = match draft.now {
            Home::Scratch(reg) => Borrow { reg, slot: None },
            _ => self.borrow(draft, insn, not, at::SPILL_FAR),
        };
        let other = self.borrow(draft, insn, not | 1 << one.reg.0, at::SPILL_RDX);
        (one, other)
    }

    /// A register to use before an instruction.
    fn borrow(&self, draft: &mut Draft, insn: usize, not: u16, slot: u32) -> Borrow {
        let home = match draft.now {
            Home::Scratch(reg) => 1 << reg.0,
            _ => 0,
        };
        let free = |n: &u8| (not | home) >> n & 1 == 0;
        let live = self.live[insn].registers;
        let dead = |n: &u8| free(n) && live >> n & 1 == 0;
        if let Some(number) = BORROWED.into_iter().find(dead) {
            if draft.lost >> number & 1 == 0 {
                draft.lose(Gp(number));
            }
            return Borrow { reg: Gp(number), slot: None };
        }
        let reg = Gp(BORROWED.into_iter().find(free).unwrap_or(BORROWED[0]));
        draft.emit.save(slot, reg);
        Borrow { reg, slot: Some(slot) }
    }
}

/// The registers in which an operand's address is, and the stack pointer.
pub(super) fn used(operand: &MemOperand) -> u16 {
    operand.address.registers().fold(1 << RSP, |set, reg| set | 1 << reg.number())
}

/// A register in use, and where the program's value is if it must come back.
#[derive(Clone, Copy)]
pub(super) struct Borrow {
    pub(super) reg: Gp,
    slot: Option<u32>,
}

impl Borrow {
    pub(super) fn give_back(self, emit: &mut Emit) {
        if let Some(slot) = self.slot {
            emit.load(self.reg, slot);
        }
    }
}

/// Leaves the cache to have the accesses of an instruction noted that vary.
pub(super) fn leave(draft: &mut Draft, pc: u64) {
    draft.leave_for(ExitKind::Flexible, pc, draft.block);
    draft.settle();
    draft.site(pc, Spills::NONE);
}

/// What is told about an access, and which time is its.
fn what(operand: &MemOperand, ahead: u32) -> (u32, Time) {
    let (kind, time) = match operand.role {
        Role::Store => (line::STORE, Time::Stored),
        Role::Both => (line::LOAD | line::STORE, Time::Stored),
        Role::Load | Role::Prefetch | Role::Flush => (line::LOAD, Time::Loaded),
    };
    (kind as u32 | operand.size.max(1) << sieved::SIZE | ahead << sieved::AHEAD, time)
}

pub(super) const EQUAL: u8 = 4;
pub(super) const NOT_EQUAL: u8 = 5;
pub(super) const RSP: u8 = 4;

/// Writes the ways behind its code that a fragment has gathered.
pub fn write_stubs(draft: &mut Draft) {
    // Those of a group have ways of their own.
    let mut stubs = VecDeque::from(std::mem::take(&mut draft.stubs));
    while let Some(stub) = stubs.pop_front() {
        let emit = &mut draft.emit;
        emit.land(stub.from);
        let back = emit.base() + stub.back as u64;
        // Words are stored whole, because they are read so: the processor waits long for what was stored in parts.
        match stub.asks {
            Asks::Fetch(fetch, reg) => {
                emit.set(reg, fetch.line);
                emit.save(at::TELL_ADDR, reg);
                emit.lea_here(reg, back);
                emit.save(at::TELL_BACK, reg);
                emit.store32(at::TELL_NUMBER, fetch.number);
                emit.store32(at::TELL_SET, SIEVE_SET * fetch.set);
                emit.store32(at::TELL_WHAT, line::FETCH as u32 | fetch.ahead << sieved::AHEAD);
                emit.store32(at::UNDO_FETCH_PC, fetch.pc as u32);
                emit.jump_slot(at::GLUE_TELL_FETCH);
            }
            Asks::Members(members, (line, slot), lines) => {
                for Member { operand, ahead } in members {
                    let (what, time) = what(&operand, ahead);
                    slots::address(emit, line, &operand.address, operand.size.max(1) - 1);
                    slots::look_up(emit, (line, slot), operand.size, lines);
                    let from = emit.jump_if(NOT_EQUAL);
                    Place::In(slot).way(emit, slot);
                    load_time(emit, line, ahead);
                    time.op(emit, MOV_TO, line, slot);
                    let asks = Asks::Access(operand.address, line, what);
                    stubs.push_back(Stub { from, back: emit.offset(), asks });
                }
                let there = emit.jump();
                emit.fix32(there, back.wrapping_sub(emit.here()) as u32);
            }
            Asks::Access(expr, reg, what) => {
                slots::address(emit, reg, &expr, 0);
                emit.save(at::TELL_ADDR, reg);
                emit.lea_here(reg, back);
                emit.save(at::TELL_BACK, reg);
                emit.store32(at::TELL_WHAT, what);
                emit.jump_slot(at::GLUE_TELL);
            }
        }
    }
}

/// The lines that each instruction of a superblock is the first to be fetched from, and their numbers.
fn fetched(around: &mut dyn Surroundings, insts: &[Inst], shift: u32) -> Vec<Vec<(u64, u32)>> {
    let mut present = None;
    let mut lines = |inst: &Inst| {
        let (first, last) = sieve::lines(inst, shift);
        let new =
            [Some(first).filter(|_| present != Some(first)), Some(last).filter(|_| first != last)];
        present = Some(last);
        new.into_iter().flatten().map(|line| (line, around.line_number(line))).collect()
    };
    insts.iter().map(&mut lines).collect()
}

/// How many references each instruction's piece makes from that instruction on.
fn references_left(
    insts: &[Inst],
    fetched: &[Vec<(u64, u32)>],
    pieces: &[Range<usize>],
) -> Vec<u32> {
    let mut left = vec![0; insts.len()];
    for piece in pieces {
        let mut sum = 0;
        for insn in piece.clone().rev() {
            let inst = &insts[insn];
            let looked_at = sieve::is_simple(inst) || sieve::masked(inst).is_some();
            let accesses = if looked_at { inst.memory().len() } else { 0 };
            sum += (fetched[insn].len() + accesses) as u32;
            left[insn] = sum;
        }
    }
    left
}
