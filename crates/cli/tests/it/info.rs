//! `ichnos info` finds by blocks, chunk by chunk on all processors, what one record after the
//! other comes to.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_analyze::inventory::Inventory;
use ichnos_base::Source;
use ichnos_replay::Replay;
use ichnos_testkit::guest::{self, Link};
use ichnos_trace::Reader;
use serde_json::Value;

use crate::support::{Folder, good, ichnos};

/// What is in a trace, counted record by record.
fn by_records(folder: &Folder, trace: &str, top: usize) -> (Value, String) {
    let reader = Reader::open(&folder.path().join(trace)).expect("readable");
    let mut inventory = Inventory::new();
    Replay::new(&reader).drive(&mut inventory).expect("replayed");
    let (stock, bytes) = (inventory.into_stock(top), Some(folder.size(trace)));
    let mut json = ichnos_report::info_json(&stock, bytes);
    json["complete"] = Value::Bool(true);
    (json, ichnos_report::info_text(&stock, bytes))
}

/// Several threads in several processes, recorded in many chunks: but for the first, none says in
/// which process it is.
#[test]
fn info_is_what_all_records_come_to() {
    let program = guest::build("threads.c", Link::Dynamic, &["-pthread"]);
    let line = format!("{p} > one; (echo a; {p}; ls) | sort > two", p = program.display());
    for how in [&["record"][..], &["record", "--sample", "3K:20K"], &["step", "--no-vdso"]] {
        let folder = Folder::new();
        let mut args = how.to_vec();
        args.extend(["-q", "--flush-every", "20K", "-o", "t.ichnos", "--", "sh", "-c", &line]);
        good(ichnos(&folder, &args));
        let (json, text) = by_records(&folder, "t.ichnos", 10);
        let told = good(ichnos(&folder, &["info", "--json", "t.ichnos"])).stdout;
        assert_eq!(told, format!("{json}\n"), "{how:?}");
        assert_eq!(good(ichnos(&folder, &["info", "t.ichnos"])).stdout, text, "{how:?}");
        let threads = json["threads"].as_array().expect("a list");
        let elsewhere = threads.iter().filter(|thread| thread["process"] != 0);
        let long = elsewhere.filter(|thread| thread["instructions"].as_u64() > Some(40_000));
        assert!(long.count() > 3, "{how:?}: chunks that do not say where they belong: {text}");
    }
}
