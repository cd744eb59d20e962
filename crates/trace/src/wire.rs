//! Wires: how the words of one slot follow from the words of others, and from what
//! memory must hold. The packer finds them and writes them down as marks; packer and
//! unpacker then run this code on the same words, so their states are equal.
//!
//! Sorting and searching programs load an index or a pointer from memory and use it in
//! the next address. The trace has no values, but the next address tells what was loaded, and the
//! same thing is loaded again later, from there or from where it was copied to. So:
//! *cells* stand for the program's registers and a *memory* for what it stored.
//!
//! A slot's wire may say, in this order: the word is the shifted value of a cell plus a
//! constant (*use*); the word itself, or what memory holds there, goes to a
//! cell (*address*, *content*); a cell's value plus a constant is stored there (*put*).
//!
//! A use that was wrong teaches: the constant is another if the word was written as its difference
//! from the wire's, else the content was.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::bytes::{Cursor, Parse, put_signed, put_varint};
use crate::error::Flaw;

/// How many cells there are; number 0 stands for none.
pub(crate) const CELLS: usize = 1024;

/// Memory has two to this many words for each place of a prediction table.
const MEMORY_BITS: u32 = 3;

/// A use that is off by less than this has another constant, not another content.
const NEAR: u64 = 64;

/// The largest shift, either way, and the largest grain.
pub(crate) const MAX_SHIFT: i8 = 3;

/// What is known of a slot. Never across two cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(align(32))]
pub(crate) struct Wire {
    /// Use: the cell, or 0.
    pub(crate) from: u16,
    /// Use: how far its value is shifted left, or right if negative.
    pub(crate) shift: i8,
    /// The binary logarithm of the access's size.
    pub(crate) grain: u8,
    /// Address: the cell, or 0.
    pub(crate) address: u16,
    /// Content: the cell, or 0.
    pub(crate) content: u16,
    /// Put: the cell, or 0.
    pub(crate) put: u16,
    /// Use: the constant.
    pub(crate) add: u64,
    /// Put: the constant.
    pub(crate) put_add: u64,
}

impl Wire {
    /// The shifted value plus the constant.
    #[inline]
    pub(crate) const fn apply(&self, value: u64) -> u64 {
        shifted(value, self.shift).wrapping_add(self.add)
    }

    /// Appends the body of a mark.
    pub(crate) fn write(&self, out: &mut Vec<u8>, slot: u32) {
        put_varint(out, u64::from(slot));
        for cell in [self.from, self.address, self.content, self.put] {
            put_varint(out, u64::from(cell));
        }
        out.push((self.shift + MAX_SHIFT) as u8 | self.grain << 4);
        put_signed(out, self.add as i64);
        put_signed(out, self.put_add as i64);
    }

    /// Reads the body of a mark: a slot and its wire.
    pub(crate) fn read(from: &mut Cursor<'_>) -> Parse<(u32, Self)> {
        let slot = from.u32()?;
        let mut cells = [0u16; 4];
        for cell in &mut cells {
            let number = from.varint()?;
            if number >= CELLS as u64 {
                return Err(Flaw("a wire names a cell that does not exist"));
            }
            *cell = number as u16;
        }
        let packed = from.u8()?;
        let (shift, grain) = (packed & 15, packed >> 4);
        if shift > 2 * MAX_SHIFT as u8 || grain > MAX_SHIFT as u8 {
            return Err(Flaw("a wire shifts too far"));
        }
        let [from_cell, address, content, put] = cells;
        let wire = Self {
            from: from_cell,
            shift: shift as i8 - MAX_SHIFT,
            grain,
            address,
            content,
            put,
            add: from.signed()? as u64,
            put_add: from.signed()? as u64,
        };
        Ok((slot, wire))
    }
}

/// A number shifted left, or right if `shift` is negative.
#[inline]
pub(crate) const fn shifted(value: u64, shift: i8) -> u64 {
    if shift >= 0 { value << shift } else { value >> -shift }
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// 0 if it is not known.
    value: u64,
    /// The place in memory that it was loaded from, plus one; 0 if from none.
    place: u32,
    /// Whether it was not used since it was loaded. Later the place may hold something else.
    fresh: bool,
}

/// Which part of a use changed when it was wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Drift {
    /// The constant.
    Constant,
    /// The content, if there is one.
    Content,
    /// The constant if the use was nearly right.
    Unclear,
}

/// Whether a use was nearly right.
#[inline]
pub(crate) const fn is_near(off: u64) -> bool {
    off.wrapping_add(NEAR) < 2 * NEAR
}

/// What a use told of memory: the place, plus one, and what it must have held; place 0 if
/// it told nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) place: u32,
    pub(crate) value: u64,
    /// Whether the slot is used with a cell that was not known.
    pub(crate) news: bool,
}

/// All wires of a chunk, with their cells and memory.
#[derive(Debug, Default)]
pub(crate) struct Wires {
    of_slot: Vec<Wire>,
    cells: Vec<Cell>,
    /// Empty until there is a wire.
    memory: Vec<u64>,
    bits: u32,
    /// Packer only: what the last word told of memory. It is written here and not handed back: the unpacker, which never
    /// looks, would wait for it.
    pub(crate) told: Told,
}

impl Wires {
    pub(crate) const fn new() -> Self {
        let told = Told { place: 0, value: 0, news: false };
        Self { of_slot: Vec::new(), cells: Vec::new(), memory: Vec::new(), bits: 0, told }
    }

    /// Forgets everything: a chunk begins.
    pub(crate) fn reset(&mut self, bits: u32) {
        self.bits = bits + MEMORY_BITS;
        self.of_slot.clear();
        self.cells.clear();
        self.memory.clear();
    }

    /// Whether there are any wires.
    pub(crate) fn is_active(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Gives a slot another wire.
    pub(crate) fn set(&mut self, slot: u32, wire: Wire) {
        if self.memory.is_empty() {
            self.memory.resize(1 << self.bits, 0);
            self.cells.resize(CELLS, Cell::default());
        }
        if self.of_slot.len() <= slot as usize {
            self.of_slot.resize(slot as usize + 1, Wire::default());
        }
        self.of_slot[slot as usize] = wire;
    }

    /// The wire of a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Wire {
        self.of_slot.get(slot as usize).copied().unwrap_or_default()
    }

    /// The place in memory of an address.
    #[inline]
    pub(crate) fn place(&self, word: u64, grain: u8) -> usize {
        (word >> grain) as usize & ((1 << self.bits) - 1)
    }

    /// What memory holds at an address, 0 if that is not known.
    #[inline]
    pub(crate) fn content(&self, word: u64, grain: u8) -> u64 {
        self.memory.get(self.place(word, grain)).copied().unwrap_or(0)
    }

    /// The word that a slot's wire expects.
    #[inline]
    pub(crate) fn predict(&self, slot: u32) -> u64 {
        let Some(wire) = self.of_slot.get(slot as usize) else { return 0 };
        self.cells.get(usize::from(wire.from)).map_or(0, |cell| wire.apply(cell.value))
    }

    /// The slot's word was this one. Only for slots with a wire.
    #[inline(always)]
    pub(crate) fn update(&mut self, slot: u32, word: u64, drift: Drift) {
        let told = &mut self.told;
        *told = Told::default();
        let mask = (1 << self.bits) - 1;
        let Some(wire) = self.of_slot.get_mut(slot as usize) else { return };
        let place = (word >> wire.grain) as usize & mask;
        if wire.from != 0 {
            let cell = &mut self.cells[usize::from(wire.from) % CELLS];
            told.news = cell.value == 0;
            let off = word.wrapping_sub(wire.apply(cell.value));
            if off != 0 {
                let drifts = match drift {
                    Drift::Constant => true,
                    Drift::Content => cell.place == 0,
                    Drift::Unclear => cell.place == 0 || is_near(off),
                };
                if cell.value == 0 || !drifts {
                    cell.value = shifted(word.wrapping_sub(wire.add), -wire.shift);
                    if cell.fresh {
                        self.memory[(cell.place - 1) as usize & mask] = cell.value;
                    }
                } else {
                    wire.add = wire.add.wrapping_add(off);
                }
            }
            if cell.fresh {
                (told.place, told.value) = (cell.place, cell.value);
            }
            cell.fresh = false;
        }
        if wire.put != 0 {
            let value = self.cells[usize::from(wire.put) % CELLS].value;
            let known = value != 0;
            self.memory[place] = if known { value.wrapping_add(wire.put_add) } else { 0 };
        }
        if wire.address != 0 {
            self.cells[usize::from(wire.address) % CELLS] =
                Cell { value: word, place: 0, fresh: false };
        }
        if wire.content != 0 {
            self.cells[usize::from(wire.content) % CELLS] =
                Cell { value: self.memory[place], place: place as u32 + 1, fresh: true };
        }
    }
}
