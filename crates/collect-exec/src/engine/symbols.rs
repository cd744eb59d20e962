//! A reader of ELF symbol tables, as small as the engine needs: it asks for a few names and reads
//! no more than the tables. What is wrong with a file only means that nothing is found.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::sys;
use crate::words::{u32_at, u64_at};

const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
const SYMBOL: usize = 24;
/// No table that is longer is read.
const MOST: u64 = 64 << 20;

/// A file that is open.
struct File(u64);

impl File {
    fn open(path: &[u8]) -> Option<Self> {
        let mut path = path.to_vec();
        path.push(0);
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        let args = [libc::AT_FDCWD as u64, path.as_ptr() as u64, flags, 0, 0, 0];
        // SAFETY: the path is live and ends in zero.
        let fd = unsafe { sys::call(libc::SYS_openat, args) };
        (!sys::failed(fd)).then_some(Self(fd as u64))
    }

    fn read(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= MOST)?];
        let args = [self.0, bytes.as_mut_ptr() as u64, len, offset, 0, 0];
        // SAFETY: the kernel writes at most `len` bytes into the live vector.
        let n = unsafe { sys::call(libc::SYS_pread64, args) };
        (n as u64 == len).then_some(bytes)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { sys::call(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Where names are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tables {
    /// What a library offers others.
    Offered,
    /// All functions of a program, if it has no loader.
    Lone,
    /// All that there are.
    All,
}

/// The run-time addresses of functions, each with its place in `names`, in a file that is mapped at
/// `(start, offset)`. An empty name is no function's.
pub fn find(
    path: &[u8],
    tables: Tables,
    names: &[&[u8]],
    (start, offset): (u64, u64),
) -> Vec<(usize, u64)> {
    search(path, tables, names, (start, offset)).unwrap_or_default()
}

fn search(
    path: &[u8],
    tables: Tables,
    names: &[&[u8]],
    (start, offset): (u64, u64),
) -> Option<Vec<(usize, u64)>> {
    let file = File::open(path)?;
    let head = file.read(0, 64)?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let count = |at: usize| Some(u64::from(u32_at(&head, at)? & 0xffff));
    let segments = file.read(u64_at(&head, 32)?, 56 * count(56)?)?;
    let mut bias = None;
    for segment in segments.chunks_exact(56) {
        let kind = u32_at(segment, 0)?;
        let (at, addr, len) = (u64_at(segment, 8)?, u64_at(segment, 16)?, u64_at(segment, 32)?);
        if kind == PT_INTERP && tables == Tables::Lone {
            return None;
        }
        if kind == PT_LOAD && at & !0xfff <= offset && offset < at.checked_add(len)? {
            bias = Some(start.wrapping_sub(offset).wrapping_add(at).wrapping_sub(addr));
        }
    }
    let bias = bias?;
    let sections = file.read(u64_at(&head, 40)?, 64 * count(60)?)?;
    let sections: Vec<&[u8]> = sections.chunks_exact(64).collect();
    let wanted: &[u32] = match tables {
        Tables::Offered => &[SHT_DYNSYM],
        Tables::Lone => &[SHT_SYMTAB],
        Tables::All => &[SHT_DYNSYM, SHT_SYMTAB],
    };
    let mut found = Vec::new();
    for table in sections.iter().filter(|s| u32_at(s, 4).is_some_and(|k| wanted.contains(&k))) {
        let strings = sections.get(u32_at(table, 40)? as usize)?;
        let contents = |s: &[u8]| file.read(u64_at(s, 24)?, u64_at(s, 32)?);
        let (symbols, strings) = (contents(table)?, contents(strings)?);
        let symbols = symbols.chunks_exact(SYMBOL);
        found.extend(symbols.filter_map(|s| named(s, &strings, names, bias)));
    }
    Some(found)
}

/// The place and address of a symbol that is one of the names.
fn named(symbol: &[u8], strings: &[u8], names: &[&[u8]], bias: u64) -> Option<(usize, u64)> {
    let (info, defined) = (*symbol.get(4)?, symbol.get(6..8)? != [0, 0]);
    if info & 15 != STT_FUNC || !defined {
        return None;
    }
    let name = strings.get(u32_at(symbol, 0)? as usize..)?;
    let name = name.split(|&b| b == 0).next()?;
    let which = names.iter().position(|n| *n == name && !n.is_empty())?;
    Some((which, u64_at(symbol, 8)?.wrapping_add(bias)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_functions_of_the_own_libc() {
        // The test runs with a libc of its own: what the table says is where the linker put it.
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        let Some(line) = maps.lines().find(|l| l.contains("libc.so") && l.contains("r-xp")) else {
            return;
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let start = u64::from_str_radix(words[0].split('-').next().unwrap(), 16).unwrap();
        let offset = u64::from_str_radix(words[2], 16).unwrap();
        let names: [&[u8]; 2] = [b"getppid", b"no_such_function"];
        let found = find(words[5].as_bytes(), Tables::Offered, &names, (start, offset));
        let expected = libc::getppid as *const () as u64;
        assert!(found.contains(&(0, expected)), "{found:x?} {expected:#x}");
        assert_eq!(find(words[5].as_bytes(), Tables::Lone, &names, (start, offset)), []);
        assert_eq!(find(b"/proc/self/maps", Tables::Offered, &names, (0, 0)), []);
    }
}
