//! The state of a thread as far as its next instruction's accesses depend on it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use crate::{Gpr, Segment};

/// The registers of a thread that is about to execute an instruction.
///
/// The first five methods are enough for all but a few instructions; the rest
/// have defaults that say "not known", and [`crate::accesses`] reports when an
/// instruction needed one of them.
pub trait Regs {
    /// A general register.
    fn gpr(&self, reg: Gpr) -> u64;

    /// The base of `fs` or `gs`; not asked for [`Segment::Flat`].
    fn segment_base(&self, segment: Segment) -> GuestVa;

    /// The flags register.
    fn rflags(&self) -> u64;

    /// All 64 bytes of a vector register from 0 to 31, zero where the processor
    /// has none.
    fn vector(&self, number: u8) -> [u8; 64];

    /// A mask register from 0 to 7.
    fn opmask(&self, number: u8) -> u64;

    /// An MMX register from 0 to 7, for `maskmovq`.
    ///
    /// MMX registers have fixed places, while `fxsave` and `xsave` store x87
    /// registers from the top of stack on: `mm(n)` is in slot `(n - top) % 8`,
    /// where `top` is bits 11 to 13 of the status word.
    fn mmx(&self, number: u8) -> Option<u64> {
        let _ = number;
        None
    }

    /// The SSE control and status register, for `xsavec`.
    fn mxcsr(&self) -> Option<u32> {
        None
    }

    /// Which processor state exists and is in use, for the xsave family.
    fn xstate(&self) -> Option<XState> {
        None
    }

    /// The AMX tile configuration as `sttilecfg` would store it.
    fn tile_config(&self) -> Option<[u8; 64]> {
        None
    }

    /// Reads guest memory, for the header that `xrstor` obeys; false if it
    /// cannot be read.
    fn peek(&self, addr: GuestVa, out: &mut [u8]) -> bool {
        let _ = (addr, out);
        false
    }
}

/// What the xsave family saves and restores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XState {
    /// The components that the system has enabled (`xgetbv` 0).
    pub xcr0: u64,
    /// The components not in their initial state (`xgetbv` 1); all that are
    /// enabled, if not known.
    pub in_use: u64,
    /// Where each component lies.
    pub layout: XLayout,
}

/// Offsets and sizes of state components, as `cpuid` leaf 0xd tells them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XLayout {
    /// One per component from 2 on: component `i` is `components[i - 2]`.
    pub components: [XComponent; 62],
}

/// One state component.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XComponent {
    /// Its size in bytes (`eax`); 0 if it does not exist.
    pub size: u32,
    /// Its place in the standard format (`ebx`).
    pub offset: u32,
    /// Whether it starts at a multiple of 64 in the compacted format (`ecx`
    /// bit 1).
    pub aligned: bool,
}

impl XLayout {
    /// A layout from the registers `[eax, ebx, ecx]` of `cpuid` leaf 0xd for
    /// each subleaf, the first being number 2. More than 62 are ignored.
    #[must_use]
    pub fn from_cpuid(subleaves: &[[u32; 3]]) -> Self {
        let mut components = [XComponent::default(); 62];
        for (slot, [eax, ebx, ecx]) in components.iter_mut().zip(subleaves) {
            *slot = XComponent { size: *eax, offset: *ebx, aligned: ecx & 2 != 0 };
        }
        Self { components }
    }

    /// The layout of the processor that runs this, if it has the xsave family.
    #[cfg(target_arch = "x86_64")]
    #[must_use]
    pub fn of_host() -> Option<Self> {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        if __cpuid(1).ecx >> 26 & 1 == 0 {
            return None;
        }
        let mut subleaves = [[0; 3]; 62];
        for (subleaf, slot) in (2..).zip(&mut subleaves) {
            let leaf = __cpuid_count(0xd, subleaf);
            *slot = [leaf.eax, leaf.ebx, leaf.ecx];
        }
        Some(Self::from_cpuid(&subleaves))
    }
}
