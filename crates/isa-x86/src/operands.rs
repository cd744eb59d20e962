//! From iced's idea of an instruction's memory use to ours.
//!
//! iced says for each instruction which memory it uses, explicit operand first.
//! What it does not say, or says otherwise, is added here: prefetches and flushes
//! (no access to iced), sizes under a repeat prefix, masks ([`crate::vector`]),
//! addresses moved by a bit number, state of variable size, what is atomic or
//! non-temporal, and the order: loads before stores.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{
    CodeSize, CpuidFeature, Instruction, InstructionInfo, MemorySize, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};
use ichnos_base::AccessFlags;

use crate::inst::MemList;
use crate::vector;
use crate::{AddrExpr, AddrWidth, Gpr, Index, MemOperand, Rep, Role, Segment, Shape, StateOp};

impl MemOperand {
    pub(crate) const NOTHING: Self = Self {
        role: Role::Load,
        size: 0,
        flags: AccessFlags::NONE,
        address: AddrExpr {
            segment: Segment::Flat,
            base: None,
            index: Index::None,
            disp: 0,
            width: AddrWidth::Bits64,
            rip_relative: false,
        },
        shape: Shape::Plain,
    };
}

/// The memory operands of an instruction, in recording order.
pub(crate) fn of(raw: &Instruction, info: &InstructionInfo) -> MemList {
    let mut list = MemList::new();
    if let Some(operand) = hint(raw) {
        list.push(operand);
        return list;
    }
    match raw.mnemonic() {
        Mnemonic::Enter => {
            enter(raw, &mut list);
            return list;
        }
        Mnemonic::Clzero => {
            list.push(clzero(raw));
            return list;
        }
        _ if is_padlock(raw) => {
            let shape = Shape::Unmodelled;
            list.push(MemOperand { role: Role::Both, shape, ..MemOperand::NOTHING });
            return list;
        }
        _ => {}
    }
    let used = info.used_memory();
    let explicit = usize::from(!used.is_empty() && has_explicit(raw));
    let (named, implied) = used.split_at(explicit);
    for role in [Role::Load, Role::Both, Role::Store] {
        for memory in named.iter().filter(|m| role_of(m.access()) == role) {
            list.push(named_operand(raw, memory));
        }
        implied_operands(raw, implied, role, &mut list);
    }
    list
}

fn is_padlock(raw: &Instruction) -> bool {
    use CpuidFeature as F;
    raw.code().cpuid_features().iter().any(|feature| {
        matches!(
            feature,
            F::PADLOCK_ACE
                | F::PADLOCK_UNDOC
                | F::PADLOCK_PHE
                | F::PADLOCK_PMM
                | F::PADLOCK_RNG
                | F::PADLOCK_GMI
        )
    })
}

fn has_explicit(raw: &Instruction) -> bool {
    (0..raw.op_count()).any(|op| raw.op_kind(op) == OpKind::Memory)
}

fn role_of(access: OpAccess) -> Role {
    match access {
        OpAccess::Write | OpAccess::CondWrite => Role::Store,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Role::Both,
        _ => Role::Load,
    }
}

/// The operand that the instruction names with a ModRM byte.
fn named_operand(raw: &Instruction, memory: &UsedMemory) -> MemOperand {
    let mut operand = MemOperand {
        role: role_of(memory.access()),
        size: bytes(raw.memory_size()),
        flags: flags_of(raw),
        address: address(raw, memory),
        shape: Shape::Plain,
    };
    if let Some(op) = state_op(raw.mnemonic()) {
        operand.size = 0;
        operand.shape = Shape::State(op);
        return operand;
    }
    match raw.mnemonic() {
        Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => {
            if let (OpKind::Register, Some(number)) = (raw.op1_kind(), Gpr::of(raw.op1_register()))
            {
                operand.shape = Shape::Bit(number);
            }
        }
        Mnemonic::Xlatb => operand.address.index = Index::LowByte(Gpr::Rax),
        Mnemonic::Tileloadd | Mnemonic::Tileloaddt1 => tile(raw, raw.op0_register(), &mut operand),
        Mnemonic::Tilestored => tile(raw, raw.op1_register(), &mut operand),
        _ => vector::refine(raw, memory, &mut operand),
    }
    operand
}

fn tile(raw: &Instruction, tile: Register, operand: &mut MemOperand) {
    operand.size = 0;
    operand.address.index = Index::None;
    operand.shape = Shape::Tile {
        tile: low(tile.number()),
        stride: Gpr::of(raw.memory_index()),
        scale: low(raw.memory_index_scale() as usize),
    };
}

/// The operands that the instruction uses without naming them. Consecutive
/// stack slots become one operand.
fn implied_operands(raw: &Instruction, used: &[UsedMemory], role: Role, list: &mut MemList) {
    let mut rest = used.iter().filter(|m| role_of(m.access()) == role).peekable();
    // Strings have two operands in different places, so only stack slots join.
    while let Some(first) = rest.next() {
        let mut operand = implied_operand(raw, first);
        let mut count = 1u8;
        let mut step = 0;
        if operand.flags.has(AccessFlags::STACK) {
            let mut last = first;
            while let Some(next) = rest.next_if(|m| m.base() == first.base()) {
                step = next.displacement().wrapping_sub(last.displacement()) as i8;
                count += 1;
                last = next;
            }
        }
        if count > 1 {
            operand.shape = Shape::Run { count, step };
        }
        list.push(operand);
    }
}

fn implied_operand(raw: &Instruction, memory: &UsedMemory) -> MemOperand {
    let size = match memory.memory_size() {
        MemorySize::Unknown => raw.memory_size(),
        known => known,
    };
    let mut operand = MemOperand {
        role: role_of(memory.access()),
        size: bytes(size),
        flags: flags_of(raw),
        address: address(raw, memory),
        shape: Shape::Plain,
    };
    if raw.is_string_instruction() {
        let rep = rep_of(raw);
        operand.shape = Shape::String(rep);
        if rep != Rep::Once {
            operand.flags = operand.flags.with(AccessFlags::STRING);
        }
    } else {
        match raw.mnemonic() {
            Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu | Mnemonic::Maskmovq => {
                vector::byte_mask(raw, &mut operand);
            }
            Mnemonic::Movdir64b => {
                operand.size = 64;
                operand.flags = AccessFlags::NON_TEMPORAL;
            }
            Mnemonic::Enqcmd | Mnemonic::Enqcmds => operand.size = 64,
            _ if memory.segment() == Register::SS => {
                operand.flags = AccessFlags::STACK;
            }
            _ => {}
        }
    }
    operand
}

fn rep_of(raw: &Instruction) -> Rep {
    let compares = matches!(
        raw.mnemonic(),
        Mnemonic::Cmpsb
            | Mnemonic::Cmpsw
            | Mnemonic::Cmpsd
            | Mnemonic::Cmpsq
            | Mnemonic::Scasb
            | Mnemonic::Scasw
            | Mnemonic::Scasd
            | Mnemonic::Scasq
    );
    match (raw.has_rep_prefix(), raw.has_repne_prefix(), compares) {
        (false, false, _) => Rep::Once,
        (_, _, false) => Rep::Count,
        (_, true, true) => Rep::NotEqual,
        (true, false, true) => Rep::Equal,
    }
}

fn address(raw: &Instruction, memory: &UsedMemory) -> AddrExpr {
    let index = match Gpr::of(memory.index()) {
        Some(reg) => Index::Scaled(reg, low(memory.scale() as usize)),
        None => Index::None,
    };
    let base = Gpr::of(memory.base());
    let width = match memory.address_size() {
        CodeSize::Code32 | CodeSize::Code16 => AddrWidth::Bits32,
        _ => AddrWidth::Bits64,
    };
    let disp = match width {
        AddrWidth::Bits64 => memory.displacement().cast_signed(),
        // iced keeps a negative 32-bit displacement as a large positive number.
        AddrWidth::Bits32 if base.is_some() || index != Index::None => {
            i64::from((memory.displacement() as u32).cast_signed())
        }
        AddrWidth::Bits32 => memory.displacement().cast_signed(),
    };
    AddrExpr {
        segment: segment(memory.segment()),
        base,
        index,
        disp,
        width,
        rip_relative: raw.is_ip_rel_memory_operand() && base.is_none(),
    }
}

fn segment(register: Register) -> Segment {
    match register {
        Register::FS => Segment::Fs,
        Register::GS => Segment::Gs,
        _ => Segment::Flat,
    }
}

/// What holds for every access of the instruction's operands but the stack's.
fn flags_of(raw: &Instruction) -> AccessFlags {
    use Mnemonic as M;
    let mnemonic = raw.mnemonic();
    let mut flags = AccessFlags::NONE;
    if raw.has_lock_prefix() || locks_by_nature(mnemonic) {
        flags = flags.with(AccessFlags::ATOMIC);
    }
    match mnemonic {
        M::Movnti
        | M::Movntq
        | M::Movntdq
        | M::Movntps
        | M::Movntpd
        | M::Movntss
        | M::Movntsd
        | M::Movntdqa
        | M::Vmovntdq
        | M::Vmovntps
        | M::Vmovntpd
        | M::Vmovntdqa
        | M::Maskmovdqu
        | M::Vmaskmovdqu
        | M::Maskmovq
        | M::Movdiri => {
            flags = flags.with(AccessFlags::NON_TEMPORAL);
        }
        M::Fnstenv
        | M::Fstenv
        | M::Fldenv
        | M::Fnsave
        | M::Fsave
        | M::Frstor
        | M::Fxsave
        | M::Fxsave64
        | M::Fxrstor
        | M::Fxrstor64 => {
            flags = flags.with(AccessFlags::STATE);
        }
        _ if state_op(mnemonic).is_some() => flags = flags.with(AccessFlags::STATE),
        _ => {}
    }
    flags
}

/// Instructions that are atomic without a `lock` prefix.
fn locks_by_nature(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Xchg
            | M::Aadd
            | M::Aand
            | M::Aor
            | M::Axor
            | M::Cmpoxadd
            | M::Cmpnoxadd
            | M::Cmpbxadd
            | M::Cmpnbxadd
            | M::Cmpzxadd
            | M::Cmpnzxadd
            | M::Cmpbexadd
            | M::Cmpnbexadd
            | M::Cmpsxadd
            | M::Cmpnsxadd
            | M::Cmppxadd
            | M::Cmpnpxadd
            | M::Cmplxadd
            | M::Cmpnlxadd
            | M::Cmplexadd
            | M::Cmpnlexadd
    )
}

pub(crate) fn state_op(mnemonic: Mnemonic) -> Option<StateOp> {
    Some(match mnemonic {
        Mnemonic::Xsave | Mnemonic::Xsave64 => StateOp::Xsave,
        Mnemonic::Xsaveopt | Mnemonic::Xsaveopt64 => StateOp::Xsaveopt,
        Mnemonic::Xsavec | Mnemonic::Xsavec64 => StateOp::Xsavec,
        Mnemonic::Xsaves | Mnemonic::Xsaves64 => StateOp::Xsaves,
        Mnemonic::Xrstor | Mnemonic::Xrstor64 => StateOp::Xrstor,
        Mnemonic::Xrstors | Mnemonic::Xrstors64 => StateOp::Xrstors,
        _ => return None,
    })
}

/// Prefetches and flushes: iced sees no access in most of them.
fn hint(raw: &Instruction) -> Option<MemOperand> {
    use Mnemonic as M;
    let (role, flags) = match raw.mnemonic() {
        M::Prefetcht0
        | M::Prefetcht1
        | M::Prefetcht2
        | M::Prefetch
        | M::Prefetchit0
        | M::Prefetchit1 => (Role::Prefetch, AccessFlags::NONE),
        M::Prefetchnta => (Role::Prefetch, AccessFlags::NON_TEMPORAL),
        M::Prefetchw | M::Prefetchwt1 => (Role::Prefetch, AccessFlags::FOR_WRITE),
        M::Clflush | M::Clflushopt | M::Clwb | M::Cldemote => (Role::Flush, AccessFlags::NONE),
        _ => return None,
    };
    has_explicit(raw).then(|| MemOperand {
        role,
        size: 0,
        flags,
        address: named_address(raw),
        shape: Shape::Plain,
    })
}

/// The address of the named operand, for instructions in which iced sees none.
fn named_address(raw: &Instruction) -> AddrExpr {
    let rip_relative = raw.is_ip_rel_memory_operand();
    let base = if rip_relative { None } else { Gpr::of(raw.memory_base()) };
    let index = match Gpr::of(raw.memory_index()) {
        Some(reg) => Index::Scaled(reg, low(raw.memory_index_scale() as usize)),
        None => Index::None,
    };
    let short = raw.memory_base().is_gpr32()
        || raw.memory_index().is_gpr32()
        || raw.memory_base() == Register::EIP
        || raw.memory_displ_size() == 4 && base.is_none() && !rip_relative;
    AddrExpr {
        segment: segment(raw.memory_segment()),
        base,
        index,
        disp: raw.memory_displacement64().cast_signed(),
        width: if short { AddrWidth::Bits32 } else { AddrWidth::Bits64 },
        rip_relative,
    }
}

/// `enter`: pushes the frame pointer; with nesting, copies the frame pointers of
/// the enclosing frames and pushes the new one (SDM volume 2, ENTER).
fn enter(raw: &Instruction, list: &mut MemList) {
    let size: i8 = if raw.code() == iced_x86::Code::Enterw_imm16_imm8 { 2 } else { 8 };
    let levels = raw.immediate8_2nd() & 31;
    let at = |base, slot: i64, role, count| MemOperand {
        role,
        size: u32::from(size.unsigned_abs()),
        flags: AccessFlags::STACK,
        address: AddrExpr {
            base: Some(base),
            disp: -slot * i64::from(size),
            ..MemOperand::NOTHING.address
        },
        shape: if count == 1 { Shape::Plain } else { Shape::Run { count, step: -size } },
    };
    if levels > 1 {
        list.push(at(Gpr::Rbp, 1, Role::Load, levels - 1));
    }
    list.push(at(Gpr::Rsp, 1, Role::Store, levels + 1));
}

/// `clzero`: clears the cache line that holds the address in `rax`. iced sees no
/// access in it.
fn clzero(raw: &Instruction) -> MemOperand {
    let mut operand = MemOperand { role: Role::Store, size: 64, ..MemOperand::NOTHING };
    operand.shape = Shape::Line(64);
    operand.address.base = Some(Gpr::Rax);
    if raw.code() != iced_x86::Code::Clzeroq {
        operand.address.width = AddrWidth::Bits32;
    }
    operand
}

/// The size of an operand in bytes; iced has no size above 65535.
fn bytes(size: MemorySize) -> u32 {
    u32::try_from(size.size()).unwrap_or(0)
}

/// Register numbers and scales, all of which are below 256.
#[allow(clippy::cast_possible_truncation, reason = "register numbers and scales are small")]
pub(crate) const fn low(n: usize) -> u8 {
    n as u8
}
