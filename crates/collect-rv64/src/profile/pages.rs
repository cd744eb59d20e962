//! Pages that come into the TLB and leave it, as the tables follow them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::line::Geometry;
use super::models::{Detail, Models, Reference, ReferenceKind};
use super::profiler::Profiler;

/// The word of a frame whose page left the TLB, else zero. Addresses of the host
/// are positive: the sum of a frame's word and a line's is so only if the line
/// passes.
pub(crate) const HIDDEN: u64 = 1 << 63;

impl<M: Models> Profiler<M> {
    /// A page left the TLB: its lines pass only when it is back.
    #[inline(always)]
    pub(super) fn hide_page(&mut self, geometry: Geometry, va: u64) {
        self.now.data.hide_lines(geometry, va);
        self.now.code.hide_lines(self.now.code.geometry(), va);
        for &word in self.book.frames_of_page(va) {
            if let Some(word) = self.now.arena.get_mut(word as usize) {
                *word = HIDDEN;
                self.code_lost = true;
            }
        }
        if va >> self.page_shift == self.line >> self.page_shift {
            self.forget_line();
        }
    }

    /// A page is in the TLB.
    fn show_page(&mut self, va: u64, kind: ReferenceKind) {
        if kind != ReferenceKind::Fetch {
            return self.now.data.show_page(self.now.data.geometry(), va);
        }
        self.now.code.show_page(self.now.code.geometry(), va);
        for &word in self.book.frames_of_page(va) {
            if let Some(word) = self.now.arena.get_mut(word as usize) {
                *word = 0;
            }
        }
    }

    /// Asks for the page of a reference, unless it is known to be in the TLB.
    /// Whether it passes henceforth.
    #[inline]
    pub(super) fn page(&mut self, kind: ReferenceKind, addr: u64, size: u64) -> bool {
        self.page_at_once(kind, addr, size) || self.page_told(kind, addr, size)
    }

    /// Whether the page of a reference is known to be in the TLB.
    #[inline(always)]
    pub(super) fn page_at_once(&self, kind: ReferenceKind, addr: u64, size: u64) -> bool {
        let last = addr.wrapping_add(size - 1);
        let side = if kind == ReferenceKind::Fetch { &self.now.code } else { &self.now.data };
        (addr ^ last) >> self.page_shift == 0 && side.page_passes(addr)
    }

    /// Asks the TLB for the page of a reference. Whether it passes henceforth.
    #[inline(never)]
    pub(super) fn page_told(&mut self, kind: ReferenceKind, addr: u64, size: u64) -> bool {
        let last = addr.wrapping_add(size - 1) >> self.page_shift;
        let page = addr >> self.page_shift;
        self.extra_pages[kind as usize] += u64::from(page != last);
        let reference = self.reference_of(kind, addr, size, 0);
        let passes = self.translate(self.now.data.geometry(), &reference);
        let passes = passes && page == last && self.shape.detail == Detail::Lines;
        if passes {
            self.show_page(addr, kind);
        }
        passes
    }

    /// Asks the TLB; tables of data have this geometry.
    #[inline(always)]
    pub(super) fn translate(&mut self, geometry: Geometry, reference: &Reference) -> bool {
        let passes = self.models.translate(reference, &mut self.gone);
        match self.gone.page.take() {
            Some(page) => self.hide_page(geometry, page.0),
            None => self.forget_gone(),
        }
        passes
    }
}
