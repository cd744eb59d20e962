//! Data that generated code and coarse handlers did not find in the table of lines:
//! the TLB and the caches are told, and the line is entered if it may pass.
//!
//! What is usual goes straight through: bytes of one line of the usual size, in a page
//! whose translation the hart knows.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use super::line::{Geometry, Passing, Stores};
use super::models::{Models, Pass, Reference, ReferenceKind};
use super::profiler::Profiler;
use super::tables::Site;
use crate::cpu::Cpu;
use crate::memory::World;
use crate::observe::Observer as _;
use crate::ram::PAGE_SIZE;
use crate::tlb::Reach;
use crate::trap::Access;

impl<M: Models> Profiler<M> {
    /// The host's address of the bytes of an access that misses nothing but the caches,
    /// if they know at once what becomes of it. None, and nothing is done, if not.
    ///
    /// It is a leaf: it calls nobody, and keeps nothing for anybody.
    #[inline(always)]
    pub(super) fn reach_at_once(
        &mut self,
        cpu: &Cpu,
        ram: u64,
        site: &Site,
        va: u64,
    ) -> Option<u64> {
        let data = &self.now.data;
        let (reach, store) = (cpu.tlb.reach(va), site.access == Access::Store);
        let last = va.wrapping_add(site.size - 1);
        if data.geometry() != Geometry::USUAL
            || !data.is_alone()
            || (va ^ last) >> Geometry::USUAL.line != 0
            || !reach.allows(site.access)
            || !data.page_passes_in(Geometry::USUAL, va)
        {
            return None;
        }
        let reference = Reference {
            thread: self.thread,
            pc: GuestVa(site.pc),
            addr: GuestVa(va),
            size: site.size as u32,
            kind: if store { ReferenceKind::Store } else { ReferenceKind::Load },
            now: 4 * site.clock + 1,
        };
        let to = (reach, ram.wrapping_add(reach.index));
        self.miss(&reference, to).then_some(to.1)
    }

    /// Takes a reference to a line of a usual table of one bank, whose page passes, if
    /// the caches miss it and know at once what becomes of it: whether they do.
    #[inline(always)]
    fn miss(&mut self, reference: &Reference, (reach, host): (Reach, u64)) -> bool {
        let Some((slot, departed)) = self.models.miss(reference) else { return false };
        let data = &mut self.now.data;
        if let Some(line) = departed {
            data.forget_alone(line.0);
        }
        let stores = match (reference.kind, reach.write) {
            (ReferenceKind::Store, _) => Stores::Pass,
            (_, true) => Stores::Marked,
            (_, false) => Stores::Told,
        };
        let va = reference.addr.0;
        let passing = Passing { loads: reach.read, stores };
        data.enter_in(Geometry::USUAL, va, passing, (host.wrapping_sub(va), slot));
        true
    }

    /// The host's address of the bytes of an access; none if it must be carried out
    /// the slow way.
    #[inline(always)]
    pub(super) fn reach<W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        site: &Site,
        va: u64,
    ) -> Option<u64> {
        if self.now.data.geometry() != Geometry::USUAL {
            return self.reach_slowly(cpu, world, site, va);
        }
        let last = va.wrapping_add(site.size - 1);
        let reach = cpu.tlb.reach(va);
        let store = site.access == Access::Store;
        if (va ^ last) >> Geometry::USUAL.line != 0 || !reach.allows(site.access) {
            return self.reach_slowly(cpu, world, site, va);
        }
        let ram = world.ram_mut().start() as u64;
        (self.pc, self.clock, self.code_lost) = (site.pc, site.clock, false);
        let to = (reach, ram.wrapping_add(reach.index));
        let kind = if store { ReferenceKind::Store } else { ReferenceKind::Load };
        if self.now.data.page_passes_in(Geometry::USUAL, va) {
            self.reach_line((kind, site.size), va, to);
        } else {
            self.reach_absent_page((kind, site.size), va, to);
        }
        self.go_on(site);
        Some(to.1)
    }

    /// A reference to a line of a page that passes, which itself did not.
    #[inline(always)]
    fn reach_line(&mut self, (kind, size): (ReferenceKind, u64), va: u64, to: (Reach, u64)) {
        if self.now.data.unhide(Geometry::USUAL, va) && self.data_passes(kind, va, size) {
            return;
        }
        if kind == ReferenceKind::Store && self.now.data.store_to_clean(va, 4 * self.clock + 1) {
            return;
        }
        let pass = self.tell_line(Geometry::USUAL, kind, (va, size));
        self.let_pass(Geometry::USUAL, pass, va, to);
    }

    /// Lets a line pass as the models say and the page's rights allow.
    #[inline(always)]
    fn let_pass(&mut self, geometry: Geometry, pass: Pass, va: u64, (reach, host): (Reach, u64)) {
        let (stores, slot) = match pass {
            Pass::Nothing => return,
            Pass::Loads(slot) => (Stores::Marked, slot),
            Pass::All(slot) => (Stores::Pass, slot),
        };
        let stores = if reach.write { stores } else { Stores::Told };
        let passing = Passing { loads: reach.read, stores };
        self.now.data.enter_in(geometry, va, passing, (host.wrapping_sub(va), slot));
    }

    /// The same for a page that is not known to be in the TLB.
    #[inline(never)]
    fn reach_absent_page(&mut self, (kind, size): (ReferenceKind, u64), va: u64, to: (Reach, u64)) {
        let reference = self.reference_of(kind, va, size, 1);
        if !self.translate(Geometry::USUAL, &reference) {
            self.tell_data(kind, va, size);
            return;
        }
        self.now.data.show_page(Geometry::USUAL, va);
        self.now.data.unhide(Geometry::USUAL, va);
        if self.data_passes(kind, va, size) {
            return;
        }
        if !(self.now.data.is_alone() && self.miss(&reference, to)) {
            self.reach_line((kind, size), va, to);
        }
    }

    /// A reference of data may have thrown out the line that runs. Its next
    /// instruction is sure to come, and is fetched right here.
    #[inline(always)]
    fn go_on(&mut self, site: &Site) {
        if self.code_lost
            && let Some(next) = site.next
        {
            self.fetch_again(next);
        }
    }

    /// An access to several lines, to lines of another size, or to a page that the hart
    /// must look up first.
    #[inline(never)]
    fn reach_slowly<W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        site: &Site,
        va: u64,
    ) -> Option<u64> {
        if va as usize % PAGE_SIZE + site.size as usize > PAGE_SIZE {
            return None;
        }
        let store = site.access == Access::Store;
        let place = |cpu: &Cpu| Some(cpu.tlb.reach(va)).filter(|reach| reach.allows(site.access));
        let reach = match place(cpu) {
            Some(reach) => reach,
            None => {
                world.reach(cpu, va, site.access).ok()?;
                place(cpu)?
            }
        };
        let ram = world.ram_mut().start() as u64;
        self.now.data.follow_changes(&cpu.tlb, ram);
        (self.pc, self.clock, self.code_lost) = (site.pc, site.clock, false);
        let kind = if store { ReferenceKind::Store } else { ReferenceKind::Load };
        let host = ram.wrapping_add(reach.index);
        let page_passes = self.page(kind, va, site.size);
        if !(page_passes && self.data_passes_again(kind, va, site.size)) {
            let pass = self.tell_data(kind, va, site.size);
            if page_passes {
                self.let_pass(self.now.data.geometry(), pass, va, (reach, host));
            }
        }
        self.go_on(site);
        Some(host)
    }

    #[cold]
    fn fetch_again(&mut self, next: u64) {
        let word = |number: Option<u32>| {
            number.and_then(|n| self.now.arena.get(n as usize)).copied().unwrap_or(0)
        };
        let sum = word(self.book.known_line(next)).wrapping_add(word(self.book.frame(next)));
        if sum as i64 <= 0 {
            let clock = self.clock + 1;
            self.fetch_generated(next, (next, 2), clock);
        }
    }
}
