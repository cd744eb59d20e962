//! Pages as the interpreter ran them: which instructions stood where, and how often
//! each of those jumped that say where they lead. A page of RAM under another
//! address is another view.
//!
//! Invariant: a view knows the bytes of an instruction before it counts a jump of it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use ichnos_isa_rv64::{Format, Insn};

use super::arcs::Arcs;
use crate::code::Stood;
use crate::exec::Counters;
use crate::jit::Mix;
use crate::ram::PAGE_SIZE;

const SLOTS: usize = PAGE_SIZE / 2;

#[derive(Debug)]
struct View {
    va: u64,
    /// The version of the page of which all instructions are known.
    version: u64,
    words: Box<[u32; SLOTS]>,
    ordinals: Box<[u16; SLOTS]>,
    /// How often instructions jumped, by their ordinals.
    counters: Box<[u64; SLOTS]>,
}

impl View {
    /// Moves a count to the arcs.
    fn harvest(&mut self, at: usize, arcs: &mut Arcs) {
        let count = &mut self.counters[usize::from(self.ordinals[at]) % SLOTS];
        if *count == 0 {
            return;
        }
        let pc = self.va.wrapping_add(2 * at as u64);
        let Some(insn) = Insn::decode(self.words[at]) else { return };
        let (from, to) = (pc.wrapping_add(insn.len.into()), pc.wrapping_add(insn.imm as u64));
        if matches!(insn.op.row().format, Format::B | Format::J) {
            arcs.add(from, to, std::mem::take(count));
        }
    }
}

/// All views.
#[derive(Debug, Default)]
pub(super) struct Views {
    all: Vec<View>,
    numbers: HashMap<(u64, usize), usize, BuildHasherDefault<Mix>>,
}

impl Views {
    fn view(&mut self, va: u64, page_index: usize) -> &mut View {
        let next = self.all.len();
        let number = *self.numbers.entry((va, page_index)).or_insert(next);
        if number == next {
            let (words, ordinals) = (Box::new([0; SLOTS]), Box::new([0; SLOTS]));
            let counters = Box::new([0; SLOTS]);
            self.all.push(View { va, version: 0, words, ordinals, counters });
        }
        &mut self.all[number]
    }

    /// An instruction stands at an address, which is in a page of RAM. What another
    /// one that stood there did is counted.
    pub(super) fn note(&mut self, (pc, page_index): (u64, usize), what: Stood, arcs: &mut Arcs) {
        let at = pc as usize % PAGE_SIZE / 2;
        let view = self.view(pc & !(PAGE_SIZE as u64 - 1), page_index);
        if view.words[at] != what.word {
            view.harvest(at, arcs);
            (view.words[at], view.ordinals[at]) = (what.word, what.ordinal);
        }
    }

    /// If all was known before a page changed, it is now.
    pub(super) fn follow(&mut self, (pc, page_index): (u64, usize), (old, new): (u64, u64)) {
        let view = self.view(pc & !(PAGE_SIZE as u64 - 1), page_index);
        if view.version == old {
            view.version = new;
        }
    }

    /// The counters of a page, if all of its instructions are known.
    pub(super) fn counters(
        &mut self,
        (va, page_index): (u64, usize),
        version: u64,
    ) -> Option<Counters> {
        let view = self.view(va, page_index);
        (view.version == version).then_some(view.counters.as_mut_ptr())
    }

    /// All instructions of a version of a page are known.
    pub(super) fn complete(&mut self, (va, page_index): (u64, usize), version: u64) -> Counters {
        let view = self.view(va, page_index);
        view.version = version;
        view.counters.as_mut_ptr()
    }

    /// Moves all counts to the arcs.
    pub(super) fn empty(&mut self, arcs: &mut Arcs) {
        for view in &mut self.all {
            for at in 0..SLOTS {
                view.harvest(at, arcs);
            }
        }
    }
}
