//! The functions of an object that was just assembled, and the labels in them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, HashMap};

use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{Object, ObjectSection, ObjectSymbol, SectionIndex, SymbolIndex, elf};

use super::labels::{Labels, Taken};
use crate::Error;

/// A function as its object shows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// A name by which the assembler can refer to its first byte, and what to add.
    pub(super) start: (String, i64),
    /// The same of the function whose cold part it is, or its own.
    pub(super) parent: (String, i64),
    /// Bytes.
    pub(super) size: u64,
    /// Offsets of labels whose address is taken, and what for.
    pub(super) entries: Vec<(u64, Taken)>,
    /// The group of sections that it is kept or thrown away with.
    pub(super) group: Option<String>,
}

type Elf<'a> = ElfFile64<'a, object::Endianness>;

/// A symbol's place.
type Place = (usize, u64);

/// All functions of an object.
pub(super) fn functions(bytes: &[u8], labels: &Labels<'_>) -> Result<Vec<Function>, Error> {
    let file: Elf<'_> = ElfFile64::parse(bytes).map_err(|source| Error::Object { source })?;
    let groups = groups(&file)?;
    let (mut found, mut anchors, mut taken) = (BTreeMap::new(), HashMap::new(), Vec::new());
    for symbol in file.symbols() {
        let (Some(section), Ok(name)) = (symbol.section_index(), symbol.name()) else { continue };
        if !is_code(&file, section) || name.is_empty() {
            continue;
        }
        let place: Place = (section.0, symbol.address());
        let kind = symbol.elf_symbol().st_info.st_type();
        if matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC) && symbol.size() > 0 {
            found.entry(place).or_insert((name, symbol.size()));
        }
        if let Some(what) = labels.taken.get(name) {
            taken.push((place, *what));
        }
        // Local names cannot be meant to be others' by the linker.
        let rank = (symbol.is_local(), name.starts_with(".L"));
        let anchor = anchors.entry(section.0).or_insert((rank, name, symbol.address()));
        if rank > anchor.0 {
            *anchor = (rank, name, symbol.address());
        }
    }
    taken.sort_unstable();
    let by_name: HashMap<&str, Place> = found.iter().map(|(p, (name, _))| (*name, *p)).collect();
    let refer = |(section, address): Place| -> Option<(String, i64)> {
        let (_, name, at) = anchors.get(&section)?;
        Some(((*name).to_owned(), address as i64 - *at as i64))
    };
    let describe = |(place, (name, size)): (&Place, &(&str, u64))| {
        let end = place.1.saturating_add(*size);
        let inside = |p: &Place| p.0 == place.0 && p.1 > place.1 && p.1 < end;
        let from = taken.partition_point(|(p, _)| *p <= *place);
        let there = taken[from..].iter().take_while(|(p, _)| inside(p));
        let entries = there.map(|(p, what)| (p.1 - place.1, *what)).collect();
        let parent = name.strip_suffix(".cold").and_then(|p| by_name.get(p)).unwrap_or(place);
        Some(Function {
            start: refer(*place)?,
            parent: refer(*parent)?,
            size: *size,
            entries,
            group: groups.get(&SectionIndex(place.0)).cloned(),
        })
    };
    Ok(found.iter().filter_map(describe).collect())
}

fn is_code(file: &Elf<'_>, section: SectionIndex) -> bool {
    file.section_by_index(section).is_ok_and(|s| s.kind() == object::SectionKind::Text)
}

/// For each section in a group, the group's name.
fn groups(file: &Elf<'_>) -> Result<HashMap<SectionIndex, String>, Error> {
    let endian = file.endian();
    let mut groups = HashMap::new();
    let bad = |source| Error::Object { source };
    let sections = file.elf_header().sections(endian, file.data()).map_err(bad)?;
    for header in sections.iter() {
        let Some((_, members)) = header.group(endian, file.data()).map_err(bad)? else { continue };
        let index = SymbolIndex(header.sh_info.get(endian) as usize);
        let name = file.symbol_by_index(index).and_then(|s| s.name().map(str::to_owned));
        let name = name.map_err(bad)?;
        for member in members {
            groups.insert(SectionIndex(member.get(endian) as usize), name.clone());
        }
    }
    Ok(groups)
}
