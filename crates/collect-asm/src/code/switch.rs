//! Two copies that threads switch between: what is inserted into the recorded one for that.
//!
//! The copy of `clone.rs` (P_exec in the paper of Lafage, Seznec, Rohou and Bodin) records
//! nothing and costs next to nothing; the copy with save points (P_inst) records. A thread changes
//! sides at *events* alone: when control comes to a function's first instruction, and, if that
//! is asked for, to a loop's first block. The rest of what is inserted sees to it that nothing
//! else changes sides.
//!
//! Invariant (*one side*): a thread runs in P_inst exactly while [`STATE`] in its context is not
//! zero, except for the instructions between a transfer and the check behind it.
//! - Calls and jumps within a copy stay there.
//! - A function's own address leads to a gate that looks at the state: so do pointers, callbacks, signal
//!   handlers and the starts of threads.
//! - Return addresses may be those of the other copy. Behind every call P_inst looks at the state;
//!   P_exec does so behind calls of code that is not copied, or not known, or that may hand over to
//!   such. A return in P_inst
//!   whose address lies in P_exec goes to that place's counterpart, so that P_exec
//!   needs no check behind an ordinary call.
//! - Landing pads look at the state: an exception may have come from the other side. So do jumps out of `longjmp`,
//!   since they end behind a call of code that is not copied.
//! - A computed jump in P_inst is led to P_inst by a table, if it stays in copied code; the
//!   labels themselves lead to P_exec.
//!
//! Replay must know what it would know if all had run in P_inst. Where a function is entered that is
//! the stack pointer; anywhere else all registers are stored ([`RESUMED`]).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{HashMap, HashSet};

use iced_x86::{Code, Instruction, MemoryOperand, Register as Name};
use ichnos_base::GuestVa;
use ichnos_flow::{Options, Plan};
use ichnos_isa_x86::{Flow, Inst};

use super::convention::{Habit, returns_by_itself};
use super::emit::{
    ASIDE, ASIDE_TOO, COPY, ENTERED, ENTERED_LEN, Emitter, PLACE, STUB, Site, TAG, at, context,
    name, operand,
};
use super::region::{Group, World};

/// The state: not zero in P_inst.
pub(crate) const STATE: i64 = 24;
/// How many events are left until P_exec is left.
pub(crate) const COUNT: i64 = 32;
/// How many events are left until P_inst is left.
pub(crate) const TURNS: i64 = 40;
/// Where a jump goes whose target was looked up.
const GO: i64 = 48;
/// A third register put aside.
const ASIDE_THIRD: i64 = 56;

/// A thread came to P_inst: then the clock, and what was left of [`COUNT`], 8 bytes each. An [`ENTERED`] or
/// [`RESUMED`] follows.
pub(crate) const SWITCHED_ON: u32 = 0xffff_ff02;
/// Bytes of it.
pub(crate) const SWITCHED_ON_LEN: usize = 20;
/// A thread left P_inst: then the block that it did not execute any more (4 bytes), the clock and what was
/// left of [`TURNS`], 8 bytes each.
pub(crate) const SWITCHED_OFF: u32 = 0xffff_ff03;
/// Bytes of it.
pub(crate) const SWITCHED_OFF_LEN: usize = 24;
/// A thread goes on at a block (4 bytes) of which replay knows nothing: the 16 registers and the base of `fs`.
pub(crate) const RESUMED: u32 = 0xffff_ff04;
/// Bytes of it.
pub(crate) const RESUMED_LEN: usize = 8 + 17 * 8;
/// The next return goes to code that is not copied: stack pointer and return address.
pub(crate) const BACK: u32 = 0xffff_ff05;
/// Bytes of it.
pub(crate) const BACK_LEN: usize = 20;

/// Added to an address to name P_exec's copy of what lies there.
pub(crate) const EXEC: u64 = 1 << 58;
/// The same behind the check of an event, where one is.
pub(crate) const PAST: u64 = 1 << 57;
/// Added to a function's address to name its gate.
pub(crate) const GATE: u64 = 1 << 56;
/// Added to a function's address to name the event in P_inst.
pub(crate) const EVENT: u64 = 1 << 55;
/// Added to an address to name P_inst's copy behind all checks.
const INNER: u64 = 1 << 54;
/// Added to an address to name the way from P_exec to P_inst: without an event, with one.
pub(crate) const RESUME: u64 = 1 << 53;
pub(crate) const ON: u64 = 1 << 52;
/// Added to an address to name the way from P_inst to P_exec.
const OFF: u64 = 1 << 51;
/// Added to a number to name a part of a sequence.
const PART: u64 = 1 << 50;

/// Both copies begin at multiples of this and are smaller.
pub(crate) const ROOM: u64 = 1 << ROOM_BITS;
const ROOM_BITS: u32 = 28;
/// Where the tables lie that lead from P_exec, and from the program's own code, to P_inst: four bytes for each
/// byte of code, the distance from P_inst's beginning.
pub(crate) const TO_INST: u64 = 0x6080_0000_0000;
pub(crate) const FROM_LABELS: u64 = TO_INST + 8 * ROOM;

/// What makes threads switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trigger {
    /// Each thread counts: so many events in P_inst, then so many in P_exec.
    Counted { exec: u64, inst: u64 },
    /// A word in memory that all look at.
    Shared,
    /// Two functions: the one begins what the other ends. Other functions are no events.
    Named { start: GuestVa, stop: Option<GuestVa> },
}

/// How threads switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Switching {
    pub(crate) trigger: Trigger,
    /// Whether loops are events besides calls.
    pub(crate) loops: bool,
}

/// Where threads of a program can switch, and what else must be looked after.
pub(crate) struct Points {
    pub(crate) how: Switching,
    /// Where P_inst and P_exec lie; the shared word is P_exec's first.
    pub(crate) inst: u64,
    pub(crate) exec: u64,
    /// The first byte of the program's own code, and how many there are.
    pub(crate) own: (u64, u64),
    /// First instructions of functions that count as events.
    pub(crate) starts: HashSet<GuestVa>,
    /// First instructions of loops that count as events.
    pub(crate) heads: HashSet<GuestVa>,
    /// Places where control may come to the wrong copy: behind calls, landing pads.
    pub(crate) returns: HashSet<GuestVa>,
    /// Those of them where P_exec must look, too: control may come from code that is not copied.
    pub(crate) unsure: HashSet<GuestVa>,
}

/// Functions with their plans.
pub(crate) struct Planned<'a> {
    pub(crate) world: &'a World,
    pub(crate) groups: &'a [Group],
    pub(crate) habits: &'a [Habit],
    pub(crate) plans: &'a [Plan],
    pub(crate) options: &'a Options,
}

impl Points {
    pub(crate) fn new(how: Switching, planned: &Planned<'_>, (inst, exec): (u64, u64)) -> Self {
        let world = planned.world;
        let first = world.functions.first().map_or(0, |f| f.start.0);
        let last = world.functions.last().map_or(0, |f| f.end.0);
        let mut points = Self {
            how,
            inst,
            exec,
            own: (first, last - first),
            starts: HashSet::new(),
            heads: HashSet::new(),
            returns: HashSet::new(),
            unsure: HashSet::new(),
        };
        for (group, plan) in planned.groups.iter().zip(planned.plans) {
            points.add(planned, group, plan);
        }
        points
    }

    fn add(&mut self, planned: &Planned<'_>, group: &Group, plan: &Plan) {
        let world = planned.world;
        let mut back = HashSet::new();
        let compiled = group.functions(world).all(|f| f.compiled);
        for function in group.functions(world) {
            if compiled && function.parent == function.start {
                self.starts.insert(function.start);
            }
            self.returns.extend(&function.pads);
            self.unsure.extend(&function.pads);
            for inst in &function.insts {
                match inst.flow() {
                    Flow::Call(_) | Flow::CallIndirect => {
                        let next = inst.next_pc();
                        if world.group_at(next).is_some() {
                            self.returns.insert(next);
                        }
                        let target = inst.flow().target();
                        if !returns_by_itself(world, planned.habits, target) {
                            self.unsure.insert(next);
                        }
                    }
                    Flow::Jump(to) | Flow::Cond(to)
                        if to <= inst.pc() && group.holds(world, to) =>
                    {
                        back.insert(to);
                    }
                    _ => {}
                }
            }
        }
        if self.how.loops && compiled {
            // Without flags to spoil a loop is no event.
            let free = plan.pieces.iter().filter(|p| {
                back.contains(&p.entry) && p.saves.first().is_some_and(|s| s.live.flags == 0)
            });
            let starts = &self.starts;
            self.heads.extend(free.map(|p| p.entry).filter(|e| !starts.contains(e)));
        }
    }

    /// Whether control to an address is an event.
    pub(crate) fn is_event(&self, pc: GuestVa) -> bool {
        self.starts.contains(&pc) || self.heads.contains(&pc)
    }

    /// P_inst's copy behind all checks.
    fn inner(&self, pc: GuestVa) -> u64 {
        let checked = self.returns.contains(&pc) || self.heads.contains(&pc);
        if checked { INNER | pc.0 } else { COPY | pc.0 }
    }
}

/// A word of memory at a fixed place near the code.
fn fixed(address: u64) -> MemoryOperand {
    MemoryOperand::new(Name::RIP, Name::None, 1, address as i64, 8, false, Name::None)
}

const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RSP: u8 = 4;
const R11: u8 = 11;

impl Emitter {
    /// A branch on flags.
    pub(crate) fn branch(&mut self, code: Code, to: u64) {
        self.push(Instruction::with_branch(code, to));
    }

    /// Compares the thread's state with zero.
    pub(crate) fn look_at_state(&mut self) {
        self.push(Instruction::with2(Code::Cmp_rm64_imm8, context(STATE), 0i32));
    }

    /// Compares the shared word with zero.
    pub(crate) fn look_at_word(&mut self, exec: u64) {
        self.push(Instruction::with2(Code::Cmp_rm32_imm8, fixed(exec), 0i32));
    }

    /// Counts an event down.
    pub(crate) fn count(&mut self, which: i64) {
        self.push(Instruction::with1(Code::Dec_rm64, context(which)));
    }

    /// A name for a part of a sequence.
    pub(crate) fn part(&mut self) -> u64 {
        self.next_way += 1;
        PART | self.next_way
    }

    fn value(&mut self, register: u8, value: u64) {
        self.push(Instruction::with2(Code::Mov_r64_imm64, name(register), value));
    }

    fn set_word(&mut self, which: i64, value: u64, by: u8) {
        self.value(by, value);
        self.store(context(which), by);
    }

    /// In P_inst, before a block of the program's own: checks of state and events.
    pub(crate) fn checks(&mut self, points: &Points, pc: GuestVa, flags: Flags) {
        let (guarded, head) = (points.returns.contains(&pc), points.heads.contains(&pc));
        if !guarded && !head {
            return;
        }
        self.checks_from = Some(self.instrs.len());
        if guarded {
            match flags {
                Flags::Free => {
                    self.look_at_state();
                    self.branch(Code::Je_rel32_64, EXEC | pc.0);
                }
                Flags::Kept => self.look_keeping(pc),
            }
        }
        if head {
            self.event(points, pc);
        }
        self.label = INNER | pc.0;
    }

    /// As `checks`, without touching flags: the state is looked at by way of a register.
    fn look_keeping(&mut self, pc: GuestVa) {
        let (stay, leave) = (self.part(), self.part());
        self.store(context(ASIDE), RCX);
        self.load(RCX, context(STATE));
        self.branch(Code::Jrcxz_rel8_64, leave);
        self.jump(stay);
        self.label = leave;
        self.load(RCX, context(ASIDE));
        self.jump(EXEC | pc.0);
        self.label = stay;
        self.load(RCX, context(ASIDE));
    }

    /// In P_inst: counts an event, or looks at the word, and leaves if it is time.
    fn event(&mut self, points: &Points, pc: GuestVa) {
        match points.how.trigger {
            Trigger::Counted { .. } => {
                self.count(TURNS);
                self.branch(Code::Js_rel32_64, OFF | pc.0);
            }
            Trigger::Shared => {
                self.look_at_word(points.exec);
                self.branch(Code::Je_rel32_64, OFF | pc.0);
            }
            Trigger::Named { stop, .. } => {
                if stop == Some(pc) {
                    self.jump(OFF | pc.0);
                }
            }
        }
    }

    /// In P_inst, before a function: where it is entered by copied code and by other code, and the two ways between
    /// the copies.
    pub(crate) fn entrance(&mut self, points: &Points, function: GuestVa) {
        if !points.starts.contains(&function) {
            return;
        }
        self.aside(EVENT | function.0, function);
        let begin = self.instrs.len();
        self.event(points, function);
        self.jump(COPY | function.0);
        self.unstored(begin);
    }

    /// Before what is entered by other code: the event.
    pub(crate) fn outer_event(&mut self, points: &Points, function: GuestVa) {
        if points.starts.contains(&function) {
            let begin = self.instrs.len();
            self.aside(STUB | function.0, function);
            self.event(points, function);
            self.unstored(begin);
        }
    }

    /// What was laid out since `begin` comes before the record of the block that begins here.
    fn unstored(&mut self, begin: usize) {
        let end = self.instrs.len();
        self.sites.push(Site { begin, from: begin, to: begin, stored: end });
    }

    /// The last site belongs to the end of a block.
    fn stored_before(&mut self, begin: usize) {
        if let Some(site) = self.sites.last_mut() {
            site.stored = begin;
        }
    }

    /// What follows lies aside and has a name.
    fn aside(&mut self, label: u64, pc: GuestVa) {
        self.label = label;
        (self.pc, self.turn, self.seldom) = (pc, 0, true);
    }

    /// All ways between the copies; `ids` are the identifiers of blocks.
    pub(crate) fn ways_between(&mut self, points: &Points, ids: &HashMap<GuestVa, u32>) {
        let sorted = |set: &HashSet<GuestVa>| {
            let mut all: Vec<_> = set.iter().copied().collect();
            all.sort_unstable();
            all
        };
        for pc in sorted(&points.starts) {
            self.on_at_entry(points, pc);
            self.off(points, pc, ids.get(&pc).copied().unwrap_or(0));
        }
        for pc in sorted(&points.heads) {
            let id = ids.get(&pc).copied().unwrap_or(0);
            self.on_in_loop(points, pc, id);
            self.off(points, pc, id);
        }
        for pc in sorted(&points.returns) {
            self.resume(points, pc, ids.get(&pc).copied().unwrap_or(0));
        }
    }

    /// Stores the clock; `rax` and `rdx` are spoilt.
    fn clock(&mut self, offset: usize) {
        self.push(Ok(Instruction::with(Code::Rdtsc)));
        self.push(Instruction::with2(Code::Shl_rm64_imm8, name(RDX), 32u32));
        self.push(Instruction::with2(Code::Or_r64_rm64, name(RAX), name(RDX)));
        self.store(at(R11, offset as i64), RAX);
    }

    fn tag_at(&mut self, offset: usize, tag: u32) {
        self.push(Instruction::with2(Code::Mov_rm32_imm32, at(R11, offset as i64), tag));
    }

    /// The head of a way on: tag, clock, count.
    fn switched_on(&mut self) {
        self.tag_at(0, SWITCHED_ON);
        self.clock(TAG);
        self.load(RAX, context(COUNT));
        self.store(at(R11, TAG as i64 + 8), RAX);
    }

    /// The thread is in P_inst from here on. That is before it says so: a signal handler that comes between finds
    /// words that fit each other, and the collector is told of the handler's mode.
    fn now_in_inst(&mut self, points: &Points) {
        if let Trigger::Counted { inst, .. } = points.how.trigger {
            self.set_word(TURNS, inst.saturating_sub(1), RAX);
        }
        self.set_word(STATE, 1, RAX);
    }

    fn put_aside(&mut self) {
        self.store(context(ASIDE), R11);
        self.store(context(ASIDE_TOO), RAX);
        self.store(context(ASIDE_THIRD), RDX);
    }

    fn take_back(&mut self) {
        self.load(RDX, context(ASIDE_THIRD));
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
    }

    /// The way over to the recorded copy, up to where its words go; where it begins, and where it does so again.
    fn begin_on(&mut self, points: &Points, pc: GuestVa) -> (usize, usize) {
        self.aside(ON | pc.0, pc);
        let begin = self.instrs.len();
        self.put_aside();
        self.now_in_inst(points);
        let from = self.instrs.len();
        self.load(R11, context(PLACE));
        (begin, from)
    }

    fn on_at_entry(&mut self, points: &Points, pc: GuestVa) {
        const ENTRY: usize = SWITCHED_ON_LEN;
        let (begin, from) = self.begin_on(points, pc);
        self.switched_on();
        self.tag_at(ENTRY, ENTERED);
        self.store(at(R11, ENTRY as i64 + 4), RSP);
        self.load(RAX, at(RSP, 0));
        self.store(at(R11, ENTRY as i64 + 12), RAX);
        self.push(Instruction::with1(Code::Rdfsbase_r64, name(RAX)));
        self.store(at(R11, ENTRY as i64 + 20), RAX);
        self.advance(R11, SWITCHED_ON_LEN + ENTERED_LEN);
        self.site(begin, from);
        self.take_back();
        self.jump(points.inner(pc));
        self.not_stored_yet();
    }

    /// Stores all registers but r11, which was put aside; `rax` is spoilt.
    fn registers(&mut self, offset: usize, id: u32) {
        let place = |i: usize| at(R11, (offset + 8 + 8 * i) as i64);
        self.tag_at(offset, RESUMED);
        self.tag_at(offset + TAG, id);
        (0..16).filter(|i| *i != R11).for_each(|i| self.store(place(usize::from(i)), i));
        self.load(RAX, context(ASIDE));
        self.store(place(11), RAX);
        self.push(Instruction::with1(Code::Rdfsbase_r64, name(RAX)));
        self.store(place(16), RAX);
    }

    fn on_in_loop(&mut self, points: &Points, pc: GuestVa, id: u32) {
        const REGISTERS: usize = SWITCHED_ON_LEN;
        let (begin, from) = self.begin_on(points, pc);
        self.load(RAX, context(ASIDE_TOO));
        self.load(RDX, context(ASIDE_THIRD));
        self.registers(REGISTERS, id);
        self.switched_on();
        self.advance(R11, SWITCHED_ON_LEN + RESUMED_LEN);
        self.site(begin, from);
        self.take_back();
        self.jump(points.inner(pc));
        self.not_stored_yet();
    }

    fn off(&mut self, points: &Points, pc: GuestVa, id: u32) {
        self.aside(OFF | pc.0, pc);
        let begin = self.instrs.len();
        self.put_aside();
        if let Trigger::Counted { exec, .. } = points.how.trigger {
            self.set_word(COUNT, exec.saturating_sub(1), RAX);
        }
        self.set_word(STATE, 0, RAX);
        let from = self.instrs.len();
        self.load(R11, context(PLACE));
        self.tag_at(0, SWITCHED_OFF);
        self.tag_at(TAG, id);
        self.clock(8);
        self.load(RAX, context(TURNS));
        self.store(at(R11, 16), RAX);
        self.advance(R11, SWITCHED_OFF_LEN);
        self.site(begin, from);
        self.take_back();
        self.jump(PAST | pc.0);
        self.not_stored_yet();
    }

    fn resume(&mut self, points: &Points, pc: GuestVa, id: u32) {
        self.aside(RESUME | pc.0, pc);
        let begin = self.instrs.len();
        self.store(context(ASIDE), R11);
        self.store(context(ASIDE_TOO), RAX);
        let from = self.instrs.len();
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(PLACE));
        self.registers(0, id);
        self.advance(R11, RESUMED_LEN);
        self.site(begin, from);
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
        self.jump(points.inner(pc));
        self.not_stored_yet();
    }

    /// In P_inst: a return, which may lead to P_exec or out of copied code.
    pub(crate) fn comes_back(&mut self, points: &Points, inst: &Inst, flags: Flags) {
        let slow = self.part();
        if flags == Flags::Free {
            self.store(context(ASIDE), R11);
            self.load(R11, at(RSP, 0));
            self.push(Instruction::with2(Code::Shr_rm64_imm8, name(R11), ROOM_BITS));
            let here = (points.inst >> ROOM_BITS) as i32;
            self.push(Instruction::with2(Code::Cmp_rm64_imm32, name(R11), here));
            self.branch(Code::Jne_rel32_64, slow);
            self.load(R11, context(ASIDE));
            self.push(Ok(*inst.raw()));
        } else {
            self.jump(slow);
        }
        self.slow_returns.push((slow, *inst.raw(), inst.pc(), flags));
    }

    /// Lays out the rare ways of returns that were met since the last time.
    pub(crate) fn lay_returns(&mut self, points: &Points) {
        for (label, raw, pc, flags) in std::mem::take(&mut self.slow_returns) {
            self.aside(label, pc);
            self.slow_return(points, raw, flags);
        }
    }

    fn slow_return(&mut self, points: &Points, raw: Instruction, flags: Flags) {
        let (outside, plain) = (self.part(), self.part());
        let above = if flags == Flags::Kept { 8 } else { 0 };
        self.store(context(ASIDE_TOO), RAX);
        if flags == Flags::Kept {
            // Nothing below the stack pointer is wanted when a function returns.
            self.store(context(ASIDE), R11);
            self.push(Ok(Instruction::with(Code::Pushfq)));
        }
        self.load(R11, at(RSP, above));
        self.push(Instruction::with2(Code::Mov_r64_rm64, name(RAX), name(R11)));
        self.push(Instruction::with2(Code::Shr_rm64_imm8, name(RAX), ROOM_BITS));
        let region = |base: u64| (base >> ROOM_BITS) as i32;
        self.push(Instruction::with2(Code::Cmp_rm64_imm32, name(RAX), region(points.inst)));
        self.branch(Code::Je_rel32_64, plain);
        self.push(Instruction::with2(Code::Cmp_rm64_imm32, name(RAX), region(points.exec)));
        self.branch(Code::Jne_rel32_64, outside);
        let low = (ROOM - 1) as u32;
        self.push(Instruction::with2(Code::And_rm32_imm32, Name::R11D, low));
        self.look_up(TO_INST, points.inst);
        self.end_flags(flags);
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
        let popped =
            8 + if raw.op0_kind() == iced_x86::OpKind::Immediate16 { raw.immediate16() } else { 0 };
        let stack = at(RSP, i64::from(popped));
        self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, stack));
        self.push(Instruction::with1(Code::Jmp_rm64, context(GO)));
        self.label = outside;
        let begin = self.instrs.len();
        self.load(RAX, context(PLACE));
        self.push(Instruction::with2(Code::Mov_rm32_imm32, at(RAX, 0), BACK));
        self.store(at(RAX, 12), R11);
        self.push(Instruction::with2(Code::Lea_r64_m, Name::R11, at(RSP, above)));
        self.store(at(RAX, 4), R11);
        self.push(Instruction::with2(Code::Mov_r64_rm64, Name::R11, at(RAX, 12)));
        self.advance(RAX, BACK_LEN);
        self.site(begin, begin);
        self.stored_before(begin);
        self.label = plain;
        self.end_flags(flags);
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
        self.push(Ok(raw));
    }

    fn end_flags(&mut self, flags: Flags) {
        if flags == Flags::Kept {
            self.push(Ok(Instruction::with(Code::Popfq)));
        }
    }

    /// Looks up in a table where `r11`, an offset, leads to from `base`; `rax` is spoilt.
    fn look_up(&mut self, table: u64, base: u64) {
        self.value(RAX, table);
        let entry = MemoryOperand::new(Name::RAX, Name::R11, 4, 0, 0, false, Name::None);
        self.push(Instruction::with2(Code::Mov_r32_rm32, Name::R11D, entry));
        self.value(RAX, base);
        self.push(Instruction::with2(Code::Add_r64_rm64, Name::R11, Name::RAX));
        self.store(context(GO), R11);
    }

    /// In P_inst: a computed jump that may go to a label of copied code, whose own address leads to P_exec.
    pub(crate) fn computed(&mut self, points: &Points, inst: &Inst) {
        const RED_ZONE: i64 = 128;
        let raw = inst.raw();
        let no = self.part();
        self.store(context(ASIDE), R11);
        self.store(context(ASIDE_TOO), RAX);
        match raw.op0_kind() {
            iced_x86::OpKind::Register => {
                let from = raw.op0_register();
                self.push(Instruction::with2(Code::Mov_r64_rm64, Name::R11, from));
            }
            _ => self.load(R11, operand(raw)),
        }
        self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, at(RSP, -RED_ZONE)));
        self.push(Ok(Instruction::with(Code::Pushfq)));
        let (first, len) = points.own;
        self.value(RAX, first);
        self.push(Instruction::with2(Code::Sub_r64_rm64, Name::R11, Name::RAX));
        let len = i32::try_from(len).unwrap_or(i32::MAX);
        self.push(Instruction::with2(Code::Cmp_rm64_imm32, Name::R11, len));
        self.branch(Code::Jae_rel32_64, no);
        self.look_up(FROM_LABELS, points.inst);
        // What is no label has distance zero, which names nothing.
        self.push(Instruction::with2(Code::Cmp_r64_rm64, Name::R11, Name::RAX));
        self.branch(Code::Je_rel32_64, no);
        self.leave_computed(RED_ZONE);
        self.push(Instruction::with1(Code::Jmp_rm64, context(GO)));
        self.label = no;
        self.leave_computed(RED_ZONE);
        self.push(Ok(*raw));
    }

    fn leave_computed(&mut self, red_zone: i64) {
        self.push(Ok(Instruction::with(Code::Popfq)));
        self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, at(RSP, red_zone)));
        self.load(RAX, context(ASIDE_TOO));
        self.load(R11, context(ASIDE));
    }
}

/// Whether a sequence may change flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flags {
    /// They are dead, by the calling convention.
    Free,
    /// They may be in use.
    Kept,
}
