//! The files behind mappings: which are images, their build-ids and biases.
//! Each file is opened once per collection, also if it is mapped often.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::path::Path;

use ichnos_base::{FileOff, GuestVa, MapKind};
use ichnos_image::Image;

use crate::maps::Vma;

/// Every file seen so far; `None` for those that are no images.
#[derive(Default)]
pub(crate) struct Images(HashMap<String, Option<Image>>);

/// What a mapping is, beyond what the kernel's table says.
pub(crate) struct Description<'a> {
    pub(crate) kind: MapKind,
    pub(crate) bias: u64,
    pub(crate) build_id: &'a [u8],
}

impl Images {
    /// Looks behind a mapping.
    pub(crate) fn describe(&mut self, vma: &Vma) -> Description<'_> {
        let plain = Description { kind: vma.kind(), bias: 0, build_id: &[] };
        if plain.kind != MapKind::FILE {
            return plain;
        }
        if !self.0.contains_key(&vma.path) {
            self.0.insert(vma.path.clone(), Image::open(Path::new(&vma.path)).ok());
        }
        let Some(image) = self.0.get(&vma.path).and_then(Option::as_ref) else { return plain };
        let bias = image.bias(GuestVa(vma.start), FileOff(vma.offset)).unwrap_or(0);
        Description { kind: MapKind::IMAGE, bias, build_id: image.build_id() }
    }
}
