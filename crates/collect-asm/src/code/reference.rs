//! References stored one by one, for who wants nothing else.
//!
//! Before each instruction that touches memory P_inst stores what it touches: a tag that tells the sort, and the address.
//! Nothing else is stored of blocks, so nothing is to be worked out from them afterwards: a reader that follows some ten
//! million blocks a second would spend most of its time on guessing wrong which comes next. Instructions whose accesses
//! vary are blocks by themselves, as ever.
//!
//! References of instructions that follow each other without a transfer are a *run*: the place in the buffer is moved on once,
//! by the last of them. Since references are stored before their instruction runs, and the place is moved on later or earlier, the
//! tracer corrects the place if a signal comes in between ([`Midway`]): what is told is what was done. Only the address that an
//! interrupted return or computed jump reads is told before what the handler does.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Instruction};
use ichnos_base::AccessFlags;
use ichnos_flow::{Effect, Set};
use ichnos_isa_x86::{
    Flow, Index, Inst, MemOperand, Reg, RegSet, Rep, Role, Scratch, Segment, Shape,
};
use ichnos_lift::lift;
use ichnos_trace::{RefKind, Register};

use super::convention::CALLER_SAVED;
use super::emit::{ASIDE, ASIDE_TOO, Emitter, PLACE, POINTERS, TAG, at, choose, context};
use super::region::World;

/// What P_inst stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Which blocks run, and the registers that their references come from.
    Blocks,
    /// References.
    References,
}

impl Form {
    /// This form, if all that these functions do can be told in it.
    pub(crate) fn of(self, world: &World) -> Self {
        let mut insts = world.functions.iter().flat_map(|f| &f.insts);
        match self {
            Self::References if insts.all(can_be_told) => Self::References,
            _ => Self::Blocks,
        }
    }
}

/// The upper bits of a reference's tag; no block has so high a number. The others are the number of its [`Kind`]. The
/// address follows, 8 bytes.
const REFERENCE: u32 = 0xfd00_0000;
const NUMBER: u32 = 0x00ff_ffff;
/// Bytes of tag and address.
pub(crate) const REFERENCE_LEN: usize = TAG + 8;

/// The number of a reference's kind, if a tag is that of one.
#[inline]
pub(crate) const fn kind_of_tag(tag: u32) -> Option<usize> {
    if tag & !NUMBER == REFERENCE { Some((tag & NUMBER) as usize) } else { None }
}

/// A sort of references.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    pub(crate) kind: RefKind,
    pub(crate) flags: AccessFlags,
    pub(crate) size: u32,
    /// All ones if the address counts from the base of `fs`, else zero.
    pub(crate) from_fs: u64,
}

impl Kind {
    /// No reference's.
    pub(crate) const NONE: Self =
        Self { kind: RefKind::Prefetch, flags: AccessFlags::NONE, size: 0, from_fs: 0 };
}

/// All sorts of references that an image makes.
#[derive(Clone, Default, Debug)]
pub(crate) struct Kinds {
    /// The number of the first.
    first: u32,
    pub(crate) list: Vec<Kind>,
}

impl Kinds {
    /// None yet; the first will have this number.
    pub(crate) const fn from(first: u32) -> Self {
        Self { first, list: Vec::new() }
    }

    fn tag(&mut self, kind: RefKind, operand: &MemOperand) -> u32 {
        let MemOperand { flags, size, .. } = *operand;
        let from_fs = if operand.address.segment == Segment::Fs { u64::MAX } else { 0 };
        let kind = Kind { kind, flags, size, from_fs };
        let known = self.list.iter().position(|k| *k == kind);
        let number = known.unwrap_or_else(|| {
            self.list.push(kind);
            self.list.len() - 1
        });
        REFERENCE | (self.first + number as u32)
    }
}

/// Whether an instruction's accesses can be told: one by one, or as those of a block by itself.
fn can_be_told(inst: &Inst) -> bool {
    let plain = |m: &MemOperand| {
        matches!(m.shape, Shape::Plain | Shape::String(Rep::Once))
            && !matches!(m.address.index, Index::LowByte(_))
    };
    inst.memory().iter().all(plain) || lift(inst).effects.contains(&Effect::Flex)
}

const fn kinds(role: Role) -> &'static [RefKind] {
    match role {
        Role::Load => &[RefKind::Load],
        Role::Store => &[RefKind::Store],
        Role::Both => &[RefKind::Load, RefKind::Store],
        Role::Prefetch => &[RefKind::Prefetch],
        Role::Flush => &[RefKind::Flush],
    }
}

/// The most references of a run: they must fit into what lies behind a buffer.
const MOST: usize = 64;

/// Instructions without a transfer between them, whose references go to one piece of the buffer: a register that none of
/// them uses points there all the while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pointer: u8,
    /// References in all, and those that are stored already.
    all: usize,
    stored: usize,
}

impl Run {
    /// The longest run that begins with the first of these instructions of a block, if no register is wanted besides `live`.
    fn from(insts: &[&Inst], live: Set, scratch: &mut Scratch) -> Option<Self> {
        let mut free = CALLER_SAVED.without(live);
        let (mut run, mut count) = (None, 0);
        for inst in insts {
            let effects = inst.effects_with(scratch);
            let registers = |of: &RegSet| -> Set {
                of.iter().filter_map(Reg::as_gpr).map(|r| Register(r.number())).collect()
            };
            free = free.without(registers(&effects.inputs));
            count += inst.memory().iter().map(|m| kinds(m.role).len()).sum::<usize>();
            let pointer = POINTERS.into_iter().find(|r| free.has(Register(*r)));
            let Some(pointer) = pointer.filter(|_| count <= MOST) else { break };
            if !inst.memory().is_empty() {
                run = Some(Self { pointer, all: count, stored: 0 });
            }
            if inst.flow() != Flow::Next {
                break;
            }
            free = free.without(registers(&effects.written));
        }
        run
    }

    const fn begins(&self) -> bool {
        self.stored == 0
    }
}

/// Where the place in the buffer does not tell what was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Midway {
    /// Inside a run, or where the place is carried in a register: so many bytes from where this register points are of
    /// instructions that are done.
    Behind { pointer: u8, bytes: u64 },
    /// So many bytes before the place are of an instruction that is not done.
    Ahead { bytes: u64 },
}

impl Emitter {
    /// Before an instruction: what it touches. The instruction is the first of these of its block; registers that are not
    /// live may be used, those that the block does not use rather than others.
    pub(crate) fn references(
        &mut self,
        known: &mut Kinds,
        insts: &[&Inst],
        (live, used): (Set, Set),
        scratch: &mut Scratch,
    ) {
        let Some(inst) = insts.first().filter(|inst| !inst.memory().is_empty()) else { return };
        let count = inst.memory().iter().map(|m| kinds(m.role).len()).sum();
        let taken: Set = {
            let inputs = &inst.effects_with(scratch).inputs;
            inputs.iter().filter_map(Reg::as_gpr).map(|r| Register(r.number())).collect()
        };
        let (run, aside) = match self.run.take().or_else(|| Run::from(insts, live, scratch)) {
            Some(run) => (run, false),
            None => {
                let (pointer, aside) = choose(taken, live, used);
                (Run { pointer, all: count, stored: 0 }, aside)
            }
        };
        let Run { pointer, all, stored } = run;
        let (value, aside_too) = choose(taken.or(Set::only(Register(pointer))), live, used);
        let begin = self.instrs.len();
        if aside {
            self.store(context(ASIDE), pointer);
        }
        if aside_too {
            self.store(context(ASIDE_TOO), value);
        }
        let from = self.instrs.len();
        let len = all * REFERENCE_LEN;
        if run.begins() {
            self.load(pointer, context(PLACE));
        }
        if run.begins() && all > count {
            // If there is no room for the run, that is found out here.
            let last = at(pointer, len as i64 - 1);
            self.push(Instruction::with2(Code::Mov_rm8_imm8, last, 0u32));
            self.site(begin, from);
        }
        let mut offset = (stored * REFERENCE_LEN) as i64;
        for operand in inst.memory() {
            self.address(value, &operand.address);
            for kind in kinds(operand.role) {
                let tag = known.tag(*kind, operand);
                self.push(Instruction::with2(Code::Mov_rm32_imm32, at(pointer, offset), tag));
                self.store(at(pointer, offset + TAG as i64), value);
                offset += REFERENCE_LEN as i64;
            }
        }
        let stored = stored + count;
        if stored < all {
            self.run = Some(Run { stored, ..run });
        } else {
            self.advance(pointer, len);
            let bytes = (count * REFERENCE_LEN) as u64;
            // What stands for a return or a computed jump stores more.
            let plain = !matches!(inst.flow(), Flow::Return | Flow::JumpIndirect);
            let ahead = plain.then_some(Midway::Ahead { bytes });
            self.midways.push((self.instrs.len(), ahead));
        }
        if all == count {
            self.site(begin, from);
        }
        if aside_too {
            self.load(value, context(ASIDE_TOO));
        }
        if aside {
            self.load(pointer, context(ASIDE));
        }
    }

    /// Behind an instruction of the program's own: what is stored of it is done.
    pub(crate) fn midway(&mut self) {
        let last = self.midways.last().and_then(|(_, midway)| *midway);
        let next = self.run.map(|Run { pointer, stored, .. }| Midway::Behind {
            pointer,
            bytes: (stored * REFERENCE_LEN) as u64,
        });
        let next = next.or_else(|| self.held.midway());
        if next != last {
            self.midways.push((self.instrs.len(), next));
        }
    }
}
