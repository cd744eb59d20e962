//! Where control goes after an instruction, as far as its bytes tell.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Code, ConditionCode, FlowControl, Instruction, Mnemonic, OpKind};
use ichnos_base::{GuestVa, InsnKind};

/// What an instruction does to control flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flow {
    /// Goes on to the next instruction.
    Next,
    /// Always goes to the target.
    Jump(GuestVa),
    /// Goes to the target or to the next instruction: `jcc`, `loop`, `jrcxz`,
    /// `xbegin`.
    Cond(GuestVa),
    /// Calls the target.
    Call(GuestVa),
    /// Goes where a register, memory or a far pointer says.
    JumpIndirect,
    /// Calls what a register, memory or a far pointer says.
    CallIndirect,
    /// Returns to where the stack says.
    Return,
    /// Enters the kernel by `syscall`, `sysenter` or `int 0x80`, which comes
    /// back to the next instruction.
    Syscall,
    /// Raises an exception by nature: `ud2`, `int3`, `int n`, `hlt` and other
    /// privileged ways to leave user mode.
    Trap,
}

impl Flow {
    /// The fixed place where control may go besides the next instruction.
    #[must_use]
    pub const fn target(self) -> Option<GuestVa> {
        match self {
            Self::Jump(target) | Self::Cond(target) | Self::Call(target) => Some(target),
            _ => None,
        }
    }

    /// Whether the next instruction may follow directly, without a return from
    /// elsewhere.
    #[must_use]
    pub const fn falls_through(self) -> bool {
        matches!(self, Self::Next | Self::Cond(_) | Self::Syscall)
    }

    /// The kind under which it is recorded.
    #[must_use]
    pub const fn kind(self) -> InsnKind {
        match self {
            Self::Next | Self::Trap => InsnKind::OTHER,
            Self::Jump(_) => InsnKind::JUMP,
            Self::Cond(_) => InsnKind::BRANCH,
            Self::Call(_) => InsnKind::CALL,
            Self::JumpIndirect => InsnKind::JUMP_INDIRECT,
            Self::CallIndirect => InsnKind::CALL_INDIRECT,
            Self::Return => InsnKind::RETURN,
            Self::Syscall => InsnKind::SYSCALL,
        }
    }

    /// That of an instruction that iced decoded for 64-bit mode, for who needs nothing else of it.
    #[must_use]
    pub fn of(raw: &Instruction) -> Self {
        let near = || GuestVa(raw.near_branch_target());
        match raw.flow_control() {
            FlowControl::Next if raw.mnemonic() == Mnemonic::Hlt => Self::Trap,
            FlowControl::Next => Self::Next,
            FlowControl::UnconditionalBranch => direct(raw).map_or(Self::JumpIndirect, Self::Jump),
            FlowControl::IndirectBranch => Self::JumpIndirect,
            FlowControl::ConditionalBranch => Self::Cond(near()),
            FlowControl::Return => Self::Return,
            FlowControl::Call => call(raw),
            FlowControl::IndirectCall => Self::CallIndirect,
            FlowControl::Interrupt => interrupt(raw),
            FlowControl::XbeginXabortXend => match raw.mnemonic() {
                Mnemonic::Xbegin => Self::Cond(near()),
                _ => Self::Next,
            },
            FlowControl::Exception => Self::Trap,
        }
    }
}

fn direct(raw: &Instruction) -> Option<GuestVa> {
    matches!(raw.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
        .then(|| GuestVa(raw.near_branch_target()))
}

/// iced counts the ways into the kernel and into a hypervisor as calls.
fn call(raw: &Instruction) -> Flow {
    match raw.mnemonic() {
        Mnemonic::Syscall | Mnemonic::Sysenter => Flow::Syscall,
        Mnemonic::Call => direct(raw).map_or(Flow::CallIndirect, Flow::Call),
        _ => Flow::Trap,
    }
}

fn interrupt(raw: &Instruction) -> Flow {
    if raw.code() == Code::Int_imm8 && raw.immediate8() == 0x80 {
        return Flow::Syscall;
    }
    Flow::Trap
}

/// Whether a condition holds for these flags and this count register; `None` if
/// the instruction has no condition that registers decide.
///
/// Covers `jcc`, `loop`, `loope`, `loopne`, `jcxz` and its wider forms, `cmovcc`
/// and `setcc`. `rcx` is the whole register; the instruction's own address size
/// decides how much of it counts.
pub(crate) fn condition_holds(raw: &Instruction, rflags: u64, rcx: u64) -> Option<bool> {
    let bits = count_bits(raw.code());
    let left = |n: u64| n & (u64::MAX >> (64 - bits)) != 0;
    let zf = rflags >> 6 & 1 != 0;
    match raw.mnemonic() {
        Mnemonic::Loop => Some(left(rcx.wrapping_sub(1))),
        Mnemonic::Loope => Some(left(rcx.wrapping_sub(1)) && zf),
        Mnemonic::Loopne => Some(left(rcx.wrapping_sub(1)) && !zf),
        Mnemonic::Jcxz | Mnemonic::Jecxz | Mnemonic::Jrcxz => Some(!left(rcx)),
        _ => code_holds(raw.condition_code(), rflags),
    }
}

fn code_holds(code: ConditionCode, rflags: u64) -> Option<bool> {
    let bit = |n: u32| rflags >> n & 1 != 0;
    let (cf, pf, zf, sf, of) = (bit(0), bit(2), bit(6), bit(7), bit(11));
    Some(match code {
        ConditionCode::o => of,
        ConditionCode::no => !of,
        ConditionCode::b => cf,
        ConditionCode::ae => !cf,
        ConditionCode::e => zf,
        ConditionCode::ne => !zf,
        ConditionCode::be => cf || zf,
        ConditionCode::a => !(cf || zf),
        ConditionCode::s => sf,
        ConditionCode::ns => !sf,
        ConditionCode::p => pf,
        ConditionCode::np => !pf,
        ConditionCode::l => sf != of,
        ConditionCode::ge => sf == of,
        ConditionCode::le => zf || sf != of,
        ConditionCode::g => !zf && sf == of,
        _ => return None,
    })
}

/// How many bits of `rcx` a counting branch looks at.
fn count_bits(code: Code) -> u32 {
    use Code as C;
    match code {
        C::Loop_rel8_64_ECX
        | C::Loope_rel8_64_ECX
        | C::Loopne_rel8_64_ECX
        | C::Loop_rel8_16_ECX
        | C::Loope_rel8_16_ECX
        | C::Loopne_rel8_16_ECX
        | C::Jecxz_rel8_64
        | C::Jecxz_rel8_16 => 32,
        _ => 64,
    }
}
