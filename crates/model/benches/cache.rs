//! How many references a second a hierarchy takes from batches in memory.
//!
//! Strength: no file, no decoding, so the model alone is measured; the stream
//! that counts is that of a real program, bzip2 under Valgrind's lackey, which
//! must be installed. Weakness: the other streams are synthetic, and lackey
//! tells no branches. Redo with `cargo
//! bench -p ichnos-model --bench cache`.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod stream;

use ichnos_base::{Batch, Record, Sink, ThreadId};
use ichnos_model::{CacheConfig, Caches, Hierarchy, HierarchyConfig, LevelConfig, PerPc, Sharing};

fn level(name: &str, caches: Caches) -> LevelConfig {
    LevelConfig { name: name.to_owned(), caches, sharing: Sharing::Shared }
}

fn parse(text: &str) -> CacheConfig {
    CacheConfig::parse("bench", text).expect("a constant that is right")
}

fn machine(words: &str) -> HierarchyConfig {
    let cache = |geometry: &str| parse(&format!("{geometry}{words}"));
    HierarchyConfig {
        levels: vec![
            level("l1", Caches::Split { code: cache("32K,8,64"), data: cache("32K,8,64") }),
            level("l2", Caches::Unified(cache("1M,16,64"))),
            level("l3", Caches::Unified(cache("32M,16,64"))),
        ],
        ..HierarchyConfig::default()
    }
}

fn main() {
    for (name, records) in stream::chosen() {
        let references =
            records.iter().filter(|r| !matches!(r, Record::Branch { .. })).count() as u64;
        let data = records
            .iter()
            .filter(|r| matches!(r, Record::Load { .. } | Record::Store { .. }))
            .count();
        println!("{name}: {references} references, {data} of them data");
        for words in ["", ",plru", ",srrip", ",xor", ",3c", ",stride"] {
            let config = machine(words);
            let speed = references as f64
                / 1e6
                / stream::measure(&records, || Hierarchy::new(&config).expect("checked above"));
            println!("  l1i+l1d+l2+l3{words:10} {speed:8.1} M references/s");
        }
        let config = machine("");
        let seconds = stream::measure(&records, || {
            Hierarchy::observed(&config, PerPc::new(3)).expect("checked above")
        });
        let speed = references as f64 / 1e6 / seconds;
        println!("  per instruction         {speed:8.1} M references/s");
        let mut model = Hierarchy::new(&config).expect("checked above");
        let _ = model.records(&Batch::new(ThreadId(0), 0, &records));
        for cache in model.report().caches {
            println!("  {:4} miss ratio {:.4}", cache.name, cache.stats.miss_ratio());
        }
    }
}
