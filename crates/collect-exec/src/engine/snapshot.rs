//! Save points of instructions whose accesses vary: they store what [`Snapshot`] says, without
//! leaving the cache.
//!
//! The part after the instruction stores into the room that the part before it made. Nothing here changes
//! flags.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Instruction, MemoryOperand, Register};
use ichnos_isa_x86::Inst;

use super::ctx::at;
use super::emit::{Emit, Gp};
use super::fragment::Spills;
use super::mangle::{self, Unsupported};
use super::probe::{advance, operand, store_tag};
use super::translate::Draft;
use crate::plan::{Part, Snapshot};

/// Bytes of an identifier.
const TAG: usize = 4;

/// An instruction with what is stored of it.
pub struct Varying {
    parts: Snapshot,
    pointer: Gp,
}

impl Varying {
    /// For an instruction; `None` if it must leave the cache.
    pub fn of(inst: &Inst) -> Option<Self> {
        let parts = Snapshot::of(inst)?;
        let stored =
            |n: u8| [Part::Gpr(n), Part::After(n)].iter().any(|p| parts.find(*p).is_some());
        // Neither rsp, nor the ones whose encoding as a base is longer.
        let pointer = [11, 10, 9, 8, 0, 2, 3].into_iter().find(|&n| !stored(n))?;
        Some(Self { parts, pointer: Gp(pointer) })
    }

    /// Bytes that are stored.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// The save point before the instruction at `pc`, whose block is `identifier`.
    pub fn before(&self, draft: &mut Draft, identifier: u32, pc: u64) -> Result<(), Unsupported> {
        let len = (TAG + self.parts.len()) as i32;
        let (pointer, borrowed) = self.begin(draft, pc, 0);
        let emit = &mut draft.emit;
        store_tag(emit, pointer, identifier);
        for (part, at) in self.parts.parts() {
            store(emit, pointer, part, (TAG + at) as i32)?;
        }
        advance(emit, pointer, len);
        emit.save(at::SPECIAL, pointer);
        if borrowed {
            emit.save(at::BUFFER, pointer);
            emit.load(pointer, at::SPILL_FAR);
        }
        draft.begun = len as u16;
        Ok(())
    }

    /// Makes the pointer ready; whether the program's register must come back from its spill.
    fn begin(&self, draft: &mut Draft, pc: u64, begun: usize) -> (Gp, bool) {
        if let Some(home) = draft.now.register() {
            draft.probe_site(pc, Spills::NONE, begun);
            return (home, false);
        }
        draft.site(pc, Spills::NONE);
        draft.emit.save(at::SPILL_FAR, self.pointer);
        draft.probe_site(pc, Spills::far(self.pointer.0), begun);
        draft.emit.load(self.pointer, at::BUFFER);
        (self.pointer, true)
    }

    /// The save point after the instruction, if it needs one.
    pub fn after(&self, draft: &mut Draft, next: u64) {
        let later = |part: &(Part, usize)| matches!(part.0, Part::After(_));
        if !self.parts.parts().any(|p| later(&p)) {
            return;
        }
        let (pointer, borrowed) = self.begin(draft, next, TAG + self.parts.len());
        let emit = &mut draft.emit;
        for (part, at) in self.parts.parts().filter(later) {
            let Part::After(reg) = part else { continue };
            store_gpr(emit, pointer, reg, at as i32 - self.parts.len() as i32);
        }
        if borrowed {
            emit.load(pointer, at::SPILL_FAR);
        }
    }
}

fn store(emit: &mut Emit, pointer: Gp, part: Part, offset: i32) -> Result<(), Unsupported> {
    let (code, reg) = match part {
        Part::Gpr(reg) => {
            store_gpr(emit, pointer, reg, offset);
            return Ok(());
        }
        Part::After(_) => return Ok(()),
        Part::Mask16(k) => (Code::VEX_Kmovw_m16_kr, named(Register::K0, k)),
        Part::Mask64(k) => (Code::VEX_Kmovq_m64_kr, named(Register::K0, k)),
        Part::Vector(n, 16) => (Code::Movdqu_xmmm128_xmm, named(Register::XMM0, n)),
        Part::Vector(n, 32) => (Code::VEX_Vmovdqu_ymmm256_ymm, named(Register::YMM0, n)),
        Part::Vector(n, _) => (Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm, named(Register::ZMM0, n)),
    };
    let base = named(Register::RAX, pointer.0);
    let place = MemoryOperand::with_base_displ(base, i64::from(offset));
    let store = Instruction::with2(code, place, reg).map_err(|_| Unsupported)?;
    mangle::encode(emit, &store)?;
    if let Part::Mask16(_) = part {
        // What is stored must reach to its end, or a buffer that has no room for it would not be noticed.
        let rest = MemoryOperand::with_base_displ(base, i64::from(offset) + 4);
        let zero = Instruction::with2(Code::Mov_rm32_imm32, rest, 0).map_err(|_| Unsupported)?;
        mangle::encode(emit, &zero)?;
    }
    Ok(())
}

/// `mov [pointer + offset], reg`.
fn store_gpr(emit: &mut Emit, pointer: Gp, reg: u8, offset: i32) {
    emit.raw(&[0x48 | (reg >> 3) << 2 | pointer.0 >> 3, 0x89]);
    operand(emit, reg, pointer, offset);
}

/// The register so many behind the first of its sort.
fn named(first: Register, number: u8) -> Register {
    first + u32::from(number)
}
