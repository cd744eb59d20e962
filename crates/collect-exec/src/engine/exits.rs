//! The ways out of a fragment that is being made: direct ones, which can be linked, and those that leave the
//! cache.
//!
//! Outside of a fragment the address of the next word of trace is where `home` says that all fragments
//! expect it. A way out moves it there; if it is conditional, behind the fragment's code.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::expect::Miss;
use super::fragment::{ExitKind, Spills};
use super::probe;
use super::translate::Draft;

/// A displacement that leads out of the fragment.
#[derive(Clone, Copy, Debug)]
pub struct OpenExit {
    /// Its offset; `None` if the exit's own code stands at `inline`.
    pub patch: Option<usize>,
    /// What it means.
    pub kind: ExitKind,
    /// Where it leads.
    pub target: u64,
    /// Offset of a place for the stub in the code itself.
    pub inline: Option<usize>,
    /// For [`ExitKind::Flexible`], the identifier of the block.
    pub block: u32,
    /// For a way back to the fragment's own beginning that skips its entry: the offset to which it leads
    /// meanwhile, and the one to which it leads when it is taken out.
    pub own: Option<(usize, usize)>,
    /// The registers, as bits, that are known behind it.
    pub known: u16,
}

/// A way out whose end is still to be written.
#[derive(Clone, Copy, Debug)]
pub struct Cold {
    /// The displacement that leads there.
    pub patch: usize,
    /// Where it leads; the instruction that missed, if it did.
    pub target: u64,
    /// The part of a path that is left by it, and the calls inside from which nobody has returned.
    pub part: u8,
    pub calls: u8,
    /// An indirect transfer that did not go where a path expects.
    pub miss: Option<Miss>,
}

impl Draft {
    /// A displacement leads to an address of the program.
    pub fn exit(&mut self, patch: usize, target: u64) {
        self.exit_knowing(patch, target, 0);
    }

    /// The same where registers are known.
    fn exit_knowing(&mut self, patch: usize, target: u64, known: u16) {
        let kind = ExitKind::Direct;
        let (patch, inline, block, own) = (Some(patch), None, 0, None);
        self.exits.push(OpenExit { patch, kind, target, inline, block, own, known });
    }

    /// The registers that are known where a path is left behind one of its parts.
    fn known_behind(&self, part: u8, target: u64) -> u16 {
        let ways = self.known_out.get(usize::from(part));
        let way = ways.and_then(|ways| ways.iter().find(|(to, _)| *to == target));
        way.map_or(0, |(_, known)| *known)
    }

    /// Whether what is entered with registers that are known can be entered again from a place behind which these are.
    const fn turns(&self, target: u64, known: u16) -> bool {
        target == self.pc && self.inner.is_some() && self.known & !known == 0
    }

    /// A way out on a condition.
    pub fn exit_if(&mut self, patch: usize, target: u64) {
        if self.now == self.shared && self.is_last() {
            self.exit_knowing(patch, target, self.known_behind(self.part, target));
        } else {
            self.cold.push(self.cold(patch, target));
        }
    }

    /// A way out from the present place whose end is written later.
    pub fn cold(&self, patch: usize, target: u64) -> Cold {
        Cold { patch, target, part: self.part, calls: self.calls, miss: None }
    }

    /// Whether nothing is recorded that comes behind the present place.
    pub fn is_last(&self) -> bool {
        usize::from(self.part) + 1 >= self.parts.len()
    }

    /// Goes on at an address of the program.
    pub fn jump_out(&mut self, target: u64) {
        self.rest = 0;
        self.site(target, Spills::NONE);
        let known = self.known_behind(self.part, target);
        if self.now != self.shared && self.turns(target, known) {
            let patch = self.emit.jump();
            self.cold.push(self.cold(patch, target));
            return;
        }
        self.unsettle();
        self.site(target, Spills::NONE);
        let patch = self.emit.jump();
        self.exit_knowing(patch, target, known);
    }

    /// The ends of ways out that must move the trace's address back, or say that not all of a path was run.
    pub fn cold_exits(&mut self) {
        for cold in std::mem::take(&mut self.cold) {
            let Cold { patch, target, part, calls, miss } = cold;
            (self.now, self.lost, self.rest, self.part) = (self.home, 0, 0, part);
            self.calls = calls;
            let is_last = self.is_last();
            let known = self.known_behind(part, target);
            if let Some(miss) = miss {
                self.emit.land(patch);
                self.missed(target, miss);
                continue;
            }
            self.site(target, Spills::NONE);
            let start = self.emit.offset();
            self.unsettle();
            self.take_back(target, Spills::NONE);
            self.site(target, Spills::NONE);
            self.make_up_calls();
            let jump = self.emit.jump();
            self.exit_knowing(jump, target, known);
            match self.inner.filter(|_| self.turns(target, known) && is_last) {
                Some(inner) => {
                    let (kind, own) = (ExitKind::Direct, Some((inner, start)));
                    let (patch, inline, block) = (Some(patch), None, 0);
                    self.exits.push(OpenExit { patch, kind, target, inline, block, own, known });
                }
                None => self.emit.fix32(patch, (start - (patch + 4)) as u32),
            }
        }
    }

    /// Says of a path that it was left behind the present part, which makes that the last. The trace's address is where all fragments
    /// expect it.
    pub fn take_back(&mut self, pc: u64, spills: Spills) {
        let part = self.parts.get(usize::from(self.part)).copied().filter(|_| !self.is_last());
        let (Some(part), Some(pointer)) = (part, self.now.register()) else { return };
        self.probe_site(pc, spills, 0);
        probe::change_tag(&mut self.emit, pointer, part);
        self.part = (self.parts.len() - 1) as u8;
    }

    /// Leaves the cache.
    pub fn leave(&mut self, kind: ExitKind, target: u64) {
        self.leave_for(kind, target, 0);
    }

    /// Leaves the cache with a block's identifier.
    pub fn leave_for(&mut self, kind: ExitKind, target: u64, block: u32) {
        self.unsettle();
        let inline = Some(self.emit.offset());
        let (patch, own, known) = (None, None, 0);
        self.exits.push(OpenExit { patch, kind, target, inline, block, own, known });
        self.emit.leave(0);
    }
}
