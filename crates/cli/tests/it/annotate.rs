//! `ichnos annotate`: its totals against `sim`, its places against binutils, its
//! exports against Valgrind's own readers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_testkit::tool;
use serde_json::Value;

use crate::support::{ask, good, ichnos, native, sample};

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

const ALL: [&str; 10] = [
    "--l1i",
    "1K,2,64",
    "--l1d",
    "1K,2,64",
    "--l2",
    "4K,4,64",
    "--tlb",
    "--branch",
    "gshare",
    "--cores=1",
];

#[test]
fn totals_are_those_of_sim() {
    let totals = ask("annotate", &ALL)["totals"].clone();
    let sim = ask("sim", &ALL);
    let total = |name: &str| number(&totals[name]);
    let row = |list: &str, key: &str, name: &str| {
        let rows = sim[list].as_array().unwrap().iter();
        rows.filter(|row| row[key] == name).collect::<Vec<_>>()[0].clone()
    };
    assert_eq!(total("Ir"), number(&sim["instructions"]));
    let data = row("caches", "cache", "l1d");
    assert_eq!(total("Dr") + total("Dw"), number(&data["accesses"]));
    assert_eq!(total("D1mr"), number(&data["load_misses"]));
    assert_eq!(total("D1mw"), number(&data["store_misses"]));
    assert_eq!(total("I1mr"), number(&row("caches", "cache", "l1i")["misses"]));
    let l2 = row("caches", "cache", "l2");
    assert_eq!(total("I2mr") + total("D2mr") + total("D2mw"), number(&l2["misses"]));
    let l3 = row("caches", "cache", "l3");
    assert_eq!(total("ILmr") + total("DLmr") + total("DLmw"), number(&l3["misses"]));
    assert_eq!(total("ITw") + total("DTw"), number(&sim["walks"]["walks"]));
    assert_eq!(total("ITm"), number(&row("tlbs", "tlb", "tlb1i")["misses"]));
    assert_eq!(total("DTm"), number(&row("tlbs", "tlb", "tlb1d")["misses"]));
    for (name, predicted, wrong) in
        [("conditional", "Bc", "Bcm"), ("indirect", "Bi", "Bim"), ("returns", "Rt", "Rtm")]
    {
        let row = row("branches", "branches", name);
        assert_eq!(total(predicted), number(&row["predicted"]), "{name}");
        assert_eq!(total(wrong), number(&row["wrong"]), "{name}");
    }
    assert!(total("D1mr") > 0 && total("Bcm") > 0);
}

#[test]
fn functions_lines_and_instructions_each_add_up() {
    let answer = ask("annotate", &[&ALL[..], &["--lines", "--insns", "--top", "100000"]].concat());
    for (column, total) in answer["totals"].as_object().unwrap() {
        for table in ["functions", "lines", "insns"] {
            let rows = answer[table].as_array().unwrap().iter();
            let sum: u64 = rows.map(|row| number(&row[column])).sum();
            assert_eq!(sum, number(total), "{table} {column}");
        }
    }
    let functions = answer["functions"].as_array().unwrap();
    assert_eq!(functions[0]["function"], "sort");
    assert!(functions[0]["file"].as_str().unwrap().ends_with("bare_sort.c"));
}

/// Each instruction's text, by another disassembler.
#[test]
fn instructions_are_those_of_objdump() {
    if !tool::have("instructions_are_those_of_objdump", &["objdump"]) {
        return;
    }
    let (folder, program) = sample();
    let dump = native(folder, "objdump", &["-d", "--no-show-raw-insn", program]).stdout;
    let known: BTreeMap<&str, &str> = dump
        .lines()
        .filter_map(|line| line.trim().split_once(":\t"))
        .map(|(pc, text)| (pc, text.split([' ', '\t']).next().unwrap()))
        .collect();
    let answer = ask("annotate", &["--function", "sort", "--insns"]);
    let insns = answer["insns"].as_array().unwrap();
    assert!(insns.len() > 20);
    for row in insns {
        let pc = row["pc"].as_str().unwrap().trim_start_matches("0x");
        let text = row["text"].as_str().unwrap();
        assert_eq!(text.split(' ').next(), known.get(pc).copied(), "{pc}: {text}");
        assert_eq!(row["function"], "sort");
    }
}

#[test]
fn rows_are_sorted_filtered_and_cut() {
    let (folder, _) = sample();
    let answer = ask("annotate", &["--sort", "Dw", "--lines", "--top", "3", "--show", "Ir,Dw"]);
    let lines = answer["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 3);
    assert!(lines.windows(2).all(|pair| number(&pair[0]["Dw"]) >= number(&pair[1]["Dw"])));
    assert!(lines[0].get("Dr").is_none() && lines[0].get("Ir").is_some());
    let text = good(ichnos(folder, &["annotate", "--function", "up", "sort.ichnos"])).stdout;
    assert!(text.contains(" up ") && !text.contains(" down "), "{text}");
    let csv = good(ichnos(folder, &["annotate", "--csv", "--top", "2", "sort.ichnos"])).stdout;
    assert!(csv.starts_with("Ir,share,I1mr,") && csv.lines().count() == 3, "{csv}");
    for (args, want) in [
        (["--sort", "Zz"], "--sort: there is no column called \"Zz\"; there are Ir, "),
        (["--show", "Zz"], "--show: there is no column"),
        (["--sort", "Bcm"], "--sort: only --branch gives the column \"Bcm\"; there are Ir, "),
        (["--show", "DTw"], "--show: only --tlb gives the column \"DTw\""),
        (["--function", "no_such"], "--function: nothing that ran"),
        (["--cachegrind-out", "none/x"], "cannot write none/x"),
        (["--branch", "crystal"], "--branch: there is no predictor called \"crystal\""),
    ] {
        let run = ichnos(folder, &["annotate", args[0], args[1], "sort.ichnos"]);
        assert_eq!(run.status, 2, "{args:?}");
        assert!(run.stderr.contains(want), "{}", run.stderr);
    }
}

#[test]
fn a_live_run_is_annotated_alike() {
    let (folder, program) = sample();
    let args = ["annotate", "--tlb", "--branch", "local", "--lines", "--json"];
    let live = good(ichnos(folder, &[&args[..], &["--", program]].concat()));
    let live: Value = serde_json::from_str(live.stdout.lines().last().unwrap()).unwrap();
    let stored = good(ichnos(folder, &[&args[..], &["sort.ichnos"]].concat())).json();
    assert_eq!(live, stored);
}

/// A process that calls exec runs two programs; both must keep their names.
#[test]
fn programs_before_and_after_an_exec_have_their_names() {
    let (folder, program) = sample();
    let shim = folder.write(
        "shim.c",
        b"#include <unistd.h>\nint main(int c, char **v) { return execv(v[1], v + 1); }\n",
    );
    let exe = folder.path().join("shim").to_str().unwrap().to_owned();
    good(native(folder, "gcc", &["-g", "-static", "-no-pie", "-o", &exe, &shim]));
    let args = ["annotate", "--json", "--top", "1000", "--", &exe, program];
    let run = good(ichnos(folder, &args));
    let answer: Value = serde_json::from_str(run.stdout.lines().last().unwrap()).unwrap();
    let functions = answer["functions"].as_array().unwrap();
    for (function, image) in [("main", exe.as_str()), ("sort", program)] {
        let image = std::fs::canonicalize(image).unwrap();
        let of = functions.iter().find(|f| f["function"] == function);
        let of = of.unwrap_or_else(|| panic!("no {function}"))["image"].as_str().unwrap();
        assert_eq!(std::fs::canonicalize(of).unwrap(), image, "{function}");
    }
}

/// The numbers of the line that ends in `PROGRAM TOTALS`.
#[track_caller]
fn program_totals(text: &str) -> Vec<u64> {
    let line = text.lines().find(|line| line.contains("PROGRAM TOTALS"));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let words = line.split_whitespace().filter(|word| !word.ends_with(')') && *word != "(");
    let numbers = words.map(|word| word.replace(',', ""));
    numbers.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn valgrinds_readers_print_our_totals() {
    let tools = ["cg_annotate", "callgrind_annotate"];
    if !tool::have("valgrinds_readers_print_our_totals", &tools) {
        return;
    }
    let (folder, _) = sample();
    let answer = ask(
        "annotate",
        &[&ALL[..], &["--cachegrind-out", "cg.out", "--callgrind-out", "cl.out"]].concat(),
    );
    for (reader, file) in tools.into_iter().zip(["cg.out", "cl.out"]) {
        let text = good(native(folder, reader, &[file])).stdout;
        let events = text.lines().find(|line| line.starts_with("Events recorded:")).unwrap();
        let names: Vec<_> = events.split_whitespace().skip(2).collect();
        let wanted: Vec<_> = names.iter().map(|name| number(&answer["totals"][name])).collect();
        assert_eq!(names.len(), answer["totals"].as_object().unwrap().len());
        assert_eq!(program_totals(&text), wanted, "{reader}: {text}");
        assert!(text.contains("bare_sort.c:sort"), "{reader}: {text}");
    }
}

/// The same program under cachegrind, which runs it by itself.
#[test]
fn counts_are_those_of_cachegrind() {
    let (folder, program) = sample();
    if !tool::have("counts_are_those_of_cachegrind", &["valgrind", "cg_annotate"]) {
        return;
    }
    let caches = ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=8388608,16,64"];
    let args = ["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=real.out"];
    good(native(folder, "valgrind", &[&args[..], &caches[..], &[program]].concat()));
    let text = good(native(folder, "cg_annotate", &["real.out"])).stdout;
    let totals = ask("annotate", &["--cachegrind"])["totals"].clone();
    // Stack addresses differ, so misses of data may; all else must not.
    let [ir, i1mr, ilmr, dr, _, _, dw, _, _] = program_totals(&text)[..] else { panic!("{text}") };
    for (name, want) in [("Ir", ir), ("I1mr", i1mr), ("ILmr", ilmr), ("Dr", dr), ("Dw", dw)] {
        assert_eq!(number(&totals[name]), want, "{name}");
    }
}
