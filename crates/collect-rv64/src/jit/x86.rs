//! The few x86-64 instructions that translation needs, as bytes.
//!
//! Only encodings that generated code uses are here; the tests let an
//! independent disassembler read them back.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// A general register, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reg(pub(crate) u8);

pub(crate) const RAX: Reg = Reg(0);
pub(crate) const RCX: Reg = Reg(1);
pub(crate) const RDX: Reg = Reg(2);
pub(crate) const RBX: Reg = Reg(3);
pub(crate) const RSP: Reg = Reg(4);
pub(crate) const RBP: Reg = Reg(5);
pub(crate) const RSI: Reg = Reg(6);
pub(crate) const RDI: Reg = Reg(7);
pub(crate) const R8: Reg = Reg(8);
pub(crate) const R9: Reg = Reg(9);
pub(crate) const R10: Reg = Reg(10);
pub(crate) const R11: Reg = Reg(11);
pub(crate) const R12: Reg = Reg(12);
pub(crate) const R13: Reg = Reg(13);
pub(crate) const R14: Reg = Reg(14);
pub(crate) const R15: Reg = Reg(15);

/// A vector register, by its number; only the low eight are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Xmm(pub(crate) u8);

/// A memory operand: `[base + index + disp]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mem {
    pub(crate) base: Reg,
    pub(crate) index: Option<Reg>,
    pub(crate) disp: i32,
}

impl Mem {
    pub(crate) const fn at(base: Reg, disp: i32) -> Self {
        Self { base, index: None, disp }
    }

    pub(crate) const fn indexed(base: Reg, index: Reg, disp: i32) -> Self {
        Self { base, index: Some(index), disp }
    }
}

/// A register or a memory operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operand {
    Reg(Reg),
    Mem(Mem),
}

/// Operand width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    W32,
    W64,
}
pub(crate) use Width::{W32, W64};

/// Two-operand arithmetic, by the number in the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts and rotations, by the number in the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Shift {
    RotateLeft = 0,
    RotateRight = 1,
    Left = 4,
    Right = 5,
    Arithmetic = 7,
}

/// A condition, by the number in the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Cond {
    Below = 2,
    AboveEqual = 3,
    Equal = 4,
    NotEqual = 5,
    Above = 7,
    Parity = 10,
    Less = 12,
    GreaterEqual = 13,
    LessEqual = 14,
    Greater = 15,
}

impl Cond {
    /// The condition that holds if this one does not; none has a number of its own for
    /// some.
    pub(crate) const fn inverse(self) -> Option<Self> {
        Some(match self {
            Self::Below => Self::AboveEqual,
            Self::AboveEqual => Self::Below,
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterEqual,
            Self::GreaterEqual => Self::Less,
            Self::LessEqual => Self::Greater,
            Self::Greater => Self::LessEqual,
            Self::Above | Self::Parity => return None,
        })
    }
}

/// A place whose address is not known yet: a 32-bit displacement to fill in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hole(pub(crate) usize);

/// Bytes of code under construction.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
}

impl Code {
    pub(crate) fn here(&self) -> usize {
        self.bytes.len()
    }

    fn imm32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// An instruction with a register and a register-or-memory operand. `prefix`
    /// comes before everything; a byte operand always gets a REX prefix.
    fn form(
        &mut self,
        prefix: Option<u8>,
        (width, byte): (Width, bool),
        opcode: &[u8],
        reg: u8,
        operand: Operand,
    ) {
        self.bytes.extend(prefix);
        let (base, index) = match operand {
            Operand::Reg(r) => (r.0, 0),
            Operand::Mem(m) => (m.base.0, m.index.map_or(0, |i| i.0)),
        };
        let rex = u8::from(width == W64) << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | base >> 3;
        if rex != 0 || byte {
            self.bytes.push(0x40 | rex);
        }
        self.bytes.extend_from_slice(opcode);
        let field = (reg & 7) << 3;
        match operand {
            Operand::Reg(r) => self.bytes.push(0xc0 | field | r.0 & 7),
            Operand::Mem(m) => self.memory(field, m),
        }
    }

    fn memory(&mut self, field: u8, m: Mem) {
        let short = i8::try_from(m.disp).is_ok();
        // Two bases have no form without a displacement.
        let none = m.disp == 0 && m.base.0 & 7 != 5;
        let mode = match (none, short) {
            (true, _) => 0,
            (_, true) => 0x40,
            (_, false) => 0x80,
        };
        match m.index {
            None if m.base.0 & 7 == 4 => self.bytes.extend([mode | field | 4, 0x24]),
            None => self.bytes.push(mode | field | m.base.0 & 7),
            Some(i) => self.bytes.extend([mode | field | 4, (i.0 & 7) << 3 | m.base.0 & 7]),
        }
        match (none, short) {
            (true, _) => {}
            (_, true) => self.bytes.push(m.disp as u8),
            (_, false) => self.imm32(m.disp),
        }
    }

    /// `to = from`.
    pub(crate) fn mov(&mut self, width: Width, to: Reg, from: Operand) {
        self.form(None, (width, false), &[0x8b], to.0, from);
    }

    pub(crate) fn mov_rr(&mut self, to: Reg, from: Reg) {
        if to != from {
            self.mov(W64, to, Operand::Reg(from));
        }
    }

    /// `[to] = from`.
    pub(crate) fn store(&mut self, bytes: u8, to: Mem, from: Reg) {
        let operand = Operand::Mem(to);
        match bytes {
            1 => self.form(None, (W32, true), &[0x88], from.0, operand),
            2 => self.form(Some(0x66), (W32, false), &[0x89], from.0, operand),
            4 => self.form(None, (W32, false), &[0x89], from.0, operand),
            _ => self.form(None, (W64, false), &[0x89], from.0, operand),
        }
    }

    /// `[to] = value`, sign-extended to eight bytes.
    pub(crate) fn store_imm(&mut self, to: Mem, value: i32) {
        self.form(None, (W64, false), &[0xc7], 0, Operand::Mem(to));
        self.imm32(value);
    }

    /// `[to] = 0`.
    pub(crate) fn store_zero(&mut self, bytes: u8, to: Mem) {
        let to = Operand::Mem(to);
        match bytes {
            1 => self.form(None, (W32, false), &[0xc6], 0, to),
            2 => self.form(Some(0x66), (W32, false), &[0xc7], 0, to),
            4 => self.form(None, (W32, false), &[0xc7], 0, to),
            _ => self.form(None, (W64, false), &[0xc7], 0, to),
        }
        self.bytes.extend(std::iter::repeat_n(0, usize::from(bytes.min(4))));
    }

    /// `[to] = value`, one byte.
    pub(crate) fn store_byte(&mut self, to: Mem, value: u8) {
        self.form(None, (W32, false), &[0xc6], 0, Operand::Mem(to));
        self.bytes.push(value);
    }

    /// `to = value`, in the shortest way.
    pub(crate) fn mov_imm(&mut self, to: Reg, value: u64) {
        if value == 0 {
            self.alu(W32, Alu::Xor, to, Operand::Reg(to));
        } else if let Ok(low) = u32::try_from(value) {
            if to.0 >= 8 {
                self.bytes.push(0x41);
            }
            self.bytes.push(0xb8 | to.0 & 7);
            self.imm32(low as i32);
        } else if let Ok(signed) = i32::try_from(value as i64) {
            self.form(None, (W64, false), &[0xc7], 0, Operand::Reg(to));
            self.imm32(signed);
        } else {
            self.bytes.extend([0x48 | to.0 >> 3, 0xb8 | to.0 & 7]);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// A load that extends: `bytes` of 1, 2, 4 or 8, signed or not.
    pub(crate) fn load(&mut self, bytes: u8, signed: bool, to: Reg, from: Operand) {
        match (bytes, signed) {
            (1, true) => self.form(None, (W64, true), &[0x0f, 0xbe], to.0, from),
            (1, false) => self.form(None, (W32, true), &[0x0f, 0xb6], to.0, from),
            (2, true) => self.form(None, (W64, false), &[0x0f, 0xbf], to.0, from),
            (2, false) => self.form(None, (W32, false), &[0x0f, 0xb7], to.0, from),
            (4, true) => self.form(None, (W64, false), &[0x63], to.0, from),
            (4, false) => self.mov(W32, to, from),
            _ => self.mov(W64, to, from),
        }
    }

    pub(crate) fn alu(&mut self, width: Width, op: Alu, to: Reg, from: Operand) {
        self.form(None, (width, false), &[(op as u8) << 3 | 3], to.0, from);
    }

    /// The same into a register or memory, in 64 bits.
    pub(crate) fn alu_into(&mut self, op: Alu, to: Operand, from: Reg) {
        self.form(None, (W64, false), &[(op as u8) << 3 | 1], from.0, to);
    }

    pub(crate) fn alu_imm(&mut self, width: Width, op: Alu, to: Operand, value: i32) {
        if let Ok(short) = i8::try_from(value) {
            self.form(None, (width, false), &[0x83], op as u8, to);
            self.bytes.push(short as u8);
        } else {
            self.form(None, (width, false), &[0x81], op as u8, to);
            self.imm32(value);
        }
    }

    /// Sets flags by `a & a`.
    pub(crate) fn test(&mut self, a: Reg) {
        self.form(None, (W64, false), &[0x85], a.0, Operand::Reg(a));
    }

    pub(crate) fn lea(&mut self, to: Reg, from: Mem) {
        self.form(None, (W64, false), &[0x8d], to.0, Operand::Mem(from));
    }

    /// The same, cut to 32 bits.
    pub(crate) fn lea_word(&mut self, to: Reg, from: Mem) {
        self.form(None, (W32, false), &[0x8d], to.0, Operand::Mem(from));
    }

    /// `to = 8 * from + more`.
    pub(crate) fn eightfold(&mut self, to: Reg, from: Reg, more: i32) {
        let rex = 0x48 | (to.0 >> 3) << 2 | (from.0 >> 3) << 1;
        self.bytes.extend([rex, 0x8d, (to.0 & 7) << 3 | 4, 0xc5 | (from.0 & 7) << 3]);
        self.imm32(more);
    }

    /// Sets the bit of `to` whose number is the low six bits of `number`.
    pub(crate) fn set_bit(&mut self, to: Reg, number: Reg) {
        self.form(None, (W64, false), &[0x0f, 0xab], number.0, Operand::Reg(to));
    }

    /// Clears it.
    pub(crate) fn clear_bit(&mut self, to: Reg, number: Reg) {
        self.form(None, (W64, false), &[0x0f, 0xb3], number.0, Operand::Reg(to));
    }

    /// Carry is the bit of `of` whose number is the low six bits of `number`.
    pub(crate) fn test_bit(&mut self, of: Reg, number: Reg) {
        self.form(None, (W64, false), &[0x0f, 0xa3], number.0, Operand::Reg(of));
    }

    /// `to` is the number of the lowest bit of `from`, which has one.
    pub(crate) fn lowest_bit(&mut self, to: Reg, from: Reg) {
        self.form(None, (W64, false), &[0x0f, 0xbc], to.0, Operand::Reg(from));
    }

    /// Adds to a byte.
    pub(crate) fn add_byte(&mut self, to: Mem, value: i8) {
        self.form(None, (W32, false), &[0x80], 0, Operand::Mem(to));
        self.bytes.push(value as u8);
    }

    pub(crate) fn shift_imm(&mut self, width: Width, op: Shift, to: Reg, by: u8) {
        if by == 1 {
            return self.form(None, (width, false), &[0xd1], op as u8, Operand::Reg(to));
        }
        self.form(None, (width, false), &[0xc1], op as u8, Operand::Reg(to));
        self.bytes.push(by);
    }

    /// `to = from` turned right, in 32 bits. Needs BMI2.
    pub(crate) fn turn_right(&mut self, to: Reg, from: Reg, by: u8) {
        let rex = (to.0 >> 3 ^ 1) << 7 | 0x40 | (from.0 >> 3 ^ 1) << 5 | 3;
        self.bytes.extend([0xc4, rex, 0x7b, 0xf0, 0xc0 | (to.0 & 7) << 3 | from.0 & 7, by]);
    }

    /// Shifts by `cl`.
    pub(crate) fn shift(&mut self, width: Width, op: Shift, to: Reg) {
        self.form(None, (width, false), &[0xd3], op as u8, Operand::Reg(to));
    }

    pub(crate) fn not(&mut self, to: Reg) {
        self.form(None, (W64, false), &[0xf7], 2, Operand::Reg(to));
    }

    pub(crate) fn neg(&mut self, width: Width, to: Reg) {
        self.form(None, (width, false), &[0xf7], 3, Operand::Reg(to));
    }

    pub(crate) fn imul(&mut self, width: Width, to: Reg, from: Operand) {
        self.form(None, (width, false), &[0x0f, 0xaf], to.0, from);
    }

    /// `rdx:rax = rax * from`, unsigned (4) or signed (5); or `rdx:rax / from`,
    /// unsigned (6) or signed (7).
    pub(crate) fn wide(&mut self, width: Width, number: u8, from: Operand) {
        self.form(None, (width, false), &[0xf7], number, from);
    }

    /// Sign-extends `rax` into `rdx`.
    pub(crate) fn extend_dividend(&mut self, width: Width) {
        if width == W64 {
            self.bytes.push(0x48);
        }
        self.bytes.push(0x99);
    }

    pub(crate) fn byte_swap(&mut self, to: Reg) {
        self.bytes.extend([0x48 | to.0 >> 3, 0x0f, 0xc8 | to.0 & 7]);
    }

    /// `to = 1` if the condition holds, else 0.
    pub(crate) fn set(&mut self, cond: Cond, to: Reg) {
        self.form(None, (W32, true), &[0x0f, 0x90 | cond as u8], 0, Operand::Reg(to));
        self.form(None, (W32, true), &[0x0f, 0xb6], to.0, Operand::Reg(to));
    }

    pub(crate) fn cmov(&mut self, cond: Cond, to: Reg, from: Reg) {
        self.form(None, (W64, false), &[0x0f, 0x40 | cond as u8], to.0, Operand::Reg(from));
    }

    /// A conditional jump to be filled in.
    pub(crate) fn jump_if(&mut self, cond: Cond) -> Hole {
        self.bytes.extend([0x0f, 0x80 | cond as u8]);
        self.imm32(0);
        Hole(self.here() - 4)
    }

    /// A jump to be filled in.
    pub(crate) fn jump(&mut self) -> Hole {
        self.bytes.push(0xe9);
        self.imm32(0);
        Hole(self.here() - 4)
    }

    /// A call to be filled in.
    pub(crate) fn call(&mut self) -> Hole {
        self.bytes.push(0xe8);
        self.imm32(0);
        Hole(self.here() - 4)
    }

    /// A call to an address in memory.
    pub(crate) fn call_mem(&mut self, at: Mem) {
        self.form(None, (W32, false), &[0xff], 2, Operand::Mem(at));
    }

    /// A jump to an address in memory.
    pub(crate) fn jump_mem(&mut self, at: Mem) {
        self.form(None, (W32, false), &[0xff], 4, Operand::Mem(at));
    }

    pub(crate) fn jump_reg(&mut self, to: Reg) {
        self.form(None, (W32, false), &[0xff], 4, Operand::Reg(to));
    }

    pub(crate) fn push(&mut self, reg: Reg) {
        if reg.0 >= 8 {
            self.bytes.push(0x41);
        }
        self.bytes.push(0x50 | reg.0 & 7);
    }

    pub(crate) fn pop(&mut self, reg: Reg) {
        if reg.0 >= 8 {
            self.bytes.push(0x41);
        }
        self.bytes.push(0x58 | reg.0 & 7);
    }

    pub(crate) fn ret(&mut self) {
        self.bytes.push(0xc3);
    }

    /// Lets a jump go to an offset of the same code.
    pub(crate) fn fill(&mut self, hole: Hole, target: usize) {
        let displacement = target as i64 - (hole.0 as i64 + 4);
        if let Some(bytes) = self.bytes.get_mut(hole.0..hole.0 + 4) {
            bytes.copy_from_slice(&(displacement as i32).to_le_bytes());
        }
    }

    /// Lets a jump go to the next instruction.
    pub(crate) fn fill_here(&mut self, hole: Hole) {
        self.fill(hole, self.here());
    }

    /// A scalar floating-point instruction on a register and memory: `prefix` f2
    /// for doubles, f3 for singles.
    pub(crate) fn scalar(&mut self, prefix: u8, opcode: u8, reg: Xmm, operand: Mem) {
        self.form(Some(prefix), (W32, false), &[0x0f, opcode], reg.0, Operand::Mem(operand));
    }

    /// The same on two registers.
    pub(crate) fn scalar_rr(&mut self, prefix: Option<u8>, opcode: u8, reg: Xmm, from: Xmm) {
        self.form(prefix, (W32, false), &[0x0f, opcode], reg.0, Operand::Reg(Reg(from.0)));
    }

    /// A conversion between an integer register or memory and a vector register;
    /// `reg` is the number of whichever is the destination.
    pub(crate) fn convert(
        &mut self,
        prefix: u8,
        opcode: u8,
        width: Width,
        (reg, operand): (u8, Operand),
    ) {
        self.form(Some(prefix), (width, false), &[0x0f, opcode], reg, operand);
    }

    /// A fused multiply-add of the 231 form: `to = ±(factor * memory) ± to`.
    pub(crate) fn fused(
        &mut self,
        opcode: u8,
        double: bool,
        (to, factor): (Xmm, Xmm),
        operand: Mem,
    ) {
        let base = (operand.base.0 >> 3) ^ 1;
        self.bytes.extend([
            0xc4,
            0xc2 | base << 5,
            u8::from(double) << 7 | (!factor.0 & 15) << 3 | 1,
            opcode,
        ]);
        self.memory(to.0 << 3, operand);
    }

    /// The same with a third register.
    pub(crate) fn fused_rr(
        &mut self,
        opcode: u8,
        double: bool,
        (to, factor): (Xmm, Xmm),
        other: Xmm,
    ) {
        let last = u8::from(double) << 7 | (!factor.0 & 15) << 3 | 1;
        self.bytes.extend([0xc4, 0xe2, last, opcode, 0xc0 | to.0 << 3 | other.0]);
    }

    /// `stmxcsr` (3) and `ldmxcsr` (2).
    pub(crate) fn control(&mut self, number: u8, at: Mem) {
        self.form(None, (W32, false), &[0x0f, 0xae], number, Operand::Mem(at));
    }
}

#[cfg(test)]
mod tests;
