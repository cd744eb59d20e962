//! How generated code finds a line behind a sieve, and when it was used: where that lies is said in `ctx`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_x86::{AddrExpr, Index, Segment};

use super::ctx::{SIEVE_LINES, SIEVE_STORED, at};
use super::emit::{Emit, Gp};

/// `cmp reg, place`.
pub const CMP: u8 = 0x3b;
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

/// Eight times the number of a slot.
#[derive(Clone, Copy)]
pub enum Place {
    /// This register holds it.
    In(Gp),
    /// It is this.
    At(u32),
}

impl Place {
    /// An instruction between a register and a time of the slot's line.
    pub fn op(self, emit: &mut Emit, opcode: u8, reg: Gp, time: Time) {
        match (self, time) {
            (Self::In(slot), Time::Loaded) => twice(emit, opcode, reg, (slot, SIEVE_LINES + 8)),
            (Self::In(slot), Time::Stored) => {
                let rex = 0x48 | (reg.0 >> 3) << 2 | slot.0 >> 3;
                emit.raw(&[0x65, rex, opcode, 0x80 | (reg.0 & 7) << 3 | slot.0 & 7]);
                emit.raw(&SIEVE_STORED.to_le_bytes());
            }
            (Self::At(place), Time::Loaded) => emit.gs_op(opcode, reg, SIEVE_LINES + 8 + 2 * place),
            (Self::At(place), Time::Stored) => emit.gs_op(opcode, reg, SIEVE_STORED + place),
        }
    }
}

/// An instruction between a register and `gs:[index * 2 + offset]`.
pub fn twice(emit: &mut Emit, opcode: u8, reg: Gp, (index, offset): (Gp, u32)) {
    let rex = 0x48 | (reg.0 >> 3) << 2 | (index.0 >> 3) << 1;
    emit.raw(&[0x65, rex, opcode, 4 | (reg.0 & 7) << 3, 0x45 | (index.0 & 7) << 3]);
    emit.raw(&offset.to_le_bytes());
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
