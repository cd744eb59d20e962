//! What generated code counts in: for each static place an arc or a line of code
//! a word of an arena, at the same offset in every thread's arena.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::jit::Mix;

/// Words of an arena: two for each block that the code memory can hold, and
/// more.
pub(crate) const ARENA: usize = 1 << 19;

/// A static arc with its word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaticArc {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) word: u32,
}

/// Who owns which word.
#[derive(Debug)]
pub(crate) struct Book {
    next: u32,
    pub(crate) arcs: Vec<StaticArc>,
    lines: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    /// The words of the lines of each page.
    pages: HashMap<u64, Vec<u32>, BuildHasherDefault<Mix>>,
    page_shift: u32,
    /// The ends of instructions with computed targets.
    indirect: Vec<u64>,
    /// Lines of code and data, as powers of two.
    pub(crate) code_shift: u32,
    pub(crate) data_shift: u32,
    /// Instructions that were translated: address and word.
    pub(crate) translated: Vec<(u64, u32)>,
}

impl Book {
    /// Lines and pages are given as powers of two.
    pub(crate) fn new((code_shift, data_shift): (u32, u32), page_shift: u32) -> Self {
        Self {
            next: 0,
            arcs: Vec::new(),
            lines: HashMap::default(),
            pages: HashMap::default(),
            page_shift,
            indirect: Vec::new(),
            code_shift,
            data_shift,
            translated: Vec::new(),
        }
    }

    /// Whether one more block's words fit.
    pub(crate) fn has_room(&self) -> bool {
        (self.next as usize) < ARENA - 1024
    }

    fn word(&mut self) -> u32 {
        let word = self.next;
        self.next += 1;
        word
    }

    /// The word that counts an arc.
    pub(crate) fn arc(&mut self, from: u64, to: u64) -> u32 {
        let word = self.word();
        self.arcs.push(StaticArc { from, to, word });
        word
    }

    /// The word of the line of code at `pc`: where its time of use is written,
    /// or zero.
    pub(crate) fn line(&mut self, pc: u64) -> u32 {
        let line = pc >> self.code_shift;
        if let Some(&word) = self.lines.get(&line) {
            return word;
        }
        let word = self.word();
        self.lines.insert(line, word);
        self.pages.entry(pc >> self.page_shift).or_default().push(word);
        word
    }

    /// The word of a line, if generated code knows it.
    pub(crate) fn known_line(&self, pc: u64) -> Option<u32> {
        self.lines.get(&(pc >> self.code_shift)).copied()
    }

    /// A number for an instruction with computed targets that ends at `from`.
    pub(crate) fn indirect(&mut self, from: u64) -> u32 {
        self.indirect.push(from);
        self.indirect.len() as u32 - 1
    }

    /// The end of that instruction.
    pub(crate) fn indirect_end(&self, site: u32) -> Option<u64> {
        self.indirect.get(site as usize).copied()
    }

    /// The words of the lines of a page that generated code knows.
    pub(crate) fn lines_of_page(&self, pc: u64) -> &[u32] {
        self.pages.get(&(pc >> self.page_shift)).map_or(&[], Vec::as_slice)
    }

    /// Forgets all: nothing is translated any more.
    pub(crate) fn clear(&mut self) {
        self.next = 0;
        self.arcs.clear();
        self.lines.clear();
        self.indirect.clear();
        self.pages.clear();
    }
}
