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

/// Puts the address of an operand, and so many bytes more, into a register. Changes flags.
pub fn address(emit: &mut Emit, to: Gp, expr: &AddrExpr, more: u32) {
    let disp = expr.disp.wrapping_add(i64::from(more));
    if expr.base.is_none() && expr.index == Index::None {
        emit.set(to, disp as u64);
    } else {
        let index = match expr.index {
            Index::Scaled(reg, scale) => Some((Gp(reg.number()), scale)),
            _ => None,
        };
        let base = expr.base.map(|reg| Gp(reg.number()));
        if let Ok(disp) = i32::try_from(disp) {
            emit.lea(to, base, index, disp);
        } else {
            emit.lea(to, base, index, expr.disp as i32);
            emit.lea(to, Some(to), None, more as i32);
        }
    }
    if expr.segment == Segment::Fs {
        emit.raw(&[0x65, 0x48 | (to.0 >> 3) << 2, 0x03, 4 | (to.0 & 7) << 3, 0x25]); // add to, gs:[fs]
        emit.raw(&at::FS.to_le_bytes());
    }
}

/// Compares the line of an access with the one in its slot, of which eight times the number is left, by the address of its last
/// byte. The slot is that of its first byte: so what lies in two lines never is equal, because the slot never
/// has the second of them.
pub fn look_up(emit: &mut Emit, (line, slot): (Gp, Gp), size: u32, lines: Lines) {
    match size.max(1) - 1 {
        0 => emit.copy32(slot, line),
        more => emit.lea32(slot, line, -(more as i8)),
    }
    find(emit, (line, slot), lines);
}

/// The same by the addresses of the last byte and the first.
pub fn find(emit: &mut Emit, (last, first): (Gp, Gp), lines: Lines) {
    emit.and64(last, -1_i32 << lines.shift);
    emit.shr32(first, (lines.shift - 3) as u8);
    emit.and32(first, ((1 << SIEVE_SLOTS) - 1) << 3);
    Place::In(first).compare(emit, last);
}
