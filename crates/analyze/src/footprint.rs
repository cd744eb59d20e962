//! How much memory was touched: distinct lines of 64 bytes and pages of 4096.
//! Memory: about 40 bytes per touched page.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use crate::hash::FastMap;

const LINE_SHIFT: u32 = 6;
const PAGE_SHIFT: u32 = 12;
const RECENT: usize = 512;

/// The memory that one process touched in one way.
#[derive(Debug)]
pub(crate) struct Footprint {
    /// For each page, which of its 64 lines were touched.
    pages: FastMap<u64, u64>,
    /// Lately touched pages as (page + 1, lines) that are in `pages` as well.
    recent: Box<[(u64, u64); RECENT]>,
}

impl Default for Footprint {
    fn default() -> Self {
        Self { pages: FastMap::default(), recent: Box::new([(0, 0); RECENT]) }
    }
}

impl Footprint {
    /// Touches `len` bytes; none is taken as one.
    #[inline]
    pub fn touch(&mut self, addr: GuestVa, len: u32) {
        let first = addr.0 >> LINE_SHIFT;
        let last = addr.0.saturating_add(u64::from(len.max(1) - 1)) >> LINE_SHIFT;
        if first != last || !self.is_recent(first) {
            self.touch_lines(first, last);
        }
    }

    #[inline]
    fn is_recent(&self, line: u64) -> bool {
        let page = line >> (PAGE_SHIFT - LINE_SHIFT);
        let (number, lines) = self.recent[page as usize % RECENT];
        number == page + 1 && lines >> (line % 64) & 1 != 0
    }

    #[inline(never)]
    fn touch_lines(&mut self, first: u64, last: u64) {
        for line in first..=last {
            if !self.is_recent(line) {
                self.add(line >> (PAGE_SHIFT - LINE_SHIFT), 1 << (line % 64));
            }
        }
    }

    fn add(&mut self, page: u64, more: u64) {
        let lines = self.pages.entry(page).or_default();
        *lines |= more;
        self.recent[page as usize % RECENT] = (page + 1, *lines);
    }

    /// Touches all that another has touched.
    pub fn join(&mut self, other: &Self) {
        for (page, lines) in &other.pages {
            self.add(*page, *lines);
        }
    }

    /// How many distinct lines and pages were touched.
    pub fn size(&self) -> Touched {
        let lines = self.pages.values().map(|lines| u64::from(lines.count_ones())).sum();
        Touched { lines, pages: self.pages.len() as u64 }
    }
}

/// Distinct pieces of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// Lines of 64 bytes.
    pub lines: u64,
    /// Pages of 4096 bytes.
    pub pages: u64,
}

impl Touched {
    /// Adds the memory of another process.
    pub const fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.pages += other.pages;
    }
}
