//! `rt_sigreturn`: takes the program's state back from a frame.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::AltStack;
use super::action::{bit, set_native_mask};
use super::deliver::raise_fault;
use super::frame::{Context, REGISTERS};
use crate::engine::ctx::{Ctx, XSAVE_LEN, Xsave, reg};
use crate::engine::{sys, xstate};

/// Flags that a frame may set: those that a program can set itself.
const FLAGS: u64 = 0x24_4dd5;

/// Restores the state from the frame at the stack pointer; false if that is a fault.
pub fn sigreturn(ctx: &mut Ctx) -> bool {
    let at = ctx.regs[reg::RSP];
    let Some(frame) = sys::read_value::<Context>(at) else {
        raise_fault(ctx, libc::SIGSEGV, at);
        return false;
    };
    for (value, which) in frame.registers.iter().zip(REGISTERS) {
        ctx.regs[which] = *value;
    }
    ctx.rip = frame.rip;
    ctx.rflags = frame.rflags & FLAGS & !0x100 | 0x202;
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    thread.mask = frame.mask & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    set_native_mask(thread.mask);
    let [sp, flags, size] = frame.stack;
    // The handler may have set another stack and still stand on it: then that one stays.
    if !thread.alt.holds(at) {
        let off = flags & libc::SS_DISABLE as u64 != 0;
        thread.alt = if off { AltStack::NONE } else { AltStack { sp, flags: flags & !3, size } };
    }
    if !thread.queue.is_empty() {
        ctx.pending = 1;
    }
    vectors(ctx, frame.vectors)
}

fn vectors(ctx: &mut Ctx, at: u64) -> bool {
    if at == 0 {
        xstate::init(&mut ctx.xsave);
        return true;
    }
    let mut area = Box::new(Xsave([0; XSAVE_LEN]));
    // A frame of the old kind may be shorter than the extended one: read what there is.
    let whole = xstate::frame_len();
    if !sys::copy_in(at, &mut area.0[..whole]) && !sys::copy_in(at, &mut area.0[..512]) {
        raise_fault(ctx, libc::SIGSEGV, at);
        return false;
    }
    xstate::from_frame(&mut area, &mut ctx.xsave);
    true
}
