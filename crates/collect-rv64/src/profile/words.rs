//! The instructions that ran, by address: what deduced counts are counts of.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use ichnos_isa_rv64::is_compressed;

use crate::jit::Mix;
use crate::ram::{PAGE_SHIFT, PAGE_SIZE};

const SLOTS: usize = PAGE_SIZE / 2;
/// Known to have run, but its bytes cannot be read. No instruction has this word:
/// it would be compressed and illegal.
const UNREADABLE: u32 = 1 << 16;
/// Runs that are remembered. A power of two.
const RUNS: usize = 1 << 12;
/// No run: ends come after starts.
const NO_RUN: Run = (1, 0);

/// Instructions that ran in succession: the first one's address, and the end of
/// the last.
pub(crate) type Run = (u64, u64);

/// Words of instructions by halfword of each page.
#[derive(Debug)]
pub(crate) struct Words {
    pages: Vec<(u64, Box<[u32; SLOTS]>)>,
    numbers: HashMap<u64, usize, BuildHasherDefault<Mix>>,
    recent: (u64, usize),
    /// Runs with instructions whose bytes must still be read.
    fresh: Vec<Run>,
    /// Runs whose instructions are known, or among the fresh ones.
    known: Box<[Run; RUNS]>,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            numbers: HashMap::default(),
            recent: (0, 0),
            fresh: Vec::new(),
            known: Box::new([NO_RUN; RUNS]),
        }
    }
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

    /// Instructions ran in succession.
    #[inline(always)]
    pub(crate) fn ran(&mut self, run: Run) {
        let mixed = (run.0 ^ run.1.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (mixed >> 48) as usize & (RUNS - 1);
        if self.known[place] != run {
            self.ran_newly(run, place);
        }
    }

    #[inline(never)]
    fn ran_newly(&mut self, run: Run, place: usize) {
        self.known[place] = run;
        if run.0 < run.1 && !self.knows(run) {
            self.fresh.push(run);
        }
    }

    /// Whether the bytes of all instructions of a run are known.
    fn knows(&self, (start, end): Run) -> bool {
        let mut at = start;
        self.between(start, end, |pc, word| {
            at = pc.wrapping_add(if is_compressed(word) { 2 } else { 4 });
        });
        at >= end
    }

    /// A run whose bytes must be read now, while they are there.
    pub(crate) fn take_fresh(&mut self) -> Option<Run> {
        self.fresh.pop()
    }

    pub(crate) fn fresh_count(&self) -> usize {
        self.fresh.len()
    }

    /// Nobody can read an instruction that ran.
    pub(crate) fn unreadable(&mut self, pc: u64) {
        let slot = self.slot(pc);
        if *slot == 0 {
            *slot = UNREADABLE;
        }
    }

    /// Whether another instruction is known where this one stands.
    pub(crate) fn conflicts(&mut self, pc: u64, word: u32) -> bool {
        let known = *self.slot(pc);
        if known != 0 && known != UNREADABLE && known != word {
            return true;
        }
        let behind = pc.wrapping_add(2);
        is_long(*self.slot(pc.wrapping_sub(2))) || is_long(word) && *self.slot(behind) != 0
    }

    /// Takes note of an instruction's bytes.
    pub(crate) fn note(&mut self, pc: u64, word: u32) {
        *self.slot(pc) = word;
    }

    /// Forgets the instructions that a new one at `pc` takes the place of. The rest
    /// of the page still runs as it was translated.
    pub(crate) fn forget_at(&mut self, pc: u64, word: u32) {
        let before = self.slot(pc.wrapping_sub(2));
        if is_long(*before) {
            *before = 0;
        }
        if is_long(word) {
            *self.slot(pc.wrapping_add(2)) = 0;
        }
        self.known.fill(NO_RUN);
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
            let word = if word == UNREADABLE { 0 } else { word };
            tell(at, word);
            at = at.wrapping_add(if is_compressed(word) { 2 } else { 4 });
        }
    }
}

/// Whether a known instruction has four bytes.
const fn is_long(word: u32) -> bool {
    word != 0 && word != UNREADABLE && !is_compressed(word)
}
