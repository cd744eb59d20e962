//! The symbols of one image, and which of them an address belongs to.
//!
//! Invariants: `entries` is sorted by address and holds one symbol per address,
//! the best by [`rank`]; `reach[i]` is the largest end of `entries[..=i]`, so a
//! search that walks back to an enclosing symbol knows when to stop.
// SPDX-License-Identifier: MIT OR Apache-2.0

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::read::{ReadRef, SectionIndex};

use crate::ImageVa;
use crate::elf::Header;

/// What a symbol names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum SymbolKind {
    /// A label in code without a type: hand-written assembly.
    Label,
    /// A function that chooses among implementations at load time.
    Ifunc,
    /// A function.
    Function,
    /// Data.
    Object,
}

impl SymbolKind {
    const fn is_code(self) -> bool {
        !matches!(self, Self::Object)
    }
}

/// One symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol<'a> {
    /// The name as it stands in the file, mangled, without a version.
    pub name: &'a str,
    /// The first address.
    pub addr: ImageVa,
    /// The size the file gives; 0 if it gives none.
    pub size: u64,
    /// What it names.
    pub kind: SymbolKind,
}

/// A symbol and a place in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SymbolAt<'a> {
    /// The symbol.
    pub symbol: Symbol<'a>,
    /// Bytes from the symbol's start.
    pub offset: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    addr: u64,
    size: u64,
    /// Where the symbol ends for a search: its size, or for an unsized one the
    /// next symbol or the end of its section.
    end: u64,
    name: (u32, u32),
    kind: SymbolKind,
    binding: u8,
    section_end: u64,
}

/// All named code and data of one image.
#[derive(Clone, Debug, Default)]
pub struct SymbolTable {
    names: String,
    entries: Vec<Entry>,
    reach: Vec<u64>,
}

impl SymbolTable {
    /// The function or label whose code holds `addr`.
    #[must_use]
    pub fn find(&self, addr: ImageVa) -> Option<SymbolAt<'_>> {
        self.find_index(addr).and_then(|index| self.at(index, addr))
    }

    /// Every symbol, in the order of addresses; of several at one address the
    /// preferred one.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.entries.iter().map(|entry| self.symbol(entry))
    }

    /// The code symbol with this name, without a version.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<Symbol<'_>> {
        self.iter().find(|s| s.name == name && s.kind.is_code())
    }

    /// How many symbols there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The position in the table of the symbol that holds `addr`, for caches.
    pub(crate) fn find_index(&self, addr: ImageVa) -> Option<u32> {
        let after = self.entries.partition_point(|e| e.addr <= addr.0);
        for index in (0..after).rev() {
            if *self.reach.get(index)? <= addr.0 {
                return None;
            }
            let entry = self.entries.get(index)?;
            if addr.0 < entry.end && entry.kind.is_code() {
                return u32::try_from(index).ok();
            }
        }
        None
    }

    pub(crate) fn at(&self, index: u32, addr: ImageVa) -> Option<SymbolAt<'_>> {
        let entry = self.entries.get(index as usize)?;
        Some(SymbolAt { symbol: self.symbol(entry), offset: addr.0.wrapping_sub(entry.addr) })
    }

    fn symbol(&self, entry: &Entry) -> Symbol<'_> {
        let (start, end) = entry.name;
        Symbol {
            name: self.names.get(start as usize..end as usize).unwrap_or(""),
            addr: ImageVa(entry.addr),
            size: entry.size,
            kind: entry.kind,
        }
    }

    /// Adds `.symtab` and `.dynsym` of a file: an image or its separate debug
    /// file. Entries that make no sense are left out: a damaged symbol table
    /// costs names, not the rest of the work.
    pub(crate) fn add_file<'d, R: ReadRef<'d>>(&mut self, data: R) {
        let Ok(header) = Header::parse(data) else { return };
        let Ok(sections) = header.sections(LE, data) else { return };
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(table) = sections.symbols(LE, data, kind) else { continue };
            for symbol in table.iter() {
                let index = SectionIndex(usize::from(symbol.st_shndx(LE).0));
                let Ok(section) = sections.section(index) else { continue };
                let Ok(name) = symbol.name(LE, table.strings()) else { continue };
                self.add(symbol, strip_version(&String::from_utf8_lossy(name)), section);
            }
        }
    }

    fn add(&mut self, symbol: &elf::Sym64<LE>, name: &str, section: &elf::SectionHeader64<LE>) {
        let executable = section.sh_flags(LE).contains(elf::SHF_EXECINSTR);
        let kind = match symbol.st_type() {
            elf::STT_FUNC => SymbolKind::Function,
            elf::STT_GNU_IFUNC => SymbolKind::Ifunc,
            elf::STT_OBJECT => SymbolKind::Object,
            elf::STT_NOTYPE if executable => SymbolKind::Label,
            _ => return,
        };
        // Assemblers' own labels ($x, $d, .L1) are no names of anything.
        let made_up = name.starts_with('$') || name.starts_with(".L");
        if name.is_empty() || (kind == SymbolKind::Label && made_up) {
            return;
        }
        let start = self.names.len();
        let end = start + name.len();
        let (Ok(first), Ok(last)) = (u32::try_from(start), u32::try_from(end)) else { return };
        self.names.push_str(name);
        let (addr, size) = (symbol.st_value(LE), symbol.st_size(LE));
        self.entries.push(Entry {
            addr,
            size,
            end: addr.saturating_add(size),
            name: (first, last),
            kind,
            binding: symbol.st_bind().0,
            section_end: section.sh_addr(LE).wrapping_add(section.sh_size(LE)),
        });
    }

    /// Establishes the invariants of this file's head. Searches work after it.
    pub(crate) fn settle(&mut self) {
        let names = std::mem::take(&mut self.names);
        let text = |e: &Entry| names.get(e.name.0 as usize..e.name.1 as usize).unwrap_or("");
        self.entries.sort_by(|a, b| {
            a.addr.cmp(&b.addr).then_with(|| rank(a, text(a)).cmp(&rank(b, text(b))))
        });
        self.entries.dedup_by_key(|e| e.addr);
        let mut next = u64::MAX;
        for entry in self.entries.iter_mut().rev() {
            if entry.size == 0 {
                let limit = if entry.section_end > entry.addr { entry.section_end } else { next };
                entry.end = limit.min(next);
            }
            next = entry.addr;
        }
        let mut reach = 0;
        self.reach = self
            .entries
            .iter()
            .map(|e| {
                reach = reach.max(e.end);
                reach
            })
            .collect();
        self.names = names;
    }
}

/// Which of several symbols at one address is shown: the smallest. Code before
/// data, sized before unsized, functions before labels, global before weak
/// before local, then the fewest leading underscores and the alphabet, so that
/// the choice does not depend on the order in the file.
fn rank<'a>(e: &Entry, name: &'a str) -> (bool, bool, bool, u8, usize, &'a str) {
    let binding = match elf::SymbolBind(e.binding) {
        elf::STB_GLOBAL | elf::STB_GNU_UNIQUE => 0,
        elf::STB_WEAK => 1,
        _ => 2,
    };
    let underscores = name.bytes().take_while(|&b| b == b'_').count();
    (!e.kind.is_code(), e.size == 0, e.kind == SymbolKind::Label, binding, underscores, name)
}

fn strip_version(name: &str) -> &str {
    match name.find('@') {
        Some(at) if at > 0 => name.get(..at).unwrap_or(name),
        _ => name,
    }
}
