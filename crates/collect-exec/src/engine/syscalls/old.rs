//! `int 0x80`: calls by the numbers and registers of 32-bit programs, which a 64-bit one may make as well.
//!
//! Those whose arguments mean the same to both are made by their 64-bit number, with the arguments cut to 32 bits as the
//! kernel does; they then take every way that `syscall` takes. Others have structures of another layout, and end with a
//! message.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Answer, answer, tell_return};
use crate::engine::ctx::{Ctx, reg};
use crate::engine::{fallback, maps, sync, sys, trace};
use crate::words;

const RBX: usize = 3;
const RBP: usize = 5;

/// The 64-bit number of a call that means the same, if there is one.
fn same(number: u32) -> Option<i64> {
    const SAME: &[(u32, i64)] = &[
        (1, libc::SYS_exit),
        (3, libc::SYS_read),
        (4, libc::SYS_write),
        (5, libc::SYS_open),
        (6, libc::SYS_close),
        (8, libc::SYS_creat),
        (9, libc::SYS_link),
        (10, libc::SYS_unlink),
        (12, libc::SYS_chdir),
        (14, libc::SYS_mknod),
        (15, libc::SYS_chmod),
        (19, libc::SYS_lseek),
        (20, libc::SYS_getpid),
        (27, libc::SYS_alarm),
        (29, libc::SYS_pause),
        (33, libc::SYS_access),
        (36, libc::SYS_sync),
        (37, libc::SYS_kill),
        (38, libc::SYS_rename),
        (39, libc::SYS_mkdir),
        (40, libc::SYS_rmdir),
        (41, libc::SYS_dup),
        (42, libc::SYS_pipe),
        (45, libc::SYS_brk),
        (57, libc::SYS_setpgid),
        (60, libc::SYS_umask),
        (63, libc::SYS_dup2),
        (64, libc::SYS_getppid),
        (65, libc::SYS_getpgrp),
        (66, libc::SYS_setsid),
        (83, libc::SYS_symlink),
        (85, libc::SYS_readlink),
        (91, libc::SYS_munmap),
        (94, libc::SYS_fchmod),
        (118, libc::SYS_fsync),
        (122, libc::SYS_uname),
        (125, libc::SYS_mprotect),
        (132, libc::SYS_getpgid),
        (133, libc::SYS_fchdir),
        (143, libc::SYS_flock),
        (147, libc::SYS_getsid),
        (150, libc::SYS_mlock),
        (151, libc::SYS_munlock),
        (158, libc::SYS_sched_yield),
        (183, libc::SYS_getcwd),
        (199, libc::SYS_getuid),
        (200, libc::SYS_getgid),
        (201, libc::SYS_geteuid),
        (202, libc::SYS_getegid),
        (219, libc::SYS_madvise),
        (220, libc::SYS_getdents64),
        (224, libc::SYS_gettid),
        (252, libc::SYS_exit_group),
        (258, libc::SYS_set_tid_address),
        (270, libc::SYS_tgkill),
        (295, libc::SYS_openat),
        (330, libc::SYS_dup3),
        (331, libc::SYS_pipe2),
        (355, libc::SYS_getrandom),
    ];
    SAME.iter().find(|(old, _)| *old == number).map(|&(_, new)| new)
}

/// Does the call at which the context stands, and tells what comes of it.
pub fn run(ctx: &mut Ctx) {
    let old = ctx.regs[reg::RAX] as u32;
    let Some(number) = same(old) else {
        let why = format!("cannot make the call {old} of 32-bit programs at {:#x}", ctx.rip);
        fallback::give_up(ctx, &why)
    };
    // What the call uses, and what comes back when it is done: only rax changes.
    let kept = ctx.regs;
    let places = [RBX, reg::RCX, reg::RDX, reg::RSI, reg::RDI, RBP];
    let args = places.map(|from| kept[from] & 0xffff_ffff);
    let into = [reg::RDI, reg::RSI, reg::RDX, reg::R10, reg::R8, reg::R9];
    into.iter().zip(args).for_each(|(&to, value)| ctx.regs[to] = value);
    // An offset and an error number have a sign.
    if number == libc::SYS_lseek {
        ctx.regs[reg::RSI] = args[1] as u32 as i32 as u64;
    }
    ctx.regs[reg::RAX] = number as u64;
    let [a, b, c, d, e, f] = args;
    // It is told as the program made it.
    trace::numbers(ctx, words::SYSCALL, &[u64::from(old), a, b, c, d, e, f]);
    sync::before_call(ctx, number, &args);
    let answered = answer(ctx, number);
    ctx.regs = kept;
    match answered {
        Answer::Value(value) => {
            sync::after_call(ctx, number, &args, value);
            tell_return(ctx, i64::from(old), value);
            finish(ctx, value);
            maps::refresh(ctx, maps::changed(number, &args, value));
        }
        Answer::Born => finish(ctx, 0),
        Answer::Again => tell_return(ctx, i64::from(old), super::RESTART),
        Answer::Elsewhere | Answer::Fault => sys::die("a call of 32-bit programs went astray"),
    }
}

fn finish(ctx: &mut Ctx, value: i64) {
    ctx.regs[reg::RAX] = value as u64;
    ctx.rip += super::INSN_LEN;
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn numbers_are_those_of_the_kernels_tables() {
        assert_eq!(same(4), Some(libc::SYS_write));
        assert_eq!(same(252), Some(libc::SYS_exit_group));
        // A structure of times, and one of file attributes.
        assert_eq!((same(162), same(195)), (None, None));
    }
}
