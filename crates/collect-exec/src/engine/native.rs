//! Instructions that cannot be moved into the cache run in their own place, one at a time: under the trap flag, with
//! the program's registers and both of its segment bases.
//!
//! The kernel itself puts the state into the processor (`rt_sigreturn` from a frame that is made here), and brings it back
//! with the signal that follows: a trap behind the instruction, or its fault. Meanwhile gs is the program's, so the handler
//! finds the context by its own stack ([`context`]). Nothing else comes: all that can be blocked is.
//!
//! A program that shall go on without the engine leaves it by the same way, without the trap flag ([`leave`]).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::arch::asm;

use iced_x86::{Code, FlowControl, Instruction, OpKind, Register};
use libc::{REG_CSGSFS, REG_EFL, REG_RIP, ucontext_t};

use super::ctx::{Ctx, XSAVE_LEN, Xsave, exit, reg};
use super::signals::{AltStack, Frame, bit, handler, native_mask};
use super::thread::{self, Stepping};
use super::{count, decoded, glue, sys, xstate};
use crate::window;

const TF: u64 = 0x100;
/// The code segment of 64-bit programs.
const LONG_MODE: u64 = 0x33;

/// What the kernel takes a state from.
#[repr(C, align(64))]
pub struct Leaving {
    vectors: Xsave,
    frame: Frame,
}

/// Whether an instruction can run in its own place only.
pub fn stands_apart(insn: &Instruction) -> bool {
    match insn.flow_control() {
        FlowControl::Next => has_odd_operand(insn),
        FlowControl::XbeginXabortXend => true,
        FlowControl::UnconditionalBranch => !insn.is_jmp_short_or_near(),
        FlowControl::IndirectBranch => !insn.is_jmp_near_indirect(),
        FlowControl::IndirectCall => !insn.is_call_near_indirect(),
        FlowControl::Call => !insn.is_call_near() && insn.code() != Code::Syscall,
        FlowControl::Return => !matches!(insn.code(), Code::Retnq | Code::Retnq_imm16),
        _ => false,
    }
}

/// An operand whose address the cache cannot form, or a segment register that the engine needs itself.
fn has_odd_operand(insn: &Instruction) -> bool {
    // A register that is no operand is none.
    let written = insn.op0_register() == Register::GS && insn.code() != Code::Pushq_GS;
    if written || insn.memory_base() == Register::EIP {
        return true;
    }
    if insn.segment_prefix() != Register::GS {
        return false;
    }
    let memory = (0..insn.op_count()).any(|i| insn.op_kind(i) == OpKind::Memory);
    let implied = !memory && (0..insn.op_count()).any(|i| is_implied(insn.op_kind(i)));
    // In 32 bits, or where the stack pointer moves before the address is formed, or without room for a base.
    let narrow = memory && (insn.memory_base().is_gpr32() || insn.memory_index().is_gpr32());
    let moved = memory && insn.is_stack_instruction();
    let fixed = memory && (insn.is_ip_rel_memory_operand() || has_given_address(insn));
    implied || narrow || moved || fixed
}

/// `mov` between rax, or a part of it, and an address of eight bytes in the instruction; and `xlat`, whose registers are given.
fn has_given_address(insn: &Instruction) -> bool {
    matches!(
        insn.code(),
        Code::Mov_AL_moffs8
            | Code::Mov_AX_moffs16
            | Code::Mov_EAX_moffs32
            | Code::Mov_RAX_moffs64
            | Code::Mov_moffs8_AL
            | Code::Mov_moffs16_AX
            | Code::Mov_moffs32_EAX
            | Code::Mov_moffs64_RAX
            | Code::Xlat_m8
    )
}

fn is_implied(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::MemorySegSI
            | OpKind::MemorySegESI
            | OpKind::MemorySegRSI
            | OpKind::MemorySegDI
            | OpKind::MemorySegEDI
            | OpKind::MemorySegRDI
    )
}

/// The context of the thread that a signal has come to: gs leads to it, unless the thread runs an instruction in its
/// place. Then the stack does, which is the one for signals.
pub fn context() -> u64 {
    let (gs, sp): (u64, u64);
    // SAFETY: reading registers changes nothing.
    unsafe {
        asm!("rdgsbase {}", "mov {}, rsp", out(reg) gs, out(reg) sp, options(nomem, nostack));
    }
    let blocks = window::THREADS..window::THREADS_END;
    if blocks.contains(&gs) { gs } else { thread::block_of(sp) }
}

/// Begins a transaction, which aborts at once as every one does under the engine, if that is what the instruction does at which the
/// context stands. By single step its fallback's first instruction would run with it.
pub fn aborts(ctx: &mut Ctx) -> bool {
    let Ok(inst) = decoded::inst_at(ctx.rip) else { return false };
    if !matches!(inst.raw().code(), Code::Xbegin_rel16 | Code::Xbegin_rel32) {
        return false;
    }
    // No cause is named, and no hint that another attempt may succeed.
    ctx.regs[reg::RAX] = 0;
    ctx.rip = inst.raw().near_branch_target();
    true
}

/// Runs the instruction at which the context stands in its place. Comes back by a signal, to the dispatcher.
pub fn run(ctx: &mut Ctx) -> ! {
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    thread.stepping = Stepping::InPlace;
    thread.stepped_from = ctx.rip;
    // Faults stay open as the program has them.
    let open = bit(libc::SIGFPE) | bit(libc::SIGILL);
    let mask = native_mask(thread.mask | !open);
    let stack = thread::signal_stack(ctx);
    go(ctx, mask, &stack, TF)
}

/// Lets the calling thread go on without the engine.
pub fn leave(ctx: &mut Ctx) -> ! {
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &*ctx.thread };
    let (mask, alt) = (thread.mask, thread.alt);
    go(ctx, mask, &alt, 0)
}

/// Lets the kernel put the context's state into the processor.
fn go(ctx: &mut Ctx, mask: u64, alt: &AltStack, flags: u64) -> ! {
    // SAFETY: the thread's data lives as long as its context. The room is the thread's own and is not used otherwise.
    let leaving = unsafe { &mut (*ctx.thread).leaving };
    let leaving = leaving.get_or_insert_with(|| {
        Box::new(Leaving { vectors: Xsave([0; XSAVE_LEN]), frame: Frame::EMPTY })
    });
    xstate::to_frame(&ctx.xsave, &mut leaving.vectors);
    let vectors = &raw const leaving.vectors as u64;
    leaving.frame.fill(ctx, mask, alt, vectors);
    leaving.frame.context.rflags |= flags;
    let at = &raw const leaving.frame.context as u64;
    // SAFETY: the frame is whole; the thread goes on in the program, or comes back by way of the signal handler, which
    // begins the dispatcher anew on the top of this stack. Nothing is borrowed that would be missed.
    unsafe {
        asm!("wrfsbase {fs}", "wrgsbase {gs}", "mov rsp, {at}", "mov eax, 15", "syscall", "ud2",
            fs = in(reg) ctx.fs, gs = in(reg) ctx.gs, at = in(reg) at, options(noreturn))
    }
}

/// In the handler: the instruction has run, or has faulted. Gives back what is the engine's, and sends the thread to the
/// dispatcher; not yet if the instruction goes on.
pub fn back(ctx: &mut Ctx, uc: &mut ucontext_t, faulted: bool) {
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &mut *ctx.thread };
    let (rip, from) = (handler::greg(uc, REG_RIP), thread.stepped_from);
    if !faulted && rip == from && repeats(from) {
        return;
    }
    if handler::greg(uc, REG_CSGSFS) & 0xffff != LONG_MODE {
        sys::die(&format!("the instruction at {from:#x} leads to code that is not 64-bit code"));
    }
    thread.stepping = Stepping::No;
    let gs: u64;
    // SAFETY: the program's base is kept, and the engine's put in its place.
    unsafe {
        asm!("rdgsbase {}", "wrgsbase {}", out(reg) gs, in(reg) ctx.this, options(nomem, nostack));
    }
    ctx.gs = gs;
    handler::keep_registers(ctx, uc);
    ctx.rflags = handler::greg(uc, REG_EFL) & !TF;
    ctx.rip = rip;
    ctx.exit = if faulted { exit::FAULT } else { exit::IN_PLACE };
    if faulted {
        count::put_back(ctx, 1);
    }
    handler::to_dispatcher(ctx, uc, glue::address(glue::ichnos_exit_saved));
}

/// Whether the instruction at an address is a string instruction that repeats: it is trapped behind every turn.
fn repeats(pc: u64) -> bool {
    decoded::inst_at(pc).is_ok_and(|i| i.raw().has_rep_prefix() || i.raw().has_repne_prefix())
}
