//! Save points: the code that stores a block's identifier and registers.
//!
//! The first save point of a block stores the identifier and moves the buffer's address on by the whole
//! record; later ones store into the room that the first made. The address is in the register that
//! `home` chose. If it is in the context, a register that is dead serves as
//! pointer; if none is, one is spilled. Nothing here changes flags.
//!
//! If the buffer is full the first store of a block that does not fit faults; the handler moves what
//! there is of the record to the next buffer, and the save point is done again there.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_flow::{Piece, Plan, SavePoint, Set};
use ichnos_isa_x86::Inst;
use ichnos_trace::{Register, Width};

use super::ctx::at;
use super::emit::{Emit, Gp};
use super::fragment::{ExitKind, Part, Spills};
use super::items::Length;
use super::snapshot::Varying;
use super::superblock::Decoded;
use super::sys;
use super::translate::{Draft, Surroundings, Told};
use crate::{plan, words};

/// Registers that can be the pointer, the likeliest dead first. Not rsp and r12, whose encoding is longer.
const POINTERS: [u8; 14] = [11, 10, 9, 8, 0, 1, 2, 6, 7, 3, 5, 13, 14, 15];
/// Bytes of an identifier.
const TAG: usize = 4;

/// The save points of a superblock.
pub struct Probes {
    plan: Plan,
    first: u32,
    accesses: Accesses,
    /// The instruction after which the stack pointer must be told.
    strange: Option<usize>,
    /// Whether all pieces are stored as one, because they are those of a path.
    is_path: bool,
}

/// How the accesses become known.
enum Accesses {
    /// By the save points of the plan.
    Planned,
    /// By the state around the one instruction.
    Varying(Varying),
    /// By the engine.
    Told,
}

impl Probes {
    /// Plans a superblock, which may become shorter.
    pub fn new(around: &mut dyn Surroundings, insns: &mut Vec<Decoded>) -> Self {
        let inst =
            |d: &Decoded| d.inst.as_deref().copied().unwrap_or_else(|| Inst::from_raw(d.insn));
        let insts: Vec<Inst> = insns.iter().map(inst).collect();
        let len = plan::plannable(&insts);
        let mut plan = plan::plan_superblock(&insts[..len]);
        insns.truncate(len);
        if plan.is_none() {
            plan = plan::plan_superblock(&insts[..1]);
            insns.truncate(1);
        }
        let Some(plan) = plan else {
            sys::die(&format!("cannot plan the instruction at {}", insts[0].pc()))
        };
        let first = around.identifiers(plan.pieces.len());
        let accesses = if plan::is_flexible(&insts[0]) {
            Varying::of(&insts[0]).map_or(Accesses::Told, Accesses::Varying)
        } else {
            Accesses::Planned
        };
        let last = insns.len() - 1;
        let strange = insts.get(last).filter(|inst| !plan::keeps_stack(inst)).map(|_| last);
        Self { plan, first, accesses, strange, is_path: false }
    }

    /// Those of a path.
    pub fn along(around: &mut dyn Surroundings, plan: Plan) -> Self {
        // Those of its blocks, and of the first two, the first three, and so on.
        let first = around.identifiers(2 * plan.pieces.len() - 1);
        Self { plan, first, accesses: Accesses::Planned, strange: None, is_path: true }
    }

    /// The parts of a path.
    pub fn parts(&self) -> Vec<Part> {
        let pieces = &self.plan.pieces;
        let whole = self.len(pieces.len());
        let part = |i: usize| Part {
            identifier: self.identifier(i),
            whole: whole as u16,
            behind: (whole - self.len(i + 1)) as u16,
        };
        (0..pieces.len()).map(part).collect()
    }

    /// What stands for a path that was left behind a piece.
    fn identifier(&self, piece: usize) -> u32 {
        let blocks = self.plan.pieces.len() as u32;
        self.first + if piece == 0 { 0 } else { blocks + piece as u32 - 1 }
    }

    /// Bytes of a path's record up to its first so many pieces.
    fn len(&self, pieces: usize) -> usize {
        TAG + self.plan.pieces.iter().take(pieces).map(Piece::bytes).sum::<usize>()
    }

    /// What the host must know.
    pub fn told(&self, insns: &[Decoded]) -> Told {
        let piece = |piece: &Piece| (piece.entry.0, piece.bytes() as u16);
        let pieces = self.plan.pieces.iter().map(piece).collect();
        let length = match &self.accesses {
            Accesses::Planned => Length::Words,
            Accesses::Varying(varying) => Length::Fixed(varying.len() as u16),
            Accesses::Told => Length::Runs,
        };
        Told { is_path: self.is_path, length, ..Told::new(insns, self.first, pieces) }
    }

    /// Writes the save points before an instruction; false if that cannot be done.
    pub fn before(&self, draft: &mut Draft, insn: usize, pc: u64) -> bool {
        match &self.accesses {
            Accesses::Planned => {}
            Accesses::Varying(varying) => return varying.before(draft, self.first, pc).is_ok(),
            Accesses::Told => {
                draft.site(pc, Spills::NONE);
                draft.leave_for(ExitKind::Flexible, pc, self.first);
                draft.settle();
                return true;
            }
        }
        for (i, piece) in self.plan.pieces.iter().enumerate() {
            if !piece.insns.contains(&insn) {
                continue;
            }
            let (mut offset, whole, identifier) = if self.is_path {
                draft.part = i as u8;
                let last = self.plan.pieces.len() - 1;
                (self.len(i), self.len(last + 1), self.identifier(last))
            } else {
                (TAG, TAG + piece.bytes(), self.first + i as u32)
            };
            for (k, save) in piece.saves.iter().enumerate() {
                let point = Point { save, offset, whole, pc };
                if save.at == insn {
                    let begins = k == 0 && (i == 0 || !self.is_path);
                    let done = if begins {
                        point.first(draft, identifier)
                    } else {
                        save.stores.is_empty() || point.later(draft)
                    };
                    if !done {
                        return false;
                    }
                }
                offset += point.bytes();
            }
        }
        true
    }
}

impl Probes {
    /// Writes the save points behind an instruction that goes on to `next`.
    pub fn after(&self, draft: &mut Draft, insn: usize, next: u64) {
        if let Accesses::Varying(varying) = &self.accesses {
            varying.after(draft, next);
        }
        if self.strange == Some(insn) {
            tell_stack(draft, next);
        }
    }
}

/// Writes the event that tells the stack pointer.
fn tell_stack(draft: &mut Draft, pc: u64) {
    const BORROWED: Gp = Gp(10);
    const RSP: u8 = 4;
    let home = draft.now.register();
    let pointer = home.unwrap_or(BORROWED);
    if home.is_none() {
        draft.site(pc, Spills::NONE);
        draft.emit.save(at::SPILL_FAR, pointer);
        draft.probe_site(pc, Spills::far(pointer.0), 0);
        draft.emit.load(pointer, at::BUFFER);
    } else {
        draft.probe_site(pc, Spills::NONE, 0);
    }
    let emit = &mut draft.emit;
    store_tag(emit, pointer, words::STACK);
    emit.raw(&[0x48 | pointer.0 >> 3, 0x89]);
    operand(emit, RSP, pointer, TAG as i32);
    advance(emit, pointer, words::EVENT_LEN as i32);
    if home.is_none() {
        emit.save(at::BUFFER, pointer);
        emit.load(pointer, at::SPILL_FAR);
    }
    draft.site(pc, Spills::NONE);
}

const fn width(width: Width) -> usize {
    match width {
        Width::Four => 4,
        Width::Eight => 8,
    }
}

/// What becomes of the pointer behind a save point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// It is where the address is kept.
    Home,
    /// The program's value comes back.
    Spilled,
    /// The program needs its value no more.
    Dead,
}

/// One save point.
struct Point<'a> {
    save: &'a SavePoint,
    /// Where its stores begin in the record, and how long that is.
    offset: usize,
    whole: usize,
    pc: u64,
}

impl Point<'_> {
    /// Bytes of its words.
    fn bytes(&self) -> usize {
        self.save.stores.iter().map(|s| width(s.width)).sum()
    }

    fn first(&self, draft: &mut Draft, identifier: u32) -> bool {
        let len = self.whole;
        let Some((pointer, kept)) = self.begin(draft, 0) else { return false };
        let asks = draft.known != 0 && self.offset + self.bytes() < len;
        let emit = &mut draft.emit;
        store_tag(emit, pointer, identifier);
        self.stores(emit, pointer, self.offset as i32);
        if asks {
            // The buffer's end is noticed here or not at all.
            ask_for_room(emit, pointer, len as i32);
        }
        advance(emit, pointer, len as i32);
        if kept != Kept::Home {
            emit.save(at::BUFFER, pointer);
        }
        self.end(emit, pointer, kept);
        draft.begun = len as u16;
        true
    }

    fn later(&self, draft: &mut Draft) -> bool {
        let len = self.whole;
        let Some((pointer, kept)) = self.begin(draft, len) else { return false };
        let emit = &mut draft.emit;
        self.stores(emit, pointer, self.offset as i32 - len as i32);
        self.end(emit, pointer, kept);
        true
    }

    fn end(&self, emit: &mut Emit, pointer: Gp, kept: Kept) {
        if kept == Kept::Spilled {
            emit.load(pointer, at::SPILL_FAR);
        }
    }

    /// Makes the pointer ready; marks where the point begins again.
    fn begin(&self, draft: &mut Draft, begun: usize) -> Option<(Gp, Kept)> {
        let stored: Set = self.save.stores.iter().map(|s| s.register).collect();
        if stored.iter().any(|r| r.0 >= 16) {
            return None;
        }
        if let Some(home) = draft.now.register() {
            draft.probe_site(self.pc, Spills::NONE, begun);
            return Some((home, Kept::Home));
        }
        let free = |r: &u8| !stored.has(Register(*r));
        let dead = |r: &u8| free(r) && !self.save.live.registers.has(Register(*r));
        let choice = POINTERS.into_iter().find(dead);
        let (number, spilled) = match choice {
            Some(number) => (number, false),
            None => (POINTERS.into_iter().find(free)?, true),
        };
        draft.site(self.pc, Spills::NONE);
        if spilled {
            draft.emit.save(at::SPILL_FAR, Gp(number));
        } else {
            draft.lose(Gp(number));
        }
        let spills = if spilled { Spills::far(number) } else { Spills::NONE };
        draft.probe_site(self.pc, spills, begun);
        draft.emit.load(Gp(number), at::BUFFER);
        Some((Gp(number), if spilled { Kept::Spilled } else { Kept::Dead }))
    }

    fn stores(&self, emit: &mut Emit, pointer: Gp, mut offset: i32) {
        for store in &self.save.stores {
            let wide = store.width == Width::Eight;
            let reg = Gp(store.register.0);
            let rex = 0x40 | u8::from(wide) << 3 | (reg.0 >> 3) << 2 | pointer.0 >> 3;
            if rex != 0x40 {
                emit.raw(&[rex]);
            }
            emit.raw(&[0x89]);
            operand(emit, reg.0, pointer, offset);
            offset += width(store.width) as i32;
        }
    }
}

/// ModRM and displacement for `[pointer + offset]`.
pub fn operand(emit: &mut Emit, reg: u8, pointer: Gp, offset: i32) {
    let low = (reg & 7) << 3 | pointer.0 & 7;
    match i8::try_from(offset) {
        Ok(0) if pointer.0 & 7 != 5 => emit.raw(&[low]),
        Ok(short) => emit.raw(&[0x40 | low, short as u8]),
        Err(_) => {
            emit.raw(&[0x80 | low]);
            emit.raw(&offset.to_le_bytes());
        }
    }
}

/// `mov dword [pointer + len - 4], 0`, where something else is stored later.
fn ask_for_room(emit: &mut Emit, pointer: Gp, len: i32) {
    prefix(emit, pointer);
    emit.raw(&[0xc7]);
    operand(emit, 0, pointer, len - TAG as i32);
    emit.raw(&0_u32.to_le_bytes());
}

fn prefix(emit: &mut Emit, pointer: Gp) {
    if pointer.0 >= 8 {
        emit.raw(&[0x41]);
    }
}

/// `mov dword [pointer], tag`.
pub fn store_tag(emit: &mut Emit, pointer: Gp, tag: u32) {
    prefix(emit, pointer);
    emit.raw(&[0xc7]);
    operand(emit, 0, pointer, 0);
    emit.raw(&tag.to_le_bytes());
}

/// Makes the record of a path, which lies before the pointer, the one of the path up to a part.
pub fn change_tag(emit: &mut Emit, pointer: Gp, part: Part) {
    prefix(emit, pointer);
    emit.raw(&[0xc7]);
    operand(emit, 0, pointer, -i32::from(part.whole));
    emit.raw(&part.identifier.to_le_bytes());
    if part.behind > 0 {
        advance(emit, pointer, -i32::from(part.behind));
    }
}

/// `lea pointer, [pointer + by]`.
pub fn advance(emit: &mut Emit, pointer: Gp, by: i32) {
    emit.raw(&[0x48 | (pointer.0 >> 3) << 2 | pointer.0 >> 3, 0x8d]);
    operand(emit, pointer.0, pointer, by);
}
