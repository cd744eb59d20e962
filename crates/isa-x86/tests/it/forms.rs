//! One or more encodings of every instruction form that exists in 64-bit mode.
//!
//! iced's tables say which operands a form takes; each gets registers of its own
//! so that a mistake about one operand cannot hide behind another. Memory is at
//! `[r14]`, which no instruction uses by nature; vector indices are in register 5,
//! masks in `k3`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{
    Code, Encoder, Instruction, MemoryOperand, OpCodeOperandKind as K, OpKind, Register,
};
use ichnos_base::GuestVa;
use ichnos_isa_x86::Inst;

/// Where the probe puts code.
pub const CODE: GuestVa = GuestVa(0x3000_0000);

/// What to do with operands that may be register or memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Register,
    /// The same register in every place of its kind.
    Same,
    Memory,
}

/// Prefixes and decorations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extra {
    None,
    Lock,
    Rep,
    Repne,
    Masked,
    Zeroed,
    Broadcast,
    MaskedBroadcast,
}

/// Every form, encoded and decoded again.
pub fn all() -> Vec<Inst> {
    let mut out = Vec::new();
    for code in Code::values() {
        let op = code.op_code();
        if !op.is_instruction() || !op.mode64() || op.decoder_option() != 0 {
            continue;
        }
        for place in [Place::Register, Place::Same, Place::Memory] {
            for extra in [
                Extra::None,
                Extra::Lock,
                Extra::Rep,
                Extra::Repne,
                Extra::Masked,
                Extra::Zeroed,
                Extra::Broadcast,
                Extra::MaskedBroadcast,
            ] {
                for immediate in [0x05, 0x00, 0x01, 0xffff_ffff_ffff_fff0] {
                    let Some(raw) = build(code, place, extra, immediate) else { continue };
                    if let Some(inst) = encode(&raw)
                        && out.last() != Some(&inst)
                    {
                        out.push(inst);
                    }
                }
            }
        }
    }
    out.dedup();
    out
}

fn encode(raw: &Instruction) -> Option<Inst> {
    let mut encoder = Encoder::new(64);
    let length = encoder.encode(raw, CODE.0).ok()?;
    if raw.op0_kind() == OpKind::NearBranch64 {
        // Branches go to the next instruction.
        let mut raw = *raw;
        raw.set_near_branch64(CODE.0 + length as u64);
        let _ = encoder.take_buffer();
        encoder.encode(&raw, CODE.0).ok()?;
    }
    let bytes = encoder.take_buffer();
    Inst::decode(&bytes, CODE).ok()
}

/// The bytes of an instruction.
pub fn bytes(inst: &Inst) -> Vec<u8> {
    let mut encoder = Encoder::new(64);
    encoder.encode(inst.raw(), inst.pc().0).expect("it was encoded before");
    encoder.take_buffer()
}

fn build(code: Code, place: Place, extra: Extra, immediate: u64) -> Option<Instruction> {
    let op = code.op_code();
    let mut raw = Instruction::default();
    raw.set_code(code);
    let mut has_memory = false;
    for i in 0..op.op_count() {
        has_memory |= operand(&mut raw, i, op.op_kind(i), place, immediate)?;
    }
    if place == Place::Memory && !has_memory {
        return None;
    }
    let may_mask = op.can_use_op_mask_register();
    match extra {
        Extra::None if op.require_op_mask_register() => return None,
        Extra::None => {}
        Extra::Lock if op.can_use_lock_prefix() && has_memory => raw.set_has_lock_prefix(true),
        Extra::Rep if op.can_use_rep_prefix() => raw.set_has_rep_prefix(true),
        Extra::Repne if op.can_use_repne_prefix() => raw.set_has_repne_prefix(true),
        Extra::Masked if may_mask => raw.set_op_mask(Register::K3),
        Extra::Zeroed if may_mask && op.can_use_zeroing_masking() => {
            raw.set_op_mask(Register::K3);
            raw.set_zeroing_masking(true);
        }
        Extra::Broadcast if op.can_broadcast() && has_memory => raw.set_is_broadcast(true),
        Extra::MaskedBroadcast if op.can_broadcast() && has_memory && may_mask => {
            raw.set_is_broadcast(true);
            raw.set_op_mask(Register::K3);
        }
        _ => return None,
    }
    Some(raw)
}

/// Sets an operand; says whether it is a named memory operand.
fn operand(raw: &mut Instruction, i: u32, kind: K, place: Place, immediate: u64) -> Option<bool> {
    let number = if place == Place::Same { 0 } else { i };
    let gpr = |class: Register| class + [3, 9, 10, 11, 12][number as usize];
    let vector = |class: Register| class + (number + 1);
    let in_memory = place == Place::Memory;
    let register = match kind {
        K::mem | K::sibmem | K::mem_mib | K::mem_mpx => {
            return memory(raw, i, Register::None, in_memory);
        }
        K::mem_vsib32x | K::mem_vsib64x => return memory(raw, i, Register::XMM5, in_memory),
        K::mem_vsib32y | K::mem_vsib64y => return memory(raw, i, Register::YMM5, in_memory),
        K::mem_vsib32z | K::mem_vsib64z => return memory(raw, i, Register::ZMM5, in_memory),
        K::r8_or_mem
        | K::r16_or_mem
        | K::r32_or_mem
        | K::r64_or_mem
        | K::mm_or_mem
        | K::xmm_or_mem
        | K::ymm_or_mem
        | K::zmm_or_mem
        | K::k_or_mem
            if in_memory =>
        {
            return memory(raw, i, Register::None, true);
        }
        K::r8_or_mem | K::r8_reg | K::r8_opcode => gpr(Register::AL),
        K::r16_or_mem | K::r16_reg | K::r16_reg_mem | K::r16_rm | K::r16_opcode => {
            gpr(Register::AX)
        }
        K::r32_or_mem | K::r32_reg | K::r32_reg_mem | K::r32_rm | K::r32_opcode | K::r32_vvvv => {
            gpr(Register::EAX)
        }
        K::r64_or_mem | K::r64_reg | K::r64_reg_mem | K::r64_rm | K::r64_opcode | K::r64_vvvv => {
            gpr(Register::RAX)
        }
        K::k_or_mem | K::k_reg | K::k_rm | K::k_vvvv | K::kp1_reg => {
            Register::K0 + [2, 4, 5, 6, 7][number as usize]
        }
        K::mm_or_mem | K::mm_reg | K::mm_rm => vector(Register::MM0),
        K::xmm_or_mem
        | K::xmm_reg
        | K::xmm_rm
        | K::xmm_vvvv
        | K::xmmp3_vvvv
        | K::xmm_is4
        | K::xmm_is5 => vector(Register::XMM0),
        K::ymm_or_mem | K::ymm_reg | K::ymm_rm | K::ymm_vvvv | K::ymm_is4 | K::ymm_is5 => {
            vector(Register::YMM0)
        }
        K::zmm_or_mem | K::zmm_reg | K::zmm_rm | K::zmm_vvvv | K::zmmp3_vvvv => {
            vector(Register::ZMM0)
        }
        K::tmm_reg | K::tmm_rm | K::tmm_vvvv => Register::TMM0 + number,
        K::al => Register::AL,
        K::cl => Register::CL,
        K::ax => Register::AX,
        K::dx => Register::DX,
        K::eax => Register::EAX,
        K::rax => Register::RAX,
        K::st0 => Register::ST0,
        K::sti_opcode => Register::ST2,
        _ => return other(raw, i, kind, immediate),
    };
    raw.set_op_kind(i, OpKind::Register);
    raw.set_op_register(i, register);
    Some(false)
}

fn memory(raw: &mut Instruction, i: u32, index: Register, wanted: bool) -> Option<bool> {
    if !wanted {
        return None;
    }
    raw.set_op_kind(i, OpKind::Memory);
    let place = MemoryOperand::with_base(Register::R14);
    raw.set_memory_base(place.base);
    raw.set_memory_index(index);
    Some(true)
}

fn other(raw: &mut Instruction, i: u32, kind: K, immediate: u64) -> Option<bool> {
    let op_kind = match kind {
        K::imm8 => OpKind::Immediate8,
        K::imm8sex16 => OpKind::Immediate8to16,
        K::imm8sex32 => OpKind::Immediate8to32,
        K::imm8sex64 => OpKind::Immediate8to64,
        K::imm16 => OpKind::Immediate16,
        K::imm32 => OpKind::Immediate32,
        K::imm32sex64 => OpKind::Immediate32to64,
        K::imm64 => OpKind::Immediate64,
        K::imm8_const_1 => {
            raw.set_op_kind(i, OpKind::Immediate8);
            raw.set_immediate8(1);
            return Some(false);
        }
        K::br64_1 | K::br64_4 | K::br32_1 | K::br32_4 => {
            raw.set_op_kind(i, OpKind::NearBranch64);
            raw.set_near_branch64(CODE.0);
            return Some(false);
        }
        K::seg_rSI => OpKind::MemorySegRSI,
        K::es_rDI => OpKind::MemoryESRDI,
        K::seg_rDI => OpKind::MemorySegRDI,
        K::seg_rBX_al => {
            raw.set_op_kind(i, OpKind::Memory);
            raw.set_memory_base(Register::RBX);
            raw.set_memory_index(Register::AL);
            return Some(false);
        }
        _ => return None,
    };
    raw.set_op_kind(i, op_kind);
    if matches!(kind, K::seg_rSI | K::es_rDI | K::seg_rDI) {
        return Some(false);
    }
    raw.set_immediate_u64(i, immediate);
    Some(false)
}
