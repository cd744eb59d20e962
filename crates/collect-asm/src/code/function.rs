//! A noted function, decoded.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;
use ichnos_flow::Effect;
use ichnos_isa_x86::{Flow, Inst, Segment, Shape};
use ichnos_lift::lift;

use super::flex::Payload;
use super::image::Image;
use crate::note::{Note, PAD};

/// A function's code in a process.
pub(crate) struct Function {
    /// Its first byte.
    pub(crate) start: GuestVa,
    /// The byte after its last.
    pub(crate) end: GuestVa,
    /// The function of which it is the cold part, or itself.
    pub(crate) parent: GuestVa,
    /// Whether it keeps the calling convention.
    pub(crate) compiled: bool,
    /// Labels whose address is taken, and places that other functions jump to.
    pub(crate) entries: Vec<GuestVa>,
    /// Those of them where control comes with another frame.
    pub(crate) pads: Vec<GuestVa>,
    /// Its instructions.
    pub(crate) insts: Vec<Inst>,
}

impl Function {
    /// Decodes a function. Nothing if it cannot be traced: it holds what is no code, uses
    /// `gs`, which is ours, or a branch whose outcome could not be told.
    pub(crate) fn decode(image: &Image, note: &Note, bias: u64) -> Option<Self> {
        let code = image.bytes(note.start, u64::from(note.size))?;
        let start = GuestVa(note.start.wrapping_add(bias));
        let mut insts = Vec::new();
        let mut at = 0;
        while at < code.len() {
            let inst = Inst::decode(code.get(at..)?, start.offset(at as u64)).ok()?;
            if !can_trace(&inst) {
                return None;
            }
            at += usize::from(inst.length());
            insts.push(inst);
        }
        let place = |entry: &u32| start.offset(u64::from(entry & !PAD));
        let is_pad = |entry: &&u32| **entry & PAD != 0;
        let function = Self {
            start,
            end: start.offset(u64::from(note.size)),
            parent: GuestVa(note.parent.wrapping_add(bias)),
            compiled: note.compiled,
            entries: note.entries.iter().map(place).collect(),
            pads: note.entries.iter().filter(is_pad).map(place).collect(),
            insts,
        };
        (at == code.len() && function.entries.iter().all(|e| function.at(*e).is_some()))
            .then_some(function)
    }

    /// The number of the instruction at an address.
    pub(crate) fn at(&self, pc: GuestVa) -> Option<usize> {
        self.insts.binary_search_by_key(&pc, Inst::pc).ok()
    }

    /// Whether an address lies in it.
    pub(crate) fn holds(&self, pc: GuestVa) -> bool {
        self.start <= pc && pc < self.end
    }
}

fn can_trace(inst: &Inst) -> bool {
    let gs = inst.memory().iter().any(|m| m.address.segment == Segment::Gs);
    let to_next = matches!(inst.flow(), Flow::Cond(target) if target == inst.next_pc());
    let transacts = inst.raw().mnemonic() == iced_x86::Mnemonic::Xbegin;
    let plain = inst.memory().iter().all(|m| m.shape == Shape::Plain);
    let varies = !plain && lift(inst).effects.contains(&Effect::Flex);
    !gs && !to_next && !transacts && (!varies || Payload::of(inst).is_some())
}
