//! One thread's tables, and what generated code is handed of them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::AtomicU64;

use ichnos_base::ThreadId;

use super::arcs::NOWHERE;
use super::line::Line;
use super::lines::Lines;
use super::models::{Models, ReferenceKind, Shape};
use crate::trap::Access;

/// Entries of the table of computed transfers. A power of two.
pub(crate) const INDIRECT_ENTRIES: usize = 1 << 13;

/// A computed transfer that generated code knows: where it leads, and how often
/// it was made since it was entered here.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Indirect {
    pub(crate) tag: u64,
    pub(crate) site: u64,
    pub(crate) count: u64,
    pub(crate) code: u64,
}

pub(super) const NO_INDIRECT: Indirect = Indirect { tag: 1, site: u64::MAX, count: 0, code: 0 };

/// The place of a computed transfer in the table.
pub(super) const fn indirect_slot(site: u32, target: u64) -> usize {
    (target >> 1 ^ site_mix(site) as u64) as usize & (INDIRECT_ENTRIES - 1)
}

/// What a site adds to that place.
pub(crate) const fn site_mix(site: u32) -> u32 {
    (site.wrapping_mul(0x9e37_79b1) >> 16) & (INDIRECT_ENTRIES as u32 - 1)
}

/// A memory access in generated code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) pc: u64,
    pub(crate) size: u64,
    pub(crate) access: Access,
    /// The next instruction if it follows in the same line of the same block.
    pub(crate) next: Option<u64>,
    /// The instruction's number, counted over all threads.
    pub(crate) clock: u64,
}

/// What generated code needs to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) arena: *mut u64,
    pub(crate) lines: *const Line,
    pub(crate) indirect: *mut Indirect,
    pub(crate) clock: u64,
    /// How far a line's mark is from its time of use.
    pub(crate) mark_distance: u64,
}

/// One thread's tables.
#[derive(Debug)]
pub(super) struct Tables {
    /// Where it goes on if nothing jumps, while another thread runs.
    pub(super) next: u64,
    pub(super) data: Lines,
    /// Lines of code, for the interpreter; pages of code, for all.
    pub(super) code: Lines,
    /// Words of generated code.
    pub(super) arena: Vec<u64>,
    pub(super) indirect: Vec<Indirect>,
}

/// Empty tables.
pub(super) fn new_tables<M: Models>(
    models: &mut M,
    shape: &Shape,
    thread: ThreadId,
) -> Box<Tables> {
    let mut lines = |bytes: u64, kind| {
        let stamps = models.stamps(thread, kind);
        let stamps = stamps.unwrap_or_else(|| [AtomicU64::new(0)].into());
        let mut lines = Lines::new((bytes.trailing_zeros(), shape.page.trailing_zeros()), stamps);
        lines.select(0);
        lines
    };
    let mut data = lines(shape.data_line, ReferenceKind::Load);
    let code = lines(shape.code_line, ReferenceKind::Fetch);
    data.mark_in(models.marks(thread));
    Box::new(Tables { next: NOWHERE, data, code, arena: Vec::new(), indirect: Vec::new() })
}

impl Indirect {
    /// The guest address it leads to: the tag's, without the key in its upper
    /// bits, which are copies of bit 47.
    pub(super) const fn target(&self) -> u64 {
        ((self.tag << 16) as i64 >> 16) as u64
    }
}
