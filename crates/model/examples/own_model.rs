//! A model in a crate of one's own: which share of the loads reads what a recent
//! store wrote, beside a built-in cache, over a stored trace.
//!
//! `cargo run --release -p ichnos-model --example own_model ls.ichnos`
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "an example prints its answer")]

use std::convert::Infallible;
use std::error::Error;

use ichnos_base::{Batch, GuestVa, Record, Sink, Source, Tee};
use ichnos_model::{CacheConfig, Caches, Hierarchy, HierarchyConfig, LevelConfig, Sharing};
use ichnos_replay::Replay;
use ichnos_trace::Reader;

/// A store queue of so many entries, and how often loads find their address in it.
struct StoreQueue {
    entries: Vec<GuestVa>,
    next: usize,
    loads: u64,
    forwarded: u64,
}

impl StoreQueue {
    fn new(entries: usize) -> Self {
        Self { entries: vec![GuestVa(u64::MAX); entries], next: 0, loads: 0, forwarded: 0 }
    }
}

impl Sink for StoreQueue {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            match record {
                Record::Load { addr, .. } => {
                    self.loads += 1;
                    self.forwarded += u64::from(self.entries.contains(addr));
                }
                Record::Store { addr, .. } => {
                    if let Some(entry) = self.entries.get_mut(self.next) {
                        *entry = *addr;
                    }
                    self.next = (self.next + 1) % self.entries.len().max(1);
                }
                _ => {}
            }
        }
        Ok(true)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(path) = std::env::args_os().nth(1) else {
        println!("name a trace: own_model FILE.ichnos");
        return Ok(());
    };
    let reader = Reader::open(path.as_ref())?;
    let cache = Caches::Data(CacheConfig::parse("l1d", "32K,8,64")?);
    let level = LevelConfig { name: "l1".into(), caches: cache, sharing: Sharing::Shared };
    let config = HierarchyConfig { levels: vec![level], ..HierarchyConfig::default() };
    let mut queue = StoreQueue::new(56);
    let mut caches = Hierarchy::new(&config)?;
    Replay::new(&reader)
        .drive(&mut Tee::new(&mut queue, &mut caches))
        .map_err(|_| "the trace cannot be read")?;
    let misses = caches.report().total("l1d").unwrap_or_default().misses.load;
    println!("{} loads, {} forwarded, {misses} l1d misses", queue.loads, queue.forwarded);
    Ok(())
}
