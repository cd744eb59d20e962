//! The files behind mappings: which are images, their build-ids and biases. Each file is opened once per
//! collection.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::path::Path;

use ichnos_base::{FileOff, GuestVa, Map, MapKind, Protection};
use ichnos_image::Image;

use super::told::Vma;
use crate::words::map_bits;

/// Every file seen so far; `None` for those that are no images.
#[derive(Default)]
pub struct Images(HashMap<String, Option<Image>>);

impl Images {
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
        if !self.0.contains_key(&*vma.path) {
            let image = Image::open(Path::new(&*vma.path)).ok();
            self.0.insert(vma.path.clone().into_owned(), image);
        }
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
