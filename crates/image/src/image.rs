//! One ELF file: cheap to open, with symbols and lines read when first asked for.
//!
//! The file stays open, so that what is read later belongs to what was opened,
//! even if the path has since been given to another file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ichnos_base::{FileOff, GuestVa};
use object::LittleEndian as LE;
use object::read::elf::ElfFile64;
use object::read::{Object, ObjectSection, ReadCache};

use crate::debug_file::checksum;
use crate::elf::{Head, read_head};
use crate::lines::Lines;
use crate::{
    DebugFolders, Error, Frame, ImageType, ImageVa, Machine, Result, Segment, SymbolTable,
};

trait ReadSeek: Read + Seek {}
impl<T: Read + Seek> ReadSeek for T {}

/// The bytes of an image, read piece by piece as parsers ask for them.
type Cache<'a> = ReadCache<Box<dyn ReadSeek + 'a>>;

#[derive(Debug)]
enum Content {
    File(File),
    Bytes(Vec<u8>),
}

/// An executable, shared library or separate debug file.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    content: Content,
    head: Head,
    folders: DebugFolders,
    symbols: OnceCell<SymbolTable>,
    lines: OnceCell<Option<Lines>>,
}

impl Image {
    /// Opens the ELF file at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &DebugFolders::default())
    }

    /// Opens the ELF file at `path`, with separate debug files under `folders`.
    pub fn open_with(path: &Path, folders: &DebugFolders) -> Result<Self> {
        let io = |source| Error::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        // A device or pipe in the image's place would block or never end.
        if !file.metadata().map_err(io)?.is_file() {
            return Err(Error::NotElf { path: path.to_owned(), found: Vec::new() });
        }
        Self::new(path, Content::File(file), folders)
    }

    /// An image that lies in memory, like the vdso; `name` is for messages.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self> {
        Self::new(Path::new(name), Content::Bytes(bytes), &DebugFolders(Vec::new()))
    }

    fn new(path: &Path, content: Content, folders: &DebugFolders) -> Result<Self> {
        let head = read_head(&content.cache(), path)?;
        Ok(Self {
            path: path.to_owned(),
            content,
            head,
            folders: folders.clone(),
            symbols: OnceCell::new(),
            lines: OnceCell::new(),
        })
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The processor it is for.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.head.machine
    }

    /// What it is for.
    #[must_use]
    pub fn kind(&self) -> ImageType {
        self.head.kind
    }

    /// Where it wants to be entered; 0 if nowhere.
    #[must_use]
    pub fn entry(&self) -> ImageVa {
        self.head.entry
    }

    /// The program interpreter (dynamic linker) it asks for.
    #[must_use]
    pub fn interpreter(&self) -> Option<&Path> {
        self.head.interpreter.as_deref()
    }

    /// Its loadable segments, in the order of the file.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.head.segments
    }

    /// Its build-id; empty if it has none.
    #[must_use]
    pub fn build_id(&self) -> &[u8] {
        &self.head.build_id
    }

    /// The difference between run-time addresses and the image's own, if the
    /// part of the file at `offset` was mapped at `start`. Neighbouring segments
    /// can share a page of the file: a mapping that begins there is taken for that of the
    /// segment that does. If several do, or none, the answer is `None`, and
    /// [`Image::base_bias`] helps.
    #[must_use]
    pub fn bias(&self, start: GuestVa, offset: FileOff) -> Option<u64> {
        const PAGE: u64 = 4096;
        let first = |s: &Segment| s.offset.0 & !(PAGE - 1);
        let begin = self.segments().iter().any(|s| s.file_len > 0 && first(s) == offset.0);
        let mut biases = self.segments().iter().filter_map(|s| {
            let last = s.offset.0.saturating_add(s.file_len.checked_sub(1)?) | (PAGE - 1);
            let own = s.start.0.wrapping_add(offset.0.wrapping_sub(s.offset.0));
            let fits = if begin { first(s) == offset.0 } else { first(s) <= offset.0 };
            (fits && offset.0 <= last).then(|| start.0.wrapping_sub(own))
        });
        let bias = biases.next()?;
        biases.all(|other| other == bias).then_some(bias)
    }

    /// The difference between run-time addresses and the image's own, if its
    /// lowest mapping begins at `lowest`. `None` if nothing of it is loadable.
    #[must_use]
    pub fn base_bias(&self, lowest: GuestVa) -> Option<u64> {
        const PAGE: u64 = 4096;
        let first = self.segments().iter().map(|s| s.start.0).min()?;
        Some(lowest.0.wrapping_sub(first & !(PAGE - 1)))
    }

    /// Its symbols, those of its separate debug file included.
    pub fn symbols(&self) -> Result<&SymbolTable> {
        if let Some(table) = self.symbols.get() {
            return Ok(table);
        }
        let own = self.content.cache();
        let mut table = SymbolTable::default();
        table.add_file(&own);
        if self.parse(&own)?.symbol_table().is_none()
            && let Some(debug) = self.debug_file()
        {
            table.add_file(&debug.content.cache());
        }
        table.settle();
        Ok(self.symbols.get_or_init(|| table))
    }

    /// Its debugging information, if it or its separate debug file has any.
    pub fn lines(&self) -> Result<Option<&Lines>> {
        if self.lines.get().is_none() {
            let lines = self.read_lines()?;
            // Only this thread can have set it in between, and it has not.
            let _ = self.lines.set(lines);
        }
        Ok(self.lines.get().and_then(Option::as_ref))
    }

    /// The source of the instruction at `addr`: innermost inlined function
    /// first. Empty if there is no debugging information for it.
    pub fn frames(&self, addr: ImageVa) -> Result<Vec<Frame>> {
        let Some(lines) = self.lines()? else { return Ok(Vec::new()) };
        lines.frames(addr).map_err(|source| Error::Dwarf { path: self.path.clone(), source })
    }

    /// The separate debug file that belongs to this image, if one is found.
    #[must_use]
    pub fn debug_file(&self) -> Option<Self> {
        let same_id = |image: &Self| image.build_id() == self.build_id();
        for candidate in self.folders.by_build_id(self.build_id()) {
            if let Some(image) = self.open_beside(&candidate).filter(same_id) {
                return Some(image);
            }
        }
        let (link, sum) = {
            let cache = self.content.cache();
            let file = self.parse(&cache).ok()?;
            let (link, sum) = file.gnu_debuglink().ok().flatten()?;
            (link.to_vec(), sum)
        };
        for candidate in self.folders.by_link(&self.path, &link) {
            let Some(image) = self.open_beside(&candidate) else { continue };
            let has_ids = !self.build_id().is_empty() && !image.build_id().is_empty();
            let fits = if has_ids {
                same_id(&image)
            } else {
                checksum(&candidate).is_ok_and(|found| found == sum)
            };
            if fits {
                return Some(image);
            }
        }
        None
    }

    fn open_beside(&self, path: &Path) -> Option<Self> {
        Self::open_with(path, &self.folders).ok()
    }

    fn parse<'d, 'a>(&self, cache: &'d Cache<'a>) -> Result<ElfFile64<'d, LE, &'d Cache<'a>>> {
        ElfFile64::parse(cache)
            .map_err(|e| Error::Damaged { path: self.path.clone(), what: e.to_string() })
    }

    fn has_debug_info(&self) -> bool {
        let cache = self.content.cache();
        self.parse(&cache)
            .is_ok_and(|f| f.section_by_name(".debug_info").is_some_and(|s| s.size() > 0))
    }

    fn read_lines(&self) -> Result<Option<Lines>> {
        if self.kind() == ImageType::Relocatable {
            return Err(Error::Unsupported {
                path: self.path.clone(),
                what: "an object file whose debugging information is not linked yet".into(),
            });
        }
        if self.has_debug_info() {
            return self.read_own_lines();
        }
        self.debug_file().map_or(Ok(None), |debug| debug.read_own_lines())
    }

    fn read_own_lines(&self) -> Result<Option<Lines>> {
        let supplement = self.supplement();
        let sup_cache = supplement.as_ref().map(|s| s.content.cache());
        let cache = self.content.cache();
        Lines::read(&cache, sup_cache.as_ref(), &self.path)
    }

    /// The file that dwz moved shared debugging information to.
    fn supplement(&self) -> Option<Self> {
        let cache = self.content.cache();
        let file = self.parse(&cache).ok()?;
        let (name, build_id) = file.gnu_debugaltlink().ok().flatten()?;
        let build_id = build_id.to_vec();
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let named = folder.join(Path::new(OsStr::from_bytes(name)));
        std::iter::once(named)
            .chain(self.folders.by_build_id(&build_id))
            .filter_map(|path| self.open_beside(&path))
            .find(|image| image.build_id() == build_id)
    }
}

impl Content {
    fn cache(&self) -> Cache<'_> {
        ReadCache::new(match self {
            Self::File(file) => Box::new(file),
            Self::Bytes(bytes) => Box::new(Cursor::new(bytes.as_slice())),
        })
    }
}
