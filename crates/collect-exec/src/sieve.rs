//! What is told behind a sieve, and what is counted: between engine and host of one build.
//!
//! A superblock is one or more *pieces*, each of which ends with a conditional branch or the superblock, and is
//! counted when it begins. What a piece does is known from its code, but for accesses that vary, which the engine
//! counts. Told are lines: those that the engine does not know to be in the cache.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::Held;
use ichnos_isa_x86::{
    AddrExpr, AddrWidth, Flow, Index, Inst, LaneMask, MemOperand, Rep, Role, Segment, Shape,
};

/// The most bytes of an access that can be kept back.
pub const MOST_BYTES: u32 = 64;
/// How many identifiers of pieces there can be.
pub const MOST_PIECES: u32 = 1 << 20;
/// How many threads there can be in all.
pub const MOST_THREADS: u32 = 1 << 14;
/// Bytes of a thread's counters, of eight bytes each.
pub const COUNTERS_LEN: u64 = MOST_PIECES as u64 * 8;
/// The counter of loads that are not in any piece's code: by lines, of instructions whose accesses vary, and of the
/// second lines of others.
pub const LOADS: u32 = 1;
/// The same for stores.
pub const STORES: u32 = 2;
/// The first identifier of a piece.
pub const FIRST_PIECE: u32 = 8;

/// What the word of a told line says besides the line, in its low bits.
pub mod line {
    /// It was loaded from.
    pub const LOAD: u64 = 1;
    /// It was stored to.
    pub const STORE: u64 = 2;
    /// It is asked for.
    pub const PREFETCH: u64 = 4;
    /// It was fetched from.
    pub const FETCH: u64 = 8;
    /// It was used a while ago and is told late; if it was stored to, that alone is told.
    pub const LATE: u64 = 16;
    /// It is to leave all caches.
    pub const FLUSH: u64 = 32;
    /// All of these.
    pub const BITS: u64 = 63;
}

/// The first and the last line of an instruction.
pub fn lines(inst: &Inst, shift: u32) -> (u64, u64) {
    let pc = inst.pc().0;
    (pc >> shift, pc.wrapping_add(u64::from(inst.length().max(1)) - 1) >> shift)
}

/// The pieces of a superblock: their instructions' places.
pub fn pieces(insts: &[Inst]) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (i, inst) in insts.iter().enumerate() {
        if matches!(inst.flow(), Flow::Cond(_)) || i + 1 == insts.len() {
            pieces.push(start..i + 1);
            start = i + 1;
        }
    }
    pieces
}

/// What an execution of an instruction counts for, whatever it tells.
pub fn held(inst: &Inst, shift: u32) -> Held {
    let (first, last) = lines(inst, shift);
    let simple = is_simple(inst);
    let count = |roles: [Role; 2]| {
        let counts = |operand: &&MemOperand| simple && roles.contains(&operand.role);
        inst.memory().iter().filter(counts).count() as u64
    };
    Held {
        insns: 1,
        across: u64::from(first != last),
        loads: count([Role::Load, Role::Both]),
        stores: count([Role::Store, Role::Both]),
    }
}

/// Whether an instruction's accesses can be looked at one by one before it runs.
pub fn is_simple(inst: &Inst) -> bool {
    inst.memory().iter().all(|operand| match operand.role {
        Role::Flush | Role::Prefetch => false,
        Role::Load | Role::Store | Role::Both => {
            matches!(operand.shape, Shape::Plain | Shape::String(Rep::Once))
                && (1..=MOST_BYTES).contains(&operand.size)
                && is_plain(&operand.address)
        }
    })
}

/// An access under a mask, of which mostly the first lanes are active and no others, as in functions for strings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Masked {
    /// The operand, of the size of one lane.
    pub operand: MemOperand,
    /// The mask register.
    pub mask: u8,
    /// How many lanes there are.
    pub lanes: u8,
}

/// The one access of an instruction, if it is such.
pub fn masked(inst: &Inst) -> Option<Masked> {
    let [operand] = *inst.memory() else { return None };
    let Shape::Masked(shape) = operand.shape else { return None };
    let LaneMask::Opmask(mask) = shape.mask else { return None };
    let side_by_side = shape.elements == shape.lanes && !shape.packed;
    let small = operand.size.is_power_of_two()
        && u32::from(shape.lanes).saturating_mul(operand.size) <= MOST_BYTES;
    let plain = is_plain(&operand.address) && matches!(operand.role, Role::Load | Role::Store);
    (side_by_side && small && plain).then_some(Masked { operand, mask, lanes: shape.lanes })
}

fn is_plain(address: &AddrExpr) -> bool {
    let index = matches!(address.index, Index::None | Index::Scaled(..));
    let reachable = address.is_constant() || i32::try_from(address.disp).is_ok();
    index && reachable && address.width == AddrWidth::Bits64 && address.segment != Segment::Gs
}
