//! What lies where in the process, for the trace: `/proc/self/maps` without the engine's part,
//! read whole after every call that may have changed it, and told as differences.
//!
//! Whatever the kernel merged, split, moved or replaced shows. Two things are put right: pages that the
//! engine has closed to writing are told as the program made them, and the first stack is told
//! as large as it may grow.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;

use super::ctx::Ctx;
use super::pages::read_file;
use super::{gates, places, state, sync, sys, trace};
use crate::words::{self, MOST_ITEM, map_bits};

/// The kernel keeps a stack so far from the mapping below.
const STACK_GAP: u64 = 256 * 4096;
/// The longest path that is told whole.
const MOST_PATH: usize = MOST_ITEM - 64;

/// One line of the kernel's table.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Vma {
    start: u64,
    end: u64,
    offset: u64,
    bits: u64,
    path: Vec<u8>,
}

/// What was told last.
#[derive(Default)]
pub struct Table(Vec<Vma>);

/// Tells what has changed in the process's memory since the last time.
pub fn refresh(ctx: &mut Ctx) {
    if !state::get().traced {
        return;
    }
    let guarded = state::get().cache.lock().guards.pages();
    // SAFETY: the thread's data lives as long as its context.
    let maps = Arc::clone(&unsafe { &*ctx.thread }.maps);
    let mut table = maps.lock();
    // Without the file (no descriptor left, another root) what was told last must do.
    let Some(new) = read(&guarded) else { return };
    tell(ctx, &table.0, &new);
    table.0 = new;
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
        if let Some(vma) = parse(line.trim_ascii_end()) {
            keep = !places::is_engine(vma.start, vma.end - vma.start);
        }
        if keep {
            out.extend(line);
        }
    }
    Some(out)
}

/// Whether the table may differ after a call.
pub fn may_change(number: i64, args: &[u64; 6], result: i64) -> bool {
    const MAP_SHADOW_STACK: i64 = 453;
    let may = match number {
        libc::SYS_mmap
        | libc::SYS_mprotect
        | libc::SYS_munmap
        | libc::SYS_mremap
        | libc::SYS_shmat
        | libc::SYS_shmdt
        | libc::SYS_remap_file_pages
        | libc::SYS_pkey_mprotect
        | libc::SYS_setrlimit
        | libc::SYS_io_setup
        | libc::SYS_io_destroy
        | MAP_SHADOW_STACK => true,
        libc::SYS_brk => args[0] != 0,
        // Only setting a limit, or a name of memory, can show.
        libc::SYS_prlimit64 => args[2] != 0,
        libc::SYS_prctl => args[0] == libc::PR_SET_VMA as u64 || args[0] == libc::PR_SET_MM as u64,
        _ => false,
    };
    may && !sys::failed(result)
}

fn read(guarded: &[u64]) -> Option<Vec<Vma>> {
    let mut text = Vec::new();
    if !read_file(b"/proc/self/maps\0", &mut text) {
        return None;
    }
    let own = |vma: &Vma| !places::is_engine(vma.start, vma.end - vma.start);
    let lines = text.split(|&b| b == b'\n');
    let mut table: Vec<Vma> = Vec::new();
    for mut vma in lines.filter_map(parse).filter(own) {
        let closed = guarded.iter().any(|page| (vma.start..vma.end).contains(page));
        if closed {
            vma.bits |= map_bits::WRITE;
        }
        match table.last_mut() {
            Some(last) if !guarded.is_empty() && joins(last, &vma, guarded) => last.end = vma.end,
            _ => table.push(vma),
        }
    }
    widen_stack(&mut table, stack_limit());
    Some(table)
}

/// Whether two neighbours are apart only because the engine closed pages of one of them.
fn joins(a: &Vma, b: &Vma, guarded: &[u64]) -> bool {
    let touched = guarded.iter().any(|page| *page == b.start || page + 4096 == b.start);
    let on = b.bits & map_bits::FILE == 0 || a.offset + (a.end - a.start) == b.offset;
    touched && a.end == b.start && a.bits == b.bits && on && a.path == b.path
}

fn parse(line: &[u8]) -> Option<Vma> {
    let mut fields = line.splitn(6, |&b| b == b' ');
    let mut range = fields.next()?.split(|&b| b == b'-');
    let (start, end) = (hex(range.next()?)?, hex(range.next()?)?);
    let rights = fields.next()?;
    let offset = hex(fields.next()?)?;
    let _device = fields.next()?;
    let inode = fields.next()?;
    let path = fields.next().unwrap_or_default().trim_ascii_start();
    let bit = |at: usize, letter: u8, bit: u64| {
        if rights.get(at) == Some(&letter) { bit } else { 0 }
    };
    let file = if inode == b"0" { 0 } else { map_bits::FILE };
    let bits = bit(0, b'r', map_bits::READ)
        | bit(1, b'w', map_bits::WRITE)
        | bit(2, b'x', map_bits::EXEC)
        | file;
    Some(Vma { start, end, offset, bits, path: path.get(..MOST_PATH).unwrap_or(path).to_vec() })
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
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
    let Some(at) = table.iter().position(|vma| vma.path == b"[stack]") else { return };
    let below = at.checked_sub(1).map_or(0, |i| table[i].end.saturating_add(STACK_GAP));
    let stack = &mut table[at];
    let lowest = limit.map_or(0, |bytes| stack.end.saturating_sub(bytes));
    stack.start = stack.start.min(lowest.max(below).next_multiple_of(4096));
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
mod tests {
    use super::*;

    fn table(lines: &[&str]) -> Vec<Vma> {
        lines.iter().filter_map(|line| parse(line.as_bytes())).collect()
    }

    #[test]
    fn lines_are_parsed() {
        let t = table(&["7000-9000 r-xp 00001000 fe:00 12   /usr/lib/a b.so", "nonsense"]);
        assert_eq!(t.len(), 1);
        assert_eq!((t[0].start, t[0].end, t[0].offset), (0x7000, 0x9000, 0x1000));
        assert_eq!(t[0].bits, map_bits::READ | map_bits::EXEC | map_bits::FILE);
        assert_eq!(t[0].path, b"/usr/lib/a b.so");
    }

    #[test]
    fn pages_that_the_engine_closed_are_joined_again() {
        let t = table(&["1000-2000 rwxp 0 00:00 0", "2000-3000 rwxp 0 00:00 0"]);
        assert!(joins(&t[0], &t[1], &[0x2000]));
        assert!(joins(&t[0], &t[1], &[0x1000]));
        assert!(!joins(&t[0], &t[1], &[0x5000]));
    }

    #[test]
    fn the_stack_covers_its_limit_but_not_its_neighbour() {
        let lines = ["1000-2000 rw-p 0 00:00 0", "800000-900000 rw-p 0 00:00 0 [stack]"];
        let mut t = table(&lines);
        widen_stack(&mut t, Some(0x20_0000));
        assert_eq!(t[1].start, 0x70_0000);
        widen_stack(&mut t, None);
        assert_eq!(t[1].start, 0x10_2000);
    }
}
