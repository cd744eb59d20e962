//! Futex calls: who waits for a word, who is woken, who wakes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{LockKind, LockOp};

use super::tell_lock;
use crate::engine::ctx::Ctx;

/// Everything but flags.
const COMMAND: u64 = 0x7f;

/// What a call does to its word.
fn op(args: &[u64; 6]) -> Option<LockOp> {
    let command = i32::try_from(args[1] & COMMAND).ok()?;
    Some(match command {
        libc::FUTEX_WAIT
        | libc::FUTEX_WAIT_BITSET
        | libc::FUTEX_LOCK_PI
        | libc::FUTEX_TRYLOCK_PI
        | libc::FUTEX_WAIT_REQUEUE_PI => LockOp::Request,
        libc::FUTEX_WAKE
        | libc::FUTEX_WAKE_BITSET
        | libc::FUTEX_WAKE_OP
        | libc::FUTEX_UNLOCK_PI
        | libc::FUTEX_REQUEUE
        | libc::FUTEX_CMP_REQUEUE
        | libc::FUTEX_CMP_REQUEUE_PI => LockOp::Release,
        _ => return None,
    })
}

/// A call is about to be made.
pub fn before(ctx: &mut Ctx, number: i64, args: &[u64; 6]) {
    if number == libc::SYS_futex
        && let Some(op) = op(args)
    {
        tell_lock(ctx, op, LockKind::Futex, args[0]);
    }
}

/// A call has returned.
pub fn after(ctx: &mut Ctx, number: i64, args: &[u64; 6], result: i64) {
    if number == libc::SYS_futex && result == 0 && op(args) == Some(LockOp::Request) {
        tell_lock(ctx, LockOp::Acquire, LockKind::Futex, args[0]);
    }
}
