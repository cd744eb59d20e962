//! How far a repeated string gets before it faults: behind a sieve its accesses are noted before it makes them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ctx::Ctx;
use super::{state, sys};
use crate::words::{Lane, Run};

const PAGE: u64 = 1 << 12;

/// How many turns of a run can be made.
pub fn turns(ctx: &Ctx, run: &Run) -> u64 {
    let within = |lane: &Lane| lane_turns(ctx, lane, run.turns);
    run.lanes.iter().flatten().map(within).min().unwrap_or(run.turns)
}

fn lane_turns(ctx: &Ctx, lane: &Lane, turns: u64) -> u64 {
    let (first, size) = (lane.base, u64::from(lane.size.max(1)));
    let is_backward = (lane.stride as i64) < 0;
    let stride = lane.stride.cast_signed().unsigned_abs().max(1);
    // Nobody gets over the end of all addresses, whatever the count.
    let room =
        if is_backward { first } else { u64::MAX.saturating_sub(first).saturating_sub(size - 1) };
    let turns = turns.min(room / stride + 1);
    let Some(rest) = turns.checked_sub(1) else { return 0 };
    let last = lane.at(rest);
    let (low, high) = (first.min(last), first.max(last).saturating_add(size - 1));
    if is_usable(ctx, lane, low, high) {
        return turns;
    }
    let pages = low / PAGE..=high / PAGE;
    let is_closed = |page: &u64| !is_usable(ctx, lane, page * PAGE, page * PAGE);
    let room = if is_backward {
        pages.rev().find(is_closed).map(|page| first.checked_sub((page + 1) * PAGE))
    } else {
        pages.into_iter().find(is_closed).map(|page| (page * PAGE).checked_sub(first + size))
    };
    match room {
        // Somebody else has opened it meanwhile.
        None => turns,
        Some(room) => room.map_or(0, |room| turns.min(room / stride + 1)),
    }
}

/// Whether the bytes from one to another can be accessed as a lane does. What is asked for is brought into memory, as it would be by
/// the access itself.
fn is_usable(ctx: &Ctx, lane: &Lane, low: u64, high: u64) -> bool {
    let stores = lane.kind() == 1;
    if !stores && low / PAGE == high / PAGE {
        return sys::copy_in(low, &mut [0]);
    }
    let advice = if stores { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    let start = low & !(PAGE - 1);
    let len = (high | (PAGE - 1)).wrapping_sub(start).wrapping_add(1);
    let done = || {
        let args = [start, len, advice as u64, 0, 0, 0];
        // SAFETY: memory that the program has comes into being, as its next instruction would make it; nothing changes.
        unsafe { sys::call(libc::SYS_madvise, args) }
    };
    match done() {
        0 => true,
        _ if stores && state::get().open(low, high - low + 1) => done() == 0,
        // Kernels before 5.14 do not say.
        failed => failed == -i64::from(libc::EINVAL) && !is_said(ctx),
    }
}

/// Whether the kernel says what can be accessed.
fn is_said(ctx: &Ctx) -> bool {
    let own = ctx.this & !(PAGE - 1);
    let args = [own, PAGE, libc::MADV_POPULATE_WRITE as u64, 0, 0, 0];
    // SAFETY: the thread's own block is writable and in memory.
    unsafe { sys::call(libc::SYS_madvise, args) == 0 }
}
