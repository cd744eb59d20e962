//! The engine's streams: each thread's buffer, and the process's roadmap.
//!
//! Translated code stores at the address in the context's `buffer` and moves it on; the page
//! behind each buffer is closed, so a store that does not fit faults, and the handler puts the next
//! buffer in place. Whatever Rust code writes checks for room itself.
//!
//! Each buffer begins with the time, with how much of it must be looked at, and with where the thread went behind it: these are put
//! there when it is submitted. When few buffers are free, a thread gives its own back before it
//! may sleep in the kernel, so that any number of threads can be traced.
//!
//! Roadmap before stream: a thread's buffer is submitted only after everything that was said about
//! the roadmap so far.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicU64, Ordering};

use ichnos_tap::{BufferKind, MOST_BUFFERS};

use super::ctx::Ctx;
use super::lock::Lock;
use super::{count, state, sys, tap};
use crate::window;
use crate::words::{self, EVENT_LEN, MOST_ITEM, RoadmapHead, Stretch, WIDE_HEAD};

const PAGE: u64 = 4096;
const NONE: u32 = u32::MAX;
/// With fewer free buffers than this, threads that may sleep give theirs back.
const FEW: usize = 512;

/// How many waits of a tenth of a second without a free buffer make one doubt that the collector lives.
const SILENCE: u32 = 30;

/// Where in a buffer the values of [`words::PLAIN`] and [`words::BEHIND`] are, behind the time.
const PLAIN_AT: u64 = EVENT_LEN as u64 + 4;
const BEHIND_AT: u64 = PLAIN_AT + EVENT_LEN as u64;

/// A buffer that is being filled.
struct Open {
    index: u32,
    at: u64,
}

static ROADMAP: Lock<Open> = Lock::new(Open { index: NONE, at: 0 });

/// Buffers behind which this process has closed the page. Most are never used, and closing all
/// pages would take longer than a short program runs.
static CLOSED: [AtomicU64; MOST_BUFFERS / 64] = [const { AtomicU64::new(0) }; MOST_BUFFERS / 64];

/// Makes ready: a thread without a buffer points at the end of the first.
pub fn start() {
    close_guard(0);
}

/// Closes the page behind a buffer, once.
fn close_guard(index: u32) {
    let bit = 1 << (index % 64);
    let Some(word) = CLOSED.get(index as usize / 64) else { return };
    if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
        return;
    }
    let guard = end_of(index);
    // SAFETY: the page belongs to the tap and is used by nobody.
    let done = unsafe { sys::call(libc::SYS_mprotect, [guard, PAGE, 0, 0, 0, 0]) };
    if sys::failed(done) {
        sys::die("a guard page of the tap cannot be closed");
    }
}

/// Whether an address is in a page that was closed.
pub fn is_guard(addr: u64) -> bool {
    let layout = tap::header().layout;
    let end = window::TAP + layout.total();
    (window::TAP + layout.first..end).contains(&addr)
}

fn start_of(index: u32) -> u64 {
    window::TAP + tap::header().layout.offset(index)
}

fn end_of(index: u32) -> u64 {
    start_of(index) + tap::header().layout.len
}

/// Takes a free buffer, waiting for one if need be.
fn take(kind: BufferKind, process: u32, thread: u32) -> u32 {
    let header = tap::header();
    let (mut before, mut silent) = (header.room.load(Ordering::Acquire), 0);
    loop {
        let seen = header.room.load(Ordering::Acquire);
        silent = if seen == before { silent + 1 } else { 0 };
        before = seen;
        if let Some(index) = header.take(kind, process, thread) {
            let stale = header.stale(index) as usize;
            // SAFETY: the buffer was taken, and is longer than what is left in it. This thread writes there next, so the bytes are
            // better made zero here than by the collector, on another processor.
            unsafe { (start_of(index) as *mut u8).write_bytes(0, stale) };
            header.cleaned(index);
            return index;
        }
        if header.closed.load(Ordering::Acquire) != 0 || !is_alive(header.collector) {
            sys::die("nobody takes the trace any more");
        }
        // One that was killed has not said so. (Where it cannot be seen, in another name space, it is
        // dead if it does nothing either.)
        if silent > SILENCE && !sys::exists(header.collector) {
            sys::die("the collector is gone");
        }
        header.waits.fetch_add(1, Ordering::Relaxed);
        header.waiting.fetch_add(1, Ordering::SeqCst);
        tap::wait(&header.room, seen, 100_000_000);
        header.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the collector still runs: one that was killed has not closed the tap.
fn is_alive(process: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { sys::call(libc::SYS_kill, [u64::from(process), 0, 0, 0, 0, 0]) };
    asked != -i64::from(libc::ESRCH)
}

fn submit(index: u32, len: u64) {
    let header = tap::header();
    header.submit(index, len);
    if header.ring() {
        tap::wake(&header.doorbell);
    }
}

/// Submits what is known about the roadmap.
fn submit_roadmap() {
    let mut roadmap = ROADMAP.lock();
    if roadmap.index != NONE {
        let index = std::mem::replace(&mut roadmap.index, NONE);
        submit(index, roadmap.at - start_of(index));
    }
}

/// Says what blocks some code makes.
pub fn describe(head: RoadmapHead, stretches: &[Stretch], code: &[u8]) {
    let mut message = head.to_bytes().to_vec();
    message.extend(stretches.iter().flat_map(|stretch| stretch.to_bytes()));
    message.extend_from_slice(code);
    message.resize(message.len().next_multiple_of(8), 0);
    let mut roadmap = ROADMAP.lock();
    let len = message.len() as u64;
    if roadmap.index != NONE && roadmap.at + len > end_of(roadmap.index) {
        let index = std::mem::replace(&mut roadmap.index, NONE);
        submit(index, roadmap.at - start_of(index));
    }
    if roadmap.index == NONE {
        roadmap.index = take(BufferKind::ROADMAP, state::get().process(), NONE);
        roadmap.at = start_of(roadmap.index);
    }
    // SAFETY: the buffer is ours and has room for `len` bytes.
    unsafe { (roadmap.at as *mut u8).copy_from_nonoverlapping(message.as_ptr(), message.len()) };
    roadmap.at += len;
}

/// Gives a thread its first buffer. Safe to call when it has one.
pub fn open(ctx: &mut Ctx) {
    if !state::get().traced || ctx.buffer_index != NONE {
        return;
    }
    // SAFETY: the thread's data lives as long as its context.
    let process = unsafe { &*ctx.thread }.process;
    ctx.buffer_index = take(BufferKind::STREAM, process, ctx.id);
    close_guard(ctx.buffer_index);
    ctx.buffer = start_of(ctx.buffer_index);
    time(ctx);
    // What they say is known at the end.
    append(ctx, &plain(words::PLAIN, 0));
    append(ctx, &plain(words::BEHIND, 0));
}

/// Tells the time.
pub fn time(ctx: &mut Ctx) {
    if state::get().traced {
        event(ctx, words::TIME, tap::header().stamp(sys::now()));
    }
}

/// The thread begins, or its process has become another one.
pub fn begin(ctx: &mut Ctx) {
    if !state::get().traced {
        return;
    }
    // SAFETY: the thread's data lives as long as its context.
    let thread = unsafe { &*ctx.thread };
    let (pid, tid) = sys::own_numbers();
    let (process, creator) = (thread.process, thread.creator);
    let mut item = Vec::with_capacity(16);
    [process, creator, pid, tid].iter().for_each(|n| item.extend(n.to_le_bytes()));
    wide(ctx, words::START, &item);
    hand_in(ctx);
}

/// Submits what a thread has stored so far, so that it comes before what others submit from now on.
pub fn hand_in(ctx: &mut Ctx) {
    if ctx.buffer_index != NONE {
        next(ctx, None);
    }
}

/// The thread may sleep: if buffers are few it gives its own back.
pub fn rest(ctx: &mut Ctx) {
    let header = tap::header();
    let many = || header.threads.load(Ordering::Relaxed) as usize > FEW;
    if ctx.buffer_index != NONE && many() && header.free_buffers() < FEW {
        close(ctx);
        // Whatever translated code would store next must find that there is no buffer.
        ctx.buffer = end_of(0);
    }
}

/// Submits a thread's buffer.
pub fn close(ctx: &mut Ctx) {
    close_behind(ctx, None);
}

/// The same; `behind` is where the thread's next item begins, if that is known and needs nothing that was stored before it.
fn close_behind(ctx: &mut Ctx, behind: Option<u64>) {
    if ctx.buffer_index == NONE {
        return;
    }
    submit_roadmap();
    let index = std::mem::replace(&mut ctx.buffer_index, NONE);
    let start = start_of(index);
    let plain = ctx.special.min(ctx.buffer).saturating_sub(start);
    for (at, value) in [(PLAIN_AT, plain), (BEHIND_AT, behind.unwrap_or(0))] {
        // SAFETY: the buffer is this thread's until it is submitted, and begins with these events.
        unsafe { ((start + at) as *mut u64).write_unaligned(value) };
    }
    submit(index, ctx.buffer - start);
}

/// Puts the next buffer in a thread's place of the full one; `behind` as above.
fn next(ctx: &mut Ctx, behind: Option<u64>) {
    close_behind(ctx, behind);
    open(ctx);
}

/// The buffer has no room for a record, of which `begun` bytes lie before the place where it goes on:
/// what there is of it moves to the next buffer. `item` is where it begins, if that is known and it needs nothing that was stored before
/// it.
pub fn overflow(ctx: &mut Ctx, begun: u64, item: Option<u64>) {
    let mut part = [0_u8; PAGE as usize];
    let (mut len, mut is_special) = (0, false);
    if ctx.buffer_index != NONE {
        ctx.buffer -= begun;
        is_special = ctx.special > ctx.buffer;
        look(ctx);
        // A record that was cut off by a fault may have room reserved behind the end.
        len = end_of(ctx.buffer_index).saturating_sub(ctx.buffer).min(PAGE) as usize;
        let from = ctx.buffer as *mut u8;
        // SAFETY: from the record's start to the end of this thread's buffer. The place is emptied, so
        // that nobody takes it for a record.
        unsafe {
            part.as_mut_ptr().copy_from_nonoverlapping(from, len);
            from.write_bytes(0, len);
        }
    }
    next(ctx, item);
    // SAFETY: a fresh buffer has room for more than a page.
    unsafe { (ctx.buffer as *mut u8).copy_from_nonoverlapping(part.as_ptr(), len) };
    ctx.buffer += begun;
    if is_special {
        ctx.special = ctx.buffer;
    }
}

/// The buffer has no room for a record of which nothing counts yet: the next one begins anew, with this item.
pub fn renew(ctx: &mut Ctx, item: Option<u64>) {
    if ctx.buffer_index != NONE {
        look(ctx);
        let len = end_of(ctx.buffer_index).saturating_sub(ctx.buffer) as usize;
        // SAFETY: what is left of this thread's buffer, where nobody is to find the beginning of a record.
        unsafe { (ctx.buffer as *mut u8).write_bytes(0, len) };
    }
    next(ctx, item);
}

/// Looks for paths in what a thread has stored in its buffer, which is full.
fn look(ctx: &Ctx) {
    let start = start_of(ctx.buffer_index);
    let len = (ctx.buffer - start) as usize;
    // SAFETY: what this thread has stored, which nobody changes meanwhile.
    state::get().look_for_paths(unsafe { std::slice::from_raw_parts(start as *const u8, len) });
}

/// A thread goes on elsewhere, and will not store what is still to be stored of the record that it began last, which has so many bytes: if that
/// reaches beyond the buffer's end, it moves to the next one.
pub fn settle(ctx: &mut Ctx, begun: u64) {
    if ctx.buffer_index != NONE && ctx.buffer > end_of(ctx.buffer_index) {
        overflow(ctx, begun, None);
    }
}

/// In the child of a fork: the parent's buffers stay the parent's.
pub fn disown(ctx: &mut Ctx) {
    ctx.buffer_index = NONE;
    ctx.buffer = end_of(0);
    ROADMAP.lock().index = NONE;
}

/// For a fork: the child's streams may name blocks of the parent's, so what is known about
/// the roadmap goes out first; it is not in the middle of a change while `during` runs.
pub fn held<T>(during: impl FnOnce() -> T) -> T {
    submit_roadmap();
    let _roadmap = ROADMAP.lock();
    during()
}

/// Says how many instructions ran that were not recorded.
pub fn gap(ctx: &mut Ctx, what: u64) {
    append(ctx, &plain(words::GAP, what));
}

fn plain(tag: u32, value: u64) -> [u8; EVENT_LEN] {
    let mut bytes = [0; EVENT_LEN];
    bytes[..4].copy_from_slice(&tag.to_le_bytes());
    bytes[4..].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// The last bytes that a thread has stored, if they are in its buffer.
pub fn last(ctx: &mut Ctx, len: usize) -> Option<&mut [u8]> {
    let from = ctx.buffer.checked_sub(len as u64)?;
    if ctx.buffer_index == NONE || from < start_of(ctx.buffer_index) {
        return None;
    }
    // SAFETY: the bytes are in the buffer, which is this thread's alone.
    Some(unsafe { std::slice::from_raw_parts_mut(from as *mut u8, len) })
}

/// Appends an event.
pub fn event(ctx: &mut Ctx, tag: u32, value: u64) {
    match tag {
        // Notes about blocks mean nothing where none are recorded, and bases are told when that begins.
        words::LEFT | words::CUT | words::FS_BASE | words::GS_BASE | words::STACK
            if ctx.recorded == 0 => {}
        words::TIME => append(ctx, &plain(tag, value)),
        _ => put(ctx, &plain(tag, value)),
    }
}

/// Appends an event with these contents.
pub fn wide(ctx: &mut Ctx, tag: u32, contents: &[u8]) {
    let mut item = Vec::with_capacity(WIDE_HEAD + contents.len());
    item.extend(tag.to_le_bytes());
    item.extend((contents.len() as u32).to_le_bytes());
    item.extend(contents);
    put(ctx, &item);
}

/// The buffer holds something that the collector should look at soon, though it may be read late.
pub fn note(ctx: &Ctx) {
    if ctx.buffer_index != NONE {
        tap::header().note(ctx.buffer_index);
    }
}

/// Appends an event with these numbers.
pub fn numbers(ctx: &mut Ctx, tag: u32, values: &[u64]) {
    if state::get().traced {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        wide(ctx, tag, &bytes);
    }
}

/// Appends an item, in one buffer, behind what must be told before it.
pub fn put(ctx: &mut Ctx, item: &[u8]) {
    count::tell_gap(ctx);
    append(ctx, item);
}

fn append(ctx: &mut Ctx, item: &[u8]) {
    if !state::get().traced {
        return;
    }
    open(ctx);
    if item.len() > MOST_ITEM {
        sys::die("an item of the trace is too long");
    }
    if ctx.buffer + item.len() as u64 > end_of(ctx.buffer_index) {
        next(ctx, None);
    }
    // SAFETY: the buffer is this thread's and has room.
    unsafe { (ctx.buffer as *mut u8).copy_from_nonoverlapping(item.as_ptr(), item.len()) };
    ctx.buffer += item.len() as u64;
    ctx.special = ctx.buffer;
}
