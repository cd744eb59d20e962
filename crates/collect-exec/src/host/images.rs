//! The files behind mappings: which are images, their build-ids and biases. Each file is opened once per
//! collection.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::path::Path;

use ichnos_base::{FileOff, GuestVa, Map, MapKind, Protection};
use ichnos_image::Image;

use super::told::{Told, Vma};
use crate::words::{self, WIDE_HEAD, map_bits, u32_at};

/// Every file seen so far; `None` for those that are no images.
#[derive(Default)]
pub struct Images(HashMap<String, Option<Image>>);

impl Images {
    /// Opens a file, if it was not.
    pub fn open(&mut self, path: &str) {
        if !self.0.contains_key(path) {
            let image = Image::open(Path::new(path)).ok();
            self.0.insert(path.to_owned(), image);
        }
    }

    /// Opens the files behind the mappings that a buffer tells of: it is read later, when they may be gone. What else in it looks like
    /// a mapping of a file does no harm.
    pub fn open_early(&mut self, bytes: &[u8]) {
        let tag = words::MAP.to_le_bytes();
        for at in (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&tag)) {
            let len = u32_at(bytes, at + 4).unwrap_or(0) as usize;
            let contents = bytes.get(at + WIDE_HEAD..).and_then(|rest| rest.get(..len));
            if let Some(Told::Map(vma)) = contents.and_then(|c| Told::wide(words::MAP, c))
                && kind(&vma) == MapKind::FILE
            {
                self.open(&vma.path);
            }
        }
    }

    /// Takes over what was opened early.
    pub fn add(&mut self, opened: Self) {
        for (path, image) in opened.0 {
            self.0.entry(path).or_insert(image);
        }
    }

    /// The event for a mapping.
    pub fn describe<'a>(&'a mut self, vma: &'a Vma<'_>) -> Map<'a> {
        let mut map = Map {
            start: GuestVa(vma.start),
            len: vma.end.saturating_sub(vma.start),
            protection: Protection((vma.bits & 7) as u8),
            kind: kind(vma),
            offset: FileOff(vma.offset),
            bias: 0,
            path: &vma.path,
            build_id: &[],
        };
        if map.kind != MapKind::FILE {
            return map;
        }
        self.open(&vma.path);
        if let Some(image) = self.0.get(&*vma.path).and_then(Option::as_ref) {
            map.kind = MapKind::IMAGE;
            map.bias = image.bias(map.start, map.offset).unwrap_or(0);
            map.build_id = image.build_id();
        }
        map
    }
}

fn kind(vma: &Vma<'_>) -> MapKind {
    match &*vma.path {
        "[heap]" => MapKind::HEAP,
        "[stack]" => MapKind::STACK,
        "[vdso]" => MapKind::VDSO,
        _ if vma.bits & map_bits::FILE != 0 => MapKind::FILE,
        _ => MapKind::OTHER,
    }
}

const _: () = assert!(
    Protection::READ.0 as u64 == map_bits::READ
        && Protection::WRITE.0 as u64 == map_bits::WRITE
        && Protection::EXEC.0 as u64 == map_bits::EXEC
);
