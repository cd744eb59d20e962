//! The head of an ELF file: header, program headers, interpreter, build-id.
//!
//! Reads only what it needs: a 2 GB executable costs a few kilobytes here.
//! Offsets and lengths come from the file, so every range goes through the
//! checked readers of `object`; nothing is indexed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::path::{Path, PathBuf};

use ichnos_base::{FileOff, Isa, Protection};
use object::LittleEndian as LE;
use object::elf::{self, FileHeader64};
use object::read::ReadRef;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use crate::{Error, Result};

/// The header every parser here works on: other classes and byte orders are
/// refused by [`check_ident`].
pub(crate) type Header = FileHeader64<LE>;

/// An address as an image itself numbers them: what its symbols and debugging
/// information say. A mapping's bias leads from here to run-time addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct ImageVa(pub u64);

impl fmt::Display for ImageVa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A processor that ichnos handles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// RISC-V, 64 bits.
    Riscv64,
}

impl Machine {
    /// The instruction set in the words of a trace.
    #[must_use]
    pub const fn isa(self) -> Isa {
        match self {
            Self::X86_64 => Isa::X86_64,
            Self::Riscv64 => Isa::RV64,
        }
    }
}

/// What an ELF file is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ImageType {
    /// An executable at fixed addresses.
    Executable,
    /// A shared library, or an executable that can be placed anywhere.
    Dynamic,
    /// An object file, not linked yet.
    Relocatable,
    /// A core dump.
    Core,
    /// Something else, with its `e_type`.
    Other(u16),
}

/// A loadable segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The first address, as the file numbers them.
    pub start: ImageVa,
    /// Bytes in memory; those past `file_len` are zero at first.
    pub len: u64,
    /// Where in the file it begins.
    pub offset: FileOff,
    /// Bytes in the file.
    pub file_len: u64,
    /// The alignment it asks for.
    pub align: u64,
    /// What may be done with it.
    pub protection: Protection,
}

/// What the head of an ELF file says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) machine: Machine,
    pub(crate) kind: ImageType,
    pub(crate) entry: ImageVa,
    pub(crate) interpreter: Option<PathBuf>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) build_id: Vec<u8>,
}

/// Reads the head of an ELF file; `path` is for messages alone.
pub(crate) fn read_head<'d, R: ReadRef<'d>>(data: R, path: &Path) -> Result<Head> {
    let machine = check_ident(data, path)?;
    let damaged = |what: object::read::Error| Error::Damaged {
        path: path.to_owned(),
        what: what.to_string(),
    };
    let header = Header::parse(data).map_err(damaged)?;
    let programs = header.program_headers(LE, data).map_err(damaged)?;
    let mut head = Head {
        machine,
        kind: image_type(header.e_type(LE)),
        entry: ImageVa(header.e_entry(LE)),
        interpreter: None,
        segments: Vec::new(),
        build_id: Vec::new(),
    };
    for program in programs {
        match program.p_type(LE) {
            elf::PT_LOAD => head.segments.push(segment(program)),
            elf::PT_INTERP => {
                let text = program.data(LE, data).map_err(|()| Error::Damaged {
                    path: path.to_owned(),
                    what: "the interpreter's name lies outside the file".into(),
                })?;
                head.interpreter = Some(c_path(text));
            }
            elf::PT_NOTE if head.build_id.is_empty() => {
                // Stripped-off debug files keep the program headers of the
                // original, whose contents are gone: not an error.
                if let Ok(Some(mut notes)) = program.notes(LE, data) {
                    while let Ok(Some(note)) = notes.next() {
                        if is_build_id(note.name(), note.n_type(LE)) {
                            head.build_id = note.desc().to_vec();
                        }
                    }
                }
            }
            _ => {}
        }
    }
    if head.build_id.is_empty() {
        head.build_id = section_build_id(header, data);
    }
    Ok(head)
}

/// Debug files keep their notes in sections only.
fn section_build_id<'d, R: ReadRef<'d>>(header: &Header, data: R) -> Vec<u8> {
    let Ok(sections) = header.sections(LE, data) else { return Vec::new() };
    for section in sections.iter() {
        let Ok(Some(mut notes)) = section.notes(LE, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if is_build_id(note.name(), note.n_type(LE)) {
                return note.desc().to_vec();
            }
        }
    }
    Vec::new()
}

fn is_build_id(name: &[u8], kind: elf::NoteType) -> bool {
    name == b"GNU" && kind == elf::NT_GNU_BUILD_ID
}

/// Checks the first bytes, so that what is refused is refused by name.
fn check_ident<'d, R: ReadRef<'d>>(data: R, path: &Path) -> Result<Machine> {
    let available = data.len().unwrap_or(0).min(20);
    let ident = data.read_bytes_at(0, available).unwrap_or(&[]);
    let unsupported = |what: String| Err(Error::Unsupported { path: path.to_owned(), what });
    if !ident.starts_with(&elf::ELFMAG) {
        let found = ident.iter().take(4).copied().collect();
        return Err(Error::NotElf { path: path.to_owned(), found });
    }
    let (Some(&class), Some(&order), Some(&[low, high])) =
        (ident.get(4), ident.get(5), ident.get(18..20).and_then(|b| b.first_chunk::<2>()))
    else {
        return Err(Error::Damaged {
            path: path.to_owned(),
            what: format!("the header ends after {available} bytes"),
        });
    };
    match class {
        2 => {}
        1 => return unsupported("a 32-bit image".into()),
        other => return unsupported(format!("an image of the unknown class {other}")),
    }
    match order {
        1 => {}
        2 => return unsupported("a big-endian image".into()),
        other => return unsupported(format!("an image of the unknown byte order {other}")),
    }
    match u16::from_le_bytes([low, high]) {
        62 => Ok(Machine::X86_64),
        243 => Ok(Machine::Riscv64),
        183 => unsupported("an aarch64 image".into()),
        other => unsupported(format!("an image for machine number {other}")),
    }
}

fn image_type(kind: elf::FileType) -> ImageType {
    match kind {
        elf::ET_EXEC => ImageType::Executable,
        elf::ET_DYN => ImageType::Dynamic,
        elf::ET_REL => ImageType::Relocatable,
        elf::ET_CORE => ImageType::Core,
        other => ImageType::Other(other.0),
    }
}

fn segment(program: &elf::ProgramHeader64<LE>) -> Segment {
    let flags = program.p_flags(LE).0;
    // ELF numbers the rights the other way round: 1 execute, 2 write, 4 read.
    let protection =
        Protection(((flags & 4) >> 2) as u8 | (flags & 2) as u8 | ((flags & 1) << 2) as u8);
    Segment {
        start: ImageVa(program.p_vaddr(LE)),
        len: program.p_memsz(LE),
        offset: FileOff(program.p_offset(LE)),
        file_len: program.p_filesz(LE),
        align: program.p_align(LE),
        protection,
    }
}

fn c_path(text: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
    let name = text.get(..end).unwrap_or(text);
    PathBuf::from(std::ffi::OsStr::from_bytes(name))
}
