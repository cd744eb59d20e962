//! Which of the program's pages hold code that may be executed.
//!
//! Known from `/proc/self/maps`, read again when something unknown is asked for after the
//! program has changed its mappings. Code may be read directly where this says so.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::sys;

/// A mapping that can be executed.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Whether the program can also write to it through this mapping.
    pub writable: bool,
}

/// The executable pages of the program.
pub struct Pages {
    stretches: Vec<Stretch>,
    stale: bool,
    text: Vec<u8>,
}

impl Pages {
    /// Nothing known yet.
    pub fn new() -> Self {
        Self { stretches: Vec::new(), stale: true, text: Vec::new() }
    }

    /// The program has changed its mappings.
    pub fn forget(&mut self) {
        self.stale = true;
    }

    /// Whether any known executable page lies in a range.
    pub fn touches(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        self.stale || self.stretches.iter().any(|s| s.start < end && start < s.end)
    }

    /// The executable mapping that holds an address.
    pub fn find(&mut self, pc: u64) -> Option<Stretch> {
        if self.stale {
            self.read();
        }
        self.lookup(pc)
    }

    fn lookup(&self, pc: u64) -> Option<Stretch> {
        let i = self.stretches.partition_point(|s| s.end <= pc);
        self.stretches.get(i).copied().filter(|s| s.start <= pc)
    }

    /// The code at an address, up to `most` bytes; empty if it is not executable.
    pub fn code(&mut self, pc: u64, most: usize) -> &'static [u8] {
        let Some(stretch) = self.find(pc) else { return &[] };
        let mut end = stretch.end;
        while end < pc + most as u64 {
            match self.lookup(end) {
                Some(next) => end = next.end,
                None => break,
            }
        }
        let len = (end - pc).min(most as u64) as usize;
        // SAFETY: the kernel says that these pages are mapped readable and executable; the
        // program changes its mappings only through the engine, which calls `forget` first.
        // The bytes may change under us if the program writes code, but they are decoded
        // from a copy (see `translate`).
        unsafe { std::slice::from_raw_parts(pc as *const u8, len) }
    }

    fn read(&mut self) {
        self.text.clear();
        if !read_file(b"/proc/self/maps\0", &mut self.text) {
            sys::die("cannot read /proc/self/maps");
        }
        self.stretches.clear();
        for line in self.text.split(|&b| b == b'\n') {
            let Some(stretch) = parse(line) else { continue };
            if super::places::is_engine(stretch.start, stretch.end - stretch.start) {
                continue;
            }
            self.stretches.push(stretch);
        }
        self.stale = false;
    }
}

/// Reads a whole small file without libc.
pub fn read_file(path: &[u8], out: &mut Vec<u8>) -> bool {
    debug_assert_eq!(path.last(), Some(&0));
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    let at = libc::AT_FDCWD as u64;
    // SAFETY: the path is a live string that ends in zero.
    let fd = unsafe { sys::call(libc::SYS_openat, [at, path.as_ptr() as u64, flags, 0, 0, 0]) };
    if sys::failed(fd) {
        return false;
    }
    loop {
        let len = out.len();
        out.reserve(64 << 10);
        let room = out.spare_capacity_mut();
        let args = [fd as u64, room.as_mut_ptr() as u64, room.len() as u64, 0, 0, 0];
        // SAFETY: the kernel writes at most `room.len()` bytes there.
        let n = unsafe { sys::call(libc::SYS_read, args) };
        if n <= 0 {
            break;
        }
        // SAFETY: `n` bytes were written behind `len`.
        unsafe { out.set_len(len + n as usize) };
    }
    // SAFETY: the descriptor is ours.
    unsafe { sys::call(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) };
    true
}

fn parse(line: &[u8]) -> Option<Stretch> {
    let text = std::str::from_utf8(line.get(..64.min(line.len()))?).ok()?;
    let mut words = text.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    if rights.first() != Some(&b'r') || rights.get(2) != Some(&b'x') {
        return None;
    }
    Some(Stretch {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        writable: rights.get(1) == Some(&b'w'),
    })
}
