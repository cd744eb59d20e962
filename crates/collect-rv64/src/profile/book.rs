//! What generated code counts in: for each static arc and each line of code a
//! word of an arena, at the same offset in every thread's arena.
//!
//! The lines of a frame, which is a page of 4 KiB or a smaller one, have words in
//! succession, and behind them the frame has one that is added to them when they
//! are read: all are hidden and shown at once by it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::models::ReferenceKind;
use crate::jit::Mix;

/// Words of an arena: two for each block that the code memory can hold, and
/// more.
pub(crate) const ARENA: usize = 1 << 19;

/// Words that are not given out: lines that had to go for others that generated code
/// brought in, and those of them that were written.
pub(crate) const EVICTIONS: u32 = 0;
pub(crate) const WRITE_BACKS: u32 = 1;
const FIRST: u32 = 2;

/// Lowest bits of page numbers that are told apart. A power of two.
pub(crate) const PAGES_SEEN: usize = 1 << 12;
/// Pages that are found without a hash. A power of two.
pub(crate) const RECENT: usize = 1 << 10;

/// A page of one frame, and the word of that frame. Generated code finds it, too.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Recent {
    pub(crate) page: u64,
    pub(crate) word: u32,
}

/// No page.
const NO_PAGE: Recent = Recent { page: u64::MAX, word: 0 };
/// A frame is not larger: a power of two.
const FRAME_SHIFT: u32 = 12;

/// A static arc with its word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaticArc {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) word: u32,
}

/// An instruction that misses, with its word, which counts the lines that it missed. The
/// next one counts pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    pub(crate) pc: u64,
    pub(crate) kind: ReferenceKind,
    pub(crate) word: u32,
}

/// Who owns which word.
#[derive(Debug)]
pub(crate) struct Book {
    next: u32,
    /// Words of misses are given out from the end, apart from those that are used all
    /// the time: this is the last one.
    end: u32,
    pub(crate) arcs: Vec<StaticArc>,
    pub(crate) misses: Vec<Miss>,
    /// The first word of each frame.
    frames: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    /// The words of the frames of each page.
    pages: HashMap<u64, Vec<u32>, BuildHasherDefault<Mix>>,
    /// For the lowest bits of a page's number, whether such a page has frames:
    /// most pages that come and go hold data.
    seen: Box<[u64; PAGES_SEEN / 64]>,
    /// Pages of one frame that were translated last, and the word of that frame.
    recent: Box<[Recent; RECENT]>,
    frame_shift: u32,
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
            next: FIRST,
            end: ARENA as u32,
            arcs: Vec::new(),
            misses: Vec::new(),
            frames: HashMap::default(),
            pages: HashMap::default(),
            seen: Box::new([0; PAGES_SEEN / 64]),
            recent: Box::new([NO_PAGE; RECENT]),
            frame_shift: page_shift.min(FRAME_SHIFT),
            page_shift,
            indirect: Vec::new(),
            code_shift,
            data_shift,
            translated: Vec::new(),
        }
    }

    /// Whether one more block's words fit.
    pub(crate) fn has_room(&self) -> bool {
        self.next + 4096 < self.end
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

    /// The first of two words that count an instruction's misses.
    pub(crate) fn miss(&mut self, pc: u64, kind: ReferenceKind) -> u32 {
        self.end -= 2;
        self.misses.push(Miss { pc, kind, word: self.end });
        self.end
    }

    /// How many words a frame has.
    pub(crate) fn frame_words(&self) -> usize {
        1 << (self.frame_shift - self.code_shift)
    }

    fn word_in(&self, first: u32, pc: u64) -> u32 {
        first + ((pc >> self.code_shift) as u32 & (self.frame_words() as u32 - 1))
    }

    /// The word of the line of code at `pc`: where its time of use is written,
    /// or zero.
    pub(crate) fn line(&mut self, pc: u64) -> u32 {
        if let Some(word) = self.known_line(pc) {
            return word;
        }
        let first = self.next;
        let words = self.frame_words() as u32;
        self.next += words + 1;
        self.frames.insert(pc >> self.frame_shift, first);
        let page = pc >> self.page_shift;
        self.pages.entry(page).or_default().push(first + words);
        if self.page_shift == self.frame_shift {
            self.recent[page as usize & (RECENT - 1)] = Recent { page, word: first + words };
        }
        let bit = page as usize & (PAGES_SEEN - 1);
        self.seen[bit / 64] |= 1 << (bit % 64);
        self.word_in(first, pc)
    }

    /// The word of the frame of `pc`: what is added to the words of its lines.
    #[inline]
    pub(crate) fn frame(&self, pc: u64) -> Option<u32> {
        let &Recent { page, word } = self.recent_at(pc);
        // Only pages that are frames are among the recent ones.
        if page == pc >> self.page_shift {
            return Some(word);
        }
        let first = self.frames.get(&(pc >> self.frame_shift));
        first.map(|first| first + self.frame_words() as u32)
    }

    /// The word of a line, if generated code knows its frame.
    #[inline]
    pub(crate) fn known_line(&self, pc: u64) -> Option<u32> {
        self.frame(pc).map(|frame| self.word_in(frame - self.frame_words() as u32, pc))
    }

    #[inline(always)]
    fn recent_at(&self, pc: u64) -> &Recent {
        &self.recent[(pc >> self.page_shift) as usize & (RECENT - 1)]
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

    /// The words of the frames of a page that generated code knows.
    #[inline]
    pub(crate) fn frames_of_page(&self, pc: u64) -> &[u32] {
        let page = pc >> self.page_shift;
        let bit = page as usize & (PAGES_SEEN - 1);
        if self.seen[bit / 64] >> (bit % 64) & 1 == 0 {
            return &[];
        }
        let recent = self.recent_at(pc);
        if recent.page == page {
            return std::slice::from_ref(&recent.word);
        }
        self.pages.get(&page).map_or(&[], Vec::as_slice)
    }

    /// For the lowest bits of pages' numbers, whether such pages have frames, a bit each;
    /// and the pages of one frame that were translated last.
    pub(crate) fn tables(&self) -> (*const u64, *const Recent) {
        (self.seen.as_ptr(), self.recent.as_ptr())
    }

    /// Forgets all: nothing is translated any more.
    pub(crate) fn clear(&mut self) {
        (self.next, self.end) = (FIRST, ARENA as u32);
        self.arcs.clear();
        self.misses.clear();
        self.frames.clear();
        self.indirect.clear();
        self.pages.clear();
        self.seen.fill(0);
        self.recent.fill(NO_PAGE);
    }
}
