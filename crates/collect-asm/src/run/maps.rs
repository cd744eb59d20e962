//! The mappings of a process, as events tell them.
//!
//! They are told when its own code begins, and those of libraries when they are loaded later. What else is mapped later is
//! not followed; so that no access lies nowhere, the first mapping told is one of all memory that a program can have, and
//! the others replace parts of it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use ichnos_base::{Event, FileOff, GuestVa, Map, MapKind, Protection};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, elf};

use super::setup::TAP;

/// The name of memory of which nobody knows what it is.
const NOT_FOLLOWED: &str = "[not followed]";

/// A mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mapped {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) protection: Protection,
    pub(super) kind: MapKind,
    pub(super) offset: u64,
    pub(super) bias: u64,
    pub(super) path: String,
    pub(super) build_id: Vec<u8>,
}

impl Mapped {
    /// As an event has it.
    pub(crate) fn as_event(&self) -> Map<'_> {
        Map {
            start: GuestVa(self.start),
            len: self.len,
            protection: self.protection,
            kind: self.kind,
            offset: FileOff(self.offset),
            bias: self.bias,
            path: &self.path,
            build_id: &self.build_id,
        }
    }
}

/// What is known of a file that was looked into: where its first segment lies, and its build-id.
#[derive(Clone, Default)]
struct Known {
    segments: Vec<(u64, u64)>,
    build_id: Vec<u8>,
}

/// All mappings of a process except ours: those that begin in `ours`, and the shared memory. The first is that of
/// all memory.
pub(crate) fn of(pid: i32, ours: &[Range<u64>]) -> Vec<Mapped> {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return Vec::new() };
    let mut files = HashMap::new();
    let found = text.lines().filter_map(|line| one(line, &mut files));
    [all()].into_iter().chain(found.filter(|m| !is_ours(m, ours))).collect()
}

impl Mapped {
    /// Whether it is part of a program or library.
    pub(crate) fn is_image(&self) -> bool {
        self.kind == MapKind::IMAGE
    }

    /// That it is gone, as an event.
    pub(crate) const fn as_gone(&self) -> Event<'static> {
        Event::Unmap { start: GuestVa(self.start), len: self.len }
    }

    /// Whether it shares addresses with one of these; all memory, which is no mapping, does not count.
    pub(crate) fn meets(&self, others: &[Self]) -> bool {
        let meets = |m: &Self| m.start < self.start + self.len && self.start < m.start + m.len;
        others.iter().filter(|m| m.path != NOT_FOLLOWED).any(meets)
    }

    /// That nobody knows what lies there now.
    pub(crate) fn forgotten(&self) -> Self {
        Self { start: self.start, len: self.len, ..all() }
    }
}

/// A mapping of a file.
pub(crate) struct Line<'a> {
    pub(crate) range: Range<u64>,
    /// Whether it can be executed, and changed without changing the file.
    pub(crate) runs: bool,
    pub(crate) offset: u64,
    pub(crate) path: &'a str,
}

/// All mappings in the text of a `maps` file; the path is empty if there is none.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let rights = words.next()?;
        let runs = rights.contains('x') && rights.ends_with('p');
        let offset = number(words.next()?)?;
        let path = words.nth(2).unwrap_or_default().trim_start();
        Some(Line { range: number(start)?..number(end)?, runs, offset, path })
    })
}

/// All memory that a program can have.
fn all() -> Mapped {
    const LOW: u64 = 0x1_0000;
    const HIGH: u64 = 0x7fff_ffff_f000;
    Mapped {
        start: LOW,
        len: HIGH - LOW,
        protection: Protection(Protection::READ.0 | Protection::WRITE.0),
        kind: MapKind::OTHER,
        offset: 0,
        bias: 0,
        path: NOT_FOLLOWED.into(),
        build_id: Vec::new(),
    }
}

fn is_ours(map: &Mapped, ours: &[Range<u64>]) -> bool {
    ours.iter().chain([&(TAP..TAP + (1 << 40))]).any(|range| range.contains(&map.start))
}

fn one(line: &str, files: &mut HashMap<String, Option<Known>>) -> Option<Mapped> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let rights = words.next()?;
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let path = words.skip(2).collect::<Vec<_>>().join(" ");
    let bits = [('r', Protection::READ), ('w', Protection::WRITE), ('x', Protection::EXEC)];
    let set = bits.iter().filter(|(letter, _)| rights.contains(*letter));
    let protection = Protection(set.fold(0, |all, (_, bit)| all | bit.0));
    let file = files.entry(path.clone()).or_insert_with(|| look(&path)).clone();
    let kind = match path.as_str() {
        "[heap]" => MapKind::HEAP,
        "[stack]" => MapKind::STACK,
        "[vdso]" => MapKind::VDSO,
        _ if file.is_some() => MapKind::IMAGE,
        _ if path.starts_with('/') => MapKind::FILE,
        _ => MapKind::OTHER,
    };
    let file = file.unwrap_or_default();
    // The segment that begins at this page of the file tells how far it was moved.
    let page = |x: u64| x & !0xfff;
    let segment = file.segments.iter().rev().find(|(at, _)| page(*at) <= offset);
    let bias = segment.map_or(0, |(at, own)| {
        start.wrapping_sub(offset).wrapping_add(page(*at)).wrapping_sub(page(*own))
    });
    let build_id = file.build_id;
    Some(Mapped { start, len: end - start, protection, kind, offset, bias, path, build_id })
}

/// Looks into a file; nothing if it is no image.
fn look(path: &str) -> Option<Known> {
    let bytes = path.starts_with('/').then(|| fs::read(path).ok())??;
    let file: ElfFile64<'_> = ElfFile64::parse(bytes.as_slice()).ok()?;
    let endian = file.endian();
    let loaded = file.elf_program_headers().iter().filter(|p| p.p_type(endian) == elf::PT_LOAD);
    let segments = loaded.map(|p| (p.p_offset(endian), p.p_vaddr(endian))).collect();
    let build_id = file.build_id().ok().flatten().unwrap_or_default().to_vec();
    Some(Known { segments, build_id })
}
