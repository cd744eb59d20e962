//! What lies where in the process, for the trace: the kernel's table without the engine's part, told as differences after
//! every call that may have changed it.
//!
//! Where the kernel can be asked for single mappings ([`vmas`]), only those that a call may have changed are looked at:
//! the ranges that it names, widened until they hold whole mappings of before and after. Otherwise, and where
//! a call's effect is not known by its arguments, the table is read whole. Whatever the kernel merged, split, moved or replaced
//! shows. Two things are put right: pages that the engine has closed to writing are told as the program made them, and
//! the first stack is told as large as it may grow.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ctx::Ctx;
use super::pages::read_file;
use super::vmas::{self, Asked, MOST_PATH, Vma};
use super::{gates, guards, state, sync, sys, trace};
use crate::words::{self, map_bits};

const PAGE: u64 = 4096;
/// The kernel keeps a stack so far from the mapping below.
const STACK_GAP: u64 = 256 * PAGE;
const STACK: &[u8] = b"[stack]";
const HEAP: &[u8] = b"[heap]";
const EVERYTHING: Range = (0, u64::MAX);

/// What was told last.
#[derive(Default)]
pub struct Table {
    /// In order, without overlaps.
    told: Vec<Vma>,
    /// Ranges in which the kernel may have split or joined mappings since, which alone is not worth telling.
    doubtful: Vec<Range>,
    /// Where something was moved to: the kernel does not join what lies there with its neighbours.
    moved: Vec<Range>,
}

/// First address, and first after it.
type Range = (u64, u64);

/// What a call may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// Nothing that is told.
    Nothing,
    /// Anything.
    Anything,
    /// What lies in these ranges, or has lain there.
    Ranges([Range; 2]),
    /// The program's break, which is here now.
    Break(u64),
    /// Only where mappings in a range begin and end.
    Borders(Range),
}

impl Changed {
    fn range(start: u64, len: u64) -> Self {
        Self::Ranges([range(start, len); 2])
    }
}

fn range(start: u64, len: u64) -> Range {
    (start, start.saturating_add(len.max(1)))
}

/// Whether the table is always read whole: the kernel cannot be asked for single mappings, makes some grow by itself, or
/// another process changes them, which would not be noticed.
static WHOLE: AtomicBool = AtomicBool::new(false);

/// A process is about to share the calling one's memory while both run.
pub fn share() {
    WHOLE.store(true, Ordering::Relaxed);
}

/// Tells what a call has changed in the process's memory since the last time.
pub fn refresh(ctx: &mut Ctx, changed: Changed) {
    if changed == Changed::Nothing || !state::get().traced {
        return;
    }
    // SAFETY: the thread's data lives as long as its context.
    let maps = Arc::clone(&unsafe { &*ctx.thread }.maps);
    let mut table = maps.lock();
    let mut ranges = match changed {
        Changed::Borders(range) => return table.doubt(range),
        Changed::Ranges(ranges) => ranges.to_vec(),
        Changed::Break(at) => vec![table.heap(at).unwrap_or(EVERYTHING)],
        Changed::Nothing | Changed::Anything => vec![EVERYTHING],
    };
    if let [from, to] = ranges[..]
        && from.0 != to.0
    {
        table.note_move(from, to);
    }
    ranges.append(&mut table.doubtful);
    if let Some(parts) = table.parts(ranges) {
        let old: Vec<Vma> = parts.iter().flat_map(|p| table.told[p.old.clone()].to_vec()).collect();
        let new: Vec<Vma> = parts.iter().flat_map(|p| p.new.clone()).collect();
        tell(ctx, &old, &new);
        table.put(parts);
        return;
    }
    // Without the file what was told last must do, until it can be read again.
    let Some(mut new) = put_right(vmas::all) else { return table.doubt(EVERYTHING) };
    widen_stack(&mut new, stack_limit());
    tell(ctx, &table.told, &new);
    table.told = new;
}

/// A part of the table that may have changed.
struct Part {
    /// Where it is.
    range: Range,
    /// Which mappings go.
    old: std::ops::Range<usize>,
    /// Which come in their place.
    new: Vec<Vma>,
}

impl Table {
    /// What has to be replaced so that ranges are as the kernel has them now, in order. `None` if only the whole table shows it.
    fn parts(&self, mut ranges: Vec<Range>) -> Option<Vec<Part>> {
        if WHOLE.load(Ordering::Relaxed) || ranges.contains(&EVERYTHING) {
            return None;
        }
        let mut asked = Asked::open()?;
        ranges.sort_unstable();
        ranges.dedup();
        let mut parts: Vec<Part> = Vec::new();
        for mut range in ranges {
            loop {
                let part = self.part(&mut asked, range)?;
                // Widened, it may reach the part before.
                match parts.pop_if(|last| part.range.0 < last.range.1) {
                    Some(last) => {
                        range = (last.range.0.min(part.range.0), last.range.1.max(part.range.1));
                    }
                    None => break parts.push(part),
                }
            }
        }
        Some(parts)
    }

    fn part(&self, asked: &mut Asked, range: Range) -> Option<Part> {
        let (mut start, mut end) = range;
        let mut looked = false;
        loop {
            let first = self.told.partition_point(|vma| vma.end <= start);
            let last = self.told.partition_point(|vma| vma.start < end).max(first);
            if let [a, .., z] | [a @ z] = &self.told[first..last] {
                (start, end) = (start.min(a.start), end.max(z.end));
            }
            if self.moves_stack(start, end) {
                return None;
            }
            let mut refused = false;
            let new = put_right(|| {
                let new = within(asked, start, end);
                refused = new.is_err();
                new.ok()
            });
            let Some(new) = new else {
                WHOLE.fetch_or(refused, Ordering::Relaxed);
                return None;
            };
            if new.iter().any(|vma| vma.path == STACK) {
                return None;
            }
            let from = new.first().map_or(start, |vma| vma.start.min(start));
            let to = new.last().map_or(end, |vma| vma.end.max(end));
            if (from, to) == (start, end) {
                let (from, to) = if looked { (from, to) } else { self.beyond(&new, (from, to)) };
                looked = true;
                if (from, to) == (start, end) {
                    return Some(Part { range: (start, end), old: first..last, new });
                }
                (start, end) = (from, to);
                continue;
            }
            (start, end) = (from, to);
        }
    }

    /// Something was moved. What has gone since it was moved is forgotten, so that there are no more notes than mappings.
    fn note_move(&mut self, from: Range, to: Range) {
        let Self { told, moved, .. } = self;
        moved.retain(|&(start, end)| {
            let first = told.partition_point(|vma| vma.end <= start);
            (start, end) != from
                && (start, end) != to
                && told.get(first).is_some_and(|vma| vma.start < end)
        });
        moved.push(to);
    }

    /// A range, and a byte of those neighbours with which the kernel would have joined what is new in it, had the engine not closed
    /// pages at the border.
    fn beyond(&self, new: &[Vma], (start, end): Range) -> Range {
        if !guards::any() {
            return (start, end);
        }
        let guarded = closed();
        let is_closed = |at: u64| guarded.contains(&at) || guarded.contains(&at.wrapping_sub(PAGE));
        let was_moved = |at: u64| self.moved.iter().any(|(from, to)| (*from..=*to).contains(&at));
        let alike = |own: Option<&Vma>, at: u64, other: Option<&Vma>| {
            let alike = own.zip(other).is_some_and(|(a, b)| a.bits == b.bits && a.path == b.path);
            alike && is_closed(at) && !was_moved(at)
        };
        let own = |at: u64, side: fn(&Vma) -> u64| new.iter().find(|vma| side(vma) == at);
        let told = |at: u64, side: fn(&Vma) -> u64| self.told.iter().find(|vma| side(vma) == at);
        let below = alike(own(start, |v| v.start), start, told(start, |v| v.end));
        let above = alike(own(end, |v| v.end), end, told(end, |v| v.start));
        (start - u64::from(below), end + u64::from(above))
    }

    fn put(&mut self, parts: Vec<Part>) {
        for part in parts.into_iter().rev() {
            self.told.splice(part.old, part.new);
        }
    }

    /// Mappings in a range may have been split or joined.
    fn doubt(&mut self, range: Range) {
        const MOST: usize = 16;
        if self.doubtful.len() == MOST {
            self.doubtful = vec![EVERYTHING];
        }
        if !self.doubtful.contains(&EVERYTHING) {
            self.doubtful.push(range);
        }
    }

    /// Whether a change in a range may change how far the first stack can grow.
    fn moves_stack(&self, start: u64, end: u64) -> bool {
        let stack = self.told.iter().rfind(|vma| vma.path == STACK);
        stack.is_some_and(|stack| start < stack.end && end.saturating_add(STACK_GAP) >= stack.start)
    }

    /// All that is or was told as the heap, and both neighbours, whose names depend on the break.
    fn heap(&self, at: u64) -> Option<Range> {
        let first = self.told.iter().find(|vma| vma.path == HEAP)?;
        let last = self.told.iter().rfind(|vma| vma.path == HEAP)?;
        let end = last.end.max(at.next_multiple_of(PAGE));
        Some((first.start - 1, end + 1))
    }
}

/// The mappings in a range as the kernel has them, without the engine's.
fn within(asked: &mut Asked, start: u64, end: u64) -> Result<Vec<Vma>, i64> {
    let mut found = Vec::new();
    let mut at = start;
    while at < end {
        let Some(vma) = asked.next(at)?.filter(|vma| vma.start < end) else { break };
        at = vma.end;
        if vma.is_engine() {
            continue;
        }
        // Another thread may have joined or moved mappings meanwhile: what is newer holds, and that thread will look again.
        while found.pop_if(|old: &mut Vma| old.start >= vma.start).is_some() {}
        if let Some(last) = found.last_mut() {
            last.end = last.end.min(vma.start);
        }
        found.push(vma);
    }
    Ok(found)
}

/// Reads mappings, and tells them as the program made them.
fn put_right(read: impl FnOnce() -> Option<Vec<Vma>>) -> Option<Vec<Vma>> {
    // Others may close and open pages meanwhile.
    let mut pages = closed();
    let read = read()?;
    pages.extend(closed());
    Some(without_guards(read, &pages))
}

/// The pages that the engine has closed.
fn closed() -> Vec<u64> {
    if guards::any() { state::get().cache.lock().pages.guards.pages() } else { Vec::new() }
}

/// The path of the process's program.
pub fn own_path() -> Vec<u8> {
    let mut path = vec![0; MOST_PATH];
    let (link, room) = (c"/proc/self/exe".as_ptr() as u64, path.len() as u64);
    let args = [libc::AT_FDCWD as u64, link, path.as_mut_ptr() as u64, room, 0, 0];
    // SAFETY: the kernel writes into the live vector, as much as it has room for.
    let len = unsafe { sys::call(libc::SYS_readlinkat, args) };
    path.truncate(usize::try_from(len).unwrap_or(0));
    path
}

/// A file of the kernel's about the process's mappings (its path ends with a zero byte), without the engine's
/// part: each line that begins with a range speaks for those after it.
pub fn own_text(path: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    if !read_file(path, &mut text) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut keep = true;
    for line in text.split_inclusive(|&b| b == b'\n') {
        if let Some(vma) = Vma::parse(line.trim_ascii_end()) {
            keep = !vma.is_engine();
        }
        if keep {
            out.extend(line);
        }
    }
    Some(out)
}

/// What a call may have changed in the table.
pub fn changed(number: i64, args: &[u64; 6], result: i64) -> Changed {
    const MAP_SHADOW_STACK: i64 = 453;
    const GROWING: u64 = (libc::PROT_GROWSDOWN | libc::PROT_GROWSUP) as u64;
    let failed = sys::failed(result);
    let fixed = match number {
        libc::SYS_mmap => args[3] & libc::MAP_FIXED as u64 != 0,
        libc::SYS_mremap => args[3] & libc::MREMAP_FIXED as u64 != 0,
        _ => false,
    };
    match number {
        // If they fail, some of it may have been done.
        libc::SYS_prctl if args[0] == libc::PR_SET_VMA as u64 => Changed::range(args[2], args[3]),
        libc::SYS_mlock | libc::SYS_mlock2 | libc::SYS_munlock | libc::SYS_mbind => {
            Changed::Borders(range(args[0], args[1]))
        }
        // Other advice does something at once, and is not kept with the mapping.
        libc::SYS_madvise if matches!(args[2], 0..=2 | 10..=19) => {
            Changed::Borders(range(args[0], args[1]))
        }
        libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_munmap if failed => {
            Changed::range(args[0], args[1])
        }
        libc::SYS_mmap if failed && fixed => Changed::range(args[0], args[1]),
        libc::SYS_mremap if failed && fixed => {
            Changed::Ranges([range(args[0], args[1]), range(args[4], args[2])])
        }
        _ if failed => Changed::Nothing,
        libc::SYS_mmap => {
            if args[3] & libc::MAP_GROWSDOWN as u64 != 0 {
                WHOLE.store(true, Ordering::Relaxed);
            }
            Changed::range(result as u64, args[1])
        }
        libc::SYS_mprotect | libc::SYS_pkey_mprotect if args[2] & GROWING == 0 => {
            Changed::range(args[0], args[1])
        }
        libc::SYS_munmap => Changed::range(args[0], args[1]),
        libc::SYS_mremap => {
            Changed::Ranges([range(args[0], args[1]), range(result as u64, args[2])])
        }
        // As long as it is; what was in its place goes with it.
        libc::SYS_shmat => Changed::range(result as u64, 1),
        libc::SYS_brk if args[0] != 0 => Changed::Break(result as u64),
        libc::SYS_mprotect
        | libc::SYS_pkey_mprotect
        | libc::SYS_shmdt
        | libc::SYS_remap_file_pages
        | libc::SYS_setrlimit
        | libc::SYS_io_setup
        | libc::SYS_io_destroy
        | MAP_SHADOW_STACK => Changed::Anything,
        // Only setting a limit can show.
        libc::SYS_prlimit64 if args[2] != 0 => Changed::Anything,
        libc::SYS_prctl if args[0] == libc::PR_SET_MM as u64 => Changed::Anything,
        libc::SYS_mlockall | libc::SYS_munlockall => Changed::Borders(EVERYTHING),
        _ => Changed::Nothing,
    }
}

/// Mappings as they are without what the engine has closed to writing. The kernel may have joined a closed page with neighbours
/// that the program itself has closed.
fn without_guards(read: Vec<Vma>, guarded: &[u64]) -> Vec<Vma> {
    let mut table: Vec<Vma> = Vec::with_capacity(read.len());
    for vma in read {
        for piece in pieces(vma, guarded) {
            match table.last_mut() {
                Some(last) if joins(last, &piece, guarded) => last.end = piece.end,
                _ => table.push(piece),
            }
        }
    }
    table
}

/// The pages of a mapping that the engine has closed, writable again, and what lies between them.
fn pieces(vma: Vma, guarded: &[u64]) -> Vec<Vma> {
    let inside = |page: &u64| (vma.start..vma.end).contains(page);
    let mut closed: Vec<u64> = guarded.iter().copied().filter(inside).collect();
    if closed.is_empty() || vma.bits & map_bits::WRITE != 0 {
        return vec![vma];
    }
    closed.sort_unstable();
    closed.dedup();
    let mut pieces: Vec<Vma> = Vec::new();
    let mut add = |start: u64, end: u64, more: u64| {
        if start < end {
            let offset = if vma.bits & map_bits::FILE == 0 { 0 } else { start - vma.start };
            let (offset, bits) = (vma.offset + offset, vma.bits | more);
            pieces.push(Vma { start, end, offset, bits, path: vma.path.clone() });
        }
    };
    let mut at = vma.start;
    for page in closed {
        add(at, page, 0);
        at = page + PAGE;
        add(page, at, map_bits::WRITE);
    }
    add(at, vma.end, 0);
    pieces
}

/// Whether two neighbours are apart only because the engine closed pages of one of them.
fn joins(a: &Vma, b: &Vma, guarded: &[u64]) -> bool {
    let touched = guarded.iter().any(|page| *page == b.start || page + PAGE == b.start);
    let on = b.bits & map_bits::FILE == 0 || a.offset + (a.end - a.start) == b.offset;
    touched && a.end == b.start && a.bits == b.bits && on && a.path == b.path
}

fn stack_limit() -> Option<u64> {
    let mut limit = [0u64; 2];
    let args = [0, libc::RLIMIT_STACK as u64, 0, limit.as_mut_ptr() as u64, 0, 0];
    // SAFETY: nothing is set; the array is as large as the kernel writes.
    let result = unsafe { sys::call(libc::SYS_prlimit64, args) };
    (result == 0 && limit[0] != libc::RLIM_INFINITY).then_some(limit[0])
}

/// The kernel grows the first stack by itself, so all that it may become is its extent from the start.
fn widen_stack(table: &mut [Vma], limit: Option<u64>) {
    let Some(at) = table.iter().position(|vma| vma.path == STACK) else { return };
    let below = at.checked_sub(1).map_or(0, |i| table[i].end.saturating_add(STACK_GAP));
    let stack = &mut table[at];
    let lowest = limit.map_or(0, |bytes| stack.end.saturating_sub(bytes));
    stack.start = stack.start.min(lowest.max(below).next_multiple_of(PAGE));
}

/// Tells what one must hear who knows `old` to know `new`.
fn tell(ctx: &mut Ctx, old: &[Vma], new: &[Vma]) {
    for vma in old {
        let mut at = vma.start;
        let first = new.partition_point(|n| n.end <= vma.start);
        for n in new[first..].iter().take_while(|n| n.start < vma.end) {
            if n.start > at {
                trace::numbers(ctx, words::UNMAP, &[at, n.start]);
            }
            at = at.max(n.end);
        }
        if at < vma.end {
            trace::numbers(ctx, words::UNMAP, &[at, vma.end]);
        }
    }
    for vma in new {
        let known = old.binary_search_by_key(&vma.start, |o| o.start);
        if known.map_or(true, |i| old[i] != *vma) {
            tell_map(ctx, vma);
        }
    }
}

fn tell_map(ctx: &mut Ctx, vma: &Vma) {
    let mut contents = Vec::with_capacity(32 + vma.path.len());
    for number in [vma.start, vma.end, vma.offset, vma.bits] {
        contents.extend(number.to_le_bytes());
    }
    contents.extend(&vma.path);
    trace::wide(ctx, words::MAP, &contents);
    trace::note(ctx);
    let code = map_bits::EXEC | map_bits::FILE;
    if vma.bits & code == code {
        sync::learn(&vma.path, vma.start, vma.offset);
        gates::learn(&vma.path, vma.start, vma.offset);
    }
}

#[cfg(test)]
mod tests;
