//! What a TLB hierarchy is made of.
//!
//! A trace does not say how large the pages behind an address were, so the
//! configuration does: one size, and regions with another one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

use crate::cache::CacheConfig;
use crate::error::{conflict, power_of_two, range};
use crate::{Error, Replacement};

/// One TLB. A fully associative one has as many ways as entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TlbConfig {
    /// Translations it holds, of pages of any size.
    pub entries: u32,
    /// Translations per set.
    pub ways: u32,
    /// Which one has to go.
    pub replacement: Replacement,
}

impl TlbConfig {
    /// An LRU TLB.
    #[must_use]
    pub const fn new(entries: u32, ways: u32) -> Self {
        Self { entries, ways, replacement: Replacement::Lru }
    }

    /// The same array as a cache with lines of eight bytes.
    pub(super) const fn as_cache(&self) -> CacheConfig {
        let mut cache = CacheConfig::new(self.entries as u64 * 8, self.ways, 8);
        cache.replacement = self.replacement;
        cache
    }

    fn check(&self, name: &str) -> Result<(), Error> {
        range(&format!("{name}.entries"), u64::from(self.entries), 1, 1 << 24)?;
        range(&format!("{name}.ways"), u64::from(self.ways), 1, u64::from(self.entries))?;
        if !self.entries.is_multiple_of(self.ways) {
            return Err(Error::Multiple {
                field: format!("{name}.entries"),
                got: u64::from(self.entries),
                of: u64::from(self.ways),
                why: "ways",
            });
        }
        self.as_cache().check(name)
    }
}

/// The TLBs of one level.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Tlbs {
    /// One for instructions and data.
    Unified(TlbConfig),
    /// One for each.
    Split {
        /// Instructions.
        code: TlbConfig,
        /// Data.
        data: TlbConfig,
    },
}

/// One level.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TlbLevelConfig {
    /// The level's name, such as `tlb1`.
    pub name: String,
    /// Its TLBs.
    pub tlbs: Tlbs,
}

/// Memory with pages of a size of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageRegion {
    /// First address.
    pub start: GuestVa,
    /// Bytes.
    pub len: u64,
    /// The page size in bytes: a power of two of 1 KiB to 1 TiB.
    pub page: u64,
}

/// The page size of every address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pages {
    /// Outside of all regions.
    pub base: u64,
    /// In order of address, without overlap.
    pub regions: Vec<PageRegion>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { base: 4096, regions: Vec::new() }
    }
}

impl Pages {
    /// The page size at an address, as a power of two.
    #[inline]
    pub(super) fn shift(&self, addr: GuestVa) -> u32 {
        if self.regions.is_empty() {
            return self.base.trailing_zeros();
        }
        let after = self.regions.partition_point(|region| region.start <= addr);
        let region = after.checked_sub(1).and_then(|at| self.regions.get(at));
        match region {
            Some(region) if addr.since(region.start) < region.len => region.page.trailing_zeros(),
            _ => self.base.trailing_zeros(),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let page = |field: &str, size: u64| {
            range(field, size, 1 << 10, 1 << 40)?;
            power_of_two(field, size)
        };
        page("pages.base", self.base)?;
        for (at, region) in self.regions.iter().enumerate() {
            page(&format!("pages.regions[{at}].page"), region.page)?;
            let field = format!("pages.regions[{at}].start");
            if region.start.0.checked_add(region.len).is_none() {
                return Err(conflict(&field, "the region ends beyond the address space"));
            }
            let next = self.regions.get(at + 1);
            if next.is_some_and(|next| next.start.0 < region.start.0 + region.len) {
                return Err(conflict(&field, "regions must be in order and must not overlap"));
            }
        }
        Ok(())
    }
}

/// What a page walk costs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WalkConfig {
    /// Bits of a virtual address that are translated: 48 for four levels of
    /// tables over pages of 4 KiB, 39 for three.
    pub address_bits: u32,
    /// Bits that one level of tables translates.
    pub bits_per_level: u32,
    /// Cycles of one access to a table.
    pub cycles_per_access: u32,
    /// Entries of the page-walk cache, which holds entries of all levels but the
    /// last; 0 for none.
    pub cache_entries: u32,
}

impl Default for WalkConfig {
    /// Four levels, each an access of 20 cycles, without a page-walk cache.
    fn default() -> Self {
        Self { address_bits: 48, bits_per_level: 9, cycles_per_access: 20, cache_entries: 0 }
    }
}

/// A whole TLB hierarchy; each thread has its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TlbHierarchyConfig {
    /// The levels, nearest first.
    pub levels: Vec<TlbLevelConfig>,
    /// The page sizes.
    pub pages: Pages,
    /// The walks.
    pub walk: WalkConfig,
}

impl TlbHierarchyConfig {
    /// Checks the hierarchy as a whole.
    ///
    /// # Errors
    ///
    /// The first field that makes no sense.
    pub fn check(&self) -> Result<(), Error> {
        range("levels", self.levels.len() as u64, 1, 8)?;
        let mut unified = false;
        for (at, level) in self.levels.iter().enumerate() {
            if self.levels[..at].iter().any(|other| other.name == level.name) {
                let field = format!("{}.name", level.name);
                return Err(conflict(&field, "there are two of this name"));
            }
            match &level.tlbs {
                Tlbs::Unified(tlb) => {
                    unified = true;
                    tlb.check(&level.name)?;
                }
                Tlbs::Split { .. } if unified => {
                    let why = "a level below a unified one must be unified";
                    return Err(conflict(&level.name, why));
                }
                Tlbs::Split { code, data } => {
                    code.check(&format!("{}i", level.name))?;
                    data.check(&format!("{}d", level.name))?;
                }
            }
        }
        self.pages.check()?;
        range("walk.address_bits", u64::from(self.walk.address_bits), 12, 64)?;
        range("walk.bits_per_level", u64::from(self.walk.bits_per_level), 1, 20)?;
        range("walk.cache_entries", u64::from(self.walk.cache_entries), 0, 1 << 20)
    }
}
