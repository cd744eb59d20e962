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

use super::ctx::{
    Ctx, JUMP_TABLE, RET_TABLE, SIEVE_CODE, SIEVE_CODE_LISTS, SIEVE_DATA_LISTS, SIEVE_STORED,
    SIEVE_USED, exit,
};
use super::dispatch::dispatch;
use super::{sieved, thread};
use crate::sieve::{LOADS, STORES, line};
use crate::words;

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
    ".globl ichnos_tell", ".hidden ichnos_tell",
    ".globl ichnos_tell_fetch", ".hidden ichnos_tell_fetch",
    ".globl ichnos_tell_room", ".hidden ichnos_tell_room",
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
    "not rax",
    "lea rcx, [rcx+rax+1]",
    "ichnos_miss_ret:",
    // The return took the cache's address from the dead slot: put the program's back.
    "mov [rsp-8], rcx",
    "mov gs:[{spill_rdx}], rdx",
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
    "mov rdx, gs:[{spill_rdx}]",
    "jmp qword ptr gs:[{target}]",
    "5:",
    "mov qword ptr gs:[{exit}], {RET_MISS}",
    "jmp ichnos_miss_out",
    // Behind a sieve, an access was not to the line last used of its set, or is not aligned. Flags and the registers
    // of the fragment are free; all others stay. From here on rax is a line, rsi the offset of the list of its set.
    "ichnos_tell:",
    "mov gs:[{tell_regs}], rax",
    "mov gs:[{tell_regs}+8], rcx",
    "mov gs:[{tell_regs}+16], rdx",
    "mov gs:[{tell_regs}+24], rsi",
    "mov gs:[{tell_regs}+32], rdi",
    "mov rcx, gs:[{data_depth}]",
    "mov gs:[{tell_depth}], rcx",
    "mov qword ptr gs:[{tell_more}], 0",
    "mov rax, gs:[{tell_addr}]",
    "mov edx, gs:[{tell_what}]",
    "shr edx, {SIZE}",
    "mov rcx, gs:[{line_mask}]",
    "mov rdi, rax",
    "and rdi, rcx",
    "lea rdi, [rdi+rdx-1]",
    "cmp rdi, rcx",
    "jbe 20f",
    // It goes on in the next line.
    "mov rdi, rax",
    "or rdi, rcx",
    "inc rdi",
    "mov gs:[{tell_more}], rdi",
    "test byte ptr gs:[{tell_what}], {LOAD}",
    "jz 10f",
    "inc qword ptr gs:[{LOADS}]",
    "10:",
    "test byte ptr gs:[{tell_what}], {STORE}",
    "jz 20f",
    "inc qword ptr gs:[{STORES}]",
    "20:",
    "mov rcx, gs:[{set_shift}]",
    "mov rdx, rax",
    "shr rdx, cl",
    "and rdx, gs:[{set_mask}]",
    "mov rcx, gs:[{line_mask}]",
    "not rcx",
    "and rax, rcx",
    "lea rsi, [rdx*8+{DATA_LISTS}]",
    "test byte ptr gs:[{tell_what}], {PREFETCH}",
    "jnz 50f",
    // Looks for the line; what is left of it then is its bits.
    "30:",
    "xor ecx, ecx",
    "31:",
    "mov rdi, gs:[rsi+rcx]",
    "xor rdi, rax",
    "cmp rdi, 63",
    "jbe 40f",
    "add ecx, 8",
    "cmp rcx, gs:[{tell_depth}]",
    "jb 31b",
    "jmp 50f",
    // It is known: it moves to the front, and what that means is told when it must be.
    "40:",
    "mov gs:[{undo_list}], rsi",
    "mov gs:[{undo_place}], rcx",
    "mov gs:[{undo_bits}], rdi",
    "test byte ptr gs:[{tell_what}], {STORE}",
    "jz 41f",
    "test dil, {DIRTY}",
    "jnz 41f",
    "or edi, {MOVED}+{STORED_LATE}+{DIRTY}",
    "41:",
    "test ecx, ecx",
    "jz 44f",
    "or edi, {MOVED}",
    "43:",
    "mov rdx, gs:[rsi+rcx-8]",
    "mov gs:[rsi+rcx], rdx",
    "sub ecx, 8",
    "jnz 43b",
    "44:",
    "or rdi, rax",
    "mov gs:[rsi], rdi",
    // The first of the list is what translated code looks at.
    "45:",
    "test byte ptr gs:[{tell_what}], {FETCH}",
    "jnz 46f",
    "lea rdx, [rsi-{DATA_LISTS}]",
    "shr rdx, 3",
    "mov gs:[rdx+{USED}], rax",
    "xor ecx, ecx",
    "test dil, {DIRTY}",
    "cmovnz rcx, rax",
    "mov gs:[rdx+{STORED}], rcx",
    "mov rax, gs:[{tell_more}]",
    "test rax, rax",
    "jz 47f",
    "mov qword ptr gs:[{tell_more}], 0",
    "jmp 20b",
    "46:",
    "mov rdx, gs:[{tell_set}]",
    "shr rdx, 1",
    "mov ecx, gs:[{tell_number}]",
    "mov gs:[rdx+{CODE}], ecx",
    "47:",
    "mov rax, gs:[{tell_regs}]",
    "mov rcx, gs:[{tell_regs}+8]",
    "mov rdx, gs:[{tell_regs}+16]",
    "mov rsi, gs:[{tell_regs}+24]",
    "mov rdi, gs:[{tell_regs}+32]",
    "jmp qword ptr gs:[{tell_back}]",
    // It is not known. If the buffer has no room this faults, and the handler comes back here with the next one.
    "50:",
    "mov qword ptr gs:[{undo_list}], 0",
    "ichnos_tell_room:",
    "mov rdx, gs:[{buffer}]",
    "mov byte ptr [rdx+{TOLD_ROOM}-1], 0",
    // What moved in the set since something was told is told first, the one used last at the end.
    "mov rcx, gs:[{tell_depth}]",
    "51:",
    "sub rcx, 8",
    "js 53f",
    "mov rdi, gs:[rsi+rcx]",
    "test dil, {MOVED}",
    "jz 51b",
    "mov dword ptr [rdx], {LINE}",
    "mov [rdx+4], rdi",
    "and dword ptr [rdx+4], {NOT_DIRTY}",
    "or dword ptr [rdx+4], {LATE}",
    "test byte ptr gs:[{tell_what}], {FETCH}",
    "jz 52f",
    "or dword ptr [rdx+4], {FETCH}",
    "52:",
    "and rdi, {NOT_LATE}",
    "mov gs:[rsi+rcx], rdi",
    "add rdx, {TOLD_LEN}",
    "jmp 51b",
    "53:",
    "mov dword ptr [rdx], {LINE}",
    "movzx edi, byte ptr gs:[{tell_what}]",
    "or rdi, rax",
    "mov [rdx+4], rdi",
    "add rdx, {TOLD_LEN}",
    "mov gs:[{buffer}], rdx",
    "mov rcx, gs:[{tell_depth}]",
    "test dil, {PREFETCH}",
    "jnz 56f",
    "54:",
    "sub ecx, 8",
    "jz 55f",
    "mov rdx, gs:[rsi+rcx-8]",
    "mov gs:[rsi+rcx], rdx",
    "jmp 54b",
    "55:",
    "test dil, {STORE}",
    "mov rdi, rax",
    "mov ecx, {DIRTY}",
    "mov edx, 0",
    "cmovnz edx, ecx",
    "or rdi, rdx",
    "mov gs:[rsi], rdi",
    "jmp 45b",
    // After a prefetch nobody knows which line was used last.
    "56:",
    "mov qword ptr gs:[rsi+rcx-8], 0",
    "sub ecx, 8",
    "jnz 56b",
    "xor eax, eax",
    "xor edi, edi",
    "jmp 45b",
    "ichnos_tell_fetch:",
    "mov gs:[{tell_regs}], rax",
    "mov gs:[{tell_regs}+8], rcx",
    "mov gs:[{tell_regs}+16], rdx",
    "mov gs:[{tell_regs}+24], rsi",
    "mov gs:[{tell_regs}+32], rdi",
    "mov dword ptr gs:[{tell_what}], {FETCH}",
    "mov rcx, gs:[{code_depth}]",
    "mov gs:[{tell_depth}], rcx",
    "mov rax, gs:[{tell_addr}]",
    "mov rdx, gs:[{tell_set}]",
    "lea rsi, [rdx*8+{CODE_LISTS}]",
    "jmp 30b",
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
    tell_regs = const offset_of!(Ctx, tell_regs),
    tell_addr = const offset_of!(Ctx, tell_addr),
    tell_what = const offset_of!(Ctx, tell_what),
    tell_more = const offset_of!(Ctx, tell_more),
    tell_set = const offset_of!(Ctx, tell_set),
    tell_number = const offset_of!(Ctx, tell_number),
    tell_depth = const offset_of!(Ctx, tell_depth),
    tell_back = const offset_of!(Ctx, tell_back),
    undo_list = const offset_of!(Ctx, undo_list),
    undo_place = const offset_of!(Ctx, undo_place),
    undo_bits = const offset_of!(Ctx, undo_bits),
    line_mask = const offset_of!(Ctx, line_mask),
    set_shift = const offset_of!(Ctx, set_shift),
    set_mask = const offset_of!(Ctx, set_mask),
    data_depth = const offset_of!(Ctx, data_depth),
    code_depth = const offset_of!(Ctx, code_depth),
    LOADS = const thread::COUNTERS_AT + 8 * LOADS as u64,
    STORES = const thread::COUNTERS_AT + 8 * STORES as u64,
    USED = const SIEVE_USED,
    STORED = const SIEVE_STORED,
    CODE = const SIEVE_CODE,
    DATA_LISTS = const SIEVE_DATA_LISTS,
    CODE_LISTS = const SIEVE_CODE_LISTS,
    LOAD = const line::LOAD,
    STORE = const line::STORE,
    PREFETCH = const line::PREFETCH,
    FETCH = const line::FETCH,
    LATE = const line::LATE,
    MOVED = const sieved::MOVED,
    STORED_LATE = const sieved::STORED_LATE,
    DIRTY = const sieved::DIRTY,
    NOT_DIRTY = const !sieved::DIRTY as i32,
    NOT_LATE = const !(sieved::MOVED | sieved::STORED_LATE) as i32,
    SIZE = const sieved::SIZE,
    LINE = const words::LINE as i32,
    TOLD_LEN = const words::EVENT_LEN,
    TOLD_ROOM = const sieved::TOLD_ROOM,
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
    /// Tells an access behind a sieve, if need be.
    pub fn ichnos_tell();
    /// Tells a fetch.
    pub fn ichnos_tell_fetch();
    /// Where telling begins again if the buffer was full.
    pub fn ichnos_tell_room();
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
