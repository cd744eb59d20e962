//! Page walks: how many accesses to page tables a miss costs.
//!
//! A page of `1 << s` bytes in an address space of `b` bits with `k` bits a
//! level needs `ceil((b - s) / k)` accesses, one a level. The page-walk cache
//! (Barr, Cox and Rixner, ISCA 2010, as a translation-path cache) holds entries
//! of the upper levels by the address bits that lead to them; the deepest one
//! found saves all accesses above it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::config::WalkConfig;
use crate::cache::{Array, Found, FullLru};

/// The page walker of one thread.
#[derive(Debug)]
pub(super) struct Walker {
    config: WalkConfig,
    cache: Option<FullLru>,
    /// The levels of tables above pages of the size of the last walk.
    levels: u32,
    shift: u32,
}

impl Walker {
    /// With an empty page-walk cache.
    pub(super) fn new(config: WalkConfig) -> Self {
        let cache = (config.cache_entries > 0).then(|| FullLru::new(config.cache_entries as usize));
        Self { config, cache, levels: 1, shift: u32::MAX }
    }

    /// Walks to the page of `1 << shift` bytes that holds `addr`; the accesses
    /// it took.
    #[inline]
    pub(super) fn walk(&mut self, addr: u64, shift: u32) -> u32 {
        let WalkConfig { address_bits, bits_per_level, .. } = self.config;
        // Dividing takes long, and pages mostly have one size.
        if self.shift != shift {
            let levels = address_bits.saturating_sub(shift).div_ceil(bits_per_level).max(1);
            (self.shift, self.levels) = (shift, levels);
        }
        let levels = self.levels;
        let Some(cache) = &mut self.cache else { return levels };
        // The entry `above` levels over the last leads to the tables below it,
        // and is the same one for pages of any size. It is named by the address
        // bits that select it, with a one behind them: prefixes of different
        // length differ.
        let prefix = |above: u32| {
            let bits = shift + above * bits_per_level;
            ((addr >> bits) << 1 | 1) << (bits - 10)
        };
        let saved = (1..levels)
            .find(|&above| matches!(cache.access(prefix(above), 0, 0), Found::Hit { .. }));
        let accesses = saved.unwrap_or(levels);
        for above in 1..accesses {
            cache.fill(prefix(above), 0);
        }
        accesses
    }
}
