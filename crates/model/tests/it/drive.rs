//! How the tests feed models.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{Batch, GuestVa, Record, Sink, ThreadId};
use ichnos_model::{
    CacheConfig, CacheStats, Caches, Hierarchy, HierarchyConfig, LevelConfig, Sharing,
};

/// A level of data caches.
pub fn data_level(name: &str, cache: CacheConfig) -> LevelConfig {
    LevelConfig { name: name.to_owned(), caches: Caches::Data(cache), sharing: Sharing::Shared }
}

/// A single data cache.
pub fn single(cache: CacheConfig) -> HierarchyConfig {
    HierarchyConfig { levels: vec![data_level("l1", cache)], ..HierarchyConfig::default() }
}

/// Feeds records in small batches of uneven length, so that whatever a model
/// keeps between batches is tested too.
pub fn feed<S: Sink<Error = Infallible>>(sink: &mut S, records: &[Record]) {
    let mut rest = records;
    let mut len = 1;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(len.min(rest.len()));
        let Ok(_) = sink.records(&Batch::new(ThreadId(0), 0, now));
        rest = later;
        len = len % 7 + 2;
    }
    let Ok(()) = sink.finish();
}

/// One access of a generated stream.
pub fn access(line: u64, store: bool) -> Record {
    let addr = GuestVa(line * 64 + line % 8 * 8);
    if store { Record::store(addr, 8) } else { Record::load(addr, 8) }
}

/// The counts of a single data cache after loads of the given lines.
pub fn loads(cache: CacheConfig, lines: &[u64]) -> CacheStats {
    let records: Vec<Record> = lines.iter().map(|&line| access(line, false)).collect();
    let mut model = Hierarchy::new(&single(cache)).expect("the test's configuration is right");
    feed(&mut model, &records);
    model.report().total("l1d").expect("the cache exists")
}
