//! How generated code finds a line behind a sieve, and when it was used: where that lies is said in `ctx`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::Lines;
use ichnos_isa_x86::{AddrExpr, Index, Segment};

use super::ctx::{SIEVE_LINES, SIEVE_SLOTS, SIEVE_WAY, WAY_LOADED, WAY_STORED, at};
use super::emit::{Emit, Gp};

/// `cmp reg, place`.
const CMP: u8 = 0x3b;
/// `mov reg, place`.
pub const MOV_FROM: u8 = 0x8b;
/// `mov place, reg`.
pub const MOV_TO: u8 = 0x89;
/// One of the times of a line.
#[derive(Clone, Copy)]
pub enum Time {
    /// When it was loaded from.
    Loaded,
    /// When it was stored to.
    Stored,
}

impl Time {
    /// An instruction between a register and this time of the line whose way another one holds.
    pub fn op(self, emit: &mut Emit, opcode: u8, reg: Gp, way: Gp) {
        let offset = match self {
            Self::Loaded => WAY_LOADED,
            Self::Stored => WAY_STORED,
        };
        // gs:[way + offset]
        let rex = 0x48 | (reg.0 >> 3) << 2 | way.0 >> 3;
        emit.raw(&[0x65, rex, opcode, 0x40 | (reg.0 & 7) << 3 | way.0 & 7, offset as u8]);
    }
}

/// Eight times the number of a slot.
#[derive(Clone, Copy)]
pub enum Place {
    /// This register holds it.
    In(Gp),
    /// It is this.
    At(u32),
}

impl Place {
    /// Compares a register with the slot's line.
    pub fn compare(self, emit: &mut Emit, line: Gp) {
        self.op_at(emit, CMP, line, SIEVE_LINES);
    }

    /// Puts the way of the slot's line into a register.
    pub fn way(self, emit: &mut Emit, to: Gp) {
        self.op_at(emit, MOV_FROM, to, SIEVE_WAY);
    }

    /// An instruction between a register and a word of all slots that begins at an offset.
    fn op_at(self, emit: &mut Emit, opcode: u8, reg: Gp, offset: u32) {
        match self {
            Self::At(place) => emit.gs_op(opcode, reg, offset + 2 * place),
            Self::In(slot) => {
                // gs:[slot * 2 + offset]
                let rex = 0x48 | (reg.0 >> 3) << 2 | (slot.0 >> 3) << 1;
                emit.raw(&[0x65, rex, opcode, 4 | (reg.0 & 7) << 3, 0x45 | (slot.0 & 7) << 3]);
                emit.raw(&offset.to_le_bytes());
            }
        }
    }
}

/// Puts the time of a reference into a register.
pub fn load_time(emit: &mut Emit, reg: Gp, ahead: u32) {
    emit.load(reg, at::CLOCK);
    if ahead > 0 {
        emit.lea(reg, Some(reg), None, -(ahead as i32));
    }
}

/// Puts the address of an operand into a register. Changes flags.
pub fn address(emit: &mut Emit, to: Gp, expr: &AddrExpr) {
    if expr.base.is_none() && expr.index == Index::None {
        emit.set(to, expr.disp as u64);
    } else {
        let index = match expr.index {
            Index::Scaled(reg, scale) => Some((Gp(reg.number()), scale)),
            _ => None,
        };
        emit.lea(to, expr.base.map(|reg| Gp(reg.number())), index, expr.disp as i32);
    }
    if expr.segment == Segment::Fs {
        emit.raw(&[0x65, 0x48 | (to.0 >> 3) << 2, 0x03, 4 | (to.0 & 7) << 3, 0x25]); // add to, gs:[fs]
        emit.raw(&at::FS.to_le_bytes());
    }
}

/// Compares the line of an address with the one in its slot, of which eight times the number is left; an address that is not
/// aligned never is equal.
pub fn look_up(emit: &mut Emit, (line, slot): (Gp, Gp), size: u32, lines: Lines) {
    let keep = (-1_i32 << lines.shift) | (size.next_power_of_two() as i32 - 1);
    emit.copy32(slot, line);
    emit.and64(line, keep);
    emit.shr32(slot, (lines.shift - 3) as u8);
    emit.and32(slot, ((1 << SIEVE_SLOTS) - 1) << 3);
    Place::In(slot).compare(emit, line);
}
