//! Instructions whose result does not depend on their sources: `xor eax,eax` and
//! its kind.
//!
//! iced knows those that make zero by exclusive or and subtraction. Added here are
//! comparisons of a register with itself, and-not, `sbb` (which depends on the
//! carry alone), the mask-register forms, and constant truth tables. Floating-point
//! subtraction is none of them: a NaN minus itself is not zero.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Whether the register sources are named but have no influence.
pub(crate) fn ignores_sources(raw: &Instruction) -> bool {
    if raw.op_mask() != Register::None {
        return false;
    }
    if matches!(raw.mnemonic(), Mnemonic::Vpternlogd | Mnemonic::Vpternlogq) {
        return raw.op2_kind() == OpKind::Register && matches!(raw.immediate8(), 0 | 0xff);
    }
    same_sources(raw) && constant_when_same(raw.mnemonic())
}

/// Whether the last two operands are the same register; with three operands the
/// first is the result alone.
fn same_sources(raw: &Instruction) -> bool {
    let (a, b) = match raw.op_count() {
        2 => (0, 1),
        3 => (1, 2),
        _ => return false,
    };
    raw.op_kind(a) == OpKind::Register
        && raw.op_kind(b) == OpKind::Register
        && raw.op_register(a) == raw.op_register(b)
}

fn constant_when_same(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Sbb
            | M::Cmp
            | M::Andn
            | M::Pandn
            | M::Andnps
            | M::Andnpd
            | M::Vpandn
            | M::Vpandnd
            | M::Vpandnq
            | M::Vandnps
            | M::Vandnpd
            | M::Pcmpeqb
            | M::Pcmpeqw
            | M::Pcmpeqd
            | M::Pcmpeqq
            | M::Pcmpgtb
            | M::Pcmpgtw
            | M::Pcmpgtd
            | M::Pcmpgtq
            | M::Vpcmpeqb
            | M::Vpcmpeqw
            | M::Vpcmpeqd
            | M::Vpcmpeqq
            | M::Vpcmpgtb
            | M::Vpcmpgtw
            | M::Vpcmpgtd
            | M::Vpcmpgtq
            | M::Kxorb
            | M::Kxorw
            | M::Kxord
            | M::Kxorq
            | M::Kxnorb
            | M::Kxnorw
            | M::Kxnord
            | M::Kxnorq
            | M::Kandnb
            | M::Kandnw
            | M::Kandnd
            | M::Kandnq
    )
}
