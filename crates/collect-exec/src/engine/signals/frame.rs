//! The frame that the kernel would put on the program's stack for a handler.
//!
//! Same layout, same sizes, same addresses as the kernel's own, so that a handler that looks
//! around finds what it expects.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::queue::Pending;
use super::{Action, AltStack};
use crate::engine::ctx::{Ctx, XSAVE_LEN, Xsave, reg};
use crate::engine::{sys, xstate};

/// `uc_flags`: extended state present, and the stack segment is right.
const UC_FLAGS: u64 = 7;
const RED_ZONE: u64 = 128;
const USER_CS: u64 = 0x33;
const USER_SS: u64 = 0x2b;

/// Where the saved registers stand in [`Context::registers`], in the kernel's order.
pub const REGISTERS: [usize; 16] = [
    reg::R8,
    reg::R9,
    reg::R10,
    reg::R11,
    12,
    13,
    14,
    15,
    reg::RDI,
    reg::RSI,
    5,
    3,
    reg::RDX,
    reg::RAX,
    reg::RCX,
    reg::RSP,
];

/// The kernel's `ucontext`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Context {
    /// What is there.
    pub flags: u64,
    /// Unused.
    pub link: u64,
    /// The alternate stack.
    pub stack: [u64; 3],
    /// General registers, in the order of [`REGISTERS`].
    pub registers: [u64; 16],
    /// Where the program goes on.
    pub rip: u64,
    /// Flags.
    pub rflags: u64,
    /// cs, gs, fs, ss, 16 bits each.
    pub segments: u64,
    /// Error code, trap number.
    pub trap: [u64; 2],
    /// Low part of the mask.
    pub old_mask: u64,
    /// Fault address.
    pub cr2: u64,
    /// Address of the vector state, or 0.
    pub vectors: u64,
    /// Unused.
    pub reserved: [u64; 8],
    /// Blocked signals.
    pub mask: u64,
}

// SAFETY: integers only, without padding.
unsafe impl sys::Plain for Context {
    const ZERO: Self = Self {
        flags: 0,
        link: 0,
        stack: [0; 3],
        registers: [0; 16],
        rip: 0,
        rflags: 0,
        segments: 0,
        trap: [0; 2],
        old_mask: 0,
        cr2: 0,
        vectors: 0,
        reserved: [0; 8],
        mask: 0,
    };
}

/// What is put on the stack.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Frame {
    restorer: u64,
    /// The state.
    pub context: Context,
    info: [u64; 16],
}

impl Frame {
    /// All bytes zero.
    pub const EMPTY: Self = sys::Plain::ZERO;

    /// Writes the state of a context, from which the kernel is to restore it.
    pub fn fill(&mut self, ctx: &Ctx, mask: u64, alt: &AltStack, vectors: u64) {
        let none = Pending { number: 0, fault: false, info: [0; 16], trap: [0; 3] };
        self.context = context(ctx, &none, mask, (alt, false), vectors);
    }
}

// SAFETY: integers only, without padding.
unsafe impl sys::Plain for Frame {
    const ZERO: Self = Self { restorer: 0, context: sys::Plain::ZERO, info: [0; 16] };
}

const _: () = assert!(size_of::<Context>() == 304 && size_of::<Frame>() == 440);

/// Puts a handler's frame on the stack and lets the context begin the handler; false if
/// the stack cannot be written.
pub fn push(ctx: &mut Ctx, action: &Action, pending: &Pending, mask: u64, alt: &AltStack) -> bool {
    let sp = ctx.regs[reg::RSP];
    let on_alt = alt.holds(sp);
    let mut top = sp.wrapping_sub(RED_ZONE);
    let wants_alt = action.flags & libc::SA_ONSTACK as u64 != 0 && alt.size != 0;
    if wants_alt && !on_alt {
        top = alt.sp + alt.size;
    }
    let mut vectors = Box::new(Xsave([0; XSAVE_LEN]));
    let len = xstate::to_frame(&ctx.xsave, &mut vectors);
    let vectors_at = top.wrapping_sub(len as u64) & !63;
    let frame_at = (vectors_at.wrapping_sub(size_of::<Frame>() as u64) & !15).wrapping_sub(8);
    let frame = Frame {
        restorer: action.restorer,
        context: context(ctx, pending, mask, (alt, on_alt), vectors_at),
        info: pending.info,
    };
    if !sys::copy_out(vectors_at, &vectors.0[..len]) || !sys::write_value(frame_at, &frame) {
        return false;
    }
    ctx.regs[reg::RSP] = frame_at;
    ctx.regs[reg::RDI] = pending.number as u64;
    ctx.regs[reg::RSI] = frame_at + 8 + size_of::<Context>() as u64;
    ctx.regs[reg::RDX] = frame_at + 8;
    ctx.regs[reg::RAX] = 0;
    ctx.rip = action.handler;
    // Direction, trap and resume flags are clear in a handler.
    ctx.rflags &= !(0x400 | 0x100 | 0x1_0000);
    true
}

fn context(
    ctx: &Ctx,
    pending: &Pending,
    mask: u64,
    (alt, on_alt): (&AltStack, bool),
    vectors: u64,
) -> Context {
    let state = if alt.size == 0 {
        libc::SS_DISABLE
    } else if on_alt {
        libc::SS_ONSTACK
    } else {
        0
    };
    let [error, number, address] = pending.trap;
    Context {
        flags: UC_FLAGS,
        link: 0,
        stack: [alt.sp, alt.flags & 0x8000_0000 | state as u64, alt.size],
        registers: REGISTERS.map(|r| ctx.regs[r]),
        rip: ctx.rip,
        rflags: ctx.rflags,
        segments: USER_CS | USER_SS << 48,
        trap: if pending.fault { [error, number] } else { [0; 2] },
        old_mask: mask,
        cr2: if pending.fault { address } else { 0 },
        vectors,
        reserved: [0; 8],
        mask,
    }
}
