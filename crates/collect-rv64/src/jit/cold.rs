//! The parts of a block that hardly ever run: they are written apart from the rest,
//! so that what runs stands close together in the host's caches.
//!
//! A block is written into two areas at once. [`Block::apart`] makes the far one the
//! present one for a while; jumps lead from one to the other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::CacheAddr;

use crate::jit::block::{Block, Door};
use crate::jit::group::Group;
use crate::jit::held::Held;
use crate::jit::profiled::Helper;
use crate::jit::x86::{Code, Cond, Hole};

/// Where code of a block stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Area {
    /// With the code that runs.
    Near,
    /// Apart.
    Far,
}

/// A jump to be filled in, and where it stands.
pub(crate) type Open = (Area, Hole);

/// The area that is not the present one.
#[derive(Debug)]
pub(crate) struct Other {
    pub(crate) code: Code,
    pub(crate) base: CacheAddr,
}

/// Code that is still to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cold {
    /// A taken branch: `retired` instructions, then on to `target`. It stands near.
    Taken { hole: Hole, retired: usize, target: u64, from: u64, door: Door },
    /// An instruction for the interpreter: `retired` before it.
    Interpret { open: Open, retired: usize, pc: u64 },
    /// A helper for a profile, see [`Helper`]. What vector registers hold is lost.
    Help { open: Open, back: usize, helper: Helper, held: Held },
    /// Accesses of a group, one by one; then vector registers hold this.
    Singly { hole: Hole, back: usize, group: Group, held: Held },
}

impl Block<'_> {
    /// Writes code into the far area.
    pub(crate) fn apart(&mut self, write: impl FnOnce(&mut Self)) {
        self.switch_area(Area::Far);
        write(self);
        self.switch_area(Area::Near);
    }

    fn switch_area(&mut self, area: Area) {
        self.area = area;
        std::mem::swap(&mut self.code, &mut self.other.code);
        std::mem::swap(&mut self.base, &mut self.other.base);
    }

    /// The present place.
    pub(crate) fn here(&self) -> (Area, usize) {
        (self.area, self.code.here())
    }

    /// Where a place will stand.
    pub(crate) fn standing(&self, (area, offset): (Area, usize)) -> CacheAddr {
        let base = if area == self.area { self.base } else { self.other.base };
        base.offset(offset as u64)
    }

    /// Lets a jump go to a place.
    pub(crate) fn connect(&mut self, open: Open, to: (Area, usize)) {
        let (area, hole) = open;
        let behind = self.standing((area, hole.0 + 4));
        let displacement = self.standing(to).0 as i64 - behind.0 as i64;
        let code = if area == self.area { &mut self.code } else { &mut self.other.code };
        if let Some(bytes) = code.bytes.get_mut(hole.0..hole.0 + 4) {
            bytes.copy_from_slice(&(displacement as i32).to_le_bytes());
        }
    }

    /// The present instruction goes to the interpreter if the condition holds.
    pub(crate) fn interpret_if(&mut self, cond: Cond) {
        let open = (self.area, self.code.jump_if(cond));
        self.cold.push(Cold::Interpret { open, retired: self.index, pc: self.pc });
    }

    /// The present instruction branches to `target` if the condition holds.
    pub(crate) fn branch_if(&mut self, cond: Cond, target: u64) {
        if self.loop_if(cond, target) {
            return;
        }
        let hole = self.code.jump_if(cond);
        let (from, door) = (self.behind(), self.door(target));
        self.cold.push(Cold::Taken { hole, retired: self.index + 1, target, from, door });
    }

    /// A helper that the condition calls for.
    pub(crate) fn help_if(&mut self, cond: Cond, helper: Helper) -> usize {
        let open = (self.area, self.code.jump_if(cond));
        let held = if self.area == Area::Near { self.held } else { Held::default() };
        self.cold.push(Cold::Help { open, back: 0, helper, held });
        self.cold.len() - 1
    }

    /// Where the helper of that number goes on: here.
    pub(crate) fn back_here(&mut self, number: usize) {
        let here = self.code.here();
        if let Some(Cold::Help { back, .. }) = self.cold.get_mut(number) {
            *back = here;
        }
    }

    /// Writes all that is still to be written.
    pub(crate) fn write_cold(&mut self) {
        while !self.cold.is_empty() {
            for cold in std::mem::take(&mut self.cold) {
                match cold {
                    Cold::Taken { hole, retired, target, from, door } => {
                        self.code.fill_here(hole);
                        self.count_arc(from, target);
                        self.go(retired, target, door);
                    }
                    cold => self.apart(|block| block.write_far(cold)),
                }
            }
        }
    }

    fn write_far(&mut self, cold: Cold) {
        match cold {
            Cold::Taken { .. } => {}
            Cold::Interpret { open, retired, pc } => {
                self.connect(open, self.here());
                self.leave_to_interpreter(retired, pc);
            }
            Cold::Help { open, back, helper, held } => {
                self.connect(open, self.here());
                self.write_help(helper, held, (open, back));
            }
            Cold::Singly { hole, back, group, held } => {
                self.connect((Area::Near, hole), self.here());
                self.write_singly(&group);
                self.reload(held);
                let hole = self.code.jump();
                self.connect((Area::Far, hole), (Area::Near, back));
            }
        }
    }
}
