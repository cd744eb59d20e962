//! A file with notes: its functions' code and where it lies.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::ops::Range;
use std::path::Path;

use ichnos_base::GuestVa;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, elf};

use super::sync::Known;
use crate::Error;
use crate::note::{self, Note};

/// An executable or library.
pub(crate) struct Image {
    /// Stretches of code: own address and bytes.
    code: Vec<(u64, Vec<u8>)>,
    /// The notes, in order of address, no two about the same code.
    pub(crate) notes: Vec<Note>,
    /// The lowest address and the end of the highest segment.
    pub(crate) span: (u64, u64),
    /// Whether it can be loaded anywhere.
    pub(crate) movable: bool,
    /// Unwinding tables: frames, and language-specific areas.
    pub(crate) frames: Option<Section>,
    pub(crate) areas: Option<Section>,
    /// The synchronising functions that it calls.
    pub(crate) known: Known,
    /// Where the program begins.
    pub(crate) entry: u64,
    /// Offset and own address of the first segment, to find where it was loaded.
    pub(crate) first: (u64, u64),
    /// How it is loaded, if it is a program.
    pub(crate) loading: Loading,
    /// Offsets and own addresses of the segments with code.
    pub(crate) executable: Vec<(u64, u64)>,
}

/// How a program is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loading {
    /// By the kernel alone.
    Alone,
    /// By a loader, which may load libraries.
    ByLoader,
}

/// A section's own address and bytes.
pub(crate) struct Section {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The own address of a function in a file, with that of the first segment.
pub(crate) fn symbol(path: &Path, name: &str) -> Option<(u64, u64)> {
    let bytes = fs::read(path).ok()?;
    let file: ElfFile64<'_> = ElfFile64::parse(bytes.as_slice()).ok()?;
    let mut symbols = file.dynamic_symbols().chain(file.symbols());
    let found = symbols.find(|s| s.name() == Ok(name) && s.is_definition())?.address();
    let endian = file.endian();
    let loaded = file.elf_program_headers().iter().filter(|p| p.p_type(endian) == elf::PT_LOAD);
    Some((found, loaded.map(|p| p.p_vaddr(endian)).min()?))
}

/// Whether a file calls a function of another one.
pub(crate) fn imports(path: &Path, name: &str) -> bool {
    let Ok(bytes) = fs::read(path) else { return false };
    let file: Result<ElfFile64<'_>, _> = ElfFile64::parse(bytes.as_slice());
    file.is_ok_and(|file| file.dynamic_symbols().any(|s| s.is_undefined() && s.name() == Ok(name)))
}

/// Whether a file may carry notes: it has a section for them. Reads little of it.
pub(crate) fn may_have_notes(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    let cache = object::ReadCache::new(file);
    let file: Result<ElfFile64<'_, object::Endianness, _>, _> = ElfFile64::parse(&cache);
    file.is_ok_and(|file| file.section_by_name(note::SECTION).is_some())
}

/// Whether a file is an x86-64 executable that carries notes.
#[must_use]
pub fn has_notes(path: &Path) -> bool {
    let Ok(bytes) = fs::read(path) else { return false };
    let file: Result<ElfFile64<'_>, _> = ElfFile64::parse(bytes.as_slice());
    file.is_ok_and(|file| {
        file.architecture() == object::Architecture::X86_64
            && file.section_by_name(note::SECTION).is_some()
    })
}

/// Where the functions lie about which a file carries notes, in its own addresses.
///
/// # Errors
///
/// If the file cannot be read as an executable.
pub fn noted(path: &Path) -> Result<Vec<Range<GuestVa>>, Error> {
    let notes = Image::open(path)?.map_or_else(Vec::new, |image| image.notes);
    Ok(notes.iter().map(|n| GuestVa(n.start)..GuestVa(n.start + u64::from(n.size))).collect())
}

/// The first instructions of a file's noted functions, in its own addresses: where control to them is an event at
/// which a thread can begin or cease to be recorded. Functions by hand are none.
///
/// # Errors
///
/// If the file cannot be read as an executable.
pub fn entries(path: &Path) -> Result<Vec<GuestVa>, Error> {
    let notes = Image::open(path)?.map_or_else(Vec::new, |image| image.notes);
    let whole = notes.iter().filter(|n| n.compiled && n.parent == n.start);
    Ok(whole.map(|n| GuestVa(n.start)).collect())
}

impl Image {
    /// Reads a file. Nothing if it has no notes.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, Error> {
        let name = || path.display().to_string();
        let bytes = fs::read(path).map_err(|source| Error::File { path: name(), source })?;
        Self::parse(&bytes).map_err(|source| Error::Image { path: name(), source })
    }

    fn parse(bytes: &[u8]) -> Result<Option<Self>, object::Error> {
        let file: ElfFile64<'_> = ElfFile64::parse(bytes)?;
        let Some(section) = file.section_by_name(note::SECTION) else { return Ok(None) };
        if file.architecture() != object::Architecture::X86_64 {
            return Ok(None);
        }
        let notes = note::parse(&section.uncompressed_data()?);
        let endian = file.endian();
        let loaded = file.elf_program_headers().iter().filter(|p| p.p_type(endian) == elf::PT_LOAD);
        let (mut low, mut high, mut first) = (u64::MAX, 0, (0, 0));
        for header in loaded {
            let start = header.p_vaddr(endian);
            if start < low {
                (low, first) = (start, (header.p_offset(endian), start));
            }
            high = high.max(start.saturating_add(header.p_memsz(endian)));
        }
        let headers = || file.elf_program_headers().iter();
        let loading = match headers().any(|p| p.p_type(endian) == elf::PT_INTERP) {
            true => Loading::ByLoader,
            false => Loading::Alone,
        };
        let runs = headers()
            .filter(|p| p.p_type(endian) == elf::PT_LOAD && p.p_flags(endian).0 & elf::PF_X.0 != 0);
        let executable = runs.map(|p| (p.p_offset(endian), p.p_vaddr(endian))).collect();
        let mut code = Vec::new();
        for segment in file.segments() {
            let object::SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
            if p_flags.0 & elf::PF_X.0 != 0 {
                code.push((segment.address(), segment.data()?.to_vec()));
            }
        }
        let movable = file.kind() == object::ObjectKind::Dynamic;
        let section = |name: &str| -> Result<Option<Section>, object::Error> {
            let Some(section) = file.section_by_name(name) else { return Ok(None) };
            Ok(Some(Section { address: section.address(), bytes: section.data()?.to_vec() }))
        };
        let (frames, areas) = (section(".eh_frame")?, section(".gcc_except_table")?);
        let (span, entry, known) = ((low, high), file.entry(), Known::of(&file));
        let mut image = Self {
            code,
            notes,
            span,
            movable,
            frames,
            areas,
            known,
            entry,
            first,
            loading,
            executable,
        };
        image.sort();
        Ok((!image.notes.is_empty()).then_some(image))
    }

    /// Orders the notes and drops those about code that is not there, or was noted already.
    fn sort(&mut self) {
        let mut notes = std::mem::take(&mut self.notes);
        notes.retain(|n| self.bytes(n.start, u64::from(n.size)).is_some());
        notes.sort_by_key(|n| n.start);
        let mut end = 0;
        notes.retain(|n| {
            let new = n.start >= end;
            end = end.max(n.start + u64::from(n.size));
            new
        });
        self.notes = notes;
    }

    /// Code at an address of its own.
    pub(crate) fn bytes(&self, start: u64, len: u64) -> Option<&[u8]> {
        self.code.iter().find_map(|(base, bytes)| {
            let from = usize::try_from(start.checked_sub(*base)?).ok()?;
            bytes.get(from..from.checked_add(usize::try_from(len).ok()?)?)
        })
    }
}
