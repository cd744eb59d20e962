//! New values of general registers that follow from old ones: what an analysis
//! needs to follow addresses through code.
//!
//! Only what is exact is told: whole registers, and 32-bit results which clear the
//! upper half. Results of loads, of flags and of vector registers do not follow, nor do
//! string pointers, which move by the direction flag.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use crate::Gpr;

/// A value computed from general registers, modulo 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// The base once, the index so many times, and a constant.
    Sum {
        /// A register that counts once.
        base: Option<Gpr>,
        /// A register that counts so many times.
        index: Option<(Gpr, u8)>,
        /// The constant.
        disp: i64,
    },
    /// The first register minus the second.
    Difference(Gpr, Gpr),
    /// A register and a constant.
    And(Gpr, u64),
    /// A register shifted left.
    ShiftLeft(Gpr, u8),
    /// A register shifted right, zeros coming in.
    ShiftRight(Gpr, u8),
    /// A register shifted right, its sign coming in.
    ShiftRightSigned(Gpr, u8),
    /// The low four bytes, zero-extended.
    Low32(Gpr),
    /// The low four bytes, sign-extended.
    Low32Signed(Gpr),
}

/// Assignments to be made one after the other, at most four. A register that the
/// instruction writes and that is not assigned here holds something that does
/// not follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moves {
    steps: [Option<(Gpr, Value)>; 4],
}

impl Moves {
    /// The assignments in order.
    pub fn iter(&self) -> impl Iterator<Item = (Gpr, Value)> {
        self.steps.into_iter().flatten()
    }

    /// Whether a register is assigned.
    #[must_use]
    pub fn assigns(&self, reg: Gpr) -> bool {
        self.iter().any(|(assigned, _)| assigned == reg)
    }

    fn push(&mut self, reg: Gpr, value: Value) {
        if let Some(slot) = self.steps.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some((reg, value));
        }
    }

    pub(crate) fn of(raw: &Instruction) -> Self {
        let mut moves = Self::default();
        stack(raw, &mut moves);
        if let Some(result) = Result::of(raw) {
            result.compute(raw, &mut moves);
        }
        moves
    }
}

fn sum(base: Gpr, disp: i64) -> Value {
    Value::Sum { base: Some(base), index: None, disp }
}

const fn constant(disp: i64) -> Value {
    Value::Sum { base: None, index: None, disp }
}

/// What instructions that use the stack do to its pointers.
fn stack(raw: &Instruction, moves: &mut Moves) {
    match raw.mnemonic() {
        Mnemonic::Enter => {
            let plain = raw.immediate8_2nd() & 31 == 0;
            if plain && raw.code() == Code::Enterq_imm16_imm8 {
                moves.push(Gpr::Rbp, sum(Gpr::Rsp, -8));
                moves.push(Gpr::Rsp, sum(Gpr::Rsp, -8 - i64::from(raw.immediate16())));
            }
        }
        Mnemonic::Leave if raw.code() == Code::Leaveq => moves.push(Gpr::Rsp, sum(Gpr::Rbp, 8)),
        Mnemonic::Leave => {}
        // Popped into itself, the pointer is what was loaded.
        Mnemonic::Pop if raw.op0_kind() == OpKind::Register && is_stack(raw.op0_register()) => {}
        _ if raw.is_stack_instruction() => {
            let by = i64::from(raw.stack_pointer_increment());
            if by != 0 {
                moves.push(Gpr::Rsp, sum(Gpr::Rsp, by));
            }
        }
        _ => {}
    }
}

fn is_stack(register: Register) -> bool {
    Gpr::of(register) == Some(Gpr::Rsp)
}

/// An instruction whose first operand is a whole register that it replaces.
struct Result {
    reg: Gpr,
    /// 32 or 64.
    bits: u8,
}

impl Result {
    fn of(raw: &Instruction) -> Option<Self> {
        if raw.op0_kind() != OpKind::Register {
            return None;
        }
        let register = raw.op0_register();
        let bits = match () {
            () if register.is_gpr64() => 64,
            () if register.is_gpr32() => 32,
            () => return None,
        };
        Some(Self { reg: Gpr::of(register)?, bits })
    }

    /// A value of 64 bits, cut if the result has 32.
    fn set(&self, value: Value, moves: &mut Moves) {
        moves.push(self.reg, value);
        if self.bits == 32 {
            moves.push(self.reg, Value::Low32(self.reg));
        }
    }

    fn compute(&self, raw: &Instruction, moves: &mut Moves) {
        use Mnemonic as M;
        match raw.mnemonic() {
            M::Mov => self.mov(raw, moves),
            M::Movzx => self.movzx(raw, moves),
            M::Movsxd | M::Movsx => self.movsx(raw, moves),
            M::Lea => self.lea(raw, moves),
            M::Add => self.add(raw, 1, moves),
            M::Sub => self.add(raw, -1, moves),
            M::Inc => self.set(sum(self.reg, 1), moves),
            M::Dec => self.set(sum(self.reg, -1), moves),
            M::And => self.and(raw, moves),
            M::Xor
                if raw.op1_kind() == OpKind::Register
                    && raw.op1_register() == raw.op0_register() =>
            {
                moves.push(self.reg, constant(0));
            }
            M::Shl | M::Sal | M::Shr | M::Sar => self.shift(raw, moves),
            M::Imul => self.imul(raw, moves),
            _ => {}
        }
    }

    fn mov(&self, raw: &Instruction, moves: &mut Moves) {
        if let Some(constant_) = immediate(raw, 1) {
            let value = if self.bits == 32 { constant_ & 0xffff_ffff } else { constant_ };
            moves.push(self.reg, constant(value));
        } else if let Some(source) = self.source(raw, 1) {
            let value = if self.bits == 32 { Value::Low32(source) } else { sum(source, 0) };
            moves.push(self.reg, value);
        }
    }

    fn movzx(&self, raw: &Instruction, moves: &mut Moves) {
        if raw.op1_kind() != OpKind::Register {
            return;
        }
        let register = raw.op1_register();
        let Some(source) = Gpr::of(register) else { return };
        let mask = if register.is_gpr8() { 0xff } else { 0xffff };
        if is_second_byte(register) {
            moves.push(self.reg, Value::ShiftRight(source, 8));
            moves.push(self.reg, Value::And(self.reg, mask));
        } else {
            moves.push(self.reg, Value::And(source, mask));
        }
    }

    fn movsx(&self, raw: &Instruction, moves: &mut Moves) {
        if raw.op1_kind() != OpKind::Register {
            return;
        }
        let register = raw.op1_register();
        let Some(source) = Gpr::of(register) else { return };
        if register.is_gpr32() {
            self.set(Value::Low32Signed(source), moves);
            return;
        }
        if is_second_byte(register) {
            return;
        }
        let shift = if register.is_gpr8() { 56 } else { 48 };
        moves.push(self.reg, Value::ShiftLeft(source, shift));
        self.set(Value::ShiftRightSigned(self.reg, shift), moves);
    }

    fn lea(&self, raw: &Instruction, moves: &mut Moves) {
        if raw.is_ip_rel_memory_operand() {
            self.set(constant(raw.ip_rel_memory_address().cast_signed()), moves);
            return;
        }
        let base = raw.memory_base();
        let index = raw.memory_index();
        let short = base.is_gpr32() || index.is_gpr32();
        if short && self.bits == 64 || base == Register::None && index == Register::None {
            // Rare forms, the first of which cuts the sum before it is used.
            return;
        }
        let scale = u8::try_from(raw.memory_index_scale()).unwrap_or(1);
        let value = Value::Sum {
            base: Gpr::of(base),
            index: Gpr::of(index).map(|index| (index, scale)),
            disp: raw.memory_displacement64().cast_signed(),
        };
        self.set(value, moves);
    }

    fn add(&self, raw: &Instruction, sign: i64, moves: &mut Moves) {
        if let Some(constant) = immediate(raw, 1) {
            self.set(sum(self.reg, constant.wrapping_mul(sign)), moves);
        } else if let Some(source) = self.source(raw, 1) {
            let value = match sign {
                1 => Value::Sum { base: Some(self.reg), index: Some((source, 1)), disp: 0 },
                _ if source == self.reg => constant(0),
                _ => Value::Difference(self.reg, source),
            };
            self.set(value, moves);
        }
    }

    fn and(&self, raw: &Instruction, moves: &mut Moves) {
        if let Some(constant) = immediate(raw, 1) {
            let mask = constant.cast_unsigned();
            let mask = if self.bits == 32 { mask & 0xffff_ffff } else { mask };
            moves.push(self.reg, Value::And(self.reg, mask));
        }
    }

    fn shift(&self, raw: &Instruction, moves: &mut Moves) {
        if raw.op1_kind() != OpKind::Immediate8 {
            return;
        }
        let count = raw.immediate8() & (self.bits - 1);
        match raw.mnemonic() {
            Mnemonic::Shr => {
                if self.bits == 32 {
                    moves.push(self.reg, Value::Low32(self.reg));
                }
                moves.push(self.reg, Value::ShiftRight(self.reg, count));
            }
            Mnemonic::Sar => {
                if self.bits == 32 {
                    moves.push(self.reg, Value::Low32Signed(self.reg));
                }
                self.set(Value::ShiftRightSigned(self.reg, count), moves);
            }
            _ => self.set(Value::ShiftLeft(self.reg, count), moves),
        }
    }

    /// Multiplication by a small constant.
    fn imul(&self, raw: &Instruction, moves: &mut Moves) {
        if raw.op_count() != 3 {
            return;
        }
        let factor = immediate(raw, 2).and_then(|factor| u8::try_from(factor).ok());
        if let (Some(source), Some(factor)) = (self.source(raw, 1), factor) {
            let value = Value::Sum { base: None, index: Some((source, factor)), disp: 0 };
            self.set(value, moves);
        }
    }

    /// An operand that is a general register as wide as the result.
    fn source(&self, raw: &Instruction, op: u32) -> Option<Gpr> {
        let wide = |r: Register| if self.bits == 32 { r.is_gpr32() } else { r.is_gpr64() };
        let register = (raw.op_kind(op) == OpKind::Register).then(|| raw.op_register(op))?;
        wide(register).then(|| Gpr::of(register)).flatten()
    }
}

fn is_second_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

fn immediate(raw: &Instruction, op: u32) -> Option<i64> {
    let known = matches!(
        raw.op_kind(op),
        OpKind::Immediate8
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32
            | OpKind::Immediate32to64
            | OpKind::Immediate64
    );
    known.then(|| raw.immediate(op).cast_signed())
}
