//! One address space: which memory is mapped, and what may be done with it.
//!
//! Regions never overlap and never touch with equal protection. Ends are
//! inclusive so that a region may reach the top of the address space.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_base::{GuestVa, Protection};

/// Pages of this many bits are what the look-aside tables hold.
pub(crate) const PAGE_SHIFT: u32 = 12;

/// Mapped memory of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressSpace {
    regions: BTreeMap<u64, Region>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Region {
    last: u64,
    protection: u8,
}

/// A region, to be remembered until the space changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub first: u64,
    pub last: u64,
    pub rights: u8,
}

impl Known {
    /// Holds nothing and allows nothing.
    pub const NOTHING: Self = Self { first: 1, last: 0, rights: 0 };

    /// Whether `len` bytes from `addr` lie here and allow one of the rights.
    #[inline]
    pub const fn allows(&self, addr: u64, len: u64, rights: u8) -> bool {
        let last = addr.saturating_add(len.saturating_sub(1));
        addr >= self.first && last <= self.last && self.rights & rights != 0
    }

    /// Whether a whole page lies here.
    pub const fn holds_page(&self, page: u64) -> bool {
        let first = page << PAGE_SHIFT;
        first >= self.first && first | ((1 << PAGE_SHIFT) - 1) <= self.last
    }
}

/// How an access fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    /// All bytes are mapped and allow one of the rights asked for.
    Allowed,
    /// All bytes are mapped; the one at this address allows none of the rights.
    Forbidden(GuestVa),
    /// The byte at this address is not mapped.
    Unmapped(GuestVa),
}

/// The last byte of `len` bytes from `start`, or none if there are no bytes. A
/// stretch that would wrap ends at the top.
fn last_byte(start: GuestVa, len: u64) -> Option<u64> {
    len.checked_sub(1).map(|more| start.0.saturating_add(more))
}

impl AddressSpace {
    /// Maps memory, replacing whatever was there.
    pub fn map(&mut self, start: GuestVa, len: u64, protection: Protection) {
        let Some(last) = last_byte(start, len) else { return };
        self.clear(start.0, last);
        self.insert(start.0, Region { last, protection: protection.0 });
    }

    /// Takes memory away.
    pub fn unmap(&mut self, start: GuestVa, len: u64) {
        if let Some(last) = last_byte(start, len) {
            self.clear(start.0, last);
        }
    }

    /// Takes all memory away.
    pub fn clear_all(&mut self) {
        self.regions.clear();
    }

    /// Adds rights to memory, mapped or not, without taking any.
    pub fn widen(&mut self, start: GuestVa, len: u64, protection: Protection) {
        let Some(last) = last_byte(start, len) else { return };
        self.split(start.0);
        if let Some(after) = last.checked_add(1) {
            self.split(after);
        }
        let inside: Vec<_> = self.regions.range(start.0..=last).map(|(s, r)| (*s, *r)).collect();
        self.clear(start.0, last);
        let mut from = Some(start.0);
        for (s, region) in inside {
            if let Some(gap) = from.filter(|&gap| gap < s) {
                self.insert(gap, Region { last: s - 1, protection: protection.0 });
            }
            self.insert(s, Region { protection: region.protection | protection.0, ..region });
            from = region.last.checked_add(1);
        }
        if let Some(gap) = from.filter(|&gap| gap <= last) {
            self.insert(gap, Region { last, protection: protection.0 });
        }
    }

    /// Widens by all of another space.
    pub fn widen_by(&mut self, other: &Self) {
        for (&start, region) in &other.regions {
            // A region of the whole address space has a length beyond 64 bits;
            // its last byte is then missed, which no program can access.
            let len = (region.last - start).saturating_add(1);
            self.widen(GuestVa(start), len, Protection(region.protection));
        }
    }

    /// Whether `len` bytes from `start` all allow at least one right of `rights`.
    pub fn fit(&self, start: GuestVa, len: u64, rights: u8) -> Fit {
        let Some(last) = last_byte(start, len) else { return Fit::Allowed };
        let mut at = start.0;
        let mut forbidden = None;
        loop {
            let Some(region) = self.region_of(at) else { return Fit::Unmapped(GuestVa(at)) };
            if region.protection & rights == 0 && forbidden.is_none() {
                forbidden = Some(GuestVa(at));
            }
            if region.last >= last {
                return forbidden.map_or(Fit::Allowed, Fit::Forbidden);
            }
            at = region.last + 1;
        }
    }

    /// The region that holds an address: its first and last byte and its rights.
    pub fn region(&self, addr: GuestVa) -> Option<Known> {
        let (&first, region) = self.regions.range(..=addr.0).next_back()?;
        let known = Known { first, last: region.last, rights: region.protection };
        (region.last >= addr.0).then_some(known)
    }

    fn region_of(&self, addr: u64) -> Option<Region> {
        let (_, region) = self.regions.range(..=addr).next_back()?;
        (region.last >= addr).then_some(*region)
    }

    /// Makes `at` the first byte of a region, if it lies inside one.
    fn split(&mut self, at: u64) {
        let Some((&start, &region)) = self.regions.range(..at).next_back() else { return };
        if region.last >= at {
            self.regions.insert(start, Region { last: at - 1, ..region });
            self.regions.insert(at, region);
        }
    }

    fn clear(&mut self, start: u64, last: u64) {
        self.split(start);
        if let Some(after) = last.checked_add(1) {
            self.split(after);
        }
        while let Some((&s, _)) = self.regions.range(start..=last).next() {
            self.regions.remove(&s);
        }
    }

    /// Puts a region where nothing is, and joins it with equal neighbours.
    fn insert(&mut self, mut start: u64, mut region: Region) {
        if let Some((&s, &before)) = self.regions.range(..start).next_back()
            && before.last.checked_add(1) == Some(start)
            && before.protection == region.protection
        {
            start = s;
        }
        if let Some(after) = region.last.checked_add(1)
            && let Some(&next) = self.regions.get(&after)
            && next.protection == region.protection
        {
            self.regions.remove(&after);
            region.last = next.last;
        }
        self.regions.insert(start, region);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOP: u64 = u64::MAX - 63;

    #[test]
    fn maps_replace_and_unmap_splits() {
        let mut space = AddressSpace::default();
        space.map(GuestVa(0x1000), 0x3000, Protection(3));
        space.unmap(GuestVa(0x2000), 0x1000);
        assert_eq!(space.fit(GuestVa(0x1ff8), 8, 1), Fit::Allowed);
        assert_eq!(space.fit(GuestVa(0x1ff8), 9, 1), Fit::Unmapped(GuestVa(0x2000)));
        let known = space.region(GuestVa(0x1800)).unwrap();
        assert!(known.holds_page(1) && !known.holds_page(2) && known.allows(0x1fff, 1, 2));
        assert!(!known.allows(0x1fff, 2, 2) && !known.allows(0x1fff, 1, 4));
        assert_eq!(space.region(GuestVa(0x2000)), None);
        space.map(GuestVa(0x2000), 0x1000, Protection(1));
        assert_eq!(space.fit(GuestVa(0x1000), 0x3000, 2), Fit::Forbidden(GuestVa(0x2000)));
    }

    #[test]
    fn the_top_of_the_address_space_is_memory_too() {
        let mut space = AddressSpace::default();
        space.map(GuestVa(TOP), u64::MAX, Protection(1));
        assert_eq!(space.fit(GuestVa(u64::MAX), 1, 1), Fit::Allowed);
        space.widen(GuestVa(TOP - 8), 16, Protection(2));
        assert_eq!(space.fit(GuestVa(TOP - 8), 16, 2), Fit::Allowed);
        assert_eq!(space.fit(GuestVa(TOP + 8), 8, 2), Fit::Forbidden(GuestVa(TOP + 8)));
    }

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Map(u8, u8, u8),
        Unmap(u8, u8),
        Widen(u8, u8, u8),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0u8..60, 0u8..20, 0u8..8).prop_map(|(s, l, p)| Op::Map(s, l, p)),
            (0u8..60, 0u8..20).prop_map(|(s, l)| Op::Unmap(s, l)),
            (0u8..60, 0u8..20, 0u8..8).prop_map(|(s, l, p)| Op::Widen(s, l, p)),
        ]
    }

    /// The twin: one cell per byte.
    fn apply(cells: &mut [Option<u8>; 80], op: Op) {
        let (start, len) = match op {
            Op::Map(s, l, _) | Op::Unmap(s, l) | Op::Widen(s, l, _) => (s as usize, l as usize),
        };
        for cell in &mut cells[start..start + len] {
            *cell = match op {
                Op::Map(_, _, p) => Some(p),
                Op::Unmap(..) => None,
                Op::Widen(_, _, p) => Some(cell.unwrap_or(0) | p),
            };
        }
    }

    proptest! {
        #[test]
        fn equals_a_table_of_bytes(ops in prop::collection::vec(op(), 1..40)) {
            let mut cells = [None; 80];
            let mut space = AddressSpace::default();
            for op in ops {
                apply(&mut cells, op);
                match op {
                    Op::Map(s, l, p) => space.map(GuestVa(s.into()), l.into(), Protection(p)),
                    Op::Unmap(s, l) => space.unmap(GuestVa(s.into()), l.into()),
                    Op::Widen(s, l, p) => space.widen(GuestVa(s.into()), l.into(), Protection(p)),
                }
            }
            for (at, cell) in cells.iter().enumerate() {
                let region = space.region_of(at as u64);
                prop_assert_eq!(region.map(|r| r.protection), *cell, "at {}", at);
            }
            let regions: Vec<_> = space.regions.iter().collect();
            for pair in regions.windows(2) {
                let ((_, a), (&start, b)) = (pair[0], pair[1]);
                prop_assert!(a.last < start);
                prop_assert!(a.last + 1 < start || a.protection != b.protection);
            }
        }
    }
}
