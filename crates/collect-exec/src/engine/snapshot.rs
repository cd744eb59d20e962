//! Save points of instructions whose accesses vary: they store what [`Snapshot`] says, without
//! leaving the cache.
//!
//! The part before the instruction touches the record's last byte first, so that only there a
//! full buffer can be met; the part after it stores into the room that the first made. Nothing here changes
//! flags.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Instruction, MemoryOperand, Register};
use ichnos_isa_x86::Inst;

use super::ctx::at;
use super::emit::{Emit, Gp};
use super::fragment::{Site, Spills};
use super::mangle::{self, Unsupported};
use super::probe::{advance, operand, store_byte, store_tag};
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

    /// The save point before the instruction at `pc`, whose block is `identifier`.
    pub fn before(&self, draft: &mut Draft, identifier: u32, pc: u64) -> Result<(), Unsupported> {
        let len = (TAG + self.parts.len()) as i32;
        draft.site(pc, Spills::NONE);
        draft.emit.save(at::SPILL_FAR, self.pointer);
        let offset = draft.emit.offset() as u32;
        let spills = Spills::far(self.pointer.0);
        let (lost, rest) = (draft.lost, draft.rest);
        draft.sites.push(Site { offset, spills, pc, lost, probe: true, rest });
        let emit = &mut draft.emit;
        emit.load(self.pointer, at::BUFFER);
        store_byte(emit, self.pointer, len - 1);
        store_tag(emit, self.pointer, identifier);
        for (part, at) in self.parts.parts() {
            self.store(emit, part, (TAG + at) as i32)?;
        }
        advance(emit, self.pointer, len);
        emit.save(at::BUFFER, self.pointer);
        emit.load(self.pointer, at::SPILL_FAR);
        Ok(())
    }

    /// The save point after the instruction, if it needs one.
    pub fn after(&self, draft: &mut Draft, next: u64) {
        let later = |part: &(Part, usize)| matches!(part.0, Part::After(_));
        if !self.parts.parts().any(|p| later(&p)) {
            return;
        }
        draft.site(next, Spills::NONE);
        draft.emit.save(at::SPILL_FAR, self.pointer);
        draft.site(next, Spills::far(self.pointer.0));
        let emit = &mut draft.emit;
        emit.load(self.pointer, at::BUFFER);
        for (part, at) in self.parts.parts().filter(later) {
            let Part::After(reg) = part else { continue };
            self.store_gpr(emit, reg, at as i32 - self.parts.len() as i32);
        }
        emit.load(self.pointer, at::SPILL_FAR);
    }

    fn store(&self, emit: &mut Emit, part: Part, offset: i32) -> Result<(), Unsupported> {
        let (code, reg) = match part {
            Part::Gpr(reg) => {
                self.store_gpr(emit, reg, offset);
                return Ok(());
            }
            Part::After(_) => return Ok(()),
            Part::Mask16(k) => (Code::VEX_Kmovw_m16_kr, named(Register::K0, k)),
            Part::Mask64(k) => (Code::VEX_Kmovq_m64_kr, named(Register::K0, k)),
            Part::Vector(n, 16) => (Code::Movdqu_xmmm128_xmm, named(Register::XMM0, n)),
            Part::Vector(n, 32) => (Code::VEX_Vmovdqu_ymmm256_ymm, named(Register::YMM0, n)),
            Part::Vector(n, _) => (Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm, named(Register::ZMM0, n)),
        };
        let base = named(Register::RAX, self.pointer.0);
        let place = MemoryOperand::with_base_displ(base, i64::from(offset));
        let store = Instruction::with2(code, place, reg).map_err(|_| Unsupported)?;
        mangle::encode(emit, &store)
    }

    /// `mov [pointer + offset], reg`.
    fn store_gpr(&self, emit: &mut Emit, reg: u8, offset: i32) {
        emit.raw(&[0x48 | (reg >> 3) << 2 | self.pointer.0 >> 3, 0x89]);
        operand(emit, reg, self.pointer, offset);
    }
}

/// The register so many behind the first of its sort.
fn named(first: Register, number: u8) -> Register {
    first + u32::from(number)
}
