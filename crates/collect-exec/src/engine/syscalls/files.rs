//! Files in which the engine would show: a program that opens its own `/proc/self/maps` or
//! `smaps` gets a copy in memory without the engine's part.
//!
//! The kernel writes these files a page at a time, whole lines only, and programs can see that; so
//! reads of the copy are cut likewise. The kernel writes them when they are read, so a copy is made anew when it is
//! read from its beginning.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Answer, args, direct, pass};
use crate::engine::ctx::{Ctx, reg};
use crate::engine::{maps, sys};

/// What copies are called.
const NAMES: [&core::ffi::CStr; 2] = [c"ichnos-maps", c"ichnos-smaps"];
/// What descriptors of them are links to.
const LINKS: [&[u8]; 2] = [b"/memfd:ichnos-maps (deleted)", b"/memfd:ichnos-smaps (deleted)"];
/// What they are copies of.
const ORIGINALS: [&[u8]; 2] = [b"/proc/self/maps\0", b"/proc/self/smaps\0"];
/// The kernel's buffer.
const PAGE: usize = 4096;
/// The longest path that is looked at.
const MOST_PATH: usize = 40;

/// Whether a copy was ever handed out.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// `open` and `openat`.
pub fn open(ctx: &mut Ctx, number: i64) -> Answer {
    let a = args(ctx);
    let (at, flags) = if number == libc::SYS_open { (a[0], a[1]) } else { (a[1], a[2]) };
    let reads = flags & libc::O_ACCMODE as u64 == libc::O_RDONLY as u64;
    if !reads || !starts_with_proc(at) {
        return pass(ctx);
    }
    let Some(which) = names_own_maps(&path(at)) else { return pass(ctx) };
    let closes = if flags & libc::O_CLOEXEC as u64 != 0 { libc::MFD_CLOEXEC } else { 0 };
    let name = NAMES[which].as_ptr() as u64;
    let fd = direct(libc::SYS_memfd_create, [name, u64::from(closes), 0, 0, 0, 0]);
    if sys::failed(fd) || !fill(fd as u64, which) {
        return pass(ctx);
    }
    SHOWN.store(true, Ordering::Relaxed);
    Answer::Value(fd)
}

/// `read`: of a copy, only what the kernel would give at once.
pub fn read(ctx: &mut Ctx) -> Answer {
    let [fd, _, len, ..] = args(ctx);
    if !SHOWN.load(Ordering::Relaxed) {
        return pass(ctx);
    }
    let Some(which) = is_copy(fd) else { return pass(ctx) };
    let at = direct(libc::SYS_lseek, [fd, 0, libc::SEEK_CUR as u64, 0, 0, 0]);
    if at == 0 {
        fill(fd, which);
    }
    let mut page = [0; PAGE];
    let room = [fd, page.as_mut_ptr() as u64, PAGE as u64, at as u64, 0, 0];
    let have = usize::try_from(direct(libc::SYS_pread64, room)).unwrap_or(0).min(PAGE);
    ctx.regs[reg::RDX] = len.min(whole_lines(&page[..have]) as u64);
    let answer = pass(ctx);
    ctx.regs[reg::RDX] = len;
    answer
}

/// How much of a text the kernel gives at once: as many lines as fit into less than a page.
fn whole_lines(text: &[u8]) -> usize {
    if text.len() < PAGE {
        return text.len();
    }
    text.iter().take(PAGE - 1).rposition(|&b| b == b'\n').map_or(text.len(), |i| i + 1)
}

fn starts_with_proc(at: u64) -> bool {
    let mut head = [0; 6];
    sys::copy_in(at, &mut head) && head == *b"/proc/"
}

/// A path of the program's, without its end; cut if it is long.
fn path(at: u64) -> Vec<u8> {
    let byte = |i: usize| {
        let mut byte = [0];
        sys::copy_in(at + i as u64, &mut byte).then_some(byte[0]).filter(|&b| b != 0)
    };
    (0..MOST_PATH).map_while(byte).collect()
}

/// Which of the files a path names.
fn names_own_maps(path: &[u8]) -> Option<usize> {
    let mut parts = path.split(|&b| b == b'/').skip(2);
    let (Some(whose), Some(what), None) = (parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let number = std::str::from_utf8(whose).ok().and_then(|n| n.parse().ok());
    let own = matches!(whose, b"self" | b"thread-self") || number == Some(sys::own_numbers().0);
    let whats: [&[u8]; 2] = [b"maps", b"smaps"];
    whats.iter().position(|&w| own && w == what)
}

/// Makes a copy what its original is now.
fn fill(fd: u64, which: usize) -> bool {
    let Some(text) = maps::own_text(ORIGINALS[which]) else { return false };
    direct(libc::SYS_ftruncate, [fd, 0, 0, 0, 0, 0]);
    let mut written = 0;
    while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
        let args = [fd, rest.as_ptr() as u64, rest.len() as u64, written as u64, 0, 0];
        match usize::try_from(direct(libc::SYS_pwrite64, args)) {
            Ok(more) if more > 0 => written += more,
            _ => return false,
        }
    }
    true
}

/// Of which file a descriptor is a copy.
fn is_copy(fd: u64) -> Option<usize> {
    let link = format!("/proc/self/fd/{fd}\0");
    let mut target = [0u8; 64];
    let args = [
        libc::AT_FDCWD as u64,
        link.as_ptr() as u64,
        target.as_mut_ptr() as u64,
        target.len() as u64,
        0,
        0,
    ];
    let len = usize::try_from(direct(libc::SYS_readlinkat, args)).unwrap_or(0);
    LINKS.iter().position(|&link| target.get(..len) == Some(link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_with_a_line() {
        assert_eq!(whole_lines(b"abc\ndef"), 7);
        let mut long = vec![b'x'; PAGE];
        assert_eq!(whole_lines(&long), PAGE);
        long[100] = b'\n';
        assert_eq!(whole_lines(&long), 101);
        long[PAGE - 1] = b'\n';
        assert_eq!(whole_lines(&long), 101);
    }

    #[test]
    fn only_the_own_maps_are_meant() {
        let own = format!("/proc/{}/smaps", std::process::id());
        assert_eq!(names_own_maps(own.as_bytes()), Some(1));
        for own in ["/proc/self/maps", "/proc/thread-self/maps"] {
            assert_eq!(names_own_maps(own.as_bytes()), Some(0));
        }
        for other in ["/proc/1/maps", "/proc/self/mem", "/proc/self/task/1/maps", "/proc/"] {
            assert_eq!(names_own_maps(other.as_bytes()), None);
        }
    }
}
