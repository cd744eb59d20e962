//! Which of the program's pages hold code that may be executed.
//!
//! Read from `/proc/self/maps` at first, and kept up to date by the calls that change the address
//! space, because the file may be out of reach later (no descriptor left, another root, a filter of
//! system calls). What is not found here is looked up in the file once more: the kernel makes
//! stacks grow by itself. Code may be read directly where this says so.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::guards::Guards;
use super::sys;

const PAGE: u64 = 4096;

/// A mapping that can be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Whether the program can also write to it through this mapping.
    pub writable: bool,
    /// Whether the memory can be seen through other mappings.
    pub shared: bool,
}

/// The executable pages of the program.
pub struct Pages {
    /// In order, without overlaps.
    stretches: Vec<Stretch>,
    /// Ranges, executable or not, whose memory can be seen through other mappings; perhaps too many.
    shared: Vec<(u64, u64)>,
    stale: bool,
    text: Vec<u8>,
    /// Those that are closed to writing, which the kernel takes for the program's will.
    pub guards: Guards,
}

impl Pages {
    /// Nothing known yet.
    pub fn new() -> Self {
        Self {
            stretches: Vec::new(),
            shared: Vec::new(),
            stale: true,
            text: Vec::new(),
            guards: Guards::new(),
        }
    }

    /// The program has changed its mappings in a way that only the kernel can tell.
    pub fn forget(&mut self) {
        self.stale = true;
    }

    /// Nothing in a range can be executed any more.
    pub fn remove(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        let mut kept = Vec::with_capacity(self.stretches.len() + 1);
        for s in self.stretches.drain(..) {
            if s.end <= start || end <= s.start {
                kept.push(s);
                continue;
            }
            if s.start < start {
                kept.push(Stretch { end: start, ..s });
            }
            if end < s.end {
                kept.push(Stretch { start: end, ..s });
            }
        }
        self.stretches = kept;
    }

    /// A range can be executed from now on, and nothing else is known about it.
    pub fn add(&mut self, new: Stretch) {
        self.remove(new.start, new.end - new.start);
        let i = self.stretches.partition_point(|s| s.end <= new.start);
        self.stretches.insert(i, new);
    }

    /// A range was mapped whose memory can be seen through other mappings.
    pub fn add_shared(&mut self, start: u64, len: u64) {
        if !self.is_shared(start, len) {
            self.shared.push((start, start + len));
        }
    }

    fn is_shared(&self, start: u64, len: u64) -> bool {
        self.shared.iter().any(|&(s, e)| s < start + len && start < e)
    }

    /// The rights of a range change to executable; what it shows stays.
    pub fn allow(&mut self, start: u64, len: u64, writable: bool) {
        let shared = self.is_shared(start, len);
        self.add(Stretch { start, end: start + len, writable, shared });
    }

    /// Whether any known executable page lies in a range.
    pub fn touches(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        self.stale || self.stretches.iter().any(|s| s.start < end && start < s.end)
    }

    /// Executable ranges that are shared with other mappings.
    pub fn shared_code(&self) -> Vec<Stretch> {
        self.stretches.iter().copied().filter(|s| s.shared).collect()
    }

    /// The executable mapping that holds an address.
    pub fn find(&mut self, pc: u64) -> Option<Stretch> {
        if !self.stale
            && let Some(found) = self.lookup(pc)
        {
            return Some(found);
        }
        self.read();
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
        // program changes its mappings only through the engine, which says so here first.
        // The bytes may change under us if the program writes code, but they are decoded
        // from a copy (see `translate`).
        unsafe { std::slice::from_raw_parts(pc as *const u8, len) }
    }

    /// Other views of the memory of a shared page through which the program can write, with their
    /// rights.
    pub fn other_views(&mut self, page: u64) -> Vec<(u64, i32)> {
        self.text.clear();
        if !read_file(b"/proc/self/maps\0", &mut self.text) {
            return Vec::new();
        }
        let lines = || self.text.split(|&b| b == b'\n').filter_map(Line::parse);
        let Some(own) = lines().find(|l| (l.start..l.end).contains(&page)) else {
            return Vec::new();
        };
        let at = own.offset + (page - own.start);
        lines()
            .filter(|l| l.rights[1] == b'w' && l.rights[3] == b's' && l.file == own.file)
            .filter(|l| l.offset <= at && at - l.offset < l.end - l.start)
            .map(|l| (l.start + (at - l.offset), l.prot()))
            .filter(|&(view, _)| view != page && !super::places::is_engine(view, PAGE))
            .collect()
    }

    /// Asks the kernel; if that cannot be done, what is known must do.
    fn read(&mut self) {
        self.text.clear();
        if !read_file(b"/proc/self/maps\0", &mut self.text) {
            if self.stretches.is_empty() {
                sys::die("cannot read /proc/self/maps");
            }
            return;
        }
        self.stretches.clear();
        self.shared.clear();
        for line in self.text.split(|&b| b == b'\n').filter_map(Line::parse) {
            let (start, end) = (line.start, line.end);
            if super::places::is_engine(start, end - start) {
                continue;
            }
            let (writable, shared) = (line.rights[1] == b'w', line.rights[3] == b's');
            if shared {
                self.shared.push((start, end));
            }
            if line.rights[0] != b'r' || line.rights[2] != b'x' {
                continue;
            }
            self.stretches.push(Stretch { start, end, writable, shared });
        }
        self.stale = false;
        self.see_through_guards();
    }

    /// What the kernel says of guarded pages is not what the program may do.
    fn see_through_guards(&mut self) {
        for start in self.guards.writable() {
            if let Some(Stretch { shared, .. }) = self.lookup(start) {
                self.add(Stretch { start, end: start + PAGE, writable: true, shared });
            }
        }
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

/// A line of the file of mappings.
struct Line<'a> {
    start: u64,
    end: u64,
    rights: [u8; 4],
    offset: u64,
    /// Device and inode.
    file: (&'a str, &'a str),
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(line.get(..100.min(line.len()))?);
        // A name may hold anything, but it comes last.
        let text = text.or_else(|e| std::str::from_utf8(&line[..e.valid_up_to()])).ok()?;
        let mut words = text.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?.as_bytes().try_into().ok()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let file = (words.next()?, words.next()?);
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            rights,
            offset,
            file,
        })
    }

    fn prot(&self) -> i32 {
        let bit = |i: usize, c: u8, prot: i32| if self.rights[i] == c { prot } else { 0 };
        bit(0, b'r', libc::PROT_READ)
            | bit(1, b'w', libc::PROT_WRITE)
            | bit(2, b'x', libc::PROT_EXEC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(pages: &Pages) -> Vec<(u64, u64, bool)> {
        pages.stretches.iter().map(|s| (s.start, s.end, s.writable)).collect()
    }

    fn stretch(start: u64, end: u64) -> Stretch {
        Stretch { start, end, writable: false, shared: false }
    }

    #[test]
    fn ranges_are_cut_and_joined_as_calls_change_them() {
        let mut pages = Pages { stale: false, ..Pages::new() };
        pages.add(stretch(0x5000, 0x9000));
        pages.add(stretch(0x1000, 0x2000));
        pages.remove(0x6000, 0x1000);
        assert_eq!(
            known(&pages),
            [(0x1000, 0x2000, false), (0x5000, 0x6000, false), (0x7000, 0x9000, false)]
        );
        pages.allow(0x7000, 0x1000, true);
        assert_eq!(known(&pages)[2..], [(0x7000, 0x8000, true), (0x8000, 0x9000, false)]);
        pages.remove(0, u64::MAX);
        assert!(known(&pages).is_empty() && !pages.stale);
        pages.allow(0x3000, 0x1000, false);
        pages.add_shared(0x5000, 0x1000);
        pages.allow(0x5000, 0x1000, false);
        let shared: Vec<u64> = pages.shared_code().iter().map(|s| s.start).collect();
        assert_eq!((pages.stretches.len(), shared), (2, vec![0x5000]));
    }

    #[test]
    fn lines_of_the_file_are_understood() {
        let text = b"7f12a000-7f12b000 r-xs 00001000 00:01 1234      /memfd:x y (deleted)";
        let line = Line::parse(text).expect("a line");
        assert_eq!((line.start, line.end, line.offset), (0x7f12_a000, 0x7f12_b000, 0x1000));
        assert_eq!((line.rights, line.file), (*b"r-xs", ("00:01", "1234")));
        assert_eq!(line.prot(), libc::PROT_READ | libc::PROT_EXEC);
        assert!(Line::parse(b"").is_none() && Line::parse(b"zz-1 r").is_none());
    }
}
