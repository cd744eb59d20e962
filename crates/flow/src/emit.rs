//! A piece's steps, once it is decided what is stored where.
//!
//! Walks the piece forward with what is known, and proves as it goes that every
//! address is: an address over an unknown register is a fault of the planner and
//! reported as such, never written down.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;

use ichnos_base::GuestVa;
use ichnos_trace::{Address, Ref, Slot, Step};

use crate::Error;
use crate::graph::falls_through;
use crate::insn::{Control, Effect, Insn, Live, Region, sum_registers};
use crate::known::Known;
use crate::options::Options;
use crate::place::Points;
use crate::plan::{Piece, SavePoint, Store, exit, insn_step};

/// A piece, and what is known where it can go.
pub(crate) struct Emitted {
    pub(crate) piece: Piece,
    pub(crate) out: Vec<(GuestVa, Known)>,
    /// The same behind its last instruction, wherever that went.
    pub(crate) after: Known,
}

/// Writes a piece's steps. What it leaves known alone is [`leave`]'s.
pub(crate) fn emit(
    region: &Region,
    options: &Options,
    live: &[Live],
    (insns, points): (&Range<usize>, &Points),
    known: Known,
    slot: &mut Slot,
) -> Result<Emitted, Error> {
    let mut walk = Walk { options, known, slot, steps: Vec::new() };
    let mut saves = Vec::new();
    let mut out = Vec::new();
    for i in insns.clone() {
        let insn = &region.insns[i];
        if let Some(registers) = points.get(&i) {
            let stores = walk.store(registers.iter());
            let live = live.get(i).copied().unwrap_or_default();
            if !stores.is_empty() || i == insns.start {
                saves.push(SavePoint { at: i, stores, live });
            }
        }
        walk.insn(insn)?;
        match insn.control {
            Control::Jump(target) | Control::Cond(target) => out.push((target, walk.known)),
            _ => {}
        }
    }
    if let Some(last) = region.insns.get(insns.end.wrapping_sub(1))
        && falls_through(last.control)
    {
        out.push((last.end(), walk.known));
    }
    let entry = region.insns.get(insns.start).map_or(GuestVa(0), |insn| insn.pc);
    let after = walk.known;
    let known = out.iter().map(|(to, known)| (*to, known.full)).collect();
    let piece = Piece { insns: insns.clone(), entry, saves, steps: walk.steps, out: known };
    Ok(Emitted { piece, out, after })
}

/// What a piece leaves known on its ways, without its steps: `each` hears of the instruction, whether it is taken, and that.
pub(crate) fn leave(
    region: &Region,
    options: &Options,
    (insns, points): (&Range<usize>, &Points),
    mut known: Known,
    mut each: impl FnMut(usize, bool, Known),
) {
    let mut points = points.iter().peekable();
    for i in insns.clone() {
        if let Some((_, registers)) = points.next_if(|(at, _)| **at == i) {
            registers.iter().for_each(|register| known.take(register));
        }
        let insn = &region.insns[i];
        for effect in &insn.effects {
            known.apply(effect);
        }
        known.end(insn, options);
        if matches!(insn.control, Control::Jump(_) | Control::Cond(_)) {
            each(i, true, known);
        }
    }
    let last = insns.end.wrapping_sub(1);
    if region.insns.get(last).is_some_and(|insn| falls_through(insn.control)) {
        each(last, false, known);
    }
}

struct Walk<'a> {
    options: &'a Options,
    known: Known,
    slot: &'a mut Slot,
    steps: Vec<Step>,
}

impl Walk<'_> {
    fn next_slot(&mut self) -> Slot {
        let slot = *self.slot;
        self.slot.0 = self.slot.0.wrapping_add(1);
        slot
    }

    fn store(&mut self, registers: impl Iterator<Item = ichnos_trace::Register>) -> Vec<Store> {
        let mut stores = Vec::new();
        for register in registers {
            if self.known.full.has(register) {
                continue;
            }
            let width = self.known.width(register, self.options);
            let slot = self.next_slot();
            self.known.take(register);
            self.steps.push(Step::Take { register, width, slot });
            stores.push(Store { register, width, slot });
        }
        stores
    }

    fn insn(&mut self, insn: &Insn) -> Result<(), Error> {
        self.steps.push(insn_step(insn.len, insn.kind));
        for effect in &insn.effects {
            match effect {
                Effect::Ref(reference) => {
                    let unknown = sum_registers(reference.address).without(self.known.full);
                    if let Some(register) = unknown.iter().next() {
                        return Err(Error::Internal { pc: insn.pc, register: register.0 });
                    }
                    self.steps.push(Step::Ref(Ref {
                        kind: reference.kind,
                        flags: reference.flags,
                        size: reference.size,
                        address: Address::Known(reference.address),
                    }));
                }
                Effect::Flex => {
                    let slot = self.next_slot();
                    self.steps.push(Step::Flex { slot });
                }
                _ => {}
            }
            self.steps.extend(self.known.apply(effect));
        }
        self.steps.extend(self.known.end(insn, self.options));
        self.steps.extend(exit(insn.control));
        Ok(())
    }
}
