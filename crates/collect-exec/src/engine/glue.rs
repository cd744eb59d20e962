//! The narrow bridge between the code cache and the engine, in assembly.
//!
//! `exit` saves the program's whole state in the context and calls the dispatcher on the
//! engine's stack; `enter` restores it and goes to the cache. `miss` finds an
//! indirect target in the shared index when the thread's own table does not know it, without
//! leaving for Rust. `program_syscall` makes a system call of the program's.
//!
//! Signals and these paths (see `signals::handler`, which knows the labels):
//! - between `enter_checked` and `enter_end` the context still holds everything, so the
//!   handler can send the thread to `enter_back`, which calls the dispatcher again;
//! - between `syscall_check` and `syscall_insn` inclusive, the call has not begun, or the
//!   kernel wants it restarted; the handler sends the thread to `syscall_abort`;
//! - elsewhere here the signal waits: every path leads to a check of `pending`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::arch::global_asm;
use std::mem::offset_of;

use super::ctx::{Ctx, JUMP_TABLE, RET_TABLE, exit};
use super::dispatch::dispatch;
use super::thread;

global_asm!(
    ".text",
    ".globl ichnos_exit", ".hidden ichnos_exit",
    ".globl ichnos_exit_traced", ".hidden ichnos_exit_traced",
    ".globl ichnos_enter_plain", ".hidden ichnos_enter_plain",
    ".globl ichnos_enter_traced", ".hidden ichnos_enter_traced",
    ".globl ichnos_exit_saved", ".hidden ichnos_exit_saved",
    ".globl ichnos_enter_checked", ".hidden ichnos_enter_checked",
    ".globl ichnos_enter_end", ".hidden ichnos_enter_end",
    ".globl ichnos_enter_back", ".hidden ichnos_enter_back",
    ".globl ichnos_start", ".hidden ichnos_start",
    ".globl ichnos_clone", ".hidden ichnos_clone",
    ".globl ichnos_syscall", ".hidden ichnos_syscall",
    ".globl ichnos_syscall_check", ".hidden ichnos_syscall_check",
    ".globl ichnos_syscall_insn", ".hidden ichnos_syscall_insn",
    ".globl ichnos_clone_insn", ".hidden ichnos_clone_insn",
    ".globl ichnos_judged", ".hidden ichnos_judged",
    ".globl ichnos_judged_insn", ".hidden ichnos_judged_insn",
    ".globl ichnos_syscall_abort", ".hidden ichnos_syscall_abort",
    ".globl ichnos_copy", ".hidden ichnos_copy",
    ".globl ichnos_copy_insn", ".hidden ichnos_copy_insn",
    ".globl ichnos_copy_failed", ".hidden ichnos_copy_failed",
    ".globl ichnos_miss_jump_pad", ".hidden ichnos_miss_jump_pad",
    ".globl ichnos_miss_jump", ".hidden ichnos_miss_jump",
    ".globl ichnos_miss_ret_pad", ".hidden ichnos_miss_ret_pad",
    ".globl ichnos_miss_ret", ".hidden ichnos_miss_ret",
    ".globl ichnos_exit_sifted", ".hidden ichnos_exit_sifted",
    ".globl ichnos_glue_end", ".hidden ichnos_glue_end",
    ".globl ichnos_signal", ".hidden ichnos_signal",
    ".globl ichnos_restorer", ".hidden ichnos_restorer",
    ".balign 64",
    // Between fragments of a recorded program r11 is where the next word of trace goes.
    "ichnos_exit_traced:",
    "mov gs:[{buffer}], r11",
    // Behind a sieve it is free for any use.
    "ichnos_exit_sifted:",
    "mov r11, gs:[{regs}+11*8]",
    "ichnos_exit:",
    "mov gs:[{regs}+4*8], rsp",
    "mov rsp, gs:[{engine_sp}]",
    "pushfq",
    "pop qword ptr gs:[{rflags}]",
    "mov gs:[{regs}+0*8], rax",
    "mov gs:[{regs}+1*8], rcx",
    "mov gs:[{regs}+2*8], rdx",
    "mov gs:[{regs}+3*8], rbx",
    "mov gs:[{regs}+5*8], rbp",
    "mov gs:[{regs}+6*8], rsi",
    "mov gs:[{regs}+7*8], rdi",
    "mov gs:[{regs}+8*8], r8",
    "mov gs:[{regs}+9*8], r9",
    "mov gs:[{regs}+10*8], r10",
    "mov gs:[{regs}+11*8], r11",
    "mov gs:[{regs}+12*8], r12",
    "mov gs:[{regs}+13*8], r13",
    "mov gs:[{regs}+14*8], r14",
    "mov gs:[{regs}+15*8], r15",
    "ichnos_exit_saved:",
    "mov rbx, gs:[0]",
    "rdfsbase rax",
    "mov [rbx+{fs}], rax",
    "mov rax, [rbx+{engine_fs}]",
    "wrfsbase rax",
    "mov eax, [rbx+{xmask}]",
    "mov edx, [rbx+{xmask}+4]",
    "xsavec64 [rbx+{xsave}]",
    "push 0x202",
    "popfq",
    "ichnos_call:",
    "mov rdi, rbx",
    "call {dispatch}",
    "ichnos_enter:",
    "cmp qword ptr [rbx+{pending}], 0",
    "jne ichnos_enter_back",
    "ichnos_enter_checked:",
    "mov eax, [rbx+{xmask}]",
    "mov edx, [rbx+{xmask}+4]",
    "xrstor64 [rbx+{xsave}]",
    "mov rax, [rbx+{fs}]",
    "wrfsbase rax",
    "push qword ptr [rbx+{rflags}]",
    "popfq",
    "mov rax, [rbx+{regs}+0*8]",
    "mov rcx, [rbx+{regs}+1*8]",
    "mov rdx, [rbx+{regs}+2*8]",
    "mov rsp, [rbx+{regs}+4*8]",
    "mov rbp, [rbx+{regs}+5*8]",
    "mov rsi, [rbx+{regs}+6*8]",
    "mov rdi, [rbx+{regs}+7*8]",
    "mov r8, [rbx+{regs}+8*8]",
    "mov r9, [rbx+{regs}+9*8]",
    "mov r10, [rbx+{regs}+10*8]",
    "mov r11, [rbx+{regs}+11*8]",
    "mov r12, [rbx+{regs}+12*8]",
    "mov r13, [rbx+{regs}+13*8]",
    "mov r14, [rbx+{regs}+14*8]",
    "mov r15, [rbx+{regs}+15*8]",
    "mov rbx, [rbx+{regs}+3*8]",
    "jmp qword ptr gs:[{glue_enter}]",
    "ichnos_enter_traced:",
    "mov r11, gs:[{buffer}]",
    "ichnos_enter_plain:",
    "jmp qword ptr gs:[{target}]",
    "ichnos_enter_end:",
    "ichnos_enter_back:",
    "mov rbx, gs:[0]",
    "mov rsp, [rbx+{engine_sp}]",
    "mov rax, [rbx+{engine_fs}]",
    "wrfsbase rax",
    "push 0x202",
    "popfq",
    "mov qword ptr [rbx+{exit}], {PENDING}",
    "jmp ichnos_call",
    // First entry of a thread: rdi is its context.
    "ichnos_start:",
    "mov rbx, rdi",
    "wrgsbase rbx",
    "mov rsp, [rbx+{engine_sp}]",
    "mov qword ptr [rbx+{exit}], {PENDING}",
    "jmp ichnos_call",
    // clone with a new engine stack: rdi = arguments (number, then six), rsi = the child's context.
    "ichnos_clone:",
    "push rbx",
    "mov rbx, rsi",
    "mov rax, [rdi]",
    "mov rsi, [rdi+16]",
    "mov rdx, [rdi+24]",
    "mov r10, [rdi+32]",
    "mov r8, [rdi+40]",
    "mov r9, [rdi+48]",
    "mov rdi, [rdi+8]",
    "ichnos_clone_insn:",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "pop rbx",
    "ret",
    "2:",
    "wrgsbase rbx",
    "mov rsp, [rbx+{engine_sp}]",
    "mov rdi, rbx",
    "call {thread_main}",
    "mov qword ptr [rbx+{exit}], {PENDING}",
    "jmp ichnos_call",
    // rdi = arguments (number, then six).
    "ichnos_syscall:",
    "mov rax, [rdi]",
    "mov rsi, [rdi+16]",
    "mov rdx, [rdi+24]",
    "mov r10, [rdi+32]",
    "mov r8, [rdi+40]",
    "mov r9, [rdi+48]",
    "mov rdi, [rdi+8]",
    "ichnos_syscall_check:",
    "cmp qword ptr gs:[{pending}], 0",
    "jne ichnos_syscall_abort",
    "ichnos_syscall_insn:",
    "syscall",
    "ret",
    "ichnos_syscall_abort:",
    "mov rax, -512",
    "ret",
    // The same, but signals wait.
    "ichnos_judged:",
    "mov rax, [rdi]",
    "mov rsi, [rdi+16]",
    "mov rdx, [rdi+24]",
    "mov r10, [rdi+32]",
    "mov r8, [rdi+40]",
    "mov r9, [rdi+48]",
    "mov rdi, [rdi+8]",
    "ichnos_judged_insn:",
    "syscall",
    "ret",
    // rdi = to, rsi = from, rdx = length; al = whether it went well. The handler sends a thread that
    // faults in the copy to the other end.
    "ichnos_copy:",
    "mov rcx, rdx",
    "ichnos_copy_insn:",
    "rep movsb",
    "mov eax, 1",
    "ret",
    "ichnos_copy_failed:",
    "xor eax, eax",
    "ret",
    // A pad found another target: rax = -tag, rcx = target - tag.
    "ichnos_miss_jump_pad:",
    "not rax",
    "lea rcx, [rcx+rax+1]",
    "ichnos_miss_jump:",
    "mov gs:[{spill_rdx}], rdx",
    "lahf",
    "seto al",
    "mov gs:[{spill_flags}], rax",
    "mov rdx, gs:[{jump_index}]",
    "mov rax, 0x9e3779b97f4a7c15",
    "imul rax, rcx",
    "shr rax, 32",
    "shl rax, 4",
    "3:",
    "and rax, [rdx]",
    "cmp [rdx+rax+16], rcx",
    "je 4f",
    "cmp qword ptr [rdx+rax+16], 0",
    "je 5f",
    "add rax, 16",
    "jmp 3b",
    "4:",
    "mov rdx, [rdx+rax+24]",
    "mov gs:[{target}], rdx",
    "movzx eax, cx",
    "mov gs:[rax*8+{JUMP_TABLE}], rdx",
    "mov rax, gs:[{spill_flags}]",
    "add al, 0x7f",
    "sahf",
    "mov rdx, gs:[{spill_rdx}]",
    "jmp qword ptr gs:[{target}]",
    "5:",
    "mov qword ptr gs:[{exit}], {JUMP_MISS}",
    "ichnos_miss_out:",
    "mov gs:[{wanted}], rcx",
    "mov rax, gs:[{spill_flags}]",
    "add al, 0x7f",
    "sahf",
    "mov rdx, gs:[{spill_rdx}]",
    "mov rcx, gs:[{spill_rcx}]",
    "mov rax, gs:[{spill_rax}]",
    "jmp qword ptr gs:[{glue_exit}]",
    "ichnos_miss_ret_pad:",
    // The same with rdx = -tag.
    "not rdx",
    "lea rcx, [rcx+rdx+1]",
    "ichnos_miss_ret:",
    // The return took the cache's address from the dead slot: put the program's back.
    "mov [rsp-8], rcx",
    "mov gs:[{spill_rax}], rax",
    "lahf",
    "seto al",
    "mov gs:[{spill_flags}], rax",
    "mov rdx, gs:[{ret_index}]",
    "mov rax, 0x9e3779b97f4a7c15",
    "imul rax, rcx",
    "shr rax, 32",
    "shl rax, 4",
    "3:",
    "and rax, [rdx]",
    "cmp [rdx+rax+16], rcx",
    "je 4f",
    "cmp qword ptr [rdx+rax+16], 0",
    "je 5f",
    "add rax, 16",
    "jmp 3b",
    "4:",
    "mov rdx, [rdx+rax+24]",
    "mov gs:[{target}], rdx",
    "movzx eax, cx",
    "mov gs:[rax*8+{RET_TABLE}], rdx",
    "mov rax, gs:[{spill_flags}]",
    "add al, 0x7f",
    "sahf",
    "mov rax, gs:[{spill_rax}]",
    "jmp qword ptr gs:[{target}]",
    "5:",
    "mov qword ptr gs:[{exit}], {RET_MISS}",
    "jmp ichnos_miss_out",
    "ichnos_glue_end:",
    // What the kernel calls for a signal, and how it comes back.
    "ichnos_signal:",
    // The program may have switched alignment checks on.
    "push 0x202",
    "popfq",
    "jmp {handler}",
    "ichnos_restorer:",
    "mov eax, 15",
    "syscall",
    regs = const offset_of!(Ctx, regs),
    engine_sp = const offset_of!(Ctx, engine_sp),
    engine_fs = const offset_of!(Ctx, engine_fs),
    rflags = const offset_of!(Ctx, rflags),
    fs = const offset_of!(Ctx, fs),
    xmask = const offset_of!(Ctx, xmask),
    xsave = const offset_of!(Ctx, xsave),
    pending = const offset_of!(Ctx, pending),
    buffer = const offset_of!(Ctx, buffer),
    glue_exit = const offset_of!(Ctx, glue_exit),
    glue_enter = const offset_of!(Ctx, glue_enter),
    target = const offset_of!(Ctx, target),
    wanted = const offset_of!(Ctx, wanted),
    exit = const offset_of!(Ctx, exit),
    spill_rax = const offset_of!(Ctx, spill_rax),
    spill_rcx = const offset_of!(Ctx, spill_rcx),
    spill_rdx = const offset_of!(Ctx, spill_rdx),
    spill_flags = const offset_of!(Ctx, spill_flags),
    jump_index = const offset_of!(Ctx, jump_index),
    ret_index = const offset_of!(Ctx, ret_index),
    JUMP_TABLE = const JUMP_TABLE,
    RET_TABLE = const RET_TABLE,
    PENDING = const exit::PENDING,
    JUMP_MISS = const exit::JUMP_MISS,
    RET_MISS = const exit::RET_MISS,
    dispatch = sym dispatch,
    thread_main = sym thread::thread_main,
    handler = sym super::signals::handler::on_signal,
);

#[allow(improper_ctypes, reason = "the context is passed through, its end is the engine's own")]
unsafe extern "C" {
    /// Leaves the cache with nothing spilled.
    pub fn ichnos_exit();
    /// The same, for a program that is recorded.
    pub fn ichnos_exit_traced();
    /// The same, behind a sieve.
    pub fn ichnos_exit_sifted();
    /// The last step into the cache.
    pub fn ichnos_enter_plain();
    /// The same, for a program that is recorded.
    pub fn ichnos_enter_traced();
    /// The same, for a thread whose registers already are in the context.
    pub fn ichnos_exit_saved();
    /// First instruction at which `pending` was found zero.
    pub fn ichnos_enter_checked();
    /// End of the way into the cache.
    pub fn ichnos_enter_end();
    /// Calls the dispatcher again instead of entering.
    pub fn ichnos_enter_back();
    /// Makes the calling thread run the program whose context this is.
    pub fn ichnos_start(ctx: *mut Ctx) -> !;
    /// Makes a clone call whose child runs the program with its own context.
    pub fn ichnos_clone(args: *const [u64; 7], child: *mut Ctx) -> i64;
    /// Makes a system call of the program's; -512 if a signal must be delivered first.
    pub fn ichnos_syscall(args: *const [u64; 7]) -> i64;
    /// First instruction of the window in which a call can still be called off.
    pub fn ichnos_syscall_check();
    /// The `syscall` instruction.
    pub fn ichnos_syscall_insn();
    /// Calls it off.
    pub fn ichnos_syscall_abort();
    /// The `syscall` instruction of a clone.
    pub fn ichnos_clone_insn();
    /// Makes a system call with the program's number for the program.
    pub fn ichnos_judged(args: *const [u64; 7]) -> i64;
    /// Its `syscall` instruction.
    pub fn ichnos_judged_insn();
    /// Copies memory; false if it faulted.
    pub fn ichnos_copy(to: u64, from: u64, len: u64) -> bool;
    /// The instruction that may fault.
    pub fn ichnos_copy_insn();
    /// Where a thread goes on that faulted.
    pub fn ichnos_copy_failed();
    /// A pad for jumps was reached for another target.
    pub fn ichnos_miss_jump_pad();
    /// A thread's table knows no target for a jump.
    pub fn ichnos_miss_jump();
    /// A pad for returns was reached for another target.
    pub fn ichnos_miss_ret_pad();
    /// A thread's table knows no target for a return.
    pub fn ichnos_miss_ret();
    /// End of the glue.
    pub fn ichnos_glue_end();
    /// The handler of all signals, for the kernel.
    pub fn ichnos_signal();
    /// Ends a signal handler, for the kernel.
    pub fn ichnos_restorer();
}

/// The addresses by which recorded code, or other code, is left and entered.
pub fn ways(recorded: bool) -> (u64, u64) {
    if recorded {
        (address(ichnos_exit_traced), address(ichnos_enter_traced))
    } else {
        (address(ichnos_exit), address(ichnos_enter_plain))
    }
}

/// The same behind a sieve.
pub fn sifted_ways() -> (u64, u64) {
    (address(ichnos_exit_sifted), address(ichnos_enter_plain))
}

/// The address of a label.
pub fn address(label: unsafe extern "C" fn()) -> u64 {
    label as usize as u64
}
