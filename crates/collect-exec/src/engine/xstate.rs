//! Vector and floating-point state: which of it there is, and its forms.
//!
//! The glue keeps it in the compacted form; signal frames have the standard form, as the
//! kernel writes it. Tile state is left in the processor: the engine never touches it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::arch::asm;
use std::sync::OnceLock;

use ichnos_isa_x86::XLayout;

use super::ctx::{XSAVE_LEN, Xsave};
use super::sys;

const AMX: u64 = TILE_CONFIG | TILE_DATA;
const TILE_CONFIG: u64 = 1 << 17;
const TILE_DATA: u64 = 1 << 18;
const PKRU: u64 = 1 << 9;
const LEGACY: usize = 512;
const HEADER: usize = 64;
/// Where software may write in the legacy area.
const SOFTWARE: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
const MXCSR_AT: usize = 24;
const DEFAULT_MXCSR: u32 = 0x1f80;

/// What the processor and the kernel have switched on.
fn enabled() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the instruction exists wherever xsave does, which x86-64 kernels that this
    // engine runs on require.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// What the engine saves when it takes over.
pub fn engine_mask() -> u64 {
    enabled() & !AMX & !PKRU
}

/// What a signal frame holds: all but what a program must ask for first.
fn frame_mask() -> u64 {
    enabled() & !TILE_DATA
}

/// Where each component lies. Asked once: virtual machines trap `cpuid`, and a thousand of them take
/// longer than a small program.
pub fn layout() -> &'static XLayout {
    static LAYOUT: OnceLock<XLayout> = OnceLock::new();
    LAYOUT.get_or_init(|| match XLayout::of_host() {
        Some(layout) => layout,
        None => sys::die("the processor has no xsave"),
    })
}

/// Bytes of the standard form in a signal frame, without the closing mark.
pub fn frame_len() -> usize {
    let mask = frame_mask() >> 2;
    let present = layout().components.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 1);
    let end = present.map(|(_, c)| (c.offset + c.size) as usize).max();
    end.unwrap_or(0).max(LEGACY + HEADER)
}

/// The state of a new program.
pub fn init(area: &mut Xsave) {
    area.0.fill(0);
    area.0[..2].copy_from_slice(&0x37fu16.to_le_bytes());
    area.0[MXCSR_AT..MXCSR_AT + 4].copy_from_slice(&DEFAULT_MXCSR.to_le_bytes());
    // An empty standard-form header: everything takes its initial value.
}

/// A mask register in what `area` holds, in the compact form or in the standard form.
pub fn opmask(area: &Xsave, number: u8) -> u64 {
    const OPMASK: usize = 5;
    const COMPACT: u64 = 1 << 63;
    let word = |at: usize| {
        let bytes = area.0.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    let (present, form) = (word(LEGACY), word(LEGACY + 8));
    if present >> OPMASK & 1 == 0 {
        return 0;
    }
    let components = &layout().components;
    let start = if form & COMPACT == 0 {
        components[OPMASK - 2].offset as usize
    } else {
        // None of those before it asks to be aligned.
        let before = (2..OPMASK).filter(|i| form >> i & 1 != 0);
        LEGACY + HEADER + before.map(|i| components[i - 2].size as usize).sum::<usize>()
    };
    word(start + 8 * usize::from(number))
}

/// Writes the standard form of what `area` holds, with the kernel's marks, to `out`.
pub fn to_frame(area: &Xsave, out: &mut Xsave) -> usize {
    let len = frame_len();
    out.0.fill(0);
    let (engine, frame) = (engine_mask(), frame_mask());
    // SAFETY: both areas are aligned and large enough; `area` was written by the glue or by
    // `from_frame`. Rust code expects no vector register to survive.
    unsafe {
        asm!("xrstor64 [{area}]",
            "mov eax, {low:e}", "mov edx, {high:e}",
            "xsave64 [{out}]",
            area = in(reg) area, out = in(reg) out,
            low = in(reg) frame as u32, high = in(reg) (frame >> 32) as u32,
            inout("eax") engine as u32 => _, inout("edx") (engine >> 32) as u32 => _,
            options(nostack));
        scrub();
    }
    let put = |out: &mut Xsave, at: usize, bytes: &[u8]| {
        out.0[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(out, SOFTWARE, &MAGIC1.to_le_bytes());
    put(out, SOFTWARE + 4, &(len as u32 + 4).to_le_bytes());
    put(out, SOFTWARE + 8, &frame.to_le_bytes());
    put(out, SOFTWARE + 16, &(len as u32).to_le_bytes());
    put(out, len, &MAGIC2.to_le_bytes());
    len + 4
}

/// Takes over what a signal frame holds. `frame` was copied from the program and may be anything.
pub fn from_frame(frame: &mut Xsave, area: &mut Xsave) {
    let word = |f: &Xsave, at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&f.0[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let extended = word(frame, SOFTWARE) as u32 == MAGIC1;
    let mask = engine_mask();
    let present = if extended { word(frame, LEGACY) & mask } else { 3 };
    frame.0[LEGACY..LEGACY + HEADER].fill(0);
    frame.0[LEGACY..LEGACY + 8].copy_from_slice(&present.to_le_bytes());
    let mxcsr = word(frame, MXCSR_AT) as u32 & 0xffff;
    frame.0[MXCSR_AT..MXCSR_AT + 4].copy_from_slice(&mxcsr.to_le_bytes());
    // SAFETY: the header is now one that xrstor accepts, the reserved bits of mxcsr are clear.
    unsafe {
        asm!("xrstor64 [{frame}]", "xsavec64 [{area}]",
            frame = in(reg) frame, area = in(reg) area,
            in("eax") mask as u32, in("edx") (mask >> 32) as u32, options(nostack));
        scrub();
    }
}

/// Puts the processor's vector state back to what Rust code expects.
///
/// # Safety
///
/// No vector register may hold anything that is still wanted.
unsafe fn scrub() {
    let mxcsr = DEFAULT_MXCSR;
    // SAFETY: the caller's promise; the clobbers tell the compiler.
    unsafe {
        asm!("vzeroupper", "fninit", "ldmxcsr [{}]", in(reg) &raw const mxcsr,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
            out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _,
            out("xmm15") _, options(nostack));
    }
}

const _: () = assert!(XSAVE_LEN >= LEGACY + HEADER);
