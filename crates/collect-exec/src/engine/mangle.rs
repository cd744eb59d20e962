//! Copies one instruction of the program into the cache so that it does there what it did in
//! its place.
//!
//! Almost all are copied as they are. A rip-relative operand gets a new displacement; if the
//! operand is out of reach from the cache, it becomes an absolute one, or its address goes
//! through a register that is saved meanwhile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{
    Code, Encoder, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::ctx::at;
use super::emit::{Emit, Gp};
use super::fragment::Spills;

/// An instruction with what the decoder knows about its bytes.
pub struct Source<'a> {
    /// The instruction.
    pub insn: Instruction,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Where among them the displacement of an operand is that is relative to the instruction, if there is one.
    pub displacement: u8,
}

/// The instruction cannot be run from the cache.
#[derive(Debug)]
pub struct Unsupported;

/// Notes that from the current offset on these registers are spilled.
pub type Note<'a> = dyn FnMut(usize, Spills) + 'a;

/// Copies an instruction that goes on to the next one.
pub fn copy(emit: &mut Emit, source: &Source, note: &mut Note) -> Result<(), Unsupported> {
    let insn = &source.insn;
    if uses_gs(insn) {
        return gs_access(emit, source, note);
    }
    if !insn.is_ip_rel_memory_operand() {
        emit.raw(source.bytes);
        return Ok(());
    }
    let target = insn.ip_rel_memory_address();
    if insn.memory_base() != Register::RIP {
        return Err(Unsupported);
    }
    if let Some(distance) = reach(emit.here() + source.bytes.len() as u64, target) {
        let at = emit.offset() + usize::from(source.displacement);
        emit.raw(source.bytes);
        emit.fix32(at, distance);
        return Ok(());
    }
    far(emit, insn, target, note)
}

/// The displacement from the end of an instruction to a target, if it fits.
pub fn reach(next: u64, target: u64) -> Option<u32> {
    i32::try_from(target.wrapping_sub(next) as i64).ok().map(|d| d as u32)
}

/// `mov rcx, operand` for the operand of an indirect jump or call; may use rax.
pub fn load_target(emit: &mut Emit, insn: &Instruction) -> Result<(), Unsupported> {
    if has_gs_operand(insn) {
        return load_gs_target(emit, insn);
    }
    let mut load = Instruction::default();
    load.set_op0_kind(OpKind::Register);
    load.set_op0_register(Register::RCX);
    load.set_code(Code::Mov_r64_rm64);
    if insn.op0_kind() == OpKind::Register {
        load.set_op1_kind(OpKind::Register);
        load.set_op1_register(insn.op0_register());
        return encode(emit, &load);
    }
    load.set_op1_kind(OpKind::Memory);
    copy_memory(&mut load, insn);
    if insn.is_ip_rel_memory_operand() {
        let target = insn.ip_rel_memory_address();
        if reach(emit.here() + 7, target).is_none() {
            emit.set(super::emit::RCX, target);
            load.set_memory_base(Register::RCX);
            load.set_memory_displacement64(0);
            load.set_memory_displ_size(0);
        }
    }
    encode(emit, &load)
}

/// Encodes an instruction at the current place.
pub fn encode(emit: &mut Emit, insn: &Instruction) -> Result<(), Unsupported> {
    let mut encoder = Encoder::new(64);
    encoder.encode(insn, emit.here()).map_err(|_| Unsupported)?;
    emit.raw(&encoder.take_buffer());
    Ok(())
}

fn copy_memory(to: &mut Instruction, from: &Instruction) {
    to.set_memory_base(from.memory_base());
    to.set_memory_index(from.memory_index());
    to.set_memory_index_scale(from.memory_index_scale());
    to.set_memory_displacement64(from.memory_displacement64());
    to.set_memory_displ_size(from.memory_displ_size());
    to.set_segment_prefix(from.segment_prefix());
}

/// Copies an instruction whose rip-relative operand is out of reach.
fn far(
    emit: &mut Emit,
    insn: &Instruction,
    target: u64,
    note: &mut Note,
) -> Result<(), Unsupported> {
    let mut moved = *insn;
    if let (Code::Lea_r64_m | Code::Lea_r32_m, Some(reg)) =
        (insn.code(), number(insn.op0_register()))
    {
        let narrow = insn.code() == Code::Lea_r32_m;
        emit.set(reg, if narrow { target & 0xffff_ffff } else { target });
        return Ok(());
    }
    if target < 1 << 31 {
        moved.set_memory_base(Register::None);
        moved.set_memory_displ_size(4);
        moved.set_memory_displacement64(target);
        return encode(emit, &moved);
    }
    let (reg, name) = free_register(insn).ok_or(Unsupported)?;
    emit.save(at::SPILL_FAR, reg);
    emit.set(reg, target);
    note(emit.offset(), Spills::far(reg.0));
    moved.set_memory_base(name);
    moved.set_memory_displ_size(0);
    moved.set_memory_displacement64(0);
    encode(emit, &moved)?;
    emit.load(reg, at::SPILL_FAR);
    Ok(())
}

/// A register that an instruction neither reads nor writes.
fn free_register(insn: &Instruction) -> Option<(Gp, Register)> {
    const CHOICE: [Register; 6] =
        [Register::RSI, Register::RDI, Register::RBX, Register::R8, Register::RCX, Register::RDX];
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(insn).used_registers();
    let free = |r: &Register| !used.iter().any(|u| u.register().full_register() == *r);
    let name = CHOICE.into_iter().find(free)?;
    Some((number(name)?, name))
}

/// The general registers, as bits, of which an instruction leaves nothing as it was.
pub fn overwritten(insn: &Instruction) -> u16 {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(insn).used_registers();
    let whole = used.iter().filter(|u| matches!(u.access(), OpAccess::Write | OpAccess::ReadWrite));
    whole.filter_map(|u| number(u.register())).fold(0, |set, reg| set | 1 << reg.0)
}

/// The hardware number of a general register of 32 or 64 bits.
pub fn number(reg: Register) -> Option<Gp> {
    (reg.is_gpr64() || reg.is_gpr32()).then(|| Gp(reg.number() as u8))
}

fn uses_gs(insn: &Instruction) -> bool {
    insn.segment_prefix() == Register::GS
        || (0..insn.op_count())
            .any(|i| insn.op_kind(i) == OpKind::Register && insn.op_register(i) == Register::GS)
        || matches!(
            insn.code(),
            Code::Rdgsbase_r32 | Code::Rdgsbase_r64 | Code::Wrgsbase_r32 | Code::Wrgsbase_r64
        )
        || insn.code() == Code::Swapgs
}

/// Whether an operand lies in memory that gs leads to.
fn has_gs_operand(insn: &Instruction) -> bool {
    let memory = (0..insn.op_count()).any(|i| insn.op_kind(i) == OpKind::Memory);
    insn.segment_prefix() == Register::GS && memory && insn.mnemonic() != Mnemonic::Lea
}

/// The program's gs base lives in the context.
fn gs_access(emit: &mut Emit, source: &Source, note: &mut Note) -> Result<(), Unsupported> {
    let insn = &source.insn;
    let reg = number(insn.op0_register());
    match (insn.code(), reg) {
        (Code::Rdgsbase_r64, Some(reg)) => emit.load(reg, at::GS),
        (Code::Rdgsbase_r32, Some(reg)) => emit.gs_op32(0x8b, reg, at::GS),
        (Code::Wrgsbase_r64, Some(reg)) => emit.save(at::GS, reg),
        (Code::Wrgsbase_r32, Some(reg)) => {
            emit.gs_op32(0x89, reg, at::GS);
            emit.store32(at::GS + 4, 0);
        }
        _ if has_gs_operand(insn) => return gs_operand(emit, insn, note),
        // The selector is the program's own; and a prefix on something that does not touch memory means nothing.
        _ => emit.raw(source.bytes),
    }
    Ok(())
}

/// Copies an instruction with an operand that gs leads to: a borrowed register holds the base, and what was
/// the operand's own.
fn gs_operand(emit: &mut Emit, insn: &Instruction, note: &mut Note) -> Result<(), Unsupported> {
    let (reg, name) = free_register(insn).ok_or(Unsupported)?;
    emit.save(at::SPILL_FAR, reg);
    emit.load(reg, at::GS);
    if insn.memory_base() != Register::None {
        let base = number(insn.memory_base()).ok_or(Unsupported)?;
        emit.lea(reg, Some(base), Some((reg, 1)), 0);
    }
    note(emit.offset(), Spills::far(reg.0));
    let mut moved = *insn;
    moved.set_segment_prefix(Register::None);
    moved.set_memory_base(name);
    if moved.memory_displ_size() != 0 {
        moved.set_memory_displ_size(8);
    }
    encode(emit, &moved)?;
    emit.load(reg, at::SPILL_FAR);
    Ok(())
}

/// [`load_target`] of an operand that gs leads to.
fn load_gs_target(emit: &mut Emit, insn: &Instruction) -> Result<(), Unsupported> {
    if insn.is_ip_rel_memory_operand() {
        emit.set(super::emit::RCX, insn.ip_rel_memory_address());
    } else {
        let mut lea = Instruction::default();
        lea.set_code(Code::Lea_r64_m);
        lea.set_op0_kind(OpKind::Register);
        lea.set_op0_register(Register::RCX);
        lea.set_op1_kind(OpKind::Memory);
        copy_memory(&mut lea, insn);
        lea.set_segment_prefix(Register::None);
        encode(emit, &lea)?;
    }
    emit.load(super::emit::RAX, at::GS);
    emit.raw(&[0x48, 0x8b, 0x0c, 0x01]); // mov rcx, [rcx+rax]
    Ok(())
}
