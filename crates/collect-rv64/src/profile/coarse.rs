//! A profile of the interpreter's coarse handlers: nothing is done for an
//! instruction that neither jumps, nor begins a line, nor accesses memory.
//!
//! The number of an instruction is `epoch - left`: numbers grow as the rest of the
//! limit shrinks, and nothing is counted. Data is found as generated code finds it,
//! through the same table of lines, which gives the place of the bytes in RAM and
//! takes note of the time of use at once.
//!
//! A reference of data may throw out the line of code that runs. Coarse handlers
//! ask about lines only where they begin, so the next instruction of the line is
//! fetched right after such a reference, if it is sure to come.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::arcs::NOWHERE;
use super::models::{Models, ReferenceKind};
use super::profiler::{NO_LINE, Profiler};
use super::tables::Site;
use super::trips::Trip;
use crate::cpu::Cpu;
use crate::memory::{World, load_slowly, store_slowly};
use crate::observe::{Here, Observer as _};
use crate::trap::{Access, Stop};

impl<M: Models> Profiler<M> {
    /// At most `limit` instructions are interpreted.
    pub(super) fn begin_coarse<W: World>(&mut self, cpu: &Cpu, world: &mut W, limit: u64) {
        self.epoch = self.clock.wrapping_add(limit).wrapping_add(1);
        self.now.data.follow(&cpu.tlb, world.ram_mut().start() as u64);
        if cpu.pc != self.next {
            self.jump(cpu.pc);
            self.next = cpu.pc;
        }
    }

    /// Interpreting ends before `pc`.
    pub(super) fn end_coarse(&mut self, pc: u64, left: u64) {
        // An instruction that trapped has a number, too.
        self.clock = self.clock.max(self.epoch.wrapping_sub(left).wrapping_sub(1));
        self.next = pc;
    }

    #[inline(always)]
    fn number(&self, here: &Here) -> u64 {
        self.epoch.wrapping_sub(here.left)
    }

    /// The instruction is the one that references are made by.
    #[inline(always)]
    pub(super) fn locate_coarse(&mut self, here: &Here) {
        (self.pc, self.clock) = (here.pc, self.number(here));
    }

    /// The instruction may lie in another line than the last.
    #[inline(always)]
    pub(super) fn enter_coarse(&mut self, here: &Here) {
        let line = self.shape.code_line;
        let offset = here.pc.wrapping_sub(self.line_end.wrapping_sub(line));
        if offset > line - u64::from(here.len) {
            self.enter_line(here);
        }
    }

    #[inline(always)]
    fn enter_line(&mut self, here: &Here) {
        let (shift, time) = (self.book.code_shift, 4 * self.number(here));
        let line = here.pc >> shift;
        if line != self.line
            && self.again == NOWHERE
            && self.now.code.fetch(here.pc, here.len, time)
        {
            (self.line, self.line_end) = (line, (line + 1) << shift);
            return;
        }
        self.locate_coarse(here);
        self.fetch(here.pc, here.len.into());
    }

    /// A jump was taken.
    #[inline(always)]
    pub(super) fn jump_coarse(&mut self, from: u64, to: u64) {
        // An indirect jump to what follows it is no arc: control goes on.
        if from == to {
            return;
        }
        let run = std::mem::replace(&mut self.run, to);
        if !self.trips.count((run, from, to)) {
            self.new_trip((run, from, to));
        }
    }

    #[cold]
    #[inline(never)]
    fn new_trip(&mut self, trip: Trip) {
        let ((_, from, to), count) = self.trips.enter(trip);
        self.arcs.add(from, to, count);
        self.words.ran((trip.0, trip.1));
    }

    /// The time at which the instruction accesses data.
    #[inline(always)]
    pub(super) fn data_time(&self, here: &Here) -> u64 {
        4 * self.number(here) + 1
    }

    /// A load that the table does not know to pass.
    pub(super) fn read_told<const N: usize, W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        va: u64,
        here: &Here,
    ) -> Result<u64, Stop> {
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
            || here.left == 1
            || result.is_err()
            || next.is_multiple_of(self.shape.code_line)
        {
            return;
        }
        (self.pc, self.clock) = (next, self.number(here) + 1);
        self.fetch_line(next, 2);
        let end = self.line.wrapping_add(1) << self.book.code_shift;
        self.line_end = if self.line == NO_LINE { 0 } else { end };
    }
}
