//! What the interpreter and generated code tell a [`Profiler`].
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind};

use super::book::{ARENA, Book};
use super::host::{Data, Rest};
use super::models::{Models, Pass, ReferenceKind, Transfer};
use super::profiler::Profiler;
use super::tables::{INDIRECT_ENTRIES, Indirect, NO_INDIRECT, Site, Start, indirect_slot};
use crate::code::Stood;
use crate::cpu::Cpu;
use crate::exec::{Beyond, Counters, Until};
use crate::memory::World;
use crate::observe::{Here, How, Observer};
use crate::pages::prefer_large;
use crate::trap::Stop;

/// So many runs may wait for their bytes to be read.
const FRESH: usize = 8;

impl<M: Models> Observer for Profiler<M> {
    type Data = Data;
    type Rest = Rest;

    const GENERATED: bool = true;

    #[inline(always)]
    fn insn(&mut self, pc: GuestVa, len: u8, kind: InsnKind) {
        self.clock += 1;
        (self.pc, self.len, self.kind) = (pc.0, len, kind);
        if pc.0 != self.next {
            self.jump(pc.0);
        }
        let end = pc.0.wrapping_add(len.into());
        self.next = end;
        if end > self.line_end {
            self.fetch(pc.0, len.into());
        }
    }

    #[inline(always)]
    fn load(&mut self, addr: GuestVa, size: u32, flags: AccessFlags, _: u64) {
        self.irregular(flags, 0);
        self.data(ReferenceKind::Load, addr.0, size.into());
    }

    #[inline(always)]
    fn store(&mut self, addr: GuestVa, size: u32, flags: AccessFlags, _: u64) {
        self.irregular(flags, 1);
        self.data(ReferenceKind::Store, addr.0, size.into());
    }

    fn zero(&mut self, addr: GuestVa, size: u32) {
        self.irregular(AccessFlags::ATOMIC, 1);
        self.data(ReferenceKind::Store, addr.0, size.into());
    }

    fn flush(&mut self, _: GuestVa, _: u32) {}

    #[inline(always)]
    fn branch(&mut self, taken: bool, target: GuestVa) {
        if self.shape.transfers {
            let (pc, len, kind) = (GuestVa(self.pc), self.len, self.kind);
            self.models.transfer(self.thread, &Transfer { pc, len, kind, taken, target });
        }
    }

    fn abandon(&mut self) {
        (self.next, self.again, self.line_end) = (self.pc, self.pc, 0);
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.words.fresh_count() >= FRESH
    }

    const COARSE: bool = true;

    fn is_coarse(&self) -> bool {
        self.allows_generated()
    }

    fn line_shift(&self) -> Option<u32> {
        Some(self.book.code_shift)
    }

    fn begin<W: World>(&mut self, cpu: &Cpu, world: &mut W, goal: (u64, Until)) {
        self.begin_coarse(cpu, world, goal);
    }

    #[inline(always)]
    fn data(&self) -> Data {
        self.now.data.data()
    }

    fn rest(&self) -> Rest {
        // Data is accessed after the instruction was fetched.
        Rest { epoch: self.epoch.wrapping_add(1) }
    }

    const COUNTS: bool = true;

    fn decoded(&mut self, place: (u64, usize), what: Stood, versions: (u64, u64)) {
        if self.is_coarse() {
            self.decoded_coarse(place, what, versions);
        }
    }

    fn decoded_alone(&mut self, pc: u64, word: u32) {
        if self.is_coarse() {
            self.note(pc, word);
        }
    }

    fn counters(
        &mut self,
        page: (u64, usize),
        version: u64,
        words: impl Iterator<Item = (u64, Stood)>,
    ) -> Counters {
        self.counters_coarse(page, version, words)
    }

    fn count(&mut self, from: u64, to: u64) {
        // A jump to what follows it is no arc: control goes on.
        if from != to {
            self.arcs.count(from, to);
        }
    }

    #[inline(always)]
    fn count_at_once(&mut self, from: u64, to: u64) -> Option<&mut Beyond> {
        self.arcs.count_at_once(from, to)
    }

    #[inline(always)]
    fn arrive(&mut self, pc: u64, left: u64) -> bool {
        self.arrive_coarse(pc, left)
    }

    #[inline(always)]
    fn enter(&mut self, here: &Here) {
        self.enter_coarse(here);
    }

    #[inline(always)]
    fn jumped(&mut self, from: u64, to: u64) {
        self.jump_coarse(from, to);
    }

    #[inline(always)]
    fn read<const N: usize, W: World>(
        &mut self,
        _: &mut Cpu,
        _: &mut W,
        va: u64,
        (here, how): (&Here, How<'_, Self>),
    ) -> Option<u64> {
        how.data.read::<N>(va, how.rest, here.left)
    }

    fn read_slowly<const N: usize, W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        va: u64,
        here: &Here,
    ) -> Result<u64, Stop> {
        self.read_told::<N, W>(cpu, world, va, here)
    }

    #[inline(always)]
    fn write<const N: usize, W: World>(
        &mut self,
        _: &mut Cpu,
        _: &mut W,
        what: (u64, u64),
        (here, how): (&Here, How<'_, Self>),
    ) -> Option<()> {
        how.data.write::<N>(what, how.rest, here.left)
    }

    fn write_slowly<const N: usize, W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        what: (u64, u64),
        here: &Here,
    ) -> Result<(), Stop> {
        self.write_told::<N, W>(cpu, world, what, here)
    }

    fn locate(&mut self, here: &Here) {
        self.locate_coarse(here);
    }

    fn accessed<W: World>(
        &mut self,
        cpu: &Cpu,
        world: &mut W,
        here: &Here,
        result: &Result<(), Stop>,
    ) {
        self.follow_coarse(cpu, world, here, result);
    }

    fn end(&mut self, pc: u64, left: u64) {
        self.end_coarse(pc, left);
    }

    fn book(&mut self) -> Option<&mut Book> {
        Some(&mut self.book)
    }

    fn translated(&mut self) {
        for (pc, word) in std::mem::take(&mut self.book.translated) {
            self.note(pc, word);
        }
    }

    fn forget_generated(&mut self) {
        self.harvest();
        self.book.clear();
        let others = self.others.iter_mut().flatten();
        for tables in others.chain([&mut self.now]) {
            tables.arena.fill(0);
            tables.indirect.fill(NO_INDIRECT);
        }
    }

    fn start(&mut self, cpu: &Cpu, ram: *mut u8) -> Option<Start> {
        if cpu.pc == self.next {
            self.close_run();
        } else {
            self.jump(cpu.pc);
            self.next = cpu.pc;
        }
        self.generated = true;
        self.now.data.follow(&cpu.tlb, ram as u64);
        if self.now.arena.is_empty() {
            self.now.arena = vec![0; ARENA];
            prefer_large(&mut self.now.arena);
            self.now.indirect = vec![NO_INDIRECT; INDIRECT_ENTRIES];
        }
        let own = self.now.own(&mut self.models, &self.book, (self.thread, self.events));
        Some(Start {
            own,
            arena: self.now.arena.as_mut_ptr(),
            lines: self.now.data.bank(),
            indirect: self.now.indirect.as_mut_ptr(),
            clock: self.clock,
            mark_distance: self.now.data.mark_distance(),
        })
    }

    fn stopped(&mut self, pc: u64, clock: u64, indirect: Option<u32>) {
        self.clock = clock;
        self.forget_line();
        let end = indirect.and_then(|site| self.book.indirect_end(site));
        self.next = end.unwrap_or(pc);
        self.run = self.next;
    }

    fn enter_indirect(&mut self, site: u32, pc: u64, (key, code): (u64, u64)) {
        let Some(entry) = self.now.indirect.get_mut(indirect_slot(site, pc)) else { return };
        let new = Indirect { tag: pc ^ key, site: site.into(), count: 0, code };
        let old = std::mem::replace(entry, new);
        if let Some(from) = self.book.indirect_end(old.site as u32) {
            self.arcs.add(from, old.target(), old.count);
        }
    }

    #[inline(always)]
    fn data_at_once(&mut self, cpu: &Cpu, ram: u64, site: &Site, va: u64) -> Option<u64> {
        self.reach_at_once(cpu, ram, site, va)
    }

    #[inline(always)]
    fn data_generated<W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        site: &Site,
        va: u64,
    ) -> Option<u64> {
        self.reach(cpu, world, site, va)
    }

    fn fetch_generated(&mut self, pc: u64, (at, size): (u64, u64), clock: u64) {
        (self.pc, self.clock) = (pc, clock);
        let Some(place) = self.book.known_line(at) else { return };
        let page_passes = self.page(ReferenceKind::Fetch, at, size);
        let word = self.now.arena.get(place as usize).copied().unwrap_or(0);
        if word as i64 > 0 {
            return self.now.code.write_stamp(word as usize, 4 * clock);
        }
        let reference = self.reference_of(ReferenceKind::Fetch, at, size, 0);
        let missed = if page_passes { self.models.miss(&reference) } else { None };
        if let Some((slot, departed)) = missed {
            if let Some(line) = departed {
                self.forget_code(line.0);
            }
            let word = self.now.code.stamp_of(slot) as u64;
            if let Some(place) = self.now.arena.get_mut(place as usize) {
                *place = word;
            }
            return;
        }
        let word = match self.tell(ReferenceKind::Fetch, at, size, 0) {
            Pass::Loads(slot) | Pass::All(slot) if page_passes => {
                self.now.code.stamp_of(slot) as u64
            }
            _ => 0,
        };
        if let Some(place) = self.now.arena.get_mut(place as usize) {
            *place = word;
        }
    }
}
