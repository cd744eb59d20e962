//! Who watches a hart execute. The engine is compiled once per observer, so
//! that watching nothing costs nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{AccessFlags, GuestVa, InsnKind};

/// Told what a hart does. An instruction is announced before it is known to
/// retire; if it traps, [`abandon`](Observer::abandon) takes it back together
/// with its accesses.
pub(crate) trait Observer {
    /// Whether it ignores everything, so that code need not be interpreted.
    const BLIND: bool = false;

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
