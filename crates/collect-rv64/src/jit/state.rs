//! What generated code and the engine share: host registers, offsets into the
//! hart, and why generated code returned.
//!
//! | host register | holds |
//! |---|---|
//! | `rbx` | the hart, and [`BIAS`] |
//! | `r13` | instructions that may still retire; in profiled code four times the number of the next one |
//! | `r14` | the start of RAM; in profiled code the arena of counts |
//! | `r15` | the translation table's active bank; in profiled code that of lines |
//! | `rbp rsi rdi r8-r12` | guest registers, see [`mapped`] |
//! | `rax rcx rdx xmm0 xmm1` | nothing for long |
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::mem::offset_of;

use crate::cpu::Cpu;
use crate::jit::LONGEST;
use crate::jit::profiled::TICKS;
use crate::jit::x86::{Mem, Operand, R8, R9, R10, R11, R12, RBP, RBX, RDI, RSI, Reg};
use crate::profile::Own;

/// Why generated code returned; the hart's `pc` is where to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Reason {
    /// The next block is not known to generated code.
    Lookup = 0,
    /// The instruction at `pc` is for the interpreter: not translated, or its
    /// memory access needs the slow way.
    Interpret = 1,
    /// The next block is reached by a jump that can be linked to it.
    Link = 2,
    /// Fewer instructions may retire than the next block has.
    Limit = 3,
    /// The next block is reached by a computed transfer that is not counted yet.
    Indirect = 4,
}

/// The part of a hart that only generated code uses.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Shared {
    /// A [`Reason`], as a number.
    pub(crate) reason: u64,
    /// Which jump wants to be linked.
    pub(crate) site: u64,
    /// The host's floating-point control and flags on return.
    pub(crate) mxcsr: u32,
    /// The same on entry.
    pub(crate) mxcsr_clear: u32,
    /// The same while a helper runs.
    pub(crate) mxcsr_kept: u32,
    /// In profiled code: what the register may not pass, and less than
    /// which it must be before so many instructions, rounded up to [`CEILING_STEP`].
    pub(crate) ceiling: u64,
    pub(crate) ceilings: [u64; CEILINGS],
    /// What helpers work on, the helpers, and the table of computed transfers.
    pub(crate) context: u64,
    pub(crate) data_helper: u64,
    pub(crate) fetch_helper: u64,
    pub(crate) indirect: u64,
    /// How far a line's mark is from its time of use.
    pub(crate) mark_distance: u64,
    /// Where lines of data are brought in.
    pub(crate) own: Own,
    /// Who brings something in: where its misses are counted, in bytes from the arena's
    /// start, and the low half of the number of its page.
    pub(crate) miss_place: u64,
    pub(crate) miss_page: u64,
}

/// Lengths of blocks are rounded up to a multiple of this, and there is a ceiling for
/// each.
const CEILING_STEP: usize = 4;
const CEILINGS: usize = LONGEST.div_ceil(CEILING_STEP);

impl Shared {
    /// Sets what the register that holds the time may not pass.
    pub(crate) fn set_ceiling(&mut self, ceiling: u64) {
        if self.ceiling != ceiling {
            self.ceiling = ceiling;
            for (number, place) in self.ceilings.iter_mut().enumerate() {
                let most = (CEILING_STEP * (number + 1)) as u64 * TICKS;
                *place = (ceiling.saturating_add(1)).saturating_sub(most);
            }
        }
    }
}

/// The ceiling for a block of so many instructions.
pub(crate) const fn ceiling(insns: usize) -> Mem {
    let number = insns.saturating_sub(1) / CEILING_STEP;
    field(offset_of!(Cpu, shared.ceilings) + size_of::<u64>() * number)
}

/// Guest registers that live in host registers while generated code runs: those
/// that compilers use most.
pub(crate) const MAPPED: [(u8, Reg); 8] =
    [(2, RBP), (8, R12), (10, RSI), (11, RDI), (12, R8), (13, R9), (14, R10), (15, R11)];

/// The host register of a guest register.
pub(crate) const fn mapped(register: u8) -> Option<Reg> {
    let mut n = 0;
    while n < MAPPED.len() {
        if MAPPED[n].0 == register {
            return Some(MAPPED[n].1);
        }
        n += 1;
    }
    None
}

/// What `rbx` has above the hart's address: so all integer registers are reached
/// by displacements of one byte.
pub(crate) const BIAS: i32 = offset_of!(Cpu, x) as i32 + 128;

const fn field(offset: usize) -> Mem {
    Mem::at(RBX, offset as i32 - BIAS)
}

/// An integer register's place in the hart.
pub(crate) const fn x_place(register: u8) -> Mem {
    field(offset_of!(Cpu, x) + 8 * register as usize)
}

/// A floating-point register's place in the hart.
pub(crate) const fn f_place(register: u8) -> Mem {
    field(offset_of!(Cpu, f) + 8 * register as usize)
}

/// The upper half of a floating-point register.
pub(crate) const fn f_high(register: u8) -> Mem {
    field(offset_of!(Cpu, f) + 8 * register as usize + 4)
}

/// Where a guest register is.
pub(crate) const fn operand(register: u8) -> Operand {
    match mapped(register) {
        Some(reg) => Operand::Reg(reg),
        None => Operand::Mem(x_place(register)),
    }
}

pub(crate) const PC: Mem = field(offset_of!(Cpu, pc));
pub(crate) const REASON: Mem = field(offset_of!(Cpu, shared.reason));
pub(crate) const SITE: Mem = field(offset_of!(Cpu, shared.site));
pub(crate) const MXCSR: Mem = field(offset_of!(Cpu, shared.mxcsr));
pub(crate) const MXCSR_CLEAR: Mem = field(offset_of!(Cpu, shared.mxcsr_clear));
pub(crate) const MXCSR_KEPT: Mem = field(offset_of!(Cpu, shared.mxcsr_kept));
pub(crate) const CONTEXT: Mem = field(offset_of!(Cpu, shared.context));
pub(crate) const DATA_HELPER: Mem = field(offset_of!(Cpu, shared.data_helper));
pub(crate) const FETCH_HELPER: Mem = field(offset_of!(Cpu, shared.fetch_helper));
pub(crate) const INDIRECT: Mem = field(offset_of!(Cpu, shared.indirect));
pub(crate) const MARK_DISTANCE: Mem = field(offset_of!(Cpu, shared.mark_distance));
pub(crate) const OWN_PAGES: Mem = field(offset_of!(Cpu, shared.own.pages));
pub(crate) const OWN_WORDS: Mem = field(offset_of!(Cpu, shared.own.words));
pub(crate) const OWN_DISTANCE: Mem = field(offset_of!(Cpu, shared.own.distance));
pub(crate) const OWN_MASK: Mem = field(offset_of!(Cpu, shared.own.mask));
pub(crate) const OWN_SPACE: Mem = field(offset_of!(Cpu, shared.own.space));
pub(crate) const TURN_WORDS: Mem = field(offset_of!(Cpu, shared.own.turn.words));
pub(crate) const TURN_CAPACITY: Mem = field(offset_of!(Cpu, shared.own.turn.capacity));
pub(crate) const TURN_SPACE: Mem = field(offset_of!(Cpu, shared.own.turn.space));
pub(crate) const TURN_TAG: Mem = field(offset_of!(Cpu, shared.own.turn.tag));
pub(crate) const TURN_DATA_PAGES: Mem = field(offset_of!(Cpu, shared.own.turn.data_pages));
pub(crate) const TURN_CODE_PAGES: Mem = field(offset_of!(Cpu, shared.own.turn.code_pages));
pub(crate) const TURN_SEEN: Mem = field(offset_of!(Cpu, shared.own.turn.seen));
pub(crate) const TURN_RECENT: Mem = field(offset_of!(Cpu, shared.own.turn.recent));
pub(crate) const MISS_PLACE: Mem = field(offset_of!(Cpu, shared.miss_place));
pub(crate) const MISS_PAGE: Mem = field(offset_of!(Cpu, shared.miss_page));
pub(crate) const FLOAT_STATE: Mem = field(offset_of!(Cpu, float_state));
pub(crate) const FRM: Mem = field(offset_of!(Cpu, frm));
pub(crate) const JUMPS: Mem = field(offset_of!(Cpu, tlb.jumps));
pub(crate) const STATE: Mem = field(offset_of!(Cpu, tlb.state));
pub(crate) const KEY: Mem = field(offset_of!(Cpu, tlb.key));
