//! What a program may need of its registers and flags before each instruction of a superblock: the rest is free for use.
//!
//! Registers are followed to the superblock's end, flags a little further.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_isa_x86::{Effects, FlagEffects, Flags, Flow, Inst, Reg, RegSet};

use super::superblock;
use super::translate::Surroundings;

/// How far behind a fragment is looked whether flags are needed there.
const FORESIGHT: usize = 8;

/// What may be needed of the program's state.
#[derive(Clone, Copy)]
pub struct Live {
    /// General registers, as bits.
    pub registers: u16,
    /// Arithmetic flags.
    pub flags: Flags,
}

impl Live {
    const ALL: Self = Self { registers: u16::MAX, flags: Flags::ARITHMETIC };

    fn before(self, effects: &Effects) -> Self {
        let flags = self.flags.without(effects.flags.replaced()).or(effects.flags.read);
        let registers = self.registers & !bits(effects.replaced) | bits(effects.reads());
        Self { registers, flags: flags.and(Flags::ARITHMETIC) }
    }
}

fn bits(set: RegSet) -> u16 {
    set.iter().filter_map(Reg::as_gpr).fold(0, |bits, reg| bits | 1 << reg.number())
}

/// What may be needed before each instruction of a superblock.
pub fn liveness(around: &mut dyn Surroundings, insts: &[Inst], effects: &[Effects]) -> Vec<Live> {
    let mut live = vec![Live::ALL; insts.len()];
    let mut after = Live::ALL;
    for (i, (inst, effects)) in insts.iter().zip(effects).enumerate().rev() {
        let last = i + 1 == insts.len();
        let next = || inst.next_pc().0;
        let flags = match inst.flow() {
            Flow::Next if last => flags_at(around, next()),
            Flow::Next => after.flags,
            Flow::Cond(target) => {
                let not_taken = if last { flags_at(around, next()) } else { after.flags };
                not_taken.or(flags_at(around, target.0))
            }
            Flow::Jump(target) | Flow::Call(target) => flags_at(around, target.0),
            _ => Flags::ARITHMETIC,
        };
        let goes_on = inst.flow() == Flow::Next && !last;
        let registers = if goes_on { after.registers } else { u16::MAX };
        after = Live { registers, flags }.before(effects);
        live[i] = after;
    }
    live
}

/// The flags that code may need, as far as a short look tells.
fn flags_at(around: &mut dyn Surroundings, pc: u64) -> Flags {
    let (mut unknown, mut needed, mut at) = (Flags::ARITHMETIC, Flags::NONE, pc);
    for _ in 0..FORESIGHT {
        let Some(insn) = superblock::peek(around, at) else { break };
        let flags = FlagEffects::of(&insn);
        needed = needed.or(flags.read.and(unknown));
        unknown = unknown.without(flags.replaced());
        match Flow::of(&insn) {
            _ if unknown.is_empty() => return needed,
            Flow::Next => at = insn.next_ip(),
            Flow::Jump(target) => at = target.0,
            _ => break,
        }
    }
    needed.or(unknown)
}
