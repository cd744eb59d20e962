//! Who watches a hart execute. The engine is compiled once per observer, so
//! that watching nothing costs nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind};

use crate::cpu::Cpu;
use crate::memory::World;
use crate::profile::{Book, Site, Start};

/// Told what a hart does. An instruction is announced before it is known to
/// retire; if it traps, [`abandon`](Observer::abandon) takes it back together
/// with its accesses.
pub(crate) trait Observer {
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
    const BLIND: bool = true;

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
