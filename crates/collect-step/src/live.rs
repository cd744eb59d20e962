//! The registers of a stopped tracee as `isa-x86` asks for them. The general
//! registers are at hand after every step; the vector registers are fetched
//! only when an instruction's accesses depend on them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cell::OnceCell;

use ichnos_base::GuestVa;
use ichnos_isa_x86::{Gpr, Regs, Segment, XLayout, XState};

use crate::sys::{self, Tid, UserRegs};

/// Enough for every component known so far (AMX's 8 KiB of tiles included).
const AREA: usize = 16 * 1024;

/// What this processor's xsave area looks like.
pub(crate) struct Host {
    layout: Option<XLayout>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self { layout: XLayout::of_host() }
    }
}

/// One tracee at one moment.
pub(crate) struct Live<'a> {
    tid: Tid,
    regs: &'a UserRegs,
    host: &'a Host,
    area: OnceCell<Vec<u8>>,
}

impl<'a> Live<'a> {
    #[inline]
    pub(crate) fn new(tid: Tid, regs: &'a UserRegs, host: &'a Host) -> Self {
        Self { tid, regs, host, area: OnceCell::new() }
    }

    /// The xsave area in its standard format.
    fn area(&self) -> &[u8] {
        self.area.get_or_init(|| {
            let mut area = vec![0; AREA];
            let have = sys::get_xstate(self.tid, &mut area).unwrap_or(0);
            area.truncate(have);
            area
        })
    }

    /// `N` bytes of the area; zeros where it does not reach.
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        if let Some(bytes) = self.area().get(at..at + N) {
            out.copy_from_slice(bytes);
        }
        out
    }

    /// `N` bytes of a component, `at` bytes from its start.
    fn component<const N: usize>(&self, number: usize, at: usize) -> [u8; N] {
        let layout = self.host.layout.as_ref();
        match layout.and_then(|layout| layout.components.get(number - 2)) {
            Some(c) if c.size as usize >= at + N => self.bytes(c.offset as usize + at),
            _ => [0; N],
        }
    }
}

// Component numbers and the legacy region's places: SDM volume 1, 13.1 and 13.4.1.
const YMM_HIGH: usize = 2;
const OPMASK: usize = 5;
const ZMM_HIGH: usize = 6;
const ZMM_16_31: usize = 7;
const TILE_CONFIG: usize = 17;
const ST_AT: usize = 32;
const XMM_AT: usize = 160;
const MXCSR_AT: usize = 24;
/// Where the kernel leaves `XCR0` in the software-reserved bytes.
const XCR0_AT: usize = 464;
const XSTATE_BV_AT: usize = 512;

impl Regs for Live<'_> {
    #[inline]
    fn gpr(&self, reg: Gpr) -> u64 {
        let r = self.regs;
        match reg {
            Gpr::Rax => r.rax,
            Gpr::Rcx => r.rcx,
            Gpr::Rdx => r.rdx,
            Gpr::Rbx => r.rbx,
            Gpr::Rsp => r.rsp,
            Gpr::Rbp => r.rbp,
            Gpr::Rsi => r.rsi,
            Gpr::Rdi => r.rdi,
            Gpr::R8 => r.r8,
            Gpr::R9 => r.r9,
            Gpr::R10 => r.r10,
            Gpr::R11 => r.r11,
            Gpr::R12 => r.r12,
            Gpr::R13 => r.r13,
            Gpr::R14 => r.r14,
            Gpr::R15 => r.r15,
        }
    }

    fn segment_base(&self, segment: Segment) -> GuestVa {
        GuestVa(match segment {
            Segment::Flat => 0,
            Segment::Fs => self.regs.fs_base,
            Segment::Gs => self.regs.gs_base,
        })
    }

    fn rflags(&self) -> u64 {
        self.regs.eflags
    }

    fn vector(&self, number: u8) -> [u8; 64] {
        let n = usize::from(number % 32);
        if n >= 16 {
            return self.component(ZMM_16_31, (n - 16) * 64);
        }
        let mut out = [0; 64];
        out[..16].copy_from_slice(&self.bytes::<16>(XMM_AT + n * 16));
        out[16..32].copy_from_slice(&self.component::<16>(YMM_HIGH, n * 16));
        out[32..].copy_from_slice(&self.component::<32>(ZMM_HIGH, n * 32));
        out
    }

    fn opmask(&self, number: u8) -> u64 {
        u64::from_le_bytes(self.component(OPMASK, usize::from(number % 8) * 8))
    }

    fn mmx(&self, number: u8) -> Option<u64> {
        // The area keeps the x87 registers in stack order; the MMX registers
        // are the physical ones, so the top of stack has to be undone.
        let status = u16::from_le_bytes(self.bytes(2));
        let top = usize::from(status >> 11 & 7);
        let slot = (usize::from(number % 8) + 8 - top) % 8;
        Some(u64::from_le_bytes(self.bytes(ST_AT + slot * 16)))
    }

    fn mxcsr(&self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(MXCSR_AT)))
    }

    fn xstate(&self) -> Option<XState> {
        let layout = self.host.layout?;
        let xcr0 = u64::from_le_bytes(self.bytes(XCR0_AT));
        let in_use = u64::from_le_bytes(self.bytes(XSTATE_BV_AT));
        Some(XState { xcr0, in_use, layout })
    }

    fn tile_config(&self) -> Option<[u8; 64]> {
        Some(self.component(TILE_CONFIG, 0))
    }

    fn peek(&self, addr: GuestVa, out: &mut [u8]) -> bool {
        sys::read_memory(self.tid, addr.0, out) == out.len()
    }
}
