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

use iced_x86::{Code, Instruction, MemoryOperand, Register as Name};
use ichnos_base::GuestVa;
use ichnos_flow::{Piece, SavePoint, Set, Store};
use ichnos_isa_x86::{Flow, Gpr, Inst, Reg};
use ichnos_trace::{Register, Width};

use super::convention::CALLER_SAVED;
use super::flex::{Item, MaskWidth, Payload};
use super::region::TARGET;

/// Added to an address to name the copy of what lies there.
pub(crate) const COPY: u64 = 1 << 62;
/// Added to a function's address to name what is entered from code that is not copied.
pub(crate) const STUB: u64 = 1 << 61;

/// The tag of an entry from code that is not copied: then the stack pointer, the word it points
/// to and the base of `fs`, 8 bytes each.
pub(crate) const ENTERED: u32 = 0xffff_ff01;
/// Bytes of such an entry.
pub(crate) const ENTERED_LEN: usize = 28;
/// Bytes of a tag or identifier.
pub(crate) const TAG: usize = 4;

/// Offsets in a thread's context.
const PLACE: i64 = 0;
const ASIDE: i64 = 8;
const ASIDE_TOO: i64 = 16;

/// Registers that can be the pointer, the likeliest dead first. Those that calls keep are only
/// put aside, never taken for dead: an exception may continue where they are wanted.
const POINTERS: [u8; 15] = [11, 10, 9, 8, 0, 1, 2, 6, 7, 3, 12, 13, 14, 15, 5];

/// The sequence that stores a record's first words; it can begin again. Numbers of
/// instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Site {
    /// The first of all that was inserted.
    pub(crate) begin: usize,
    /// Where it can begin again.
    pub(crate) from: usize,
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
    /// For each, the program's instruction that it belongs to.
    pub(crate) pcs: Vec<GuestVa>,
    /// What can begin again.
    pub(crate) sites: Vec<Site>,
    /// For each function, the first instruction after its copy.
    pub(crate) ends: Vec<(GuestVa, usize)>,
    label: u64,
    pc: GuestVa,
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

fn narrow(number: u8) -> Name {
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
fn context(offset: i64) -> MemoryOperand {
    MemoryOperand::new(Name::None, Name::None, 1, offset, 4, false, Name::GS)
}

fn at(pointer: u8, offset: i64) -> MemoryOperand {
    let size = if offset == 0 { 0 } else { 1 };
    MemoryOperand::new(name(pointer), Name::None, 1, offset, size, false, Name::None)
}

const fn width(width: Width) -> usize {
    match width {
        Width::Four => 4,
        Width::Eight => 8,
    }
}

impl Emitter {
    /// What follows is the copy of the instruction at `pc`.
    pub(crate) fn begin(&mut self, pc: GuestVa) {
        self.label = COPY | pc.0;
        self.pc = pc;
    }

    fn push(&mut self, instr: Result<Instruction, iced_x86::IcedError>) {
        // Codes and operands are fixed above and fit each other: the golden tests go over all.
        let Ok(mut instr) = instr else { return };
        instr.set_ip(std::mem::take(&mut self.label));
        self.instrs.push(instr);
        self.pcs.push(self.pc);
    }

    fn load(&mut self, to: u8, from: MemoryOperand) {
        self.push(Instruction::with2(Code::Mov_r64_rm64, name(to), from));
    }

    fn store(&mut self, to: MemoryOperand, from: u8) {
        self.push(Instruction::with2(Code::Mov_rm64_r64, to, name(from)));
    }

    fn tag(&mut self, pointer: u8, tag: u32) {
        self.push(Instruction::with2(Code::Mov_rm32_imm32, at(pointer, 0), tag));
    }

    fn advance(&mut self, pointer: u8, by: usize) {
        self.push(Instruction::with2(Code::Lea_r64_m, name(pointer), at(pointer, by as i64)));
        self.store(context(PLACE), pointer);
    }

    fn site(&mut self, begin: usize, from: usize) {
        let to = self.instrs.len();
        self.sites.push(Site { begin, from, to, stored: to });
    }

    /// Where a function is entered from code that is not copied.
    pub(crate) fn stub(&mut self, function: GuestVa) {
        const POINTER: u8 = 11;
        const OTHER: u8 = 0;
        const RSP: u8 = 4;
        self.label = STUB | function.0;
        self.pc = function;
        let begin = self.instrs.len();
        self.store(context(ASIDE), POINTER);
        self.store(context(ASIDE_TOO), OTHER);
        let from = self.instrs.len();
        self.load(POINTER, context(PLACE));
        self.tag(POINTER, ENTERED);
        self.store(at(POINTER, 4), RSP);
        self.load(OTHER, at(RSP, 0));
        self.store(at(POINTER, 12), OTHER);
        self.push(Instruction::with1(Code::Rdfsbase_r64, name(OTHER)));
        self.store(at(POINTER, 20), OTHER);
        self.advance(POINTER, ENTERED_LEN);
        self.site(begin, from);
        self.load(OTHER, context(ASIDE_TOO));
        self.load(POINTER, context(ASIDE));
        self.jump(COPY | function.0);
        // The function's own first block comes after all this.
        if let Some(site) = self.sites.last_mut() {
            site.stored = self.instrs.len();
        }
    }

    /// A jump to an address or to the copy of what lies there.
    pub(crate) fn jump(&mut self, to: u64) {
        self.push(Instruction::with_branch(Code::Jmp_rel32_64, to));
    }

    /// A save point. `offset` is where its stores begin in the record.
    pub(crate) fn save(&mut self, point: &Point<'_>, offset: usize) {
        let first = point.piece.insns.start == point.save.at;
        let len = TAG + point.piece.bytes() + point.payload.map_or(0, Payload::len);
        let taken = point.taken();
        let (pointer, aside) = choose(taken, point.save.live.registers);
        let begin = self.instrs.len();
        if aside {
            self.store(context(ASIDE), pointer);
        }
        let from = self.instrs.len();
        self.load(pointer, context(PLACE));
        if first {
            if point.piece.saves.len() > 1 || point.payload.is_some() {
                let last = at(pointer, len as i64 - 1);
                self.push(Instruction::with2(Code::Mov_rm8_imm8, last, 0u32));
            }
            self.tag(pointer, point.identifier);
        }
        let start = if first { offset as i64 } else { offset as i64 - len as i64 };
        let mut next = start;
        for store in &point.save.stores {
            self.put(point, store, pointer, next);
            next += width(store.width) as i64;
        }
        if first {
            if let Some(payload) = point.payload {
                self.payload(payload, pointer, TAG as i64 + point.piece.bytes() as i64);
            }
            self.advance(pointer, len);
            self.site(begin, from);
        }
        if aside {
            self.load(pointer, context(ASIDE));
        }
    }

    fn put(&mut self, point: &Point<'_>, store: &Store, pointer: u8, offset: i64) {
        if store.register == TARGET {
            let live = point.save.live.registers;
            let (other, aside) = choose(point.taken().or(Set::only(Register(pointer))), live);
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
                    // The stack's next bytes may be in use: functions without calls keep
                    // their own there.
                    const RED_ZONE: i64 = 128;
                    let rsp = Name::RSP;
                    self.push(Instruction::with2(Code::Lea_r64_m, rsp, at(4, -RED_ZONE)));
                    self.push(Ok(Instruction::with(Code::Pushfq)));
                    self.push(Instruction::with1(Code::Pop_rm64, to));
                    self.push(Instruction::with2(Code::Lea_r64_m, rsp, at(4, RED_ZONE)));
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
        let mut raw = *inst.raw();
        if let Flow::Jump(to) | Flow::Cond(to) | Flow::Call(to) = inst.flow()
            && copied(to)
        {
            raw.set_near_branch64(COPY | to.0);
        }
        self.push(Ok(raw));
    }
}

impl Point<'_> {
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

/// A register to use, and whether it must be put aside.
fn choose(taken: Set, live: Set) -> (u8, bool) {
    let free = |r: &u8| !taken.has(Register(*r));
    let unwanted = CALLER_SAVED.without(live);
    match POINTERS.into_iter().filter(free).find(|r| unwanted.has(Register(*r))) {
        Some(number) => (number, false),
        None => (POINTERS.into_iter().find(free).unwrap_or(POINTERS[0]), true),
    }
}

/// An instruction's memory operand.
fn operand(raw: &Instruction) -> MemoryOperand {
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
