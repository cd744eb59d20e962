//! How many references a second the locality models take. Redo with `cargo
//! bench -p ichnos-model --bench locality`.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod stream;

use ichnos_base::Record;
use ichnos_model::{
    BlockVectors, InsnMix, References, ReuseDistance, Shards, StrideProfile, WorkingSet,
};

fn main() {
    for (name, records) in stream::chosen() {
        let data = |r: &&Record| matches!(r, Record::Load { .. } | Record::Store { .. });
        let references = records.iter().filter(data).count() as f64;
        let all = records.len() as f64;
        println!("{name}: {references} data references of {all} records");
        let say = |model: &str, count: f64, seconds: f64| {
            println!("  {model:24} {:8.1} M/s", count / seconds / 1e6);
        };
        let exact = || ReuseDistance::new(64, References::Data).expect("right");
        say("reuse distance, data", references, stream::measure(&records, exact));
        let exact = || ReuseDistance::new(64, References::All).expect("right");
        say("reuse distance, all", all, stream::measure(&records, exact));
        let shards = || Shards::new(64, References::Data, 100, 8192).expect("right");
        say("shards 1/100, data", references, stream::measure(&records, shards));
        let set = || WorkingSet::new(64, References::Data, 100_000).expect("right");
        say("working set, data", references, stream::measure(&records, set));
        say("instruction mix", all, stream::measure(&records, InsnMix::new));
        say("strides", references, stream::measure(&records, StrideProfile::new));
        let blocks = || BlockVectors::new(100_000).expect("right");
        say("block vectors", all, stream::measure(&records, blocks));
    }
}
