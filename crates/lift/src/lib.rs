//! x86-64 instructions in the planner's terms.
//!
//! Shadow registers 0 to 15 are the general ones, 16 and 17 the bases of fs and gs; two more
//! are temporaries within an instruction. A call reads everything: who believes in a calling
//! convention says so by changing what is made here.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use ichnos_base::AccessFlags;
use ichnos_flow::{Control, Effect, Insn, Live, Loss, Reference, Set};
use ichnos_isa_x86::{
    AddrExpr, AddrWidth, Effects, Flags, Flow, Gpr, Index, Inst, MemOperand, Reg, RegSet, Rep,
    Role, Scratch, Segment, Shape, Value as Moved,
};
use ichnos_trace::{RefKind, Register, Sum, Value};

/// The stack pointer.
pub const STACK: Register = Register(4);
/// The base of fs.
pub const FS: Register = Register(16);
/// The base of gs.
pub const GS: Register = Register(17);
const FIRST: Register = Register(40);
const SECOND: Register = Register(41);

/// General registers and segment bases.
pub const TAKEABLE: Set = Set(0x3_ffff);
/// Stack and frame pointer.
pub const FRAME: Set = Set(1 << 4 | 1 << 5);

fn number(reg: Gpr) -> Register {
    Register(reg.number())
}

fn set(registers: RegSet) -> Set {
    let mut out: Set = registers.iter().filter_map(Reg::as_gpr).map(number).collect();
    if registers.has(Reg::FS_BASE) {
        out.insert(FS);
    }
    if registers.has(Reg::GS_BASE) {
        out.insert(GS);
    }
    out
}

fn flag_bits(flags: Flags) -> u8 {
    let all = [
        Flags::CF,
        Flags::PF,
        Flags::AF,
        Flags::ZF,
        Flags::SF,
        Flags::OF,
        Flags::DF,
        Flags::SYSTEM,
    ];
    all.iter()
        .enumerate()
        .filter(|(_, flag)| flags.has(**flag))
        .fold(0, |bits, (i, _)| bits | 1 << i)
}

/// One instruction.
#[must_use]
pub fn lift(inst: &Inst) -> Insn {
    lift_with(inst, &mut Scratch::new())
}

/// One of many instructions.
#[must_use]
pub fn lift_with(inst: &Inst, scratch: &mut Scratch) -> Insn {
    let effects = inst.effects_with(scratch);
    let mut out = Vec::new();
    for operand in inst.memory() {
        references(operand, &mut out);
    }
    registers(inst, &effects, &mut out);
    let mut uses = Live { registers: set(effects.inputs), flags: flag_bits(effects.flags.read) };
    if matches!(inst.flow(), Flow::Call(_) | Flow::CallIndirect) {
        uses = Live { registers: Set::ALL, flags: 0xff };
    }
    Insn {
        pc: inst.pc(),
        len: inst.length(),
        kind: inst.kind(),
        control: control(inst.flow()),
        uses,
        kills: Live {
            registers: set(effects.replaced),
            flags: flag_bits(effects.flags.replaced()),
        },
        effects: out,
    }
}

fn control(flow: Flow) -> Control {
    match flow {
        Flow::Next => Control::Next,
        Flow::Jump(target) => Control::Jump(target),
        Flow::Cond(target) => Control::Cond(target),
        Flow::Call(target) => Control::Call(Some(target)),
        Flow::JumpIndirect => Control::Indirect,
        Flow::CallIndirect => Control::Call(None),
        Flow::Return => Control::Return,
        Flow::Syscall => Control::Kernel,
        Flow::Trap => Control::Stop,
    }
}

fn registers(inst: &Inst, effects: &Effects, out: &mut Vec<Effect>) {
    let moves = inst.moves();
    out.extend(moves.iter().map(|(reg, value)| Effect::Set(number(reg), moved(value))));
    for reg in effects.written.iter().filter_map(Reg::as_gpr).filter(|reg| !moves.assigns(*reg)) {
        let loss = if effects.zero_extended.has(Reg::gpr(reg)) {
            Loss::ZeroUpper
        } else if effects.written_bits(reg) >> 32 == 0 {
            Loss::KeepUpper
        } else {
            Loss::All
        };
        out.push(Effect::Lose(number(reg), loss));
    }
    for base in set(effects.written).iter().filter(|register| register.0 >= 16) {
        out.push(Effect::Lose(base, Loss::All));
    }
}

fn moved(value: Moved) -> Value {
    match value {
        Moved::Sum { base, index, disp } => Value::Sum(Sum {
            base: base.map(number),
            index: index.map(|(reg, scale)| (number(reg), scale)),
            disp,
        }),
        Moved::Difference(a, b) => Value::Difference(number(a), number(b)),
        Moved::And(reg, mask) => Value::And(number(reg), mask),
        Moved::ShiftLeft(reg, n) => Value::ShiftLeft(number(reg), n),
        Moved::ShiftRight(reg, n) => Value::ShiftRight(number(reg), n),
        Moved::ShiftRightSigned(reg, n) => Value::ShiftRightSigned(number(reg), n),
        Moved::Low32(reg) => Value::Low32(number(reg)),
        Moved::Low32Signed(reg) => Value::Low32Signed(number(reg)),
    }
}

fn references(operand: &MemOperand, out: &mut Vec<Effect>) {
    match operand.shape {
        Shape::Plain | Shape::String(Rep::Once) => {
            let address = address(&operand.address, out);
            refer(operand, address, out);
        }
        Shape::Run { count, step } => {
            let mut address = address(&operand.address, out);
            for _ in 0..count {
                refer(operand, address, out);
                address.disp += i64::from(step);
            }
        }
        Shape::Bit(reg) => {
            let start = address(&operand.address, out);
            out.push(Effect::Set(FIRST, Value::Sum(start)));
            bit_offset(reg, operand.size, out);
            let address = Sum { base: Some(FIRST), index: Some((SECOND, 1)), disp: 0 };
            refer(operand, address, out);
        }
        _ => out.push(Effect::Flex),
    }
}

/// The signed number of the operand that holds a bit, times its size.
fn bit_offset(reg: Gpr, size: u32, out: &mut Vec<Effect>) {
    let unused = u8::try_from(64 - 8 * size).unwrap_or(0);
    let bits = u8::try_from((8 * size).trailing_zeros()).unwrap_or(0);
    out.push(Effect::Set(SECOND, Value::ShiftLeft(number(reg), unused)));
    out.push(Effect::Set(SECOND, Value::ShiftRightSigned(SECOND, unused)));
    out.push(Effect::Set(SECOND, Value::ShiftRightSigned(SECOND, bits)));
    out.push(Effect::Set(SECOND, Value::ShiftLeft(SECOND, bits - 3)));
}

fn refer(operand: &MemOperand, address: Sum, out: &mut Vec<Effect>) {
    let kinds: &[RefKind] = match operand.role {
        Role::Load => &[RefKind::Load],
        Role::Store => &[RefKind::Store],
        Role::Both => &[RefKind::Load, RefKind::Store],
        Role::Prefetch => &[RefKind::Prefetch],
        Role::Flush => &[RefKind::Flush],
    };
    let flags: AccessFlags = operand.flags;
    for kind in kinds {
        out.push(Effect::Ref(Reference { kind: *kind, flags, size: operand.size, address }));
    }
}

/// The sum for an address; what is no simple sum goes through temporaries.
fn address(expr: &AddrExpr, out: &mut Vec<Effect>) -> Sum {
    let index = match expr.index {
        Index::None => None,
        Index::Scaled(reg, scale) => Some((number(reg), scale)),
        Index::LowByte(reg) => {
            out.push(Effect::Set(SECOND, Value::And(number(reg), 0xff)));
            Some((SECOND, 1))
        }
    };
    let mut sum = Sum { base: expr.base.map(number), index, disp: expr.disp };
    if expr.width == AddrWidth::Bits32 {
        out.push(Effect::Set(FIRST, Value::Sum(sum)));
        out.push(Effect::Set(FIRST, Value::Low32(FIRST)));
        sum = Sum { base: Some(FIRST), index: None, disp: 0 };
    }
    let segment = match expr.segment {
        Segment::Flat => return sum,
        Segment::Fs => FS,
        Segment::Gs => GS,
    };
    match (sum.base, sum.index) {
        (None, _) => Sum { base: Some(segment), ..sum },
        (Some(base), None) => Sum { base: Some(segment), index: Some((base, 1)), ..sum },
        (Some(base), Some(_)) => {
            let part = Sum { base: Some(segment), index: Some((base, 1)), disp: 0 };
            out.push(Effect::Set(FIRST, Value::Sum(part)));
            Sum { base: Some(FIRST), ..sum }
        }
    }
}
