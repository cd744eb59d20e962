//! What a hierarchy counts: plain data for reports.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::AddAssign;

use crate::ByKind;

/// The counts of one cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Demand accesses, by the kind of reference that caused them.
    pub accesses: ByKind,
    /// Those that missed.
    pub misses: ByKind,
    /// Misses of lines never referenced before, if classified.
    pub compulsory: ByKind,
    /// Misses that a fully associative cache would have too, if classified.
    pub capacity: ByKind,
    /// All other misses, if classified.
    pub conflict: ByKind,
    /// Misses of a sector whose line was present (part of `misses`).
    pub sector_misses: u64,
    /// Lines that had to make room.
    pub evictions: u64,
    /// Dirty lines sent to the next level.
    pub write_backs: u64,
    /// Lines received from evictions of the level above.
    pub received: u64,
    /// Stores passed on to the next level.
    pub write_throughs: u64,
    /// Lines lost because an inclusive level below evicted them.
    pub back_invalidations: u64,
    /// Lines dropped by flush instructions.
    pub flushed: u64,
    /// Lines that prefetches brought in.
    pub prefetches: u64,
    /// Prefetched lines that were then asked for.
    pub prefetches_used: u64,
    /// Prefetched lines that went without having been asked for.
    pub prefetches_wasted: u64,
}

impl CacheStats {
    /// Accesses that hit.
    #[must_use]
    pub const fn hits(&self) -> ByKind {
        self.accesses.without(&self.misses)
    }

    /// The share of accesses that missed; 0 if there were none.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        match self.accesses.total() {
            0 => 0.0,
            accesses => self.misses.total() as f64 / accesses as f64,
        }
    }

    /// Misses per thousand instructions.
    #[must_use]
    pub fn mpki(&self, instructions: u64) -> f64 {
        match instructions {
            0 => 0.0,
            instructions => self.misses.total() as f64 * 1000.0 / instructions as f64,
        }
    }
}

impl AddAssign<&Self> for CacheStats {
    fn add_assign(&mut self, other: &Self) {
        self.accesses += other.accesses;
        self.misses += other.misses;
        self.compulsory += other.compulsory;
        self.capacity += other.capacity;
        self.conflict += other.conflict;
        self.sector_misses += other.sector_misses;
        self.evictions += other.evictions;
        self.write_backs += other.write_backs;
        self.received += other.received;
        self.write_throughs += other.write_throughs;
        self.back_invalidations += other.back_invalidations;
        self.flushed += other.flushed;
        self.prefetches += other.prefetches;
        self.prefetches_used += other.prefetches_used;
        self.prefetches_wasted += other.prefetches_wasted;
    }
}

/// What reached memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// Lines read, by the kind of reference that caused it. A reference for which
    /// there is no cache at all counts as one.
    pub reads: ByKind,
    /// Stores that no cache kept.
    pub writes: u64,
    /// Dirty lines written back.
    pub write_backs: u64,
    /// Lines read by prefetches.
    pub prefetches: u64,
}

/// The counts of one cache of a hierarchy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstanceReport {
    /// The cache's name, such as `l1d`, or `l1d-victim` for a victim cache.
    pub name: String,
    /// The level, counted from 0 at the nearest; a victim cache has its
    /// cache's.
    pub level: u32,
    /// Which core's it is, if it is private.
    pub core: Option<u32>,
    /// Whether its misses are sorted into compulsory, capacity and conflict ones.
    pub classified: bool,
    /// Its counts.
    pub stats: CacheStats,
}

/// The counts of a whole hierarchy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HierarchyReport {
    /// Instructions seen.
    pub instructions: u64,
    /// Those of each core, by its number.
    pub by_core: Vec<u64>,
    /// Each cache, nearest first, those of one name core by core.
    pub caches: Vec<InstanceReport>,
    /// What reached memory.
    pub memory: MemoryStats,
}

impl HierarchyReport {
    /// The counts of all caches of one name together.
    #[must_use]
    pub fn total(&self, name: &str) -> Option<CacheStats> {
        let mut found = self.caches.iter().filter(|cache| cache.name == name);
        let mut sum = found.next()?.stats;
        for cache in found {
            sum += &cache.stats;
        }
        Some(sum)
    }

    /// The instructions that a cache served: those of its core, if it is private.
    #[must_use]
    pub fn instructions_of(&self, cache: &InstanceReport) -> u64 {
        let own = cache.core.and_then(|core| self.by_core.get(core as usize));
        own.copied().unwrap_or(self.instructions)
    }

    /// Whether misses of the caches of that name are sorted by cause.
    #[must_use]
    pub fn is_classified(&self, name: &str) -> bool {
        self.caches.iter().any(|cache| cache.name == name && cache.classified)
    }

    /// The names of the caches, each once, nearest first.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for cache in &self.caches {
            if !names.contains(&cache.name.as_str()) {
                names.push(&cache.name);
            }
        }
        names
    }
}
