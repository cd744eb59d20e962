//! The kernel's table of the process's mappings, as it has it: whole, from the text of `/proc/self/maps`, or the mapping at an
//! address, by asking the same file (since Linux 6.11). Both give the same, except that only the text has what is not
//! the process's own (`[vsyscall]`).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::pages::read_file;
use super::{places, sys};
use crate::words::{MOST_ITEM, map_bits};

/// The longest path that is told whole.
pub const MOST_PATH: usize = MOST_ITEM - 64;
/// The longest name that the kernel gives when asked.
const MOST_NAME: usize = 4096;

/// One line of the kernel's table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Where in its file it begins.
    pub offset: u64,
    /// As in [`map_bits`].
    pub bits: u64,
    /// Its file's path, or its name.
    pub path: Vec<u8>,
}

impl Vma {
    /// Whether any of it is the engine's.
    pub fn is_engine(&self) -> bool {
        places::is_engine(self.start, self.end - self.start)
    }

    /// A line of the text.
    pub fn parse(line: &[u8]) -> Option<Self> {
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
        Some(Self { start, end, offset, bits, path: short(path).to_vec() })
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn short(path: &[u8]) -> &[u8] {
    path.get(..MOST_PATH).unwrap_or(path)
}

/// The whole table without the engine's part. `None` without the file (no descriptor left, another root).
pub fn all() -> Option<Vec<Vma>> {
    let mut text = Vec::new();
    if !read_file(b"/proc/self/maps\0", &mut text) {
        return None;
    }
    let lines = text.split(|&b| b == b'\n').filter_map(Vma::parse);
    Some(lines.filter(|vma| !vma.is_engine()).collect())
}

/// The file of mappings, to be asked.
pub struct Asked {
    fd: u64,
    name: Vec<u8>,
}

/// What the kernel takes and gives: `struct procmap_query`.
#[derive(Default)]
#[repr(C)]
struct Query {
    size: u64,
    flags: u64,
    addr: u64,
    start: u64,
    end: u64,
    rights: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name_addr: u64,
    build_id_addr: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: u64 = 3 << 30 | (size_of::<Query>() as u64) << 16 | (b'f' as u64) << 8 | 17;
/// The mapping at an address, or else the next one.
const COVERING_OR_NEXT: u64 = 0x10;
// The kernel's names for rights are as in `map_bits`.
const RIGHTS: u64 = map_bits::READ | map_bits::WRITE | map_bits::EXEC;
const _: () = assert!(map_bits::READ == 1 && map_bits::WRITE == 2 && map_bits::EXEC == 4);

impl Asked {
    /// `None` without the file.
    pub fn open() -> Option<Self> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let path = c"/proc/self/maps".as_ptr() as u64;
        let args = [libc::AT_FDCWD as u64, path, flags, 0, 0, 0];
        // SAFETY: the path is a string.
        let fd = unsafe { sys::call(libc::SYS_openat, args) };
        (!sys::failed(fd)).then(|| Self { fd: fd as u64, name: vec![0; MOST_NAME] })
    }

    /// The mapping at an address or else the next one, `Ok(None)` if there is none. `Err` if the kernel cannot be asked.
    pub fn next(&mut self, addr: u64) -> Result<Option<Vma>, i64> {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            flags: COVERING_OR_NEXT,
            addr,
            name_size: self.name.len() as u32,
            name_addr: self.name.as_mut_ptr() as u64,
            ..Query::default()
        };
        let args = [self.fd, PROCMAP_QUERY, &raw mut query as u64, 0, 0, 0];
        // SAFETY: the structure is live and says its size; the name has the room that it says.
        let result = unsafe { sys::call(libc::SYS_ioctl, args) };
        if result == -i64::from(libc::ENOENT) {
            return Ok(None);
        }
        if sys::failed(result) {
            return Err(result);
        }
        // With the zero behind it.
        let len = (query.name_size as usize).saturating_sub(1);
        let name = self.name.get(..len).unwrap_or_default();
        let file = if query.inode == 0 { 0 } else { map_bits::FILE };
        Ok(Some(Vma {
            start: query.start,
            end: query.end,
            offset: query.offset,
            bits: query.rights & RIGHTS | file,
            path: short(&as_in_text(name)).to_vec(),
        }))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { sys::call(libc::SYS_close, [self.fd, 0, 0, 0, 0, 0]) };
    }
}

/// The text has `\012` for a newline, and escapes nothing else.
fn as_in_text(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\n' => out.extend(b"\\012"),
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let line = b"7000-9000 r-xp 00001000 fe:00 12   /usr/lib/a b.so";
        let vma = Vma::parse(line).expect("a line");
        assert_eq!((vma.start, vma.end, vma.offset), (0x7000, 0x9000, 0x1000));
        assert_eq!(vma.bits, map_bits::READ | map_bits::EXEC | map_bits::FILE);
        assert_eq!(vma.path, b"/usr/lib/a b.so");
        assert_eq!(Vma::parse(b"nonsense"), None);
    }

    #[test]
    fn newlines_are_as_in_the_text() {
        assert_eq!(as_in_text(b"/a\nb\\c"), b"/a\\012b\\c");
    }
}
