//! The tables of threads that run behind a sieve: the lines that are known of each set, when each was used last, and the counters
//! of pieces.
//!
//! As long as a known line is used, nothing is told: the cache has it, and only its time changes. When another line is used, one
//! has to go. If all lines of a set are known (it is *whole*), the engine says which; else one line is known, of which
//! at most that it was stored to must be told first. Of a line of data the times are in its slot, where translated code
//! finds them (`sift`), unless another line of its set has that slot: then they are with its way. Of a line
//! of code the time has a place of its own. The glue (`tell`) does what translated code does not; here is the
//! same again for accesses that vary, and what is seldom needed.
//!
//! The counters are shared memory behind the tap's buffers, so that the collector
//! reads what the thread has counted to its last moment, however that came; they appear in the thread's block, too,
//! where translated code reaches them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Known, Lines, Sieve};
use ichnos_isa_x86::{Inst, MemOperand, Role};

use super::ctx::{
    Changed, Ctx, SIEVE_CODE, SIEVE_DATA, SIEVE_FETCHED, SIEVE_LINES, SIEVE_LOADED, SIEVE_ROW,
    SIEVE_SET, SIEVE_SETS, SIEVE_SLOTS, SIEVE_STORED, SIEVE_WAY, SIEVE_WAYS, reg,
};
use super::{decoded, flexible, state, sys, tap, tell, thread, trace};
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

/// Eight times the lines that are known of each set: all, or one. Sets that share what is known know one line.
fn ways(lines: Lines) -> u64 {
    8 * u64::from(if is_whole(lines) { lines.ways } else { 1 })
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
    (ctx.data_ways, ctx.code_ways) = (ways(sieve.data), ways(sieve.code));
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

    /// Another line comes here. It has no slot yet.
    fn put(self, ctx: &Ctx, line: u64) {
        *self.line(ctx) = line;
        *word(ctx, self.0 + 3 * u64::from(SIEVE_ROW)) = Slot::of(ctx, line).0;
    }

    fn slot(self, ctx: &Ctx) -> Slot {
        Slot(*word(ctx, self.0 + 3 * u64::from(SIEVE_ROW)))
    }

    /// Where its times are: when it was loaded from or used, and when it was stored to.
    fn times(self, ctx: &Ctx) -> [u64; 2] {
        let slot = self.slot(ctx);
        if *slot.line(ctx) == *self.line(ctx) {
            return [slot.used(), slot.stored()];
        }
        self.own_times()
    }

    /// Where they are if it is in no slot.
    fn own_times(self) -> [u64; 2] {
        [self.0 + u64::from(SIEVE_ROW), self.0 + 2 * u64::from(SIEVE_ROW)]
    }

    /// When it was used last.
    fn age(self, ctx: &Ctx) -> u64 {
        self.times(ctx).map(|at| *word(ctx, at)).into_iter().max().unwrap_or(0)
    }

    fn is_stored_to(self, ctx: &Ctx) -> bool {
        *word(ctx, self.times(ctx)[1]) != 0
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
        word(ctx, u64::from(SIEVE_LINES) + 4 * self.0)
    }

    fn used(self) -> u64 {
        u64::from(SIEVE_LOADED) + 4 * self.0
    }

    fn stored(self) -> u64 {
        u64::from(SIEVE_STORED) + 4 * self.0
    }

    /// Takes in the line of a way, with its times; those of the line before go back to its way.
    fn take(self, ctx: &Ctx, way: Way) {
        let from = word(ctx, u64::from(SIEVE_WAY) + 4 * self.0);
        if *self.line(ctx) != 0 {
            let before = Way(*from);
            let [age, stored] = [before.age(ctx), *word(ctx, self.stored())];
            let [age_at, stored_at] = before.own_times();
            (*word(ctx, age_at), *word(ctx, stored_at)) = (age, stored);
        }
        let [used, stored] = way.own_times().map(|at| *word(ctx, at));
        (*word(ctx, self.used()), *word(ctx, self.stored())) = (used, stored);
        (*self.line(ctx), *from) = (*way.line(ctx), way.0);
    }
}

/// The ways of a set of the data cache, by the line of one of them.
fn ways_of(ctx: &Ctx, line: u64) -> impl Iterator<Item = Way> + use<> {
    let set = (line >> ctx.set_shift & ctx.set_mask) / 8;
    ways_from(u64::from(SIEVE_DATA), set, ctx.data_ways).map(Way)
}

fn ways_from(table: u64, set: u64, ways: u64) -> impl Iterator<Item = u64> {
    let first = table + set * u64::from(SIEVE_SET);
    (0..ways / 8).map(move |way| first + 8 * way)
}

fn clear(ctx: &Ctx, sieve: &Sieve) {
    let len = |lines: Lines| (sets(lines) as usize + 1) * SIEVE_SET as usize / 8;
    for set in 0..=u64::from(sets(sieve.code)) {
        for way in ways_from(u64::from(SIEVE_CODE), set, ctx.code_ways) {
            *fetched(ctx, *word(ctx, way + u64::from(SIEVE_ROW))) = 0;
        }
    }
    // Where a slot's way is stays: its thread may be about to put times there.
    for slot in words_at(ctx, u64::from(SIEVE_LINES), 4 << SIEVE_SLOTS).chunks_exact_mut(4) {
        slot[..3].fill(0);
    }
    words_at(ctx, u64::from(SIEVE_DATA), len(sieve.data)).fill(0);
    words_at(ctx, u64::from(SIEVE_CODE), len(sieve.code)).fill(0);
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
        tell_late(ctx, ways_from(u64::from(SIEVE_DATA), set, ctx.data_ways).map(Way).collect());
    }
    if ctx.code_whole == 0 {
        return;
    }
    for set in 0..=u64::from(sets(sieve.code)) {
        let mut known: Vec<(u64, u64)> = ways_from(u64::from(SIEVE_CODE), set, ctx.code_ways)
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
    known.retain(|way| *way.line(ctx) != 0);
    known.sort_unstable_by_key(|way| way.age(ctx));
    for way in known {
        let stored = way.is_stored_to(ctx);
        if ctx.data_whole == 0 && !stored {
            continue;
        }
        let what = line::LATE | line::LOAD | if stored { line::STORE } else { 0 };
        trace::event(ctx, words::LINE, *way.line(ctx) | what);
        if ctx.data_whole == 0 {
            *word(ctx, way.times(ctx)[1]) = 0;
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

/// Notes the accesses of an instruction that vary.
pub fn note(ctx: &mut Ctx, runs: &[Run]) {
    let mut flushes = false;
    for run in runs {
        let mut turn = 0;
        while turn < run.turns {
            for lane in run.lanes.iter().flatten() {
                flushes |= access(ctx, lane, lane.at(turn));
            }
            turn += 1 + settled_turns(ctx, run, turn);
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
    let matter = alternate && (ctx.data_whole == 0 || ctx.data_ways < 16);
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
    known.into_iter().for_each(|way| forget_line(ctx, way));
}

fn forget_line(ctx: &Ctx, way: Way) {
    let slot = way.slot(ctx);
    if *slot.line(ctx) == *way.line(ctx) {
        *slot.line(ctx) = 0;
    }
    *way.line(ctx) = 0;
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
    *word(ctx, slot.used()) = ctx.clock;
    // Of a set that is not known whole, only what comes later is news.
    if what == line::STORE && (ctx.data_whole != 0 || !told) {
        *word(ctx, slot.stored()) = ctx.clock;
    }
}

/// Tells a line that is not known, with the one that goes: its way.
fn tell_line(ctx: &mut Ctx, at: u64, what: u64) -> Option<Way> {
    let way = oldest(ctx, at)?;
    let gone = *way.line(ctx);
    let dirty = if gone != 0 && way.is_stored_to(ctx) { line::STORE } else { 0 };
    if gone != 0 && ctx.data_whole != 0 {
        trace::put(ctx, &instead(at | what, gone | dirty));
    } else {
        if dirty != 0 {
            trace::event(ctx, words::LINE, gone | line::LATE | line::LOAD | line::STORE);
        }
        trace::event(ctx, words::LINE, at | what);
    }
    forget_line(ctx, way);
    way.put(ctx, at);
    way.times(ctx).into_iter().for_each(|time| *word(ctx, time) = 0);
    Some(way)
}

/// The way of a line's set that is empty, or whose line was used before all others.
fn oldest(ctx: &Ctx, at: u64) -> Option<Way> {
    let mut oldest = None;
    let mut least = u64::MAX;
    for way in ways_of(ctx, at) {
        if *way.line(ctx) == 0 {
            return Some(way);
        }
        let age = way.age(ctx);
        if age < least {
            (oldest, least) = (Some(way), age);
        }
    }
    oldest
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

/// Takes back what the instruction at which the program stands has changed before it faulted: how many lines it told.
fn undo(ctx: &mut Ctx) -> u64 {
    let (Some(sieve), Some(inst)) = (state::get().sieve, decoded::inst_at(ctx.rip).ok()) else {
        return 0;
    };
    let mut told = 0;
    if let Some((role, at)) = last_access(ctx, &inst) {
        let slot = Slot::of(ctx, at);
        let place = if role == Role::Load { slot.used() } else { slot.stored() };
        if ctx.undo == u64::MAX {
            told += 1;
            put_back(ctx, ctx.undo_told);
        } else if *slot.line(ctx) == at {
            *word(ctx, place) = ctx.undo;
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

/// Whether the use of a line is taken back if the access faults. Programs that go on after a fault seldom meant the stack, and
/// hardly ever an address that is written in their code.
pub fn may_be_undone(operand: &MemOperand) -> bool {
    let on_stack = operand.address.base.is_some_and(|reg| reg.number() == reg::RSP as u8);
    !on_stack && !operand.address.is_constant()
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
    forget_line(ctx, way);
    way.put(ctx, changed.gone);
    let [age, stored] = way.own_times();
    *word(ctx, age) = changed.used.max(changed.stored);
    *word(ctx, stored) = changed.stored;
}

fn put_back_code(ctx: &Ctx, changed: Changed) {
    let number = changed.way + u64::from(SIEVE_ROW);
    *fetched(ctx, *word(ctx, number)) = 0;
    (*word(ctx, changed.way), *word(ctx, number)) = (changed.gone, changed.stored);
    if changed.gone != 0 {
        *fetched(ctx, changed.stored) = changed.used;
    }
}
