//! What users may ask of the models: every word, flag and example works, and what
//! makes no sense is refused by its name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use serde_json::Value;

use crate::models::{cell, fails, sum};
use crate::support::{ask, good, ichnos, sample};

/// Numbers that make no sense are told by the name of their flag.
#[test]
fn flags_that_must_not_be_zero_name_themselves() {
    for (flag, more) in [
        ("--shards", &[][..]),
        ("--phases", &[]),
        ("--window", &[]),
        ("--shards-most", &["--shards", "2"]),
        ("--optimal-most", &["--optimal", "1K,2,64"]),
    ] {
        let message = fails("locality", &[&[flag, "0"], more].concat());
        assert!(message.contains(flag), "{flag}: {message}");
    }
    let message = fails("sim", &["--l1d", "1K,2,64,victim=99999"]);
    assert!(message.contains("l1d.victim must lie between"), "{message}");
    let message = fails("sim", &["--sweep", "l1d.size=1K,l1d.ways=2,3"]);
    assert!(message.contains("in the combination l1d.size=1K,l1d.ways=3"), "{message}");
    let message = fails("sim", &["--sweep", "l1d.size=8K,l1d.size=16K"]);
    assert!(message.contains("l1d.size: the field is swept twice"), "{message}");
}

/// What the help shows can be typed.
#[test]
fn the_examples_of_the_help_work() {
    let (folder, program) = sample();
    let mut run = 0;
    for verb in ["sim", "locality"] {
        let help = good(ichnos(folder, &[verb, "--help"])).stdout;
        let begin = format!("  ichnos {verb} ");
        for line in help.lines().filter_map(|line| line.strip_prefix(&begin)) {
            // Those need a program for RISC-V, and a library of the user's own.
            if line.contains("riscv") || line.contains("libmine") {
                continue;
            }
            let line = line.split('|').next().unwrap();
            let mut args = vec![verb];
            for word in line.split_whitespace() {
                args.push(if word.ends_with(".ichnos") { "sort.ichnos" } else { word });
                if word == "--" {
                    args.push(program);
                    break;
                }
            }
            let done = ichnos(folder, &args);
            // The sample is shorter than the samples of large traces.
            let short = done.stderr.contains("too few for a sample");
            assert!(done.status == 0 || short, "{line}: {}", done.stderr);
            run += 1;
        }
    }
    assert!(run >= 10, "{run}");
}

#[test]
fn configurations_that_mean_two_things_are_refused() {
    let (folder, _) = sample();
    for cache in ["8K,2,64,plru", "8K,2,64,write-through", "8K,2,64,3c"] {
        let message = fails("sim", &["--cachegrind", "--l1d", cache]);
        assert!(message.contains("--l1d: with --cachegrind"), "{message}");
    }
    let message = fails("sim", &["--cachegrind", "--l2", "1M,16,64", "--l3", "8M,16,64"]);
    assert!(message.contains("give --l2 or --l3, not both"), "{message}");
    let last = |args: &[&str]| ask("sim", &[&["--cachegrind"], args].concat())["caches"].clone();
    assert_eq!(last(&["--l2", "2K,2,64"]), last(&["--l3", "2K,2,64"]));
    assert_ne!(last(&["--l2", "2K,2,64"]), last(&[]));
    let message = fails("sim", &["--l1d", "8K,2,64,lru,fifo"]);
    assert!(message.contains("l1d.replacement: there are two words"), "{message}");

    // Pages of a file that has no TLBs of its own are those of --tlb.
    let caches = "[[level]]\ncode = \"32K,8,64\"\ndata = \"32K,8,64\"\n";
    let plain = folder.write("plain.toml", caches.as_bytes());
    let pages = format!("{caches}[pages]\nbase = \"64K\"\n[walk]\ncycles_per_access = 7\n");
    let pages = folder.write("pages.toml", pages.as_bytes());
    let of = |path: &str| ask("sim", &["--tlb", "--config", path]);
    let (plain, paged) = (of(&plain), of(&pages));
    assert!(sum(&paged["tlbs"], "misses") < sum(&plain["tlbs"], "misses"), "{paged}");
    let cycles = |answer: &Value| answer["walks"]["cycles"].as_u64().unwrap();
    assert_eq!(cycles(&paged), 7 * paged["walks"]["accesses"].as_u64().unwrap());
    assert!(ask("sim", &["--config", &pages])["tlbs"].is_null());
}

/// What some caches count is shown where they do so, and is always in the data.
#[test]
fn every_count_is_shown() {
    let (folder, _) = sample();
    let text =
        |args: &[&str]| good(ichnos(folder, &[&["sim"], args, &["sort.ichnos"]].concat())).stdout;
    let usual = text(&[]);
    assert!(usual.contains("\nmemory: ") && !usual.contains("prefetches"), "{usual}");
    let answer = ask("sim", &["--l1d", "1K,2,64,write-through,next-line", "--l2", "2K,2,64,3c"]);
    let of = |cache, column| cell(&answer["caches"], ("cache", cache), column);
    assert_eq!(of("l1d", "hits") + of("l1d", "misses"), of("l1d", "accesses"));
    assert!(of("l1d", "write_throughs") > 0 && of("l1d", "prefetches_used") > 0);
    assert!(
        of("l1d", "prefetches") >= of("l1d", "prefetches_used") + of("l1d", "prefetches_wasted")
    );
    assert!(of("l1d", "evictions") > 0);
    assert_eq!(
        of("l2", "compulsory") + of("l2", "capacity") + of("l2", "conflict"),
        of("l2", "misses")
    );
    let row = answer["caches"].as_array().unwrap().iter().find(|row| row["cache"] == "l1d");
    assert!(row.unwrap()["compulsory"].is_null(), "{answer}");
    let shown = text(&["--l1d", "1K,2,64,write-through,next-line"]);
    for title in ["write-throughs", "prefetches", "used", "wasted"] {
        assert!(shown.contains(title), "{shown}");
    }

    let sweep = ask("sim", &["--sweep", "l1d.write=write-back,write-through,l1d.size=1K"]);
    let rows = sweep["sweep"].as_array().unwrap();
    for row in rows {
        let cache = format!("1K,8,64,{}", row["l1d.write"].as_str().unwrap());
        let single = ask("sim", &["--l1d", &cache, "--l2", "none", "--l3", "none"]);
        let single = single["caches"].as_array().unwrap().iter().find(|row| row["cache"] == "l1d");
        for column in ["misses", "mpki", "write_backs", "write_throughs"] {
            assert_eq!(row[column], single.unwrap()[column], "{cache} {column}");
        }
    }
    let sweep = ask("sim", &["--sweep", "l1d.classify=none,3c,l1d.size=1K"]);
    assert!(sweep["sweep"][0]["conflict"].is_null() && sweep["sweep"][1]["conflict"].is_u64());
    let one_pass = ask("sim", &["--sweep", "l1d.size=1K,2K"]);
    assert_eq!(one_pass["one_pass"], true);
    let single = ask("sim", &["--l1d", "1K,8,64"]);
    assert_eq!(one_pass["sweep"][0]["mpki"], single["caches"][1]["mpki"]);
    assert!(one_pass["sweep"][0]["write_backs"].is_null());
}

/// Belady's policy is reached live and from a file, and LRU beside it is what `sim` says.
#[test]
fn the_fewest_possible_misses_stand_beside_those_of_lru() {
    let (folder, program) = sample();
    let question = ["--show", "optimal", "--optimal", "1K,2,64", "--optimal", "1K,16,64"];
    let answer = ask("locality", &question);
    let rows = answer["optimal"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for (rows, cache) in rows.chunks(2).zip(["1K,2,64", "1K,16,64"]) {
        assert!(rows.iter().all(|row| row["cache"] == cache && row["cut"] == "no"));
        let single = ask("sim", &["--l1d", cache]);
        for column in ["accesses", "misses", "load_misses", "store_misses"] {
            let want = cell(&single["caches"], ("cache", "l1d"), column);
            assert_eq!(rows[0][column].as_u64(), Some(want), "{cache} {column}");
        }
        let [lru, optimal] = [0, 1].map(|at| rows[at]["misses"].as_u64().unwrap());
        assert!(0 < optimal && optimal < lru, "{cache}: {optimal} {lru}");
    }
    let live = [&["locality", "--json"], &question[..], &["--", program]].concat();
    let live = good(ichnos(folder, &live));
    let live: Value = serde_json::from_str(live.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(live["optimal"], answer["optimal"]);
    let short = ask("locality", &[&question[..4], &["--optimal-most", "1K"]].concat());
    assert_eq!(short["optimal"][0]["cut"], "yes");

    for word in ["opt", "optimal", "belady"] {
        let message = fails("sim", &["--l1d", &format!("8K,4,64,{word}")]);
        assert!(message.contains("`ichnos locality --optimal SIZE,WAYS,LINE`"), "{message}");
    }
    for (cache, want) in [("1K,2,64,fifo", "only size, ways, line"), ("1K,4,64,skewed", "skewed")] {
        let message = fails("locality", &["--optimal", cache]);
        assert!(message.contains(want), "{message}");
    }
    assert!(fails("locality", &["--show", "optimal"]).contains("needs --optimal"));
}
