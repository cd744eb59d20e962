//! Which registers a ChampSim record names for an instruction.
//!
//! General registers have the numbers that Pin gives them (what ChampSim's own
//! tracer writes); the rest have numbers of ours above Pin's special ones, since
//! ChampSim only ever compares numbers. There is room for two destinations and
//! four sources: what is left out is the least useful for dependences.
//!
//! For control transfers the special registers are exactly those from which
//! ChampSim infers the right kind, whatever else the instruction uses.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::InsnKind;
use ichnos_isa_x86::{Flags, Gpr, Inst, Reg, RegSet};

use crate::champsim_record::{FLAGS, INSTRUCTION_POINTER, STACK_POINTER};

/// Stands for a target that comes from memory or from nothing that has a number:
/// without it an indirect transfer would be taken for a direct one.
const COMPUTED: u8 = 127;

/// The registers of one static instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Registers {
    pub(crate) dest: [u8; 4],
    pub(crate) src: [u8; 4],
}

impl Registers {
    /// The registers of an instruction whose code is not known.
    pub(crate) fn of_kind(kind: InsnKind) -> Self {
        let none = List::default();
        Self::assemble(kind, none, none)
    }

    /// The registers of a decoded instruction.
    pub(crate) fn of(inst: &Inst, kind: InsnKind) -> Self {
        let effects = inst.effects();
        let mut src = List::default();
        let mut dest = List::default();
        src.set(effects.inputs);
        dest.set(effects.written);
        let flags = effects.flags;
        src.flags = flags.read != Flags::NONE;
        dest.flags = flags.written.or(flags.cleared).or(flags.set) != Flags::NONE;
        Self::assemble(kind, dest, src)
    }

    fn assemble(kind: InsnKind, dest: List, src: List) -> Self {
        let other = src.regs.iter().copied().find(|&r| r != 0).unwrap_or(COMPUTED);
        let written = dest.regs.iter().copied().find(|&r| r != 0).unwrap_or(0);
        const SP: u8 = STACK_POINTER;
        const IP: u8 = INSTRUCTION_POINTER;
        let (dest, src) = match kind {
            InsnKind::JUMP => ([IP, 0, 0, 0], [IP, 0, 0, 0]),
            InsnKind::JUMP_INDIRECT => ([IP, 0, 0, 0], src.only_others(other)),
            // jcc reads flags; loop and jrcxz read, and loop writes, rcx.
            InsnKind::BRANCH if src.flags || src.regs[0] == 0 => {
                ([IP, written, 0, 0], [IP, FLAGS, src.regs[0], 0])
            }
            InsnKind::BRANCH => ([IP, written, 0, 0], [IP, other, 0, 0]),
            InsnKind::CALL => ([IP, SP, 0, 0], [IP, SP, 0, 0]),
            InsnKind::CALL_INDIRECT => ([IP, SP, 0, 0], [IP, SP, other, src.regs[1]]),
            InsnKind::RETURN => ([IP, SP, 0, 0], [SP, 0, 0, 0]),
            _ => (dest.destinations(), src.sources()),
        };
        Self { dest, src }
    }
}

/// Registers in Pin's numbers, the special ones apart.
#[derive(Clone, Copy, Default)]
struct List {
    regs: [u8; 4],
    stack: bool,
    flags: bool,
}

impl List {
    fn set(&mut self, set: RegSet) {
        let mut free = 0;
        for reg in set.iter() {
            let number = number(reg);
            if number == STACK_POINTER {
                self.stack = true;
            } else if !self.regs.contains(&number)
                && let Some(slot) = self.regs.get_mut(free)
            {
                *slot = number;
                free += 1;
            }
        }
    }

    /// The first register, flags, and what else has room: later branches depend
    /// on the flags.
    fn destinations(&self) -> [u8; 4] {
        let flags = if self.flags { FLAGS } else { 0 };
        let stack = if self.stack { STACK_POINTER } else { 0 };
        pack([self.regs[0], flags, stack, self.regs[1], self.regs[2], self.regs[3]])
    }

    fn sources(&self) -> [u8; 4] {
        let flags = if self.flags { FLAGS } else { 0 };
        let stack = if self.stack { STACK_POINTER } else { 0 };
        pack([self.regs[0], self.regs[1], flags, stack, self.regs[2], self.regs[3]])
    }

    fn only_others(&self, first: u8) -> [u8; 4] {
        pack([first, self.regs[1], self.regs[2], self.regs[3], 0, 0])
    }
}

/// The first four that are not 0, in order.
fn pack(from: [u8; 6]) -> [u8; 4] {
    let mut packed = [0; 4];
    for (slot, reg) in packed.iter_mut().zip(from.into_iter().filter(|&r| r != 0)) {
        *slot = reg;
    }
    packed
}

fn number(reg: Reg) -> u8 {
    if let Some(gpr) = reg.as_gpr() {
        return match gpr {
            Gpr::Rdi => 3,
            Gpr::Rsi => 4,
            Gpr::Rbp => 5,
            Gpr::Rsp => STACK_POINTER,
            Gpr::Rbx => 7,
            Gpr::Rdx => 8,
            Gpr::Rcx => 9,
            Gpr::Rax => 10,
            // r8 is 11, and so on.
            other => other.number() + 3,
        };
    }
    if let Some(vector) = reg.as_vector() {
        return 64 + vector;
    }
    match reg.as_opmask() {
        Some(mask) => 96 + mask,
        // The x87 stack, MXCSR, segment bases, tiles, system registers.
        None => 104 + (reg.id() % 16),
    }
}
