//! The tables of threads that run behind a sieve: the lines that are known of each set, when each was used last, and the counters
//! of pieces.
//!
//! As long as a known line is used, nothing is told: the cache has it, and only its time changes. When another line is used, one
//! has to go. If all lines of a set are known (it is *whole*), the engine says which; else one line is known, of which
//! at most that it was stored to must be told first. Of a line of data the times are with its way, which translated code
//! finds by its slot (`sift`), unless another line of its set has that slot. Of a line
//! of code the time has a place of its own. The glue (`tell`) does what translated code does not; here is the
//! same again for accesses that vary, and what is seldom needed.
//!
//! The counters are shared memory behind the tap's buffers, so that the collector
//! reads what the thread has counted to its last moment, however that came; they appear in the thread's block, too,
//! where translated code reaches them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Known, Lines, Sieve};
use ichnos_isa_x86::{AddrExpr, Inst, MemOperand, Role};

use super::ctx::{
    Changed, Ctx, SIEVE_CODE, SIEVE_DATA, SIEVE_FETCHED, SIEVE_LINES, SIEVE_NONE, SIEVE_ROW,
    SIEVE_SET, SIEVE_SETS, SIEVE_SLOTS, SIEVE_WAY, SIEVE_WAYS, WAY_LEN, WAY_LOADED, WAY_STORED,
    reg,
};
use super::{decoded, flexible, reach, state, sys, tap, tell, thread, trace};
use crate::sieve::{self, COUNTERS_LEN, LOADS, MOST_THREADS, STORES, line};
use crate::words::{Lane, Run};
use crate::{window, words};

/// Where the bytes of an access stand in what is told about it.
pub const SIZE: u32 = 8;
/// Where stands how much earlier than the clock a reference is.
pub const AHEAD: u32 = 16;
/// How much later the next reference is: an access to two lines has two times.
pub const TICK: u32 = 2;
/// The room that telling one reference takes at most.
pub const TOLD_ROOM: usize = 2 * words::EVENT_LEN;
/// Later than all references of a piece.
const PIECE: u64 = 1 << AHEAD;

const _: () = assert!(TOLD_ROOM >= words::INSTEAD_LEN);

/// The bits of a line's number that choose its list. Of very large caches several sets share one.
pub fn sets(lines: Lines) -> u32 {
    (1 << lines.sets.min(SIEVE_SETS)) - 1
}

/// Whether there are tables for such a sieve.
pub fn fits(sieve: &Sieve) -> bool {
    // An access lies in two lines at most, and so does an instruction; lines leave room for bits.
    (6..=12).contains(&sieve.data.shift) && (6..=12).contains(&sieve.code.shift)
}

/// The lines that are known of each set: all, or one. Sets that share what is known know one line.
fn ways(lines: Lines) -> u64 {
    u64::from(if is_whole(lines) { lines.ways } else { 1 })
}

/// Whether all lines of each set are known.
fn is_whole(lines: Lines) -> bool {
    lines.sets <= SIEVE_SETS && lines.known == Known::All && lines.ways <= SIEVE_WAYS
}

/// There is no place for more code in the tables.
pub fn too_much_code() -> ! {
    sys::die("the program has too much code to be simulated while it runs; record it first");
}

/// Makes a thread's tables ready, once it has its number.
pub fn adopt(ctx: &mut Ctx) {
    let Some(sieve) = state::get().sieve else { return };
    ctx.line_mask = (1 << sieve.data.shift) - 1;
    ctx.set_shift = u64::from(sieve.data.shift - 3);
    ctx.set_mask = u64::from(sets(sieve.data)) << 3;
    ctx.data_set = u64::from(WAY_LEN) * ways(sieve.data);
    ctx.data_set_eighth = ctx.data_set / 8;
    ctx.code_ways = 8 * ways(sieve.code);
    ctx.data_whole = u64::from(is_whole(sieve.data));
    ctx.code_whole = u64::from(is_whole(sieve.code));
    (ctx.glue_tell, ctx.glue_tell_fetch) = tell::ways();
    for slot in words_at(ctx, u64::from(SIEVE_LINES), 2 << SIEVE_SLOTS).chunks_exact_mut(2) {
        slot[1] = SIEVE_DATA.into();
    }
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

/// Some words of a thread's tables.
#[allow(clippy::mut_from_ref, reason = "the tables lie behind the context, not in it")]
fn words_at(ctx: &Ctx, offset: u64, len: usize) -> &mut [u64] {
    let at = (ctx.this + offset) as *mut u64;
    // SAFETY: the tables lie in the block at whose head the context stands, and only its thread uses them; of
    // others, which may only empty them, it finds a line or none.
    unsafe { std::slice::from_raw_parts_mut(at, len) }
}

#[allow(clippy::mut_from_ref, reason = "as above")]
fn word(ctx: &Ctx, offset: u64) -> &mut u64 {
    &mut words_at(ctx, offset, 1)[0]
}

/// A known line of data, by the offset of its way.
#[derive(Clone, Copy)]
struct Way(u64);

impl Way {
    fn line(self, ctx: &Ctx) -> &mut u64 {
        word(ctx, self.0)
    }

    fn is_empty(self, ctx: &Ctx) -> bool {
        *self.line(ctx) == SIEVE_NONE
    }

    fn loaded(self, ctx: &Ctx) -> &mut u64 {
        word(ctx, self.0 + u64::from(WAY_LOADED))
    }

    fn stored(self, ctx: &Ctx) -> &mut u64 {
        word(ctx, self.0 + u64::from(WAY_STORED))
    }

    /// When its line was used last.
    fn age(self, ctx: &Ctx) -> u64 {
        *self.loaded(ctx).max(self.stored(ctx))
    }

    fn is_stored_to(self, ctx: &Ctx) -> bool {
        *self.stored(ctx) != 0
    }

    /// Makes it empty.
    fn forget(self, ctx: &Ctx) {
        let slot = Slot::of(ctx, *self.line(ctx));
        if *slot.line(ctx) == *self.line(ctx) {
            *slot.line(ctx) = SIEVE_NONE;
        }
        *self.line(ctx) = SIEVE_NONE;
        (*self.loaded(ctx), *self.stored(ctx)) = (0, 0);
    }
}

/// Where translated code looks for a line, by eight times its number.
#[derive(Clone, Copy)]
struct Slot(u64);

impl Slot {
    fn of(ctx: &Ctx, line: u64) -> Self {
        Self(line >> ctx.set_shift & ((1 << SIEVE_SLOTS) - 1) << 3)
    }

    fn line(self, ctx: &Ctx) -> &mut u64 {
        word(ctx, u64::from(SIEVE_LINES) + 2 * self.0)
    }

    fn way(self, ctx: &Ctx) -> &mut u64 {
        word(ctx, u64::from(SIEVE_WAY) + 2 * self.0)
    }

    /// Takes in the line of a way.
    fn take(self, ctx: &Ctx, way: Way) {
        (*self.line(ctx), *self.way(ctx)) = (*way.line(ctx), way.0);
    }
}

/// The ways of a set of the data cache, by the line of one of them.
fn ways_of(ctx: &Ctx, line: u64) -> impl Iterator<Item = Way> + use<> {
    data_ways(ctx, (line >> ctx.set_shift & ctx.set_mask) / 8)
}

/// The ways of a set of the data cache.
fn data_ways(ctx: &Ctx, set: u64) -> impl Iterator<Item = Way> + use<> {
    let first = u64::from(SIEVE_DATA) + set * ctx.data_set;
    (first..first + ctx.data_set).step_by(WAY_LEN as usize).map(Way)
}

/// The ways of a set of the code cache, by their offsets.
fn code_ways(ctx: &Ctx, set: u64) -> impl Iterator<Item = u64> + use<> {
    let first = u64::from(SIEVE_CODE) + set * u64::from(SIEVE_SET);
    (first..first + ctx.code_ways).step_by(8)
}

fn clear(ctx: &Ctx, sieve: &Sieve) {
    for set in 0..=u64::from(sets(sieve.code)) {
        for way in code_ways(ctx, set) {
            *fetched(ctx, *word(ctx, way + u64::from(SIEVE_ROW))) = 0;
        }
    }
    // Where a slot's way is stays: its thread may be about to put a time there.
    for slot in words_at(ctx, u64::from(SIEVE_LINES), 2 << SIEVE_SLOTS).chunks_exact_mut(2) {
        slot[0] = SIEVE_NONE;
    }
    let of = |lines, bytes: u64| (sets(lines) as usize + 1) * bytes as usize / 8;
    for way in
        words_at(ctx, u64::from(SIEVE_DATA), of(sieve.data, ctx.data_set)).chunks_exact_mut(3)
    {
        way.copy_from_slice(&[SIEVE_NONE, 0, 0]);
    }
    words_at(ctx, u64::from(SIEVE_CODE), of(sieve.code, SIEVE_SET.into())).fill(0);
}

/// When a line of code was fetched from last.
#[allow(clippy::mut_from_ref, reason = "as above")]
fn fetched(ctx: &Ctx, number: u64) -> &mut u64 {
    word(ctx, u64::from(SIEVE_FETCHED) + 8 * number)
}

/// Tells all that the cache does not know, set by set.
pub fn flush(ctx: &mut Ctx) {
    let Some(sieve) = state::get().sieve else { return };
    for set in 0..=u64::from(sets(sieve.data)) {
        tell_late(ctx, data_ways(ctx, set).collect());
    }
    if ctx.code_whole == 0 {
        return;
    }
    for set in 0..=u64::from(sets(sieve.code)) {
        let mut known: Vec<(u64, u64)> = code_ways(ctx, set)
            .filter(|&way| *word(ctx, way) != 0)
            .map(|way| (*fetched(ctx, *word(ctx, way + u64::from(SIEVE_ROW))), *word(ctx, way)))
            .collect();
        known.sort_unstable();
        for (_, at) in known {
            trace::event(ctx, words::LINE, at | line::FETCH | line::LATE);
        }
    }
}

/// Tells of a set what the cache does not know: in a whole one all lines, in the order of their use, else whether the one
/// that is known was stored to since it was told.
fn tell_late(ctx: &mut Ctx, mut known: Vec<Way>) {
    known.retain(|way| !way.is_empty(ctx));
    known.sort_unstable_by_key(|way| way.age(ctx));
    for way in known {
        let stored = way.is_stored_to(ctx);
        if ctx.data_whole == 0 && !stored {
            continue;
        }
        let what = line::LATE | line::LOAD | if stored { line::STORE } else { 0 };
        trace::event(ctx, words::LINE, *way.line(ctx) | what);
        if ctx.data_whole == 0 {
            *way.stored(ctx) = 0;
        }
    }
}

/// Empties a thread's tables: every line must be told again.
pub fn forget(ctx: &mut Ctx) {
    if let Some(sieve) = state::get().sieve {
        flush(ctx);
        clear(ctx, &sieve);
    }
}

/// Notes the accesses of an instruction that vary; of a repeated string, those that it makes before it faults.
pub fn note(ctx: &mut Ctx, inst: &Inst, runs: &[Run]) {
    let mut flushes = false;
    let repeats = flexible::repeats(inst);
    if repeats {
        let count = ctx.regs[reg::RCX];
        // SAFETY: set once to a box that lives as long as the thread, which alone uses it.
        unsafe { (*ctx.thread).repeats = (inst.pc().0, count) };
    }
    for run in runs {
        let run = Run { turns: if repeats { reach::turns(ctx, run) } else { run.turns }, ..*run };
        let mut turn = 0;
        while turn < run.turns {
            for lane in run.lanes.iter().flatten() {
                flushes |= access(ctx, lane, lane.at(turn));
            }
            turn += 1 + settled_turns(ctx, &run, turn);
        }
    }
    // What follows in the present piece is later.
    ctx.clock += PIECE;
    if flushes {
        forget_all();
    }
}

/// Notes one access; whether it takes a line from everybody's caches.
fn access(ctx: &mut Ctx, lane: &Lane, addr: u64) -> bool {
    let shift = ctx.line_mask.count_ones();
    let (counter, what) = match lane.kind() {
        0 => (LOADS, line::LOAD),
        1 => (STORES, line::STORE),
        2 => {
            prefetch(ctx, addr & !ctx.line_mask);
            return false;
        }
        _ => {
            flush(ctx);
            trace::event(ctx, words::LINE, addr & !ctx.line_mask | line::FLUSH);
            return true;
        }
    };
    let last = addr.wrapping_add(u64::from(lane.size.max(1)) - 1);
    for line in addr >> shift..=last >> shift {
        count(ctx, counter, 1);
        touch(ctx, line << shift, what);
    }
    false
}

fn count(ctx: &Ctx, counter: u32, times: u64) {
    let place = word(ctx, thread::COUNTERS_AT + 8 * u64::from(counter));
    *place = place.wrapping_add(times);
}

/// How many turns after this one use the lines that it has used, and nothing else: nothing changes but their count, which
/// is done here.
fn settled_turns(ctx: &Ctx, run: &Run, turn: u64) -> u64 {
    let lanes = || run.lanes.iter().flatten();
    let mut sets = lanes().map(|lane| lane.at(turn) >> ctx.set_shift & ctx.set_mask);
    // Of two lines that take each other's place, each use matters.
    let alternate = run.lanes.iter().all(Option::is_some) && sets.next() == sets.next();
    let matter = alternate && (ctx.data_whole == 0 || ctx.data_set < 2 * u64::from(WAY_LEN));
    if matter || lanes().any(|lane| lane.kind() > 1) {
        return 0;
    }
    let turns = lanes().map(|lane| lane.turns_within(turn, ctx.line_mask)).min().unwrap_or(0);
    let turns = turns.min(run.turns - turn - 1);
    for lane in lanes() {
        count(ctx, if lane.kind() == 0 { LOADS } else { STORES }, turns);
    }
    turns
}

/// Empties the tables of all threads: lines were taken from everybody's caches.
fn forget_all() {
    let Some(sieve) = state::get().sieve else { return };
    for &thread in state::get().threads.lock().iter() {
        // SAFETY: registered contexts stay mapped until they are taken off the list.
        clear(unsafe { &*(thread as *const Ctx) }, &sieve);
    }
}

/// A line is asked for. If it comes, nobody knows before it is used.
fn prefetch(ctx: &mut Ctx, at: u64) {
    let known: Vec<Way> = ways_of(ctx, at).collect();
    if ctx.data_whole != 0 && known.iter().any(|way| *way.line(ctx) == at) {
        return;
    }
    tell_late(ctx, known.clone());
    trace::event(ctx, words::LINE, at | line::PREFETCH);
    known.into_iter().for_each(|way| way.forget(ctx));
}

/// What the glue does with an access to a line.
fn touch(ctx: &mut Ctx, at: u64, what: u64) {
    ctx.clock += u64::from(TICK);
    let slot = Slot::of(ctx, at);
    let mut told = false;
    if *slot.line(ctx) != at {
        let known = ways_of(ctx, at).find(|way| *way.line(ctx) == at);
        told = known.is_none();
        let Some(way) = known.or_else(|| tell_line(ctx, at, what)) else { return };
        slot.take(ctx, way);
    }
    let way = Way(*slot.way(ctx));
    *way.loaded(ctx) = ctx.clock;
    // Of a set that is not known whole, only what comes later is news.
    if what == line::STORE && (ctx.data_whole != 0 || !told) {
        *way.stored(ctx) = ctx.clock;
    }
}

/// Tells a line that is not known, with the one that goes: its way.
fn tell_line(ctx: &mut Ctx, at: u64, what: u64) -> Option<Way> {
    let way = ways_of(ctx, at).min_by_key(|way| way.age(ctx))?;
    let gone = *way.line(ctx);
    let dirty = if way.is_stored_to(ctx) { line::STORE } else { 0 };
    if !way.is_empty(ctx) && ctx.data_whole != 0 {
        trace::put(ctx, &instead(at | what, gone | dirty));
    } else {
        if dirty != 0 {
            trace::event(ctx, words::LINE, gone | line::LATE | line::LOAD | line::STORE);
        }
        trace::event(ctx, words::LINE, at | what);
    }
    way.forget(ctx);
    *way.line(ctx) = at;
    Some(way)
}

fn instead(comes: u64, goes: u64) -> [u8; words::INSTEAD_LEN] {
    let mut item = [0; words::INSTEAD_LEN];
    item[..4].copy_from_slice(&words::INSTEAD.to_le_bytes());
    item[4..12].copy_from_slice(&comes.to_le_bytes());
    item[12..].copy_from_slice(&goes.to_le_bytes());
    item
}

/// Tells that of the piece `block` the last `rest` instructions did not run. If the first of those had got so far as
/// to use lines (`used`), that is taken back.
pub fn undone(ctx: &mut Ctx, (block, rest): (u32, u32), used: bool) {
    let told = if used { undo(ctx) } else { 0 };
    let mut item = Vec::with_capacity(16);
    item.extend(block.to_le_bytes());
    item.extend(rest.to_le_bytes());
    item.extend(told.to_le_bytes());
    trace::wide(ctx, words::UNDONE, &item);
    forget(ctx);
}

/// The instruction at which the program stands has faulted: whether it is a repeated string that has made some turns before, so that it
/// counts as one that was given a smaller count (`halfway`).
pub fn is_halfway(ctx: &Ctx) -> bool {
    // SAFETY: as in `note`.
    let (pc, before) = unsafe { (*ctx.thread).repeats };
    let left = ctx.regs[reg::RCX];
    pc == ctx.rip
        && before != left
        && decoded::inst_at(pc).is_ok_and(|inst| flexible::repeats(&inst))
}

/// Takes back what the instruction at which the program stands has changed before it faulted: how many lines it told.
fn undo(ctx: &mut Ctx) -> u64 {
    let (Some(sieve), Some(inst)) = (state::get().sieve, decoded::inst_at(ctx.rip).ok()) else {
        return 0;
    };
    let mut told = 0;
    if let Some((role, at)) = last_access(ctx, &inst) {
        let slot = Slot::of(ctx, at);
        if ctx.undo == u64::MAX {
            told += 1;
            put_back(ctx, ctx.undo_told);
        } else if *slot.line(ctx) == at {
            let way = Way(*slot.way(ctx));
            *(if role == Role::Load { way.loaded(ctx) } else { way.stored(ctx) }) = ctx.undo;
        }
    }
    if ctx.undo_fetch_pc == ctx.rip & u64::from(u32::MAX) {
        if ctx.undo_fetch == u64::MAX {
            told += 1;
            put_back_code(ctx, ctx.undo_fetch_told);
        } else if let Some(number) =
            state::get().cache.lock().line_number(sieve::lines(&inst, sieve.code.shift).1)
        {
            *fetched(ctx, number.into()) = ctx.undo_fetch;
        }
    }
    told
}

/// Below this address nobody has memory.
const LOWEST: u64 = 1 << 16;

/// Whether the use of a line is taken back if the access faults. Programs that go on after a fault, or end by it, seldom meant
/// the stack, and hardly ever an address that is written in their code, unless nothing can be there.
pub fn may_be_undone(operand: &MemOperand) -> bool {
    let AddrExpr { base, disp, .. } = operand.address;
    let on_stack = base.is_some_and(|reg| reg.number() == reg::RSP as u8);
    !on_stack && (!operand.address.is_constant() || (disp as u64) < LOWEST)
}

/// The last access that an instruction was about to make, if translated code has looked at it before: its line. An
/// access to two lines ends in the second.
fn last_access(ctx: &Ctx, inst: &Inst) -> Option<(Role, u64)> {
    let operand: &MemOperand = inst.memory().last().filter(|_| sieve::is_simple(inst))?;
    if !may_be_undone(operand) {
        return None;
    }
    let last = flexible::address_of(ctx, operand).wrapping_add(u64::from(operand.size.max(1)) - 1);
    Some((operand.role, last & !ctx.line_mask))
}

/// Puts the line back that had to go.
fn put_back(ctx: &Ctx, changed: Changed) {
    let way = Way(changed.way);
    way.forget(ctx);
    *way.line(ctx) = changed.gone;
    (*way.loaded(ctx), *way.stored(ctx)) = (changed.used, changed.stored);
}

fn put_back_code(ctx: &Ctx, changed: Changed) {
    let number = changed.way + u64::from(SIEVE_ROW);
    *fetched(ctx, *word(ctx, number)) = 0;
    (*word(ctx, changed.way), *word(ctx, number)) = (changed.gone, changed.stored);
    if changed.gone != 0 {
        *fetched(ctx, changed.stored) = changed.used;
    }
}
