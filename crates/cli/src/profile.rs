//! Reading a stored profile for annotation: its costs, the images it names, and
//! further names for code that no image has, such as a kernel's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ichnos_analyze::profile::{Costs, Locate, Place, Space};
use ichnos_base::{Event, GuestVa, Isa, ThreadId};
use ichnos_collect_rv64::system::kernel_symbols;
use ichnos_report::{PROFILE_MAGIC, StoredProfile};

use crate::annotation::Annotated;
use crate::code_bytes::CodeBytes;
use crate::images::Images;
use crate::profiling::image_everywhere;

/// Whether a file is a stored profile.
pub fn is_profile(path: &Path) -> bool {
    let mut begin = vec![0; PROFILE_MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == PROFILE_MAGIC.as_bytes()
}

fn is_elf(path: &Path) -> bool {
    let mut begin = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == *b"\x7fELF"
}

/// Whether a file is a flat RISC-V kernel, by the mark in its header.
fn is_kernel(path: &Path) -> bool {
    let mut begin = [0; 0x3c];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin[0x38..] == *b"RSC\x05"
}

/// The names that a kernel has of its own functions. Lists that were given count
/// more.
fn add_kernel(names: &mut BTreeMap<u64, String>, path: &Path) -> Result<()> {
    let image = std::fs::read(path).with_context(|| path.display().to_string())?;
    for symbol in kernel_symbols(&image).unwrap_or_default() {
        if matches!(symbol.sort, 't' | 'T' | 'w' | 'W') {
            names.entry(symbol.addr.0).or_insert(symbol.name);
        }
    }
    Ok(())
}

/// The costs of a stored profile with names, and the models in words.
pub fn read(path: &Path, symbols: &[PathBuf]) -> Result<(Annotated, Vec<String>)> {
    let place = || path.display().to_string();
    let file = BufReader::new(File::open(path).with_context(place)?);
    let stored = StoredProfile::read(file).with_context(place)?;
    let mut images = Images::new();
    let (elves, lists): (Vec<_>, Vec<_>) = symbols.iter().cloned().partition(|path| is_elf(path));
    let (kernels, lists): (Vec<_>, Vec<_>) = lists.into_iter().partition(|path| is_kernel(path));
    let given = elves.iter().map(|path| image_everywhere(path));
    let (booted, maps): (Vec<_>, Vec<_>) =
        stored.maps.into_iter().partition(|map| is_kernel(Path::new(&map.path)));
    for map in given.chain(maps) {
        images.event(ThreadId(0), &Event::Map(map.as_map()));
    }
    let mut symbols = read_symbols(&lists)?;
    for path in kernels.into_iter().chain(booted.into_iter().map(|map| map.path.into())) {
        add_kernel(&mut symbols, &path)?;
    }
    let mut code = CodeBytes::default();
    code.set_isa(Isa::RV64);
    let space = Space::default();
    for insn in &stored.insns {
        let len = if insn.word & 3 == 3 { 4 } else { 2 };
        code.add(space, insn.pc, &insn.word.to_le_bytes()[..len]);
    }
    let insns = stored.insns.into_iter().map(|insn| (space, insn.pc, insn.costs));
    let costs = Costs {
        columns: stored.columns,
        insns: insns.collect(),
        calls: Vec::new(),
        calls_dropped: 0,
    };
    let mut names = Names { images, symbols };
    let all = costs.gather(&mut names);
    Ok((Annotated::stored(all, stored.command, names.images, code), stored.notes))
}

/// Names from images, else from lists.
struct Names {
    images: Images,
    symbols: BTreeMap<u64, String>,
}

impl Locate for Names {
    fn locate(&mut self, space: Space, pc: GuestVa) -> Place {
        let place = self.images.locate(space, pc);
        if !place.function.is_empty() {
            return place;
        }
        match self.symbols.range(..=pc.0).next_back() {
            Some((_, name)) => Place { image: "[kernel]".into(), function: name.clone(), ..place },
            None => place,
        }
    }
}

/// Lines of address, type and name; only functions are kept.
fn read_symbols(paths: &[PathBuf]) -> Result<BTreeMap<u64, String>> {
    let mut names = BTreeMap::new();
    for path in paths {
        let place = || path.display().to_string();
        let file = BufReader::new(File::open(path).with_context(place)?);
        for (at, line) in file.lines().enumerate() {
            let line = line.with_context(place)?;
            let mut words = line.split_whitespace();
            let parts = (words.next(), words.next(), words.next());
            let (Some(address), Some(sort), Some(name)) = parts else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else {
                bail!("{}:{}: \"{address}\" is no address", path.display(), at + 1);
            };
            if matches!(sort, "t" | "T" | "w" | "W") {
                names.entry(address).or_insert_with(|| name.to_owned());
            }
        }
    }
    Ok(names)
}
