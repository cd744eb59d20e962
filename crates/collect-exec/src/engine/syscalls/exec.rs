//! `execve` and `execveat`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Answer, pass};
use crate::engine::ctx::Ctx;
use crate::engine::signals::set_native_mask;
use crate::engine::sys;

/// Replaces the program.
pub fn run(ctx: &mut Ctx, _number: i64) -> Answer {
    // SAFETY: the thread's data lives as long as its context.
    let mask = unsafe { &*ctx.thread }.mask;
    // The new program inherits the whole mask, without what the engine keeps open.
    let args = [libc::SIG_SETMASK as u64, &raw const mask as u64, 0, 8, 0, 0];
    // SAFETY: the set is live.
    unsafe { sys::call(libc::SYS_rt_sigprocmask, args) };
    let answer = pass(ctx);
    set_native_mask(mask);
    answer
}
