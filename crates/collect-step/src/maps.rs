//! What lies where in a process: `/proc/PID/maps`, read whole after every call
//! that may have changed it, and the difference to what was there before.
//!
//! Reading all of it and comparing is slower than following each call's
//! arguments, but cannot go wrong: whatever the kernel merged, split, moved or
//! replaced shows.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;

use ichnos_base::{MapKind, Protection};

use crate::sys::{self, Tid};

/// One line of the kernel's table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Vma {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) protection: Protection,
    /// Whether writes through another mapping show here.
    pub(crate) shared: bool,
    pub(crate) offset: u64,
    /// The file's path or a name in brackets.
    pub(crate) path: String,
    /// Whether there is a file.
    pub(crate) file: bool,
}

impl Vma {
    pub(crate) fn contains(&self, addr: u64) -> bool {
        (self.start..self.end).contains(&addr)
    }

    /// Whether code here can change without a system call on this mapping.
    pub(crate) fn code_may_change(&self) -> bool {
        self.shared || self.protection.has(Protection::WRITE)
    }

    /// The sort of memory, as far as the table tells; files may be images.
    pub(crate) fn kind(&self) -> MapKind {
        match self.path.as_str() {
            "[heap]" => MapKind::HEAP,
            "[stack]" => MapKind::STACK,
            "[vdso]" => MapKind::VDSO,
            _ if self.file => MapKind::FILE,
            _ => MapKind::OTHER,
        }
    }
}

/// One thing that changed between two tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// These addresses are no longer mapped.
    Gone { start: u64, end: u64 },
    /// This is new or not what it was.
    New(Vma),
}

/// The present table of a process; empty if the process is gone.
pub(crate) fn read(pid: Tid) -> Vec<Vma> {
    // The table's paths are bytes; what is not UTF-8 in them is replaced.
    let bytes = fs::read(format!("/proc/{}/maps", pid.0)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut table: Vec<Vma> = text.lines().filter_map(parse).collect();
    let limit = sys::stack_limit(pid);
    widen_stack(&mut table, limit);
    table
}

fn parse(line: &str) -> Option<Vma> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let bits = fields.next()?.as_bytes();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let _device = fields.next()?;
    let inode = fields.next()?;
    let path = fields.next().unwrap_or("").trim_start();
    let bit = |at: usize, letter: u8, value: Protection| {
        if bits.get(at) == Some(&letter) { value.0 } else { 0 }
    };
    Some(Vma {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        protection: Protection(
            bit(0, b'r', Protection::READ)
                | bit(1, b'w', Protection::WRITE)
                | bit(2, b'x', Protection::EXEC),
        ),
        shared: bits.get(3) == Some(&b's'),
        offset,
        path: unescape(path),
        file: inode != "0",
    })
}

/// Undoes the kernel's `\012` for a newline, the one character it escapes.
fn unescape(path: &str) -> String {
    path.replace("\\012", "\n")
}

/// The kernel grows the first stack by itself, down to its limit, without a
/// call that we could see: so we take all of that as its extent from the start.
/// The kernel keeps a gap of 256 pages to the next mapping below; so do we.
fn widen_stack(table: &mut [Vma], limit: Option<u64>) {
    const GAP: u64 = 256 * 4096;
    let Some(at) = table.iter().position(|vma| vma.kind() == MapKind::STACK) else { return };
    let below = at.checked_sub(1).map_or(0, |i| table[i].end.saturating_add(GAP));
    let stack = &mut table[at];
    let lowest = limit.map_or(0, |bytes| stack.end.saturating_sub(bytes));
    stack.start = stack.start.min(lowest.max(below).next_multiple_of(4096));
}

/// What to tell so that who knows `old` knows `new`.
pub(crate) fn changes(old: &[Vma], new: &[Vma]) -> Vec<Change> {
    let mut out = Vec::new();
    for vma in old {
        gone(vma, new, &mut out);
    }
    let fresh = new.iter().filter(|vma| {
        old.binary_search_by_key(&vma.start, |o| o.start).map_or(true, |i| old[i] != **vma)
    });
    out.extend(fresh.cloned().map(Change::New));
    out
}

/// The parts of an old mapping that nothing new covers.
fn gone(vma: &Vma, new: &[Vma], out: &mut Vec<Change>) {
    let mut at = vma.start;
    let first = new.partition_point(|n| n.end <= vma.start);
    for n in &new[first..] {
        if n.start >= vma.end {
            break;
        }
        if n.start > at {
            out.push(Change::Gone { start: at, end: n.start });
        }
        at = at.max(n.end);
    }
    if at < vma.end {
        out.push(Change::Gone { start: at, end: vma.end });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vma(start: u64, end: u64, path: &str) -> Vma {
        Vma {
            start,
            end,
            protection: Protection::READ,
            shared: false,
            offset: 0,
            path: path.into(),
            file: false,
        }
    }

    #[test]
    fn a_line_is_parsed() {
        let line = "7ffff7dd5000-7ffff7df7000 r-xp 00001000 fe:00 1234   /usr/lib/a b.so";
        let got = parse(line).unwrap();
        assert_eq!((got.start, got.end, got.offset), (0x7fff_f7dd_5000, 0x7fff_f7df_7000, 0x1000));
        assert_eq!(got.protection, Protection(5));
        assert_eq!((got.path.as_str(), got.file, got.shared), ("/usr/lib/a b.so", true, false));
        assert!(parse("nonsense").is_none());
        assert!(parse("1000-2000 rw-s 0 00:00 0").unwrap().code_may_change());
    }

    #[test]
    fn the_stack_covers_its_limit_but_not_its_neighbour() {
        let mut table = [vma(0x1000, 0x2000, ""), vma(0x80_0000, 0x90_0000, "[stack]")];
        widen_stack(&mut table, Some(0x20_0000));
        assert_eq!(table[1].start, 0x70_0000);
        widen_stack(&mut table, None);
        assert_eq!(table[1].start, 0x10_2000);
    }

    #[test]
    fn differences_are_told_once() {
        let old = [vma(0x1000, 0x5000, "a"), vma(0x8000, 0x9000, "b")];
        let new = [vma(0x1000, 0x2000, "a"), vma(0x3000, 0x4000, "c"), vma(0x8000, 0x9000, "b")];
        let expected = [
            Change::Gone { start: 0x2000, end: 0x3000 },
            Change::Gone { start: 0x4000, end: 0x5000 },
            Change::New(new[0].clone()),
            Change::New(new[1].clone()),
        ];
        assert_eq!(changes(&old, &new), expected);
        assert_eq!(changes(&new, &new), []);
        assert_eq!(changes(&[], &new).len(), 3);
    }
}
