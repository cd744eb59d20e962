//! Memory hierarchies of known machines, with the source of every number.
//!
//! Replacement is LRU where the maker does not say; what makers call
//! pseudo-LRU is named so where the ways are a power of two. Prefetchers are
//! left out: add what you want to study.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cache::{CacheConfig, Caches, HierarchyConfig, Inclusion, LevelConfig, Sharing};
use crate::tlb::{TlbConfig, TlbHierarchyConfig, TlbLevelConfig, Tlbs, WalkConfig};

/// A known machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The name on the command line.
    pub name: &'static str,
    /// The machine in words.
    pub description: &'static str,
    /// Where the numbers come from.
    pub source: &'static str,
    /// Its caches.
    pub caches: HierarchyConfig,
    /// Its TLBs.
    pub tlbs: TlbHierarchyConfig,
}

impl Machine {
    /// All machines known here.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![skylake(), ice_lake_server(), sapphire_rapids(), zen3(), cortex_a53(), u74()]
    }

    /// The machine of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|machine| machine.name == name)
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn split(code: CacheConfig, data: CacheConfig) -> LevelConfig {
    let caches = Caches::Split { code, data };
    LevelConfig { name: "l1".to_owned(), caches, sharing: Sharing::Private }
}

fn unified(name: &str, sharing: Sharing, cache: CacheConfig) -> LevelConfig {
    LevelConfig { name: name.to_owned(), caches: Caches::Unified(cache), sharing }
}

fn caches(levels: Vec<LevelConfig>) -> HierarchyConfig {
    HierarchyConfig { levels, ..HierarchyConfig::default() }
}

fn tlb_split(name: &str, code: TlbConfig, data: TlbConfig) -> TlbLevelConfig {
    TlbLevelConfig { name: name.to_owned(), tlbs: Tlbs::Split { code, data } }
}

fn tlb_unified(name: &str, tlb: TlbConfig) -> TlbLevelConfig {
    TlbLevelConfig { name: name.to_owned(), tlbs: Tlbs::Unified(tlb) }
}

fn tlbs(levels: Vec<TlbLevelConfig>) -> TlbHierarchyConfig {
    TlbHierarchyConfig { levels, ..TlbHierarchyConfig::default() }
}

fn skylake() -> Machine {
    let l3 = CacheConfig { inclusion: Inclusion::Inclusive, ..CacheConfig::new(8 * MIB, 16, 64) };
    Machine {
        name: "skylake",
        description: "Intel Core i7-6700 (Skylake client), 4 cores",
        source: "Intel 64 and IA-32 Architectures Optimization Reference Manual, Skylake client \
                 microarchitecture, tables of cache and TLB parameters",
        caches: caches(vec![
            split(CacheConfig::new(32 * KIB, 8, 64), CacheConfig::new(32 * KIB, 8, 64)),
            unified("l2", Sharing::Private, CacheConfig::new(256 * KIB, 4, 64)),
            unified("l3", Sharing::Shared, l3),
        ]),
        tlbs: tlbs(vec![
            tlb_split("tlb1", TlbConfig::new(128, 8), TlbConfig::new(64, 4)),
            tlb_unified("tlb2", TlbConfig::new(1536, 12)),
        ]),
    }
}

fn ice_lake_server() -> Machine {
    Machine {
        name: "ice-lake-sp",
        description: "Intel Xeon Platinum 8380 (Ice Lake server), 40 cores",
        source: "Intel Optimization Reference Manual, Ice Lake client and server \
                 microarchitecture; the 60 MiB of the last level from the product page",
        caches: caches(vec![
            split(CacheConfig::new(32 * KIB, 8, 64), CacheConfig::new(48 * KIB, 12, 64)),
            unified("l2", Sharing::Private, CacheConfig::new(1280 * KIB, 20, 64)),
            unified("l3", Sharing::Shared, CacheConfig::new(60 * MIB, 12, 64)),
        ]),
        tlbs: tlbs(vec![
            tlb_split("tlb1", TlbConfig::new(128, 8), TlbConfig::new(64, 4)),
            tlb_unified("tlb2", TlbConfig::new(2048, 16)),
        ]),
    }
}

fn sapphire_rapids() -> Machine {
    Machine {
        name: "sapphire-rapids",
        description: "Intel Xeon Platinum 8480 (Sapphire Rapids), 56 cores",
        source: "Intel Optimization Reference Manual, Golden Cove microarchitecture (TLBs as in \
                 Hennessy and Patterson's description of the same core in the i9-12900); cache \
                 sizes as CPUID leaf 4 of the part reports, 105 MiB of the last level in 15 ways",
        caches: caches(vec![
            split(CacheConfig::new(32 * KIB, 8, 64), CacheConfig::new(48 * KIB, 12, 64)),
            unified("l2", Sharing::Private, CacheConfig::new(2 * MIB, 16, 64)),
            unified("l3", Sharing::Shared, CacheConfig::new(105 * MIB, 15, 64)),
        ]),
        tlbs: tlbs(vec![
            tlb_split("tlb1", TlbConfig::new(256, 8), TlbConfig::new(96, 6)),
            tlb_unified("tlb2", TlbConfig::new(2048, 16)),
        ]),
    }
}

fn zen3() -> Machine {
    let l2 = CacheConfig { inclusion: Inclusion::Inclusive, ..CacheConfig::new(512 * KIB, 8, 64) };
    let l3 = CacheConfig { inclusion: Inclusion::Exclusive, ..CacheConfig::new(32 * MIB, 16, 64) };
    Machine {
        name: "zen3",
        description: "AMD Ryzen 7 5800X (Zen 3), 8 cores",
        source: "AMD Software Optimization Guide for the AMD Family 19h Processors, sections on \
                 the cache hierarchy (L2 inclusive of L1, L3 filled by L2 victims) and the TLBs",
        caches: caches(vec![
            split(CacheConfig::new(32 * KIB, 8, 64), CacheConfig::new(32 * KIB, 8, 64)),
            unified("l2", Sharing::Private, l2),
            unified("l3", Sharing::Shared, l3),
        ]),
        tlbs: tlbs(vec![
            tlb_split("tlb1", TlbConfig::new(64, 64), TlbConfig::new(64, 64)),
            tlb_split("tlb2", TlbConfig::new(512, 8), TlbConfig::new(2048, 16)),
        ]),
    }
}

fn cortex_a53() -> Machine {
    let random = |size, ways| CacheConfig {
        replacement: crate::Replacement::Random { seed: 0 },
        ..CacheConfig::new(size, ways, 64)
    };
    Machine {
        name: "cortex-a53",
        description: "Broadcom BCM2837 (Raspberry Pi 3): 4 Arm Cortex-A53",
        source: "Arm Cortex-A53 MPCore Technical Reference Manual, memory-system chapters \
                 (two-way pseudo-random L1I, four-way L1D, 16-way L2; micro and main TLB); sizes \
                 as configured in the BCM2837",
        caches: caches(vec![
            split(random(32 * KIB, 2), random(32 * KIB, 4)),
            unified("l2", Sharing::Shared, CacheConfig::new(512 * KIB, 16, 64)),
        ]),
        tlbs: tlbs(vec![
            tlb_split("tlb1", TlbConfig::new(10, 10), TlbConfig::new(10, 10)),
            tlb_unified("tlb2", TlbConfig::new(512, 4)),
        ]),
    }
}

fn u74() -> Machine {
    let random = |size, ways| CacheConfig {
        replacement: crate::Replacement::Random { seed: 0 },
        ..CacheConfig::new(size, ways, 64)
    };
    let l2 = CacheConfig { inclusion: Inclusion::Inclusive, ..random(2 * MIB, 16) };
    Machine {
        name: "u74",
        description: "SiFive Freedom U740: 4 U74 harts (RV64GC)",
        source: "SiFive FU740-C000 Manual, chapters on the U74 core (caches with random \
                 replacement, 40-entry fully associative L1 TLBs, 512-entry direct-mapped L2 TLB) \
                 and on the inclusive level-2 cache controller; sizes, sets and Sv39 as in Linux's \
                 device tree of the part (fu740-c000.dtsi)",
        caches: caches(vec![
            split(random(32 * KIB, 4), random(32 * KIB, 8)),
            unified("l2", Sharing::Shared, l2),
        ]),
        tlbs: TlbHierarchyConfig {
            // Sv39: three levels of tables.
            walk: WalkConfig { address_bits: 39, ..WalkConfig::default() },
            ..tlbs(vec![
                tlb_split("tlb1", TlbConfig::new(40, 40), TlbConfig::new(40, 40)),
                tlb_unified("tlb2", TlbConfig::new(512, 1)),
            ])
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a miss of all TLBs costs in accesses to page tables.
    #[test]
    fn walks_have_the_levels_of_the_machine() {
        let addr = ichnos_base::GuestVa(0x1234_5000);
        for (name, levels) in [("u74", 3), ("skylake", 4), ("cortex-a53", 4)] {
            let tlbs = Machine::named(name).map(|machine| machine.tlbs).expect(name);
            let mut model = crate::TlbModel::new(&tlbs).expect(name);
            let records = [ichnos_base::Record::load(addr, 8)];
            let batch = ichnos_base::Batch::new(ichnos_base::ThreadId(0), 0, &records);
            let Ok(_) = ichnos_base::Sink::records(&mut model, &batch);
            assert_eq!(model.report().walks.accesses, levels, "{name}");
        }
    }

    #[test]
    fn all_machines_are_right_and_named_once() {
        let all = Machine::all();
        for machine in &all {
            assert_eq!(machine.caches.check(), Ok(()), "{}", machine.name);
            assert_eq!(machine.tlbs.check(), Ok(()), "{}", machine.name);
            assert_eq!(all.iter().filter(|other| other.name == machine.name).count(), 1);
        }
        assert!(Machine::named("zen3").is_some() && Machine::named("none").is_none());
    }
}
