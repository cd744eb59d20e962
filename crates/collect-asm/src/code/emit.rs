//! The second copy as a list of instructions: the program's own, with save points between.
//!
//! The first save point of a block stores its identifier and moves the thread's place in the
//! buffer on by the whole record; later ones store into the room that the first made. A
//! dead register serves as pointer; if none is, one is put aside. No flag changes, and the stack
//! is not touched. If the buffer is full, the first save point faults; so that a later one
//! never does, a block that has one touches the record's last byte first.
//!
//! Invariant (*restart*): from a [`Site`]'s first instruction on to its last, nothing
//! is changed that matters if the sequence begins again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashSet;

use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register as Name};
use ichnos_base::GuestVa;
use ichnos_flow::{Piece, SavePoint, Set, Store};
use ichnos_isa_x86::{Flow, Gpr, Inst, Reg};
use ichnos_trace::{Register, Width};

use super::carry::{Carriers, Held};
use super::convention::CALLER_SAVED;
use super::flex::{Item, MaskWidth, Payload};
use super::reference::{Midway, Run};
use super::region::TARGET;
use super::switch::EVENT;
use super::sync::Tail;
use super::turns;

/// Added to an address to name the copy of what lies there.
pub(crate) const COPY: u64 = 1 << 62;
/// Added to a function's address to name what is entered from code that is not copied.
pub(crate) const STUB: u64 = 1 << 61;
/// Added to a function's address to name what follows the record of its being entered.
const BEHIND: u64 = 1 << 60;
/// Added to a number to name a way out of a loop.
const WAY: u64 = 1 << 59;
/// No code but copies lies so near above the beginning of a copy's room.
const NEAR: u32 = 1 << 28;

/// The tag of an entry from code that is not copied: then the stack pointer, the word it points
/// to and the base of `fs`, 8 bytes each.
pub(crate) const ENTERED: u32 = 0xffff_ff01;
/// Bytes of such an entry.
pub(crate) const ENTERED_LEN: usize = 28;
/// Bytes of a tag or identifier.
pub(crate) const TAG: usize = 4;

/// Offsets in a thread's context.
pub(super) const PLACE: i64 = 0;
pub(super) const ASIDE: i64 = 8;
pub(super) const ASIDE_TOO: i64 = 16;

const RSP: u8 = 4;
/// What lies so far below the stack pointer is a function's own.
const RED_ZONE: i64 = 128;

/// Registers that can be the pointer, the likeliest dead first. Those that calls keep are only
/// put aside, never taken for dead: an exception may continue where they are wanted.
pub(super) const POINTERS: [u8; 15] = [11, 10, 9, 8, 0, 1, 2, 6, 7, 3, 12, 13, 14, 15, 5];

/// The sequence that stores a record's first words; it can begin again. Numbers of
/// instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    /// The first of all that was inserted.
    pub(crate) begin: usize,
    /// Where it can begin again.
    pub(crate) from: usize,
    /// The last one at which it still can, if nothing faulted: behind it a register is put aside, or the stack pointer is moved.
    pub(crate) until: usize,
    /// The first one that cannot fault any more.
    pub(crate) to: usize,
    /// The first one after which the record of the block that begins here is stored.
    pub(crate) stored: usize,
}

/// The list.
#[derive(Default)]
pub(crate) struct Emitter {
    /// The instructions.
    pub(crate) instrs: Vec<Instruction>,
    /// For each, the program's instruction that it belongs to, and in which turn of a loop.
    pub(crate) pcs: Vec<(GuestVa, u8)>,
    /// What can begin again.
    pub(crate) sites: Vec<Site>,
    /// For each function, the first instruction after its copy.
    pub(crate) ends: Vec<(GuestVa, usize)>,
    /// How many of the instructions lie where control usually comes along.
    pub(crate) mainline: usize,
    pub(super) label: u64,
    pub(super) pc: GuestVa,
    pub(super) turn: u8,
    /// Whether control seldom comes to what is laid out.
    pub(super) seldom: bool,
    /// Ways out of loops that were not laid out yet.
    pub(super) ways: Vec<LoopWay>,
    pub(super) next_way: u64,
    /// Where the thread's place in its buffer is.
    pub(super) held: Held,
    /// The run of references that was begun.
    pub(super) run: Option<Run>,
    /// From which instructions on how much of a run is done that is not told yet, or nothing.
    pub(crate) midways: Vec<(usize, Option<Midway>)>,
    /// Where the stack pointer is lower than the program's: the first of these instructions, and the first one behind them.
    pub(crate) lowered: Vec<(usize, usize)>,
    /// The first of the checks before the block that comes next, if there are any.
    pub(super) checks_from: Option<usize>,
    /// Jumps to synchronising functions that were not laid out yet, and where they begin when they are.
    pub(super) tails: Vec<Tail>,
    pub(super) tails_from: usize,
    /// Functions whose entries are events.
    pub(super) starts: HashSet<GuestVa>,
}

/// A way out of a loop.
pub(super) struct LoopWay {
    label: u64,
    /// After how many turns, and where it leads.
    turns: usize,
    to: GuestVa,
    /// Where the place in the buffer is, and where it is to be.
    held: Held,
    expected: Option<u8>,
}

/// What a save point knows of its block.
pub(crate) struct Point<'a> {
    pub(crate) piece: &'a Piece,
    pub(crate) save: &'a SavePoint,
    /// The block's identifier.
    pub(crate) identifier: u32,
    /// The instruction before which it lies.
    pub(crate) inst: &'a Inst,
    /// What an instruction with varying accesses stores.
    pub(crate) payload: Option<&'a Payload>,
    /// Which turn of how many.
    pub(crate) turn: usize,
    pub(crate) turns: usize,
    /// Registers that the block's instructions use.
    pub(crate) used: Set,
    /// Registers of which one would be wanted to hold the place afterwards.
    pub(crate) wished: Set,
}

pub(crate) fn name(number: u8) -> Name {
    const NAMES: [Name; 16] = [
        Name::RAX,
        Name::RCX,
        Name::RDX,
        Name::RBX,
        Name::RSP,
        Name::RBP,
        Name::RSI,
        Name::RDI,
        Name::R8,
        Name::R9,
        Name::R10,
        Name::R11,
        Name::R12,
        Name::R13,
        Name::R14,
        Name::R15,
    ];
    NAMES[usize::from(number % 16)]
}

pub(super) fn narrow(number: u8) -> Name {
    const NAMES: [Name; 16] = [
        Name::EAX,
        Name::ECX,
        Name::EDX,
        Name::EBX,
        Name::ESP,
        Name::EBP,
        Name::ESI,
        Name::EDI,
        Name::R8D,
        Name::R9D,
        Name::R10D,
        Name::R11D,
        Name::R12D,
        Name::R13D,
        Name::R14D,
        Name::R15D,
    ];
    NAMES[usize::from(number % 16)]
}

/// A word of the thread's context.
pub(super) fn context(offset: i64) -> MemoryOperand {
    MemoryOperand::new(Name::None, Name::None, 1, offset, 8, false, Name::GS)
}

pub(super) fn at(pointer: u8, offset: i64) -> MemoryOperand {
    let size = if offset == 0 { 0 } else { 1 };
    MemoryOperand::new(name(pointer), Name::None, 1, offset, size, false, Name::None)
}

/// Bytes of a stored word.
pub(crate) const fn width(width: Width) -> usize {
    match width {
        Width::Four => 4,
        Width::Eight => 8,
    }
}

impl Emitter {
    /// What follows is the copy of the instruction at `pc` for a turn.
    pub(crate) fn begin(&mut self, pc: GuestVa, turn: usize) {
        self.label = if turn == 0 { COPY | pc.0 } else { 0 };
        self.pc = pc;
        self.turn = turn as u8;
        self.seldom = turn > 0;
    }

    pub(super) fn push(&mut self, instr: Result<Instruction, iced_x86::IcedError>) {
        // Codes and operands are fixed above and fit each other: the golden tests go over all.
        let Ok(mut instr) = instr else { return };
        instr.set_ip(std::mem::take(&mut self.label));
        self.instrs.push(instr);
        self.pcs.push((self.pc, self.turn));
        self.mainline += usize::from(!self.seldom);
    }

    pub(super) fn load(&mut self, to: u8, from: MemoryOperand) {
        self.push(Instruction::with2(Code::Mov_r64_rm64, name(to), from));
    }

    pub(super) fn store(&mut self, to: MemoryOperand, from: u8) {
        self.push(Instruction::with2(Code::Mov_rm64_r64, to, name(from)));
    }

    fn tag(&mut self, pointer: u8, tag: u32) {
        self.push(Instruction::with2(Code::Mov_rm32_imm32, at(pointer, 0), tag));
    }

    pub(super) fn advance(&mut self, pointer: u8, by: usize) {
        self.move_on(pointer, by);
        self.store(context(PLACE), pointer);
    }

    fn move_on(&mut self, pointer: u8, by: usize) {
        self.push(Instruction::with2(Code::Lea_r64_m, name(pointer), at(pointer, by as i64)));
    }

    /// Goes below the stack's next bytes, which may be in use: functions without calls keep their own there.
    pub(super) fn lower_stack(&mut self) {
        self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, at(RSP, -RED_ZONE)));
        self.stays_lowered();
    }

    /// What is laid out next finds the stack pointer lowered.
    pub(super) fn stays_lowered(&mut self) {
        let here = self.instrs.len();
        self.lowered.push((here, here));
    }

    /// The way back.
    pub(super) fn raise_stack(&mut self) {
        self.push(Instruction::with2(Code::Lea_r64_m, Name::RSP, at(RSP, RED_ZONE)));
        self.is_raised();
    }

    /// What is laid out next finds it where the program left it.
    pub(super) fn is_raised(&mut self) {
        if let Some((_, end)) = self.lowered.last_mut() {
            *end = self.instrs.len();
        }
    }

    pub(super) fn site(&mut self, begin: usize, from: usize) {
        let to = self.instrs.len();
        let until = (from..to).find(|i| self.instrs.get(*i).is_some_and(cannot_come_again));
        self.sites.push(Site { begin, from, until: until.unwrap_or(to), to, stored: to });
    }

    /// Where a function is entered by its own address. If the caller's code is copied, which its
    /// return address tells, replay knows all already. `base` is the room where the copy will lie; nothing if
    /// the flags may be in use.
    pub(crate) fn stub(&mut self, function: GuestVa, base: Option<u64>) {
        const POINTER: u8 = 11;
        const OTHER: u8 = 0;
        if !self.starts.contains(&function) {
            // Else the name is that of the event before it.
            self.label = STUB | function.0;
        }
        (self.pc, self.turn, self.seldom) = (function, 0, true);
        let begin = self.instrs.len();
        self.store(context(ASIDE), POINTER);
        self.store(context(ASIDE_TOO), OTHER);
        let from = self.instrs.len();
        if let Some(base) = base {
            self.load(OTHER, at(RSP, 0));
            self.push(Instruction::with2(Code::Mov_r64_imm64, name(POINTER), base));
            self.push(Instruction::with2(Code::Sub_r64_rm64, name(OTHER), name(POINTER)));
            self.push(Instruction::with2(Code::Cmp_rm64_imm32, name(OTHER), NEAR as i32));
            self.push(Instruction::with_branch(Code::Jb_rel32_64, BEHIND | function.0));
        }
        self.load(POINTER, context(PLACE));
        self.tag(POINTER, ENTERED);
        self.store(at(POINTER, 4), RSP);
        self.load(OTHER, at(RSP, 0));
        self.store(at(POINTER, 12), OTHER);
        self.push(Instruction::with1(Code::Rdfsbase_r64, name(OTHER)));
        self.store(at(POINTER, 20), OTHER);
        self.advance(POINTER, ENTERED_LEN);
        self.site(begin, from);
        self.label = BEHIND | function.0;
        self.load(OTHER, context(ASIDE_TOO));
        self.load(POINTER, context(ASIDE));
        self.jump(COPY | function.0);
        // The function's own first block comes after all this.
        self.not_stored_yet();
    }

    /// The record of the block that begins behind the last site is not part of the site.
    pub(super) fn not_stored_yet(&mut self) {
        if let Some(site) = self.sites.last_mut() {
            site.stored = self.instrs.len();
        }
    }

    /// Tells that a loop was left after so many turns, on the way to `to`, where the place is expected somewhere.
    fn left(&mut self, turns: usize, to: GuestVa, expected: Option<u8>) {
        const POINTER: u8 = 11;
        (self.pc, self.turn, self.seldom) = (to, turns as u8, true);
        let begin = self.instrs.len();
        if let Some(pointer) = self.held.pointer() {
            // Also if memory has it: a full buffer is exchanged in the register then.
            self.holds_alone(pointer);
            self.tag(pointer, turns::tag(turns));
            self.move_on(pointer, TAG);
            self.site(begin, begin);
        } else {
            self.store(context(ASIDE), POINTER);
            let from = self.instrs.len();
            self.load(POINTER, context(PLACE));
            self.tag(POINTER, turns::tag(turns));
            self.advance(POINTER, TAG);
            self.site(begin, from);
            self.load(POINTER, context(ASIDE));
        }
        self.give(expected);
        self.not_stored_yet();
    }

    /// Lays out the ways out of loops that were met since the last time.
    pub(crate) fn lay_ways(&mut self) {
        for LoopWay { label, turns, to, held, expected } in std::mem::take(&mut self.ways) {
            self.label = WAY | label;
            self.hold(held);
            self.left(turns, to, expected);
            self.jump(self.to(to));
            self.not_stored_yet();
        }
    }

    /// The name for where a transfer to copied code goes.
    pub(super) fn to(&self, to: GuestVa) -> u64 {
        if self.starts.contains(&to) { EVENT | to.0 } else { COPY | to.0 }
    }

    /// The name of a way out of a loop in a turn.
    fn way(&mut self, turns: usize, to: GuestVa, carriers: &Carriers) -> u64 {
        if turns == 0 {
            return self.to(to);
        }
        self.next_way += 1;
        let (label, held, expected) = (self.next_way, self.held, carriers.expected(to));
        self.ways.push(LoopWay { label, turns, to, held, expected });
        WAY | self.next_way
    }

    /// A loop's own instruction in one of its turns; `last` is the last turn.
    pub(crate) fn turn(
        &mut self,
        inst: &Inst,
        (entry, turn, last): (GuestVa, usize, usize),
        carriers: &Carriers,
    ) {
        let mut raw = *inst.raw();
        match inst.flow() {
            Flow::Jump(_) | Flow::Cond(_) if turn == last && is_to(inst, entry) => {
                raw.set_near_branch64(COPY | entry.0);
                self.push(Ok(raw));
                if inst.flow() != Flow::Jump(entry) {
                    let next = inst.next_pc();
                    self.left(turn, next, carriers.expected(next));
                }
            }
            // The next turn follows; unwinding tables may speak of the place.
            Flow::Jump(_) if turn == 0 => self.push(Ok(Instruction::with(Code::Nopd))),
            Flow::Jump(_) => {}
            Flow::Cond(to) if to == entry => {
                let way = self.way(turn, inst.next_pc(), carriers);
                raw.negate_condition_code();
                raw.set_near_branch64(way);
                self.push(Ok(raw));
            }
            Flow::Cond(to) => {
                let way = self.way(turn, to, carriers);
                raw.set_near_branch64(way);
                self.push(Ok(raw));
            }
            _ => self.push(Ok(raw)),
        }
    }

    /// A jump to an address or to the copy of what lies there.
    pub(crate) fn jump(&mut self, to: u64) {
        self.push(Instruction::with_branch(Code::Jmp_rel32_64, to));
    }

    /// A save point. `offset` is where its stores begin in the record.
    pub(crate) fn save(&mut self, point: &Point<'_>, offset: usize) {
        let first = point.turn == 0 && point.piece.insns.start == point.save.at;
        if !first && point.save.stores.is_empty() {
            return;
        }
        let bytes = point.piece.bytes();
        let len = TAG + point.turns * bytes + point.payload.map_or(0, Payload::len);
        let held = self.held.pointer();
        let carrier = held.or_else(|| point.carrier().filter(|_| first));
        let (pointer, aside) = match carrier {
            Some(carrier) => (carrier, false),
            None => choose(point.taken(), point.save.live.registers, point.used),
        };
        let checks = if first { self.checks_from.take() } else { None };
        let begin = checks.unwrap_or(self.instrs.len());
        if aside {
            self.store(context(ASIDE), pointer);
        }
        let from = self.instrs.len();
        if held.is_none() {
            self.load(pointer, context(PLACE));
        }
        if first {
            let later = point.piece.saves.len() > 1 || point.turns > 1 && bytes > 0;
            // What puts a register aside must not fault behind that.
            let aside = point.save.stores.iter().any(|s| s.register == TARGET);
            if later || aside || point.payload.is_some() {
                let last = at(pointer, len as i64 - 1);
                self.push(Instruction::with2(Code::Mov_rm8_imm8, last, 0u32));
            }
            self.tag(pointer, point.identifier);
        }
        let from_front = (offset + point.turn * bytes) as i64;
        let mut next = if first { from_front } else { from_front - len as i64 };
        for store in &point.save.stores {
            self.put(point, store, pointer, next);
            next += width(store.width) as i64;
        }
        if first {
            if let Some(payload) = point.payload {
                self.payload(payload, pointer, TAG as i64 + point.piece.bytes() as i64);
            }
            if carrier.is_some() {
                self.move_on(pointer, len);
                self.site(begin, from);
                self.holds_alone(pointer);
            } else {
                self.advance(pointer, len);
                self.site(begin, from);
            }
        }
        if aside {
            self.load(pointer, context(ASIDE));
        }
    }

    fn put(&mut self, point: &Point<'_>, store: &Store, pointer: u8, offset: i64) {
        if store.register == TARGET {
            let live = point.save.live.registers;
            let taken = point.taken().or(Set::only(Register(pointer)));
            let (other, aside) = choose(taken, live, point.used);
            if aside {
                self.store(context(ASIDE_TOO), other);
            }
            let raw = point.inst.raw();
            self.load(other, operand(raw));
            self.store(at(pointer, offset), other);
            if aside {
                self.load(other, context(ASIDE_TOO));
            }
            return;
        }
        let number = store.register.0;
        match store.width {
            Width::Eight => self.store(at(pointer, offset), number),
            Width::Four => self.push(Instruction::with2(
                Code::Mov_rm32_r32,
                at(pointer, offset),
                narrow(number),
            )),
        }
    }

    fn payload(&mut self, payload: &Payload, pointer: u8, mut offset: i64) {
        for item in &payload.items {
            let to = at(pointer, offset);
            match *item {
                Item::Gpr(gpr) => self.store(to, gpr.number()),
                Item::Vector(number, len) => {
                    let (code, first) = match len {
                        64 => (Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm, Name::ZMM0),
                        32 => (Code::VEX_Vmovdqu_ymmm256_ymm, Name::YMM0),
                        _ => (Code::Movdqu_xmmm128_xmm, Name::XMM0),
                    };
                    self.push(Instruction::with2(code, to, first + u32::from(number)));
                }
                Item::Mask(number, width) => {
                    let code = match width {
                        MaskWidth::Narrow => Code::VEX_Kmovw_m16_kr,
                        MaskWidth::Wide => Code::VEX_Kmovq_m64_kr,
                    };
                    self.push(Instruction::with2(code, to, Name::K0 + u32::from(number)));
                }
                Item::Flags => {
                    self.lower_stack();
                    self.push(Ok(Instruction::with(Code::Pushfq)));
                    self.push(Instruction::with1(Code::Pop_rm64, to));
                    self.raise_stack();
                }
                Item::CountAfter => {}
            }
            offset += item.len() as i64;
        }
    }

    /// What is stored behind an instruction.
    pub(crate) fn after(&mut self, payload: &Payload) {
        if payload.items.last() == Some(&Item::CountAfter) {
            const POINTER: u8 = 11;
            self.store(context(ASIDE), POINTER);
            self.load(POINTER, context(PLACE));
            self.store(at(POINTER, -8), Gpr::Rcx.number());
            self.load(POINTER, context(ASIDE));
        }
    }

    /// The program's own instruction. `copied` says whether what it leads to has a copy.
    pub(crate) fn own(&mut self, inst: &Inst, copied: impl Fn(GuestVa) -> bool) {
        let to = match inst.flow() {
            Flow::Jump(to) | Flow::Cond(to) | Flow::Call(to) => self.to(to),
            _ => 0,
        };
        self.own_to(inst, copied, |_| to);
    }

    /// The same; `name` tells how the copy of what it leads to is called.
    pub(super) fn own_to(
        &mut self,
        inst: &Inst,
        copied: impl Fn(GuestVa) -> bool,
        name: impl Fn(GuestVa) -> u64,
    ) {
        let mut raw = *inst.raw();
        if let Flow::Jump(to) | Flow::Cond(to) | Flow::Call(to) = inst.flow()
            && copied(to)
        {
            raw.set_near_branch64(name(to));
        }
        self.push(Ok(raw));
    }
}

impl Point<'_> {
    /// A register that can hold the place from the block's beginning on, if one is wanted.
    fn carrier(&self) -> Option<u8> {
        let stored: Set =
            self.piece.saves.iter().flat_map(|s| &s.stores).map(|s| s.register).collect();
        let taken = self.save.live.registers.or(self.taken()).or(stored);
        let free = CALLER_SAVED.and(self.wished).without(taken);
        POINTERS.into_iter().find(|r| free.has(Register(*r)))
    }

    /// Registers that cannot be the pointer: those that are stored or form an address here.
    fn taken(&self) -> Set {
        let stored: Set = self.save.stores.iter().map(|s| s.register).collect();
        let inputs = self.inst.effects().inputs;
        inputs
            .iter()
            .filter_map(Reg::as_gpr)
            .map(|r| Register(r.number()))
            .collect::<Set>()
            .or(stored)
    }
}

/// Whether an instruction does something else the second time: it puts aside a register that is used then, or moves the stack
/// pointer.
fn cannot_come_again(instr: &Instruction) -> bool {
    let puts_aside = instr.op0_kind() == OpKind::Memory
        && instr.memory_segment() == Name::GS
        && instr.memory_displacement64() != PLACE as u64;
    puts_aside || instr.op0_register() == Name::RSP
}

/// A register to use, and whether it must be put aside: then rather one that the block does not
/// wait for.
pub(super) fn choose(taken: Set, live: Set, used: Set) -> (u8, bool) {
    let free = |r: &u8| !taken.has(Register(*r));
    let unwanted = CALLER_SAVED.without(live);
    match POINTERS.into_iter().filter(free).find(|r| unwanted.has(Register(*r))) {
        Some(number) => (number, false),
        None => {
            let idle = |r: &u8| free(r) && !used.has(Register(*r));
            let other = || POINTERS.into_iter().find(free);
            (POINTERS.into_iter().find(idle).or_else(other).unwrap_or(POINTERS[0]), true)
        }
    }
}

fn is_to(inst: &Inst, to: GuestVa) -> bool {
    matches!(inst.flow(), Flow::Jump(target) | Flow::Cond(target) if target == to)
}

/// An instruction's memory operand.
pub(super) fn operand(raw: &Instruction) -> MemoryOperand {
    MemoryOperand::new(
        raw.memory_base(),
        raw.memory_index(),
        raw.memory_index_scale(),
        raw.memory_displacement64() as i64,
        raw.memory_displ_size(),
        false,
        raw.segment_prefix(),
    )
}
