//! A profile of the interpreter's coarse handlers: nothing is done for an
//! instruction that neither jumps, nor begins a line, nor accesses memory.
//!
//! The time of an instruction is `epoch - left`: time passes as the rest of the
//! limit shrinks, and nothing is counted. Data is found as generated code finds it,
//! through the same table of lines, which gives the place of the bytes in RAM and
//! takes note of the time of use at once.
//!
//! A reference of data may throw out the line of code that runs. Coarse handlers
//! ask about lines only where they begin, so the next instruction of the line is
//! fetched right after such a reference, if it is sure to come.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::arcs::NOWHERE;
use super::host::FOUND_SHIFT;
use super::models::{Models, ReferenceKind};
use super::profiler::{NO_LINE, Profiler};
use super::tables::Site;
use crate::code::Stood;
use crate::cpu::Cpu;
use crate::exec::{Counters, Until};
use crate::memory::{World, load_slowly, store_slowly};
use crate::observe::{Here, Observer as _};
use crate::trap::{Access, Stop};

impl<M: Models> Profiler<M> {
    /// At most `limit` instructions are interpreted.
    pub(super) fn begin_coarse<W: World>(
        &mut self,
        cpu: &Cpu,
        world: &mut W,
        (limit, until): (u64, Until),
    ) {
        self.epoch = self.clock.wrapping_add(limit).wrapping_add(1).wrapping_mul(4);
        self.now.data.follow(&cpu.tlb, world.ram_mut().start() as u64);
        self.code = self.now.code.fetched();
        self.counting = until == Until::PageEnd;
        if cpu.pc != self.next {
            self.jump(cpu.pc);
            self.next = cpu.pc;
        }
    }

    /// Interpreting ends before `pc`.
    pub(super) fn end_coarse(&mut self, pc: u64, left: u64) {
        // An instruction that trapped has a number, too.
        let number = self.epoch.wrapping_sub(left) / 4;
        self.clock = self.clock.max(number.wrapping_sub(1));
        self.next = pc;
        if self.counting {
            self.run = pc;
        }
    }

    #[inline(always)]
    fn time(&self, here: &Here) -> u64 {
        self.epoch.wrapping_sub(here.left)
    }

    #[inline(always)]
    fn number(&self, here: &Here) -> u64 {
        self.time(here) / 4
    }

    /// The instruction is the one that references are made by.
    #[inline(always)]
    pub(super) fn locate_coarse(&mut self, here: &Here) {
        (self.pc, self.clock) = (here.pc, self.number(here));
    }

    /// An instruction of two or four bytes at an address, with so much left, may lie in
    /// another line than the last: whether that one is of the usual size, has four
    /// bytes there, and passes. If it is the same, taking note of its time again changes
    /// nothing.
    #[inline(always)]
    pub(super) fn arrive_coarse(&mut self, pc: u64, left: u64) -> bool {
        let passes = self.code.fetch(pc, self.epoch.wrapping_sub(left));
        if passes {
            let line = pc & !0 << FOUND_SHIFT;
            (self.line, self.line_end) = (line, line + (1 << FOUND_SHIFT));
        }
        passes
    }

    /// The instruction may lie in another line than the last, or in two.
    #[inline(always)]
    pub(super) fn enter_coarse(&mut self, here: &Here) {
        let line = self.shape.code_line;
        let offset = here.pc.wrapping_sub(self.line_end.wrapping_sub(line));
        if offset <= line - u64::from(here.len) {
            return;
        }
        if self.touch_lines(here) {
            self.again = NOWHERE;
            return;
        }
        self.locate_coarse(here);
        self.fetch(here.pc, here.len.into());
    }

    /// Whether the lines of an instruction pass; then takes note of their time.
    #[inline(always)]
    fn touch_lines(&mut self, here: &Here) -> bool {
        let (first, now) = (here.pc & self.code_mask, self.time(here));
        let last = here.next().wrapping_sub(1) & self.code_mask;
        let passes = (first == self.line || self.now.code.load(first, 1, now))
            && (last == first || self.now.code.load(last, 1, now));
        if passes {
            (self.line, self.line_end) = (last, last.wrapping_add(self.shape.code_line));
        }
        passes
    }

    /// A jump was taken.
    pub(super) fn jump_coarse(&mut self, from: u64, to: u64) {
        // An indirect jump to what follows it is no arc: control goes on.
        if from == to {
            return;
        }
        self.arcs.count(from, to);
        if !self.counting {
            self.words.ran((self.run, from));
            self.run = to;
        }
    }

    /// An instruction was decoded.
    pub(super) fn decoded_coarse(
        &mut self,
        (pc, page_index): (u64, usize),
        what: Stood,
        versions: (u64, u64),
    ) {
        self.note(pc, what.word);
        self.views.note((pc, page_index), what, &mut self.arcs);
        self.views.follow((pc, page_index), versions);
    }

    /// The counters of a page.
    pub(super) fn counters_coarse(
        &mut self,
        (va, page_index): (u64, usize),
        version: u64,
        words: impl Iterator<Item = (u64, Stood)>,
    ) -> Counters {
        if let Some(counters) = self.views.counters((va, page_index), version) {
            return counters;
        }
        for (offset, what) in words {
            let pc = va.wrapping_add(offset);
            self.note(pc, what.word);
            self.views.note((pc, page_index), what, &mut self.arcs);
        }
        self.views.complete((va, page_index), version)
    }

    /// A load that the table does not know to pass.
    pub(super) fn read_told<const N: usize, W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        va: u64,
        here: &Here,
    ) -> Result<u64, Stop> {
        let now = self.time(here).wrapping_add(1);
        if let Some(host) = self.now.data.unusual(va, (N as u64, false), now) {
            return Ok(world.ram().read_host::<N>(host));
        }
        let site = self.site(here, Access::Load, N);
        let value = match self.data_generated(cpu, world, &site, va) {
            Some(host) => world.ram().read_host::<N>(host),
            None => {
                let value = load_slowly(cpu, world, va, N)?;
                self.locate_coarse(here);
                self.data_told(ReferenceKind::Load, va, N as u64);
                value
            }
        };
        self.follow_coarse(cpu, world, here, &Ok(()));
        Ok(value)
    }

    /// A store that the table does not know to pass.
    pub(super) fn write_told<const N: usize, W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        (va, value): (u64, u64),
        here: &Here,
    ) -> Result<(), Stop> {
        let now = self.time(here).wrapping_add(1);
        if let Some(host) = self.now.data.unusual(va, (N as u64, true), now) {
            world.ram_mut().write_host::<N>(host, value);
            return Ok(());
        }
        let site = self.site(here, Access::Store, N);
        let result = match self.data_generated(cpu, world, &site, va) {
            Some(host) => {
                world.ram_mut().write_host::<N>(host, value);
                Ok(())
            }
            None => {
                let result = store_slowly(cpu, world, va, N, value);
                if matches!(result, Err(Stop::Trap(_))) {
                    return result;
                }
                self.locate_coarse(here);
                self.data_told(ReferenceKind::Store, va, N as u64);
                result
            }
        };
        self.follow_coarse(cpu, world, here, &result);
        result
    }

    fn site(&self, here: &Here, access: Access, size: usize) -> Site {
        Site { pc: here.pc, size: size as u64, access, next: None, clock: self.number(here) }
    }

    /// An access has been made that may have changed translations, moved RAM, or
    /// thrown out the line that runs.
    pub(super) fn follow_coarse<W: World>(
        &mut self,
        cpu: &Cpu,
        world: &mut W,
        here: &Here,
        result: &Result<(), Stop>,
    ) {
        self.now.data.follow_changes(&cpu.tlb, world.ram_mut().start() as u64);
        let next = here.next();
        if self.line != NO_LINE
            || here.left == 4
            || result.is_err()
            || next.is_multiple_of(self.shape.code_line)
        {
            return;
        }
        (self.pc, self.clock) = (next, self.number(here) + 1);
        self.fetch_line(next, 2);
        self.line_end = self.end_of_line();
    }
}
