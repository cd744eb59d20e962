//! The tables of threads that run behind a sieve: the lines last used of each set, and the counters of pieces.
//!
//! A set's list has the lines last used, in order. As long as a line of the list is used, nothing is told: the cache has it,
//! and only the order changes. When another line is used, one has to go. If the list is as long as the set (it is *whole*),
//! the engine says which; if it is shorter, it is one line, of which at most that it was stored to must be told
//! first. Translated code looks at the first of each list alone (`sift`), the glue does the rest; here is the
//! same again for accesses that vary, and what is seldom needed.
//!
//! The counters are shared memory behind the tap's buffers, so that the collector
//! reads what the thread has counted to its last moment, however that came; they appear in the thread's block, too,
//! where translated code reaches them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Lines, Sieve};

use super::ctx::{
    Ctx, SIEVE_CODE, SIEVE_CODE_LISTS, SIEVE_DATA_LISTS, SIEVE_DEPTH, SIEVE_SETS, SIEVE_STORED,
    SIEVE_USED,
};
use super::{state, sys, tap, tell, thread, trace};
use crate::sieve::{COUNTERS_LEN, LOADS, MOST_THREADS, STORES, line};
use crate::words::Run;
use crate::{window, words};

/// Bit of a line in a list: it moved to the front since it was told.
pub const MOVED: u64 = 1;
/// Bit of a line in a list: it was stored to since it was told. Moved is set, too.
pub const STORED_LATE: u64 = 2;
/// Bit of a line in a list: stores to it change nothing.
pub const DIRTY: u64 = 4;
/// Where the bytes of an access stand in what is told about it.
pub const SIZE: u32 = 8;
/// The room that telling one access takes at most.
pub const TOLD_ROOM: usize = (SIEVE_DEPTH as usize + 2) * words::EVENT_LEN;

/// The bits of a line's number that choose its list. Of very large caches several sets share one.
pub fn sets(lines: Lines) -> u32 {
    (1 << lines.sets.min(SIEVE_SETS)) - 1
}

/// Whether there are tables for such a sieve.
pub fn fits(sieve: &Sieve) -> bool {
    // An access lies in two lines at most, and so does an instruction; lines leave room for bits.
    (6..=12).contains(&sieve.data.shift) && (6..=12).contains(&sieve.code.shift)
}

/// Eight times the lines that are known of each set: all, or one. Sets that share a list know one.
fn depth(lines: Lines) -> u64 {
    let whole = is_whole(lines);
    8 * u64::from(if whole { lines.ways } else { 1 })
}

/// Whether all lines of each set are known.
fn is_whole(lines: Lines) -> bool {
    lines.sets <= SIEVE_SETS && lines.depth == lines.ways && lines.ways <= SIEVE_DEPTH
}

/// Makes a thread's tables ready, once it has its number.
pub fn adopt(ctx: &mut Ctx) {
    let Some(sieve) = state::get().sieve else { return };
    ctx.line_mask = (1 << sieve.data.shift) - 1;
    ctx.set_shift = u64::from(sieve.data.shift - 3);
    ctx.set_mask = u64::from(sets(sieve.data)) << 3;
    (ctx.data_depth, ctx.code_depth) = (depth(sieve.data), depth(sieve.code));
    ctx.data_whole = u64::from(is_whole(sieve.data));
    ctx.code_whole = u64::from(is_whole(sieve.code));
    (ctx.glue_tell, ctx.glue_tell_fetch) = tell::ways();
    clear(ctx, &sieve);
    if ctx.id >= MOST_THREADS {
        sys::die("the program has too many threads to be simulated while it runs; record it first");
    }
    let from = window::TAP + tap::header().layout.total() + u64::from(ctx.id) * COUNTERS_LEN;
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    let to = ctx.this + thread::COUNTERS_AT;
    // An old length of zero makes a second view of shared memory.
    // SAFETY: the target is a part of this thread's block that is kept for nothing else.
    let done = unsafe { sys::call(libc::SYS_mremap, [from, 0, COUNTERS_LEN, flags, to, 0]) };
    if sys::failed(done) {
        sys::die("no memory for the counters of a thread");
    }
}

/// A table of a thread.
#[allow(clippy::mut_from_ref, reason = "the tables lie behind the context, not in it")]
fn table<T>(ctx: &Ctx, offset: u32, len: usize) -> &mut [T] {
    let at = (ctx.this + u64::from(offset)) as *mut T;
    // SAFETY: the tables lie in the block at whose head the context stands, and only its thread uses them; of
    // others, which may only empty them, it finds a line or none.
    unsafe { std::slice::from_raw_parts_mut(at, len) }
}

fn clear(ctx: &Ctx, sieve: &Sieve) {
    let (code, data) = (sets(sieve.code) as usize + 1, sets(sieve.data) as usize + 1);
    let depth = SIEVE_DEPTH as usize;
    table::<u64>(ctx, SIEVE_USED, data).fill(0);
    table::<u64>(ctx, SIEVE_STORED, data).fill(0);
    table::<u32>(ctx, SIEVE_CODE, code).fill(0);
    table::<u64>(ctx, SIEVE_DATA_LISTS, data * depth).fill(0);
    table::<u64>(ctx, SIEVE_CODE_LISTS, code * depth).fill(0);
}

/// Tells all that is late, set by set.
pub fn flush(ctx: &mut Ctx) {
    let Some(sieve) = state::get().sieve else { return };
    for (lists, lines, fetch) in
        [(SIEVE_DATA_LISTS, sieve.data, 0), (SIEVE_CODE_LISTS, sieve.code, line::FETCH)]
    {
        for set in 0..=sets(lines) {
            tell_late(ctx, lists + 8 * SIEVE_DEPTH * set, fetch);
        }
    }
}

/// Tells all lines of a list that the cache does not know to have been used so late, the one used last at the end.
fn tell_late(ctx: &mut Ctx, list: u32, fetch: u64) {
    let whole = if fetch == 0 { ctx.data_whole } else { ctx.code_whole } != 0;
    for i in (0..SIEVE_DEPTH as usize).rev() {
        let entry = table::<u64>(ctx, list, SIEVE_DEPTH as usize)[i];
        let dirty = if whole && entry & DIRTY != 0 { line::STORE } else { entry & STORED_LATE };
        if entry & MOVED != 0 || whole && entry != 0 {
            let at = entry & !line::BITS;
            trace::event(ctx, words::LINE, at | line::LOAD | dirty | line::LATE | fetch);
            table::<u64>(ctx, list, SIEVE_DEPTH as usize)[i] = entry & !(MOVED | STORED_LATE);
        }
    }
}

/// Tells what the cache must know of a list before another line comes.
fn tell_before(ctx: &mut Ctx, list: u32) {
    if ctx.data_whole == 0 {
        return tell_late(ctx, list, 0);
    }
    let oldest =
        table::<u64>(ctx, list, (ctx.data_depth / 8) as usize).last().copied().unwrap_or(0);
    if oldest != 0 {
        let dirty = if oldest & DIRTY != 0 { line::STORE } else { 0 };
        trace::event(ctx, words::LINE, oldest & !line::BITS | line::OLDEST | dirty);
    }
}

/// Empties a thread's tables: every line must be told again.
pub fn forget(ctx: &mut Ctx) {
    if let Some(sieve) = state::get().sieve {
        flush(ctx);
        clear(ctx, &sieve);
    }
}

/// Notes the accesses of an instruction that vary.
pub fn note(ctx: &mut Ctx, runs: &[Run]) {
    let mut flushes = false;
    for run in runs {
        run.each(|kind, addr, size, _| {
            let shift = ctx.line_mask.count_ones();
            let counter = match kind {
                0 => LOADS,
                1 => STORES,
                2 => {
                    prefetch(ctx, addr);
                    return;
                }
                _ => {
                    flush(ctx);
                    trace::event(ctx, words::LINE, addr & !ctx.line_mask | line::FLUSH);
                    flushes = true;
                    return;
                }
            };
            let last = addr.wrapping_add(u64::from(size.max(1)) - 1);
            for line in addr >> shift..=last >> shift {
                table::<u64>(ctx, thread::COUNTERS_AT as u32, 8)[counter as usize] += 1;
                touch(ctx, line << shift, if kind == 1 { line::STORE } else { line::LOAD });
            }
        });
    }
    if flushes {
        forget_all();
    }
}

/// Empties the tables of all threads: lines were taken from everybody's caches.
fn forget_all() {
    let Some(sieve) = state::get().sieve else { return };
    for &thread in state::get().threads.lock().iter() {
        // SAFETY: registered contexts stay mapped until they are taken off the list.
        clear(unsafe { &*(thread as *const Ctx) }, &sieve);
    }
}

fn prefetch(ctx: &mut Ctx, addr: u64) {
    let set = set_of(ctx, addr);
    let list = SIEVE_DATA_LISTS + 8 * SIEVE_DEPTH * set;
    tell_late(ctx, list, 0);
    trace::event(ctx, words::LINE, addr & !ctx.line_mask | line::PREFETCH);
    table::<u64>(ctx, list, SIEVE_DEPTH as usize).fill(0);
    table::<u64>(ctx, SIEVE_USED + 8 * set, 1)[0] = 0;
    table::<u64>(ctx, SIEVE_STORED + 8 * set, 1)[0] = 0;
}

fn set_of(ctx: &Ctx, addr: u64) -> u32 {
    (addr >> ctx.set_shift & ctx.set_mask) as u32 / 8
}

/// What the glue does with an access to a line.
fn touch(ctx: &mut Ctx, at: u64, what: u64) {
    let set = set_of(ctx, at);
    let list = SIEVE_DATA_LISTS + 8 * SIEVE_DEPTH * set;
    let known = (ctx.data_depth / 8) as usize;
    let place = table(ctx, list, known).iter().position(|entry: &u64| entry & !line::BITS == at);
    if place.is_none() {
        tell_before(ctx, list);
        trace::event(ctx, words::LINE, at | what);
    }
    let lines = table::<u64>(ctx, list, known);
    let mut entry = at;
    if let Some(place) = place {
        entry = lines[place];
        if what == line::STORE && entry & DIRTY == 0 {
            entry |= MOVED | STORED_LATE | DIRTY;
        }
        if place != 0 {
            entry |= MOVED;
        }
    } else if what == line::STORE {
        entry |= DIRTY;
    }
    lines[..=place.unwrap_or(known - 1)].rotate_right(1);
    lines[0] = entry;
    table::<u64>(ctx, SIEVE_USED + 8 * set, 1)[0] = at;
    table::<u64>(ctx, SIEVE_STORED + 8 * set, 1)[0] = if entry & DIRTY != 0 { at } else { 0 };
}

/// Tells that of the piece `block` the last `rest` instructions did not run. If the first of those had got so far as
/// to use a line (`used`), that is taken back.
pub fn undone(ctx: &mut Ctx, (block, rest): (u32, u32), used: bool) {
    let told = used && ctx.undo_place == u64::MAX;
    let mut item = Vec::with_capacity(16);
    item.extend(block.to_le_bytes());
    item.extend(rest.to_le_bytes());
    item.extend(u64::from(told).to_le_bytes());
    trace::wide(ctx, words::UNDONE, &item);
    if used {
        let known = (ctx.tell_depth / 8) as usize;
        let lines = table::<u64>(ctx, ctx.undo_list as u32, known);
        if told {
            lines[0] = ctx.undo_bits;
            lines.rotate_left(1);
        } else {
            lines[0] = lines[0] & !line::BITS | ctx.undo_bits;
            lines[..=(ctx.undo_place / 8) as usize].rotate_left(1);
        }
    }
    forget(ctx);
}
