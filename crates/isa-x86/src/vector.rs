//! Vector operands in memory of which only some lanes are touched.
//!
//! Which lanes is said by a mask register (AVX-512), by the signs of a vector
//! register (AVX, AVX2) or of bytes (maskmovdqu). Not every AVX-512 instruction
//! spares its masked-out lanes: loads of the SDM's exception classes E4NF, E5NF
//! and E6NF ("no fault suppression") read their whole operand, mostly because the
//! elements of the result are no function of the elements in the same place.
//!
//! Stores never write masked-out lanes, and are told lane by lane, although some
//! (`vextract*`, `maskmovdqu`) fault for lanes that they would not write.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::{Instruction, Mnemonic, OpKind, Register, UsedMemory};

use crate::operands::low;
use crate::{LaneMask, Lanes, Masked, MemOperand, Shape};

/// Gives a named operand its shape, if lanes matter to it.
pub(crate) fn refine(raw: &Instruction, memory: &UsedMemory, operand: &mut MemOperand) {
    if memory.vsib_size() != 0 {
        gather(raw, memory, operand);
    } else if let Some(mask) = sign_mask(raw) {
        let element = element_bytes(raw);
        let count = low(operand.size as usize / usize::from(element.max(1)));
        operand.size = u32::from(element);
        operand.shape =
            Shape::Masked(Masked { elements: count, lanes: count, mask, packed: false });
    } else if raw.op_mask() != Register::None && !reads_everything(raw) {
        opmask(raw, operand);
    }
}

/// `maskmovdqu` and `maskmovq`: bytes whose mask byte is negative.
pub(crate) fn byte_mask(raw: &Instruction, operand: &mut MemOperand) {
    let register = raw.op2_register();
    let number = low(register.number());
    let (elements, mask) = if register.is_mm() {
        (8, LaneMask::MmxSign(number))
    } else {
        (16, LaneMask::Sign { vector: number, size: 1 })
    };
    operand.size = 1;
    operand.shape = Shape::Masked(Masked { elements, lanes: elements, mask, packed: false });
}

fn gather(raw: &Instruction, memory: &UsedMemory, operand: &mut MemOperand) {
    let element = element_bytes(raw);
    let index = memory.index();
    let index_size = low(memory.vsib_size() as usize);
    let mut count = index.size() / usize::from(index_size.max(1));
    // Without a data register (gather prefetch) the widest vector decides.
    let data = data_register(raw).map_or(64, Register::size);
    count = count.min(data / usize::from(element.max(1)));
    let mask = if raw.op_mask() == Register::None {
        LaneMask::Sign { vector: low(raw.op2_register().number()), size: element }
    } else {
        LaneMask::Opmask(low(raw.op_mask().number()))
    };
    operand.size = u32::from(element);
    operand.shape = Shape::Lanes(Lanes {
        index: low(index.number()),
        index_size,
        scale: low(memory.scale() as usize),
        count: low(count),
        mask,
    });
}

fn data_register(raw: &Instruction) -> Option<Register> {
    (0..raw.op_count())
        .filter(|op| raw.op_kind(*op) == OpKind::Register)
        .map(|op| raw.op_register(op))
        .find(|register| register.is_vector_register())
}

/// The mask operand of `vmaskmov` and `vpmaskmov`: the first register source.
fn sign_mask(raw: &Instruction) -> Option<LaneMask> {
    let size = match raw.mnemonic() {
        Mnemonic::Vmaskmovps | Mnemonic::Vpmaskmovd => 4,
        Mnemonic::Vmaskmovpd | Mnemonic::Vpmaskmovq => 8,
        _ => return None,
    };
    Some(LaneMask::Sign { vector: low(raw.op1_register().number()), size })
}

fn opmask(raw: &Instruction, operand: &mut MemOperand) {
    let element = lane_bytes(raw);
    if element == 0 {
        return;
    }
    let whole = raw.code().op_code().memory_size().size();
    let (elements, lanes) = if raw.is_broadcast() {
        (1, whole / usize::from(element))
    } else {
        let elements = operand.size as usize / usize::from(element);
        let lanes = if is_broadcast(raw.mnemonic()) {
            raw.op0_register().size() / usize::from(element)
        } else {
            elements
        };
        (elements, lanes)
    };
    if elements == 0 {
        return;
    }
    operand.size = u32::from(element);
    operand.shape = Shape::Masked(Masked {
        elements: low(elements),
        lanes: low(lanes),
        mask: LaneMask::Opmask(low(raw.op_mask().number())),
        packed: is_packed(raw.mnemonic()),
    });
}

fn element_bytes(raw: &Instruction) -> u8 {
    low(raw.memory_size().element_size())
}

/// Bytes of memory that one mask bit governs. The dot products add up several
/// small elements into each lane of four bytes, complex numbers are pairs, and
/// the widening products use the lower half of each lane of eight.
fn lane_bytes(raw: &Instruction) -> u8 {
    use Mnemonic as M;
    match raw.mnemonic() {
        M::Vpdpbusd | M::Vpdpbusds | M::Vpdpwssd | M::Vpdpwssds | M::Vdpbf16ps => 4,
        M::Vfmulcph | M::Vfcmulcph | M::Vfmaddcph | M::Vfcmaddcph => 4,
        M::Vfmulcsh | M::Vfcmulcsh | M::Vfmaddcsh | M::Vfcmaddcsh => 4,
        M::Vpmuldq | M::Vpmuludq => 8,
        _ => element_bytes(raw),
    }
}

/// Instructions that use each element in memory for several lanes.
fn is_broadcast(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vbroadcastss
            | M::Vbroadcastsd
            | M::Vbroadcastf32x2
            | M::Vbroadcastf32x4
            | M::Vbroadcastf32x8
            | M::Vbroadcastf64x2
            | M::Vbroadcastf64x4
            | M::Vbroadcasti32x2
            | M::Vbroadcasti32x4
            | M::Vbroadcasti32x8
            | M::Vbroadcasti64x2
            | M::Vbroadcasti64x4
            | M::Vpbroadcastb
            | M::Vpbroadcastw
            | M::Vpbroadcastd
            | M::Vpbroadcastq
    )
}

/// Instructions whose active elements lie side by side in memory.
fn is_packed(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vcompressps
            | M::Vcompresspd
            | M::Vpcompressb
            | M::Vpcompressw
            | M::Vpcompressd
            | M::Vpcompressq
            | M::Vexpandps
            | M::Vexpandpd
            | M::Vpexpandb
            | M::Vpexpandw
            | M::Vpexpandd
            | M::Vpexpandq
    )
}

/// Instructions that read their whole memory operand whatever the mask says. A
/// flat table.
fn reads_everything(raw: &Instruction) -> bool {
    use Mnemonic as M;
    let mnemonic = raw.mnemonic();
    // A shift count in memory serves all lanes; a shifted operand in memory
    // (with the count in the instruction) does not.
    let shifts = matches!(
        mnemonic,
        M::Vpsllw
            | M::Vpslld
            | M::Vpsllq
            | M::Vpsraw
            | M::Vpsrad
            | M::Vpsraq
            | M::Vpsrlw
            | M::Vpsrld
            | M::Vpsrlq
    );
    if shifts {
        return raw.op2_kind() == OpKind::Memory;
    }
    matches!(
        mnemonic,
        M::Valignd
            | M::Valignq
            | M::Vcvtne2ps2bf16
            | M::Vdbpsadbw
            | M::Vgf2p8affineinvqb
            | M::Vgf2p8affineqb
            | M::Vinsertf32x4
            | M::Vinsertf32x8
            | M::Vinsertf64x2
            | M::Vinsertf64x4
            | M::Vinserti32x4
            | M::Vinserti32x8
            | M::Vinserti64x2
            | M::Vinserti64x4
            | M::Vmovddup
            | M::Vmovshdup
            | M::Vmovsldup
            | M::Vpackssdw
            | M::Vpacksswb
            | M::Vpackusdw
            | M::Vpackuswb
            | M::Vpalignr
            | M::Vpconflictd
            | M::Vpconflictq
            | M::Vpermb
            | M::Vpermd
            | M::Vpermi2b
            | M::Vpermi2d
            | M::Vpermi2pd
            | M::Vpermi2ps
            | M::Vpermi2q
            | M::Vpermi2w
            | M::Vpermilpd
            | M::Vpermilps
            | M::Vpermpd
            | M::Vpermps
            | M::Vpermq
            | M::Vpermt2b
            | M::Vpermt2d
            | M::Vpermt2pd
            | M::Vpermt2ps
            | M::Vpermt2q
            | M::Vpermt2w
            | M::Vpermw
            | M::Vpmaddubsw
            | M::Vpmaddwd
            | M::Vpmultishiftqb
            | M::Vpshufb
            | M::Vpshufd
            | M::Vpshufhw
            | M::Vpshuflw
            | M::Vpunpckhbw
            | M::Vpunpckhdq
            | M::Vpunpckhqdq
            | M::Vpunpckhwd
            | M::Vpunpcklbw
            | M::Vpunpckldq
            | M::Vpunpcklqdq
            | M::Vpunpcklwd
            | M::Vshuff32x4
            | M::Vshuff64x2
            | M::Vshufi32x4
            | M::Vshufi64x2
            | M::Vshufpd
            | M::Vshufps
            | M::Vunpckhpd
            | M::Vunpckhps
            | M::Vunpcklpd
            | M::Vunpcklps
    )
}
