//! The accesses that one execution of an instruction makes, given the registers.
//!
//! Order and number follow the counting rules of `docs/EVENTS.md`:
//! - operands in the order of [`Inst::memory`]: loads before stores, the named
//!   operand before the implied one; a read-modify-write is a load, then a store;
//! - a gather or scatter makes one access per active lane, lowest lane first;
//! - a vector access under a mask makes one access per maximal run of adjacent
//!   elements whose lanes are active, lowest address first, and none if no lane
//!   is active; it has the LANE flag when a mask decided it, even if every lane
//!   was active;
//! - a repeated string instruction is evaluated one iteration at a time (as a
//!   single step executes it): none if the count register is zero;
//! - an AMX tile makes one access per row;
//! - the xsave family makes one access per contiguous stretch of state.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, Record};

use crate::{
    AddrExpr, AddrWidth, Error, Gpr, Index, Inst, LaneMask, Lanes, Masked, MemOperand, Regs, Rep,
    Role, Segment, Shape, state,
};

/// Appends the accesses that `inst` makes when executed once with these
/// registers: loads, stores, prefetches and flushes, nothing else.
///
/// # Errors
///
/// [`Error::Missing`] if the accesses depend on state that `regs` does not give,
/// [`Error::Unsupported`] if they are not modelled; some may have been appended.
pub fn accesses(inst: &Inst, regs: &impl Regs, out: &mut Vec<Record>) -> Result<(), Error> {
    for operand in inst.memory() {
        let mut emit = Emit { operand, out };
        match operand.shape {
            Shape::Plain => emit.access(address(&operand.address, regs), operand.size),
            Shape::String(rep) => {
                if rep == Rep::Once || count_left(&operand.address, regs) {
                    emit.access(address(&operand.address, regs), operand.size);
                }
            }
            Shape::Lanes(lanes) => {
                let active = active(lanes.mask, lanes.count, inst, regs)?;
                emit.lanes(&lanes, active, regs);
            }
            Shape::Masked(masked) => {
                let active = active(masked.mask, masked.lanes, inst, regs)?;
                emit.masked(address(&operand.address, regs), &masked, active);
            }
            Shape::Run { count, step } => {
                let mut at = address(&operand.address, regs);
                for _ in 0..count {
                    emit.access(at, operand.size);
                    at = at.offset(i64::from(step).cast_unsigned());
                }
            }
            Shape::Bit(number) => emit.bit(regs.gpr(number), regs),
            Shape::Line(bytes) => {
                let at = address(&operand.address, regs).0 & !u64::from(bytes - 1);
                emit.access(GuestVa(at), operand.size);
            }
            Shape::Tile { tile, stride, scale } => {
                let config = regs
                    .tile_config()
                    .ok_or(Error::Missing { pc: inst.pc(), what: "the tile configuration" })?;
                let stride = stride.map_or(0, |reg| regs.gpr(reg)).wrapping_mul(scale.into());
                emit.tile(address(&operand.address, regs), stride, tile_shape(&config, tile));
            }
            Shape::Unmodelled => {
                let name = format!("{:?}", inst.mnemonic()).to_lowercase();
                return Err(Error::Unsupported { pc: inst.pc(), name });
            }
            Shape::State(op) => state::accesses(op, inst, operand, regs, out)?,
        }
    }
    Ok(())
}

/// The address that an expression gives for these registers.
#[must_use]
pub fn address(expr: &AddrExpr, regs: &impl Regs) -> GuestVa {
    cut(expr, offset(expr, regs), regs)
}

/// The sum without the segment's base, not yet cut to the address width.
fn offset(expr: &AddrExpr, regs: &impl Regs) -> u64 {
    let base = expr.base.map_or(0, |reg| regs.gpr(reg));
    let index = match expr.index {
        Index::None => 0,
        Index::Scaled(reg, scale) => regs.gpr(reg).wrapping_mul(u64::from(scale)),
        Index::LowByte(reg) => regs.gpr(reg) & 0xff,
    };
    base.wrapping_add(index).wrapping_add(expr.disp.cast_unsigned())
}

/// Cuts to the address width and adds the segment's base.
fn cut(expr: &AddrExpr, sum: u64, regs: &impl Regs) -> GuestVa {
    let sum = match expr.width {
        AddrWidth::Bits64 => sum,
        AddrWidth::Bits32 => sum & 0xffff_ffff,
    };
    match expr.segment {
        Segment::Flat => GuestVa(sum),
        segment => regs.segment_base(segment).offset(sum),
    }
}

/// Whether a repeated string instruction has iterations left. The count register
/// is as wide as addresses are.
fn count_left(expr: &AddrExpr, regs: &impl Regs) -> bool {
    let count = regs.gpr(Gpr::Rcx);
    match expr.width {
        AddrWidth::Bits64 => count != 0,
        AddrWidth::Bits32 => count & 0xffff_ffff != 0,
    }
}

/// Bit `i` says whether lane `i` of `lanes` is active.
fn active(mask: LaneMask, lanes: u8, inst: &Inst, regs: &impl Regs) -> Result<u64, Error> {
    let bits = match mask {
        LaneMask::Opmask(k) => regs.opmask(k),
        LaneMask::Sign { vector, size } => signs(&regs.vector(vector), usize::from(size.max(1))),
        LaneMask::MmxSign(number) => {
            let what = "an MMX register";
            let value = regs.mmx(number).ok_or(Error::Missing { pc: inst.pc(), what })?;
            signs(&value.to_le_bytes(), 1)
        }
    };
    Ok(match lanes {
        64.. => bits,
        n => bits & ((1 << n) - 1),
    })
}

fn signs(bytes: &[u8], size: usize) -> u64 {
    bytes
        .chunks_exact(size)
        .enumerate()
        .filter(|(_, element)| element.last().is_some_and(|top| top & 0x80 != 0))
        .fold(0, |bits, (i, _)| bits | 1 << i)
}

/// Rows and bytes per row of a tile (SDM volume 1, 18.2: `colsb` as 16-bit words
/// from byte 16 on, `rows` as bytes from byte 48 on).
fn tile_shape(config: &[u8; 64], tile: u8) -> (u8, u32) {
    let tile = usize::from(tile % 8);
    let columns = u16::from_le_bytes([config[16 + 2 * tile], config[17 + 2 * tile]]);
    (config[48 + tile], u32::from(columns))
}

/// Appends accesses of one operand.
struct Emit<'a> {
    operand: &'a MemOperand,
    out: &'a mut Vec<Record>,
}

impl Emit<'_> {
    fn access(&mut self, addr: GuestVa, size: u32) {
        self.flagged(addr, size, self.operand.flags);
    }

    fn flagged(&mut self, addr: GuestVa, size: u32, flags: AccessFlags) {
        match self.operand.role {
            Role::Load => self.out.push(Record::Load { flags, size, addr }),
            Role::Store => self.out.push(Record::Store { flags, size, addr }),
            Role::Both => {
                self.out.push(Record::Load { flags, size, addr });
                self.out.push(Record::Store { flags, size, addr });
            }
            Role::Prefetch => self.out.push(Record::Prefetch { flags, size, addr }),
            Role::Flush => self.out.push(Record::Flush { flags, size, addr }),
        }
    }

    fn lanes(&mut self, lanes: &Lanes, active: u64, regs: &impl Regs) {
        let indices = regs.vector(lanes.index);
        let start = offset(&self.operand.address, regs);
        let flags = self.operand.flags.with(AccessFlags::LANE);
        for lane in (0..usize::from(lanes.count)).filter(|lane| active >> lane & 1 != 0) {
            let index = lane_index(&indices, lane, lanes.index_size);
            let sum = start.wrapping_add(index.wrapping_mul(u64::from(lanes.scale)));
            self.flagged(cut(&self.operand.address, sum, regs), self.operand.size, flags);
        }
    }

    fn masked(&mut self, start: GuestVa, masked: &Masked, active: u64) {
        let flags = self.operand.flags.with(AccessFlags::LANE);
        let size = self.operand.size;
        let mut wanted = wanted_elements(masked, active);
        while wanted != 0 {
            let first = wanted.trailing_zeros();
            let run = (wanted >> first).trailing_ones();
            self.flagged(start.offset(u64::from(first * size)), run * size, flags);
            let done = first + run;
            wanted = if done >= 64 { 0 } else { wanted >> done << done };
        }
    }

    fn bit(&mut self, number: u64, regs: &impl Regs) {
        let size = u64::from(self.operand.size);
        let bits = 8 * self.operand.size;
        // Sign-extend the number from the operand's width, then divide by it,
        // rounding down.
        let number = (number << (64 - bits)).cast_signed() >> (64 - bits);
        let step = (number >> bits.trailing_zeros()).cast_unsigned().wrapping_mul(size);
        let sum = offset(&self.operand.address, regs).wrapping_add(step);
        self.access(cut(&self.operand.address, sum, regs), self.operand.size);
    }

    fn tile(&mut self, start: GuestVa, stride: u64, (rows, bytes): (u8, u32)) {
        let mut row = start;
        for _ in 0..rows {
            self.access(row, bytes);
            row = row.offset(stride);
        }
    }
}

fn lane_index(indices: &[u8; 64], lane: usize, size: u8) -> u64 {
    if size == 4 {
        let at = lane % 16 * 4;
        let bytes = [indices[at], indices[at + 1], indices[at + 2], indices[at + 3]];
        return i64::from(i32::from_le_bytes(bytes)).cast_unsigned();
    }
    let at = lane % 8 * 8;
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&indices[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// Which elements in memory the active lanes use.
fn wanted_elements(masked: &Masked, active: u64) -> u64 {
    if masked.packed {
        return match active.count_ones() {
            64 => u64::MAX,
            n => (1 << n) - 1,
        };
    }
    let elements = u32::from(masked.elements.max(1));
    if elements >= 64 {
        return active;
    }
    let mut wanted = 0;
    let mut rest = active;
    while rest != 0 {
        wanted |= rest & ((1 << elements) - 1);
        rest >>= elements;
    }
    wanted
}
