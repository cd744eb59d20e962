//! The instructions that ran, by address: what deduced counts are counts of.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use ichnos_isa_rv64::is_compressed;

use crate::jit::Mix;
use crate::ram::{PAGE_SHIFT, PAGE_SIZE};

const SLOTS: usize = PAGE_SIZE / 2;
/// Known to have run, but its bytes have not been read yet. No instruction has
/// this word: it would be compressed and illegal.
const FRESH: u32 = 1 << 16;

/// Words of instructions by halfword of each page.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pages: Vec<(u64, Box<[u32; SLOTS]>)>,
    numbers: HashMap<u64, usize, BuildHasherDefault<Mix>>,
    recent: (u64, usize),
    /// Instructions whose bytes must still be read.
    fresh: Vec<u64>,
}

impl Words {
    #[inline(always)]
    fn slot(&mut self, pc: u64) -> &mut u32 {
        let page = pc >> PAGE_SHIFT;
        if self.recent.0 != page || self.pages.is_empty() {
            self.find(page);
        }
        let slot = (pc as usize / 2) & (SLOTS - 1);
        &mut self.pages[self.recent.1].1[slot]
    }

    #[inline(never)]
    fn find(&mut self, page: u64) {
        let next = self.pages.len();
        let number = *self.numbers.entry(page).or_insert(next);
        if number == next {
            self.pages.push((page, Box::new([0; SLOTS])));
        }
        self.recent = (page, number);
    }

    /// An instruction runs.
    #[inline(always)]
    pub(crate) fn ran(&mut self, pc: u64) {
        let slot = self.slot(pc);
        if *slot == 0 {
            *slot = FRESH;
            self.fresh.push(pc);
        }
    }

    /// Instructions whose bytes must be read now, while they are there.
    pub(crate) fn take_fresh(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.fresh)
    }

    pub(crate) fn fresh_count(&self) -> usize {
        self.fresh.len()
    }

    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Whether another instruction is known where this one stands.
    pub(crate) fn conflicts(&mut self, pc: u64, word: u32) -> bool {
        let known = *self.slot(pc);
        if known != 0 && known != FRESH && known != word {
            return true;
        }
        let long = |word: u32| word != 0 && word != FRESH && !is_compressed(word);
        let behind = pc.wrapping_add(2);
        long(*self.slot(pc.wrapping_sub(2))) || long(word) && !matches!(*self.slot(behind), 0)
    }

    /// Takes note of an instruction's bytes.
    pub(crate) fn note(&mut self, pc: u64, word: u32) {
        *self.slot(pc) = word;
    }

    /// Forgets a page's instructions.
    pub(crate) fn forget_page(&mut self, pc: u64) {
        self.slot(pc);
        self.pages[self.recent.1].1.fill(0);
        self.fresh.retain(|at| at >> PAGE_SHIFT != pc >> PAGE_SHIFT);
    }

    /// All instructions from `start` up to `end`, in order.
    pub(crate) fn between(&self, start: u64, end: u64, mut tell: impl FnMut(u64, u32)) {
        let mut at = start;
        while at < end {
            let Some(&number) = self.numbers.get(&(at >> PAGE_SHIFT)) else { return };
            let word = self.pages[number].1[(at as usize / 2) & (SLOTS - 1)];
            if word == 0 {
                return;
            }
            let word = if word == FRESH { 0 } else { word };
            tell(at, word);
            at = at.wrapping_add(if is_compressed(word) { 2 } else { 4 });
        }
    }
}
