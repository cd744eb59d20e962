//! The memory map of one traced process, kept up by its events.
//!
//! Invariant: mappings do not overlap; a new one cuts away what it covers, as
//! `mmap` with a fixed address does.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_base::{FileOff, GuestVa, Map, MapKind, Protection};

use crate::{ImageId, ImageVa};

/// A stretch of memory of a traced process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// First address.
    pub start: GuestVa,
    /// The last address: a mapping may reach the end of the address space.
    pub last: GuestVa,
    /// What may be done with it.
    pub protection: Protection,
    /// What sort of memory it is.
    pub kind: MapKind,
    /// Where in its file it begins.
    pub offset: FileOff,
    /// The difference between run-time addresses and the image's own.
    pub bias: u64,
    /// Whose part it is; names such as `[stack]` have an id too.
    pub image: Option<ImageId>,
}

impl Mapping {
    /// The image's own number for a run-time address.
    #[must_use]
    pub const fn to_image(&self, addr: GuestVa) -> ImageVa {
        ImageVa(addr.0.wrapping_sub(self.bias))
    }
}

/// What lies where in one process.
#[derive(Clone, Debug, Default)]
pub struct AddressSpace {
    by_start: BTreeMap<u64, Mapping>,
}

impl AddressSpace {
    /// Nothing mapped.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The mapping that holds `addr`.
    #[must_use]
    pub fn find(&self, addr: GuestVa) -> Option<&Mapping> {
        let (_, mapping) = self.by_start.range(..=addr.0).next_back()?;
        (addr <= mapping.last).then_some(mapping)
    }

    /// All mappings, in the order of addresses.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.by_start.values()
    }

    /// Memory appeared. A map without bytes is nothing.
    pub fn map(&mut self, map: &Map<'_>, image: Option<ImageId>) {
        let Some(last) = last(map.start, map.len) else { return };
        self.unmap(map.start, map.len);
        self.by_start.insert(
            map.start.0,
            Mapping {
                start: map.start,
                last,
                protection: map.protection,
                kind: map.kind,
                offset: map.offset,
                bias: map.bias,
                image,
            },
        );
    }

    /// Memory went away: all of some mappings, the middle or an end of others.
    pub fn unmap(&mut self, start: GuestVa, len: u64) {
        let Some(end) = last(start, len) else { return };
        let before = self.by_start.range(..start.0).next_back().map(|(_, m)| *m);
        if let Some(old) = before.filter(|m| m.last >= start) {
            self.by_start.insert(old.start.0, Mapping { last: GuestVa(start.0 - 1), ..old });
            self.keep_after(&old, end);
        }
        while let Some((&first, &old)) = self.by_start.range(start.0..=end.0).next() {
            self.by_start.remove(&first);
            self.keep_after(&old, end);
        }
    }

    /// Everything went away.
    pub fn clear(&mut self) {
        self.by_start.clear();
    }

    /// Puts back the part of `old` that lies above `end`.
    fn keep_after(&mut self, old: &Mapping, end: GuestVa) {
        if old.last > end {
            let start = end.offset(1);
            let offset = old.offset.offset(start.since(old.start));
            self.by_start.insert(start.0, Mapping { start, offset, ..*old });
        }
    }
}

fn last(start: GuestVa, len: u64) -> Option<GuestVa> {
    Some(GuestVa(start.0.saturating_add(len.checked_sub(1)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, len: u64) -> Map<'static> {
        Map {
            start: GuestVa(start),
            len,
            protection: Protection::READ,
            kind: MapKind::FILE,
            offset: FileOff(0),
            bias: 0,
            path: "",
            build_id: &[],
        }
    }

    #[test]
    fn overlaps_are_cut_like_the_kernel_does() {
        // Twin: one owner per byte of a small address space.
        let mut space = AddressSpace::new();
        let mut twin = [None; 64];
        let mut state = 1_u64;
        for round in 0..2000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = (state >> 33) % 64;
            let len = (state >> 40) % (65 - start);
            let cells = start as usize..(start + len) as usize;
            if state >> 63 == 0 {
                space.map(&map(start, len), Some(ImageId(round)));
                twin[cells].fill(Some(round));
            } else {
                space.unmap(GuestVa(start), len);
                twin[cells].fill(None);
            }
            for (at, owner) in (0_u64..).zip(&twin) {
                let found = space.find(GuestVa(at)).map(|m| {
                    assert_eq!(m.offset.0, m.start.0 - (m.start.0 - m.offset.0));
                    m.image.expect("every map has an owner").0
                });
                assert_eq!(found, *owner, "at {at} in round {round}");
            }
        }
    }

    #[test]
    fn the_end_of_the_address_space_can_be_mapped() {
        let mut space = AddressSpace::new();
        space.map(&map(u64::MAX - 0xfff, 0x1000), None);
        assert!(space.find(GuestVa(u64::MAX)).is_some());
        space.unmap(GuestVa(u64::MAX - 1), 2);
        assert!(space.find(GuestVa(u64::MAX)).is_none());
        assert!(space.find(GuestVa(u64::MAX - 2)).is_some());
    }
}
