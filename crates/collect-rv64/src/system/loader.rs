//! Puts what shall run into memory: a Linux kernel with its first file system,
//! or a bare ELF program.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Object as _, ObjectSymbol as _};

use crate::error::Error;
use crate::system::bus::{Bus, RAM_BASE};
use crate::system::tree::{Facts, device_tree};

/// The kernel wants to stand at a multiple of this.
const LARGE_PAGE: u64 = 2 << 20;
const IMAGE_MAGIC: &[u8] = b"RSC\x05";
const IMAGE_MAGIC_AT: usize = 0x38;
/// The start of RAM is left free, as if firmware lived there.
const KERNEL_AT: u64 = RAM_BASE + LARGE_PAGE;

/// Where execution begins, and what the first hart is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    pub(crate) entry: u64,
    pub(crate) device_tree: u64,
    /// The word that ends a bare program when it is written.
    pub(crate) tohost: Option<u64>,
}

fn put(bus: &mut Bus, what: &'static str, pa: u64, bytes: &[u8]) -> Result<(), Error> {
    let have = (RAM_BASE + bus.ram.len() as u64).saturating_sub(pa);
    let index = bus.ram_index(pa, bytes.len());
    let to = index.and_then(|index| bus.ram.slice_mut(index, bytes.len()));
    to.ok_or(Error::TooLarge { what, need: bytes.len() as u64, have })?.copy_from_slice(bytes);
    Ok(())
}

/// A kernel image with its command line and first file system.
pub(crate) fn kernel(
    bus: &mut Bus,
    path: &Path,
    initrd: &[u8],
    (harts, command_line): (u32, &str),
) -> Result<Start, Error> {
    let image =
        std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    if image.get(IMAGE_MAGIC_AT..IMAGE_MAGIC_AT + 4) != Some(IMAGE_MAGIC) {
        let reason = "it does not have the header of a flat riscv64 kernel Image";
        return Err(Error::NotExecutable { path: path.to_owned(), reason: reason.to_owned() });
    }
    put(bus, "the kernel", KERNEL_AT, &image)?;
    let end = RAM_BASE + bus.ram.len() as u64;
    let tree_at = end.saturating_sub(LARGE_PAGE);
    let initrd_at = tree_at.saturating_sub(initrd.len() as u64) & !(LARGE_PAGE - 1);
    let facts = Facts {
        harts,
        memory: (RAM_BASE, bus.ram.len() as u64),
        command_line,
        initrd: (!initrd.is_empty()).then_some((initrd_at, initrd_at + initrd.len() as u64)),
        has_disk: bus.disk.is_some(),
    };
    if !initrd.is_empty() {
        put(bus, "the initial file system", initrd_at, initrd)?;
    }
    put(bus, "the device tree", tree_at, &device_tree(&facts))?;
    Ok(Start { entry: KERNEL_AT, device_tree: tree_at, tohost: None })
}

/// A bare program at its physical addresses.
pub(crate) fn bare(bus: &mut Bus, path: &Path, harts: u32) -> Result<Start, Error> {
    let data =
        std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let bad = |reason: &dyn ToString| Error::NotExecutable {
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let e = Endianness::Little;
    let header = FileHeader64::<Endianness>::parse(&*data).map_err(|error| bad(&error))?;
    if !header.is_little_endian() || header.e_machine.get(e) != elf::EM_RISCV {
        return Err(bad(&"it is for another processor"));
    }
    let segments = header.program_headers(e, &*data).map_err(|error| bad(&error))?;
    for segment in segments.iter().filter(|s| s.p_type(e) == elf::PT_LOAD) {
        let bytes =
            segment.data(e, &*data).map_err(|()| bad(&"a segment lies outside of the file"))?;
        if segment.p_memsz(e) > 0 {
            put(bus, "the program", segment.p_paddr(e), bytes)?;
        }
    }
    let file = object::File::parse(&*data).map_err(|error| bad(&error))?;
    let tohost = file.symbols().find(|s| s.name() == Ok("tohost")).map(|s| s.address());
    let tree_at = RAM_BASE + bus.ram.len() as u64 - LARGE_PAGE;
    let facts = Facts {
        harts,
        memory: (RAM_BASE, bus.ram.len() as u64),
        command_line: "",
        initrd: None,
        has_disk: bus.disk.is_some(),
    };
    put(bus, "the device tree", tree_at, &device_tree(&facts))?;
    Ok(Start { entry: header.e_entry.get(e), device_tree: tree_at, tohost })
}
