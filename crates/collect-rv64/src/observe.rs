//! Who watches a hart execute. The engine is compiled once per observer, so
//! that watching nothing costs nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind};

use crate::code::Stood;
use crate::cpu::Cpu;
use crate::exec::{Beyond, Counters, Until};
use crate::memory::{World, load, store};
use crate::profile::{Book, Site, Start};
use crate::trap::Stop;

/// An instruction that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    pub(crate) pc: u64,
    /// Four for each instruction that may still retire, with this one.
    pub(crate) left: u64,
    /// Its length in bytes.
    pub(crate) len: u8,
}

impl Here {
    /// The address behind the instruction.
    #[inline(always)]
    pub(crate) const fn next(&self) -> u64 {
        self.pc.wrapping_add(self.len as u64)
    }
}

/// How an observer finds data in the common case.
#[derive(Debug)]
pub(crate) struct How<'a, O: Observer + ?Sized> {
    pub(crate) data: O::Data,
    pub(crate) rest: &'a O::Rest,
}

impl<O: Observer + ?Sized> Clone for How<'_, O> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Observer + ?Sized> Copy for How<'_, O> {}

/// Told what a hart does. An instruction is announced before it is known to
/// retire; if it traps, [`abandon`](Observer::abandon) takes it back together
/// with its accesses.
pub(crate) trait Observer {
    /// How it finds data in the common case: handlers pass it on.
    type Data: Copy;
    /// What else it needs for that, and does not change during a run.
    type Rest: Copy;

    /// Whether it ignores everything, so that code need not be interpreted.
    const BLIND: bool = false;
    /// Whether generated code may run: it tells nothing, or what the methods
    /// from [`book`](Observer::book) on take.
    const GENERATED: bool = Self::BLIND;

    /// An instruction begins.
    fn insn(&mut self, pc: GuestVa, len: u8, kind: InsnKind);
    /// The instruction read `value`.
    fn load(&mut self, addr: GuestVa, size: u32, flags: AccessFlags, value: u64);
    /// The instruction wrote `value`.
    fn store(&mut self, addr: GuestVa, size: u32, flags: AccessFlags, value: u64);
    /// The instruction zeroed a block.
    fn zero(&mut self, addr: GuestVa, size: u32);
    /// The instruction wrote back or dropped a cache line.
    fn flush(&mut self, addr: GuestVa, size: u32);
    /// The instruction is a control transfer with this outcome.
    fn branch(&mut self, taken: bool, target: GuestVa);
    /// The instruction trapped and did not retire.
    fn abandon(&mut self);
    /// Whether records must be handed on before more are made.
    fn is_full(&self) -> bool;

    /// Whether the coarse methods, from [`is_coarse`](Observer::is_coarse) on, can
    /// take the place of the fine ones above.
    const COARSE: bool = Self::BLIND;

    /// Whether they do.
    fn is_coarse(&self) -> bool {
        Self::COARSE
    }
    /// Bytes of a line of code as a power of two, if it matters.
    fn line_shift(&self) -> Option<u32> {
        None
    }
    /// At most `limit` instructions are interpreted from the hart's `pc` on.
    fn begin<W: World>(&mut self, cpu: &Cpu, world: &mut W, (limit, until): (u64, Until)) {
        let _ = (cpu, world, limit, until);
    }
    /// How data is found until something that is not common happens.
    fn data(&self) -> Self::Data;
    /// What else finds data during this run.
    fn rest(&self) -> Self::Rest;

    /// Whether it counts jumps. Until [`Until::PageEnd`], coarse handlers count those
    /// that lead where the instruction says with their instruction.
    const COUNTS: bool = false;

    /// An instruction was decoded at an address, in the page at an index of RAM. The
    /// page's version was the first, and is the second.
    fn decoded(&mut self, (pc, page_index): (u64, usize), what: Stood, versions: (u64, u64)) {
        let _ = (pc, page_index, what, versions);
    }
    /// An instruction that lies in two pages is about to run.
    fn decoded_alone(&mut self, pc: u64, word: u32) {
        let _ = (pc, word);
    }
    /// The counters of a page's instructions by their ordinals, all of which are known by
    /// then: its address and index, its version, and the offsets of all of them.
    fn counters(
        &mut self,
        (va, page_index): (u64, usize),
        version: u64,
        words: impl Iterator<Item = (u64, Stood)>,
    ) -> Counters {
        let _ = (va, page_index, version, words);
        std::ptr::null_mut()
    }
    /// Counts a jump from the end of an instruction that does not say where it leads.
    fn count(&mut self, from: u64, to: u64) {
        let _ = (from, to);
    }
    /// The same in the common case: the place for what is known of where the jump leads.
    /// None, and nothing is counted, if it is not.
    #[inline(always)]
    fn count_at_once(&mut self, from: u64, to: u64) -> Option<&mut Beyond> {
        let _ = (from, to);
        None
    }

    /// As [`enter`](Observer::enter) of an instruction of any length at an address, with
    /// so much left, in the common case; false if it is not.
    #[inline(always)]
    fn arrive(&mut self, pc: u64, left: u64) -> bool {
        let _ = (pc, left);
        true
    }
    /// An instruction begins behind a jump, or one with bytes in another line than
    /// those of the instruction before.
    fn enter(&mut self, here: &Here) {
        let _ = here;
    }
    /// A taken jump from the end of an instruction that no handler counted.
    fn jumped(&mut self, from: u64, to: u64) {
        let _ = (from, to);
    }
    /// Loads `N` bytes in the common case.
    #[inline(always)]
    fn read<const N: usize, W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        va: u64,
        how: (&Here, How<'_, Self>),
    ) -> Option<u64> {
        let _ = how;
        Some(world.ram().read::<N>(cpu.tlb.read::<N>(va)?))
    }
    /// Loads `N` bytes in any case.
    fn read_slowly<const N: usize, W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        va: u64,
        here: &Here,
    ) -> Result<u64, Stop> {
        let _ = here;
        load::<N, W>(cpu, world, va)
    }
    /// Stores the low `N` bytes of a value in the common case.
    #[inline(always)]
    fn write<const N: usize, W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        (va, value): (u64, u64),
        how: (&Here, How<'_, Self>),
    ) -> Option<()> {
        let _ = how;
        let index = cpu.tlb.write::<N>(va)?;
        world.ram_mut().write::<N>(index, value);
        Some(())
    }
    /// Stores the low `N` bytes of a value in any case.
    fn write_slowly<const N: usize, W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        (va, value): (u64, u64),
        here: &Here,
    ) -> Result<(), Stop> {
        let _ = here;
        store::<N, W>(cpu, world, va, value)
    }
    /// What the fine methods are told next is this instruction's.
    fn locate(&mut self, here: &Here) {
        let _ = here;
    }
    /// Such an instruction has accessed memory.
    fn accessed<W: World>(
        &mut self,
        cpu: &Cpu,
        world: &mut W,
        here: &Here,
        result: &Result<(), Stop>,
    ) {
        let _ = (cpu, world, here, result);
    }
    /// Interpreting ends before `pc`, with four times so many instructions left.
    fn end(&mut self, pc: u64, left: u64) {
        let _ = (pc, left);
    }

    /// Where generated code counts; none if it does not.
    fn book(&mut self) -> Option<&mut Book> {
        None
    }
    /// Code was translated: the book names its instructions.
    fn translated(&mut self) {}
    /// All generated code goes, and what it counts in.
    fn forget_generated(&mut self) {}
    /// Generated code begins at the hart's `pc`; RAM is at `ram`.
    fn start(&mut self, cpu: &Cpu, ram: *mut u8) -> Option<Start> {
        let _ = (cpu, ram);
        None
    }
    /// Generated code stopped at `pc` when so many instructions had retired, after
    /// a computed transfer that it did not know, if a site is given.
    fn stopped(&mut self, pc: u64, clock: u64, indirect: Option<u32>) {
        let _ = (pc, clock, indirect);
    }
    /// A computed transfer of a site leads to `pc`, which is this code under the
    /// key of the present translations.
    fn enter_indirect(&mut self, site: u32, pc: u64, (key, code): (u64, u64)) {
        let _ = (site, pc, key, code);
    }
    /// Generated code accesses memory that it does not know to hit, and what becomes of
    /// it may be known at once: the host's address of the bytes, in RAM which begins at
    /// `ram`. None, and nothing is done, if it is not.
    fn data_at_once(&mut self, cpu: &Cpu, ram: u64, site: &Site, va: u64) -> Option<u64> {
        let _ = (cpu, ram, site, va);
        None
    }
    /// Generated code accesses memory that it does not know to hit. The host's
    /// address of the bytes; none if the interpreter must do it.
    fn data_generated<W: World>(
        &mut self,
        cpu: &mut Cpu,
        world: &mut W,
        site: &Site,
        va: u64,
    ) -> Option<u64> {
        let _ = (cpu, world, site, va);
        None
    }
    /// Generated code runs into a line that it does not know to hit: the
    /// instruction, its bytes in the line, and its number.
    fn fetch_generated(&mut self, pc: u64, (at, size): (u64, u64), clock: u64) {
        let _ = (pc, at, size, clock);
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Blind;

impl Observer for Blind {
    type Data = ();
    type Rest = ();

    const BLIND: bool = true;

    #[inline(always)]
    fn data(&self) {}
    #[inline(always)]
    fn rest(&self) {}

    #[inline(always)]
    fn insn(&mut self, _: GuestVa, _: u8, _: InsnKind) {}
    #[inline(always)]
    fn load(&mut self, _: GuestVa, _: u32, _: AccessFlags, _: u64) {}
    #[inline(always)]
    fn store(&mut self, _: GuestVa, _: u32, _: AccessFlags, _: u64) {}
    #[inline(always)]
    fn zero(&mut self, _: GuestVa, _: u32) {}
    #[inline(always)]
    fn flush(&mut self, _: GuestVa, _: u32) {}
    #[inline(always)]
    fn branch(&mut self, _: bool, _: GuestVa) {}
    #[inline(always)]
    fn abandon(&mut self) {}
    #[inline(always)]
    fn is_full(&self) -> bool {
        false
    }
}
