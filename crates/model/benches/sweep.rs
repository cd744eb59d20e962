//! What 64 LRU caches in one pass cost beside one cache alone.
//!
//! The one cache is a data cache of 32 KiB and eight ways, simulated by the
//! hierarchy; the 64 are those of eight sizes from 8 KiB to 1 MiB with 1 to 128
//! ways, where the number of sets allows. Redo with `cargo bench -p ichnos-model
//! --bench sweep`.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod stream;

use ichnos_model::{
    CacheConfig, Caches, Hierarchy, HierarchyConfig, LevelConfig, LruSweep, References, Sharing,
};

fn main() {
    let mut configs = Vec::new();
    for ways in [1u32, 2, 4, 8, 16, 32, 64, 128] {
        for size in (13..=20).map(|shift| 1u64 << shift) {
            configs.push(CacheConfig::new(size, ways, 64));
        }
    }
    let few_ways: Vec<CacheConfig> = (0..16)
        .flat_map(|shift| [1u32, 2, 4, 8].map(|ways| (shift, ways)))
        .map(|(shift, ways)| CacheConfig::new(4096 << shift, ways, 64))
        .collect();
    let l1d = Caches::Data(CacheConfig::new(32 << 10, 8, 64));
    let level = LevelConfig { name: "l1".to_owned(), caches: l1d, sharing: Sharing::Shared };
    let one = HierarchyConfig { levels: vec![level], ..HierarchyConfig::default() };
    for (name, records) in stream::chosen() {
        let alone = stream::measure(&records, || Hierarchy::new(&one).expect("right"));
        println!("{name}: one cache {:.1} M records/s", records.len() as f64 / alone / 1e6);
        for (label, configs) in
            [("8K to 1M, 1 to 128 ways", &configs), ("4K to 128M, 1 to 8 ways", &few_ways)]
        {
            let sweep = stream::measure(&records, || {
                LruSweep::new(configs, References::Data).expect("right")
            });
            println!(
                "  {} caches ({label}): {:.1} M records/s, {:.2} times the cost of one",
                configs.len(),
                records.len() as f64 / sweep / 1e6,
                sweep / alone
            );
        }
    }
}
