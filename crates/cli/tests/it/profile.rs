//! `sim --profile`: the tables filter, and nothing is lost. A profiled run and
//! models that saw the whole trace must agree in every count of every
//! instruction.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ichnos_testkit::tool;
use serde_json::Value;

use crate::support::{Folder, good, ichnos, native};

/// Hierarchies that are filtered in different ways, and some that cannot be.
const MODELS: &[&str] = &[
    "--tlb",
    "--config small.toml",
    "--l1d 4K,4,32 --l1i 2K,2,32 --l2 16K,4,64,inclusive --l3 none --tlb",
    "--l1d 4K,4,32,fifo --l1i 2K,2,64,random --l2 16K,4,64 --l3 none",
    "--l1d 4K,4,32,plru --l1i 2K,2,32,nru --l2 none --l3 none --tlb",
    "--l1d 4K,4,64,write-through,no-allocate --l1i 1K,1,64 --l2 32K,8,64 --l3 none",
    "--l1d 2K,2,64,victim=4 --l1i 2K,2,64 --l2 16K,4,64,exclusive,srrip --l3 none --branch tage",
    "--l1d 4K,4,32,srrip,stride --l1i 2K,2,32,srrip,next-line --branch gshare",
    "--cores 1 --l1d 4K,4,64",
    "--cachegrind",
];

/// What is asked past the hierarchy, and too small for anything.
const SMALL: &[u8] = b"[[level]]\nname = \"l1\"\n\
    code = { size = \"2K\", ways = 8, line = 64 }\n\
    data = { size = \"2K\", ways = 8, line = 64 }\n\
    [[tlb]]\nname = \"tlb\"\nunified = { entries = 6, ways = 6, replacement = \"fifo\" }\n";

fn guest(folder: &Folder, name: &str) -> Option<String> {
    if !tool::have("cli: profile", &["riscv64-linux-gnu-gcc"]) {
        return None;
    }
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../collect-rv64/tests/guests");
    folder.write("small.toml", SMALL);
    let program = folder.path().join(name);
    let mut gcc = Command::new("riscv64-linux-gnu-gcc");
    gcc.args(["-O2", "-g", "-static", "-pthread", "-o"]).arg(&program);
    gcc.arg(guests.join(format!("{name}.c"))).arg("-lm");
    assert!(gcc.status().expect("gcc runs").success(), "{name}.c does not compile");
    Some(program.to_str().expect("a path in UTF-8").to_owned())
}

/// The JSON behind what the program itself printed.
#[track_caller]
fn asked(folder: &Folder, words: &str, program: &[&str]) -> Value {
    let words: Vec<_> = words.split_whitespace().chain(["--json"]).collect();
    let run = good(ichnos(folder, &[&words, program].concat()));
    let last = run.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {last}"))
}

/// Compares a profiled run with one whose whole trace goes through the models.
#[track_caller]
fn compare(folder: &Folder, models: &str, program: &[&str]) {
    let live = [&["--"], program].concat();
    let profiled = asked(folder, &format!("sim {models} --profile a.profile"), &live);
    let traced = asked(folder, &format!("sim {models}"), &live);
    for (key, value) in traced.as_object().expect("an object") {
        assert_eq!(&profiled[key], value, "{models}: {key}");
    }
    // There a read-modify-write is one reference of its instruction, here two.
    if models == "--cachegrind" {
        return;
    }
    let every = "annotate --insns --top 9999999";
    let stored = asked(folder, every, &["a.profile"]);
    let annotated = asked(folder, &format!("{every} {models}"), &live);
    for (column, total) in annotated["totals"].as_object().expect("an object") {
        assert_eq!(&stored["totals"][column], total, "{models}: {column}");
    }
    let rows = |answer: &Value| answer["insns"].as_array().cloned().expect("a table");
    let by_address = |answer: &Value| -> BTreeMap<String, Value> {
        rows(answer).into_iter().map(|row| (row["pc"].to_string(), row)).collect()
    };
    let (stored, annotated) = (by_address(&stored), by_address(&annotated));
    assert_eq!(stored.len(), annotated.len(), "{models}: instructions that ran");
    for (address, row) in &annotated {
        for (column, value) in row.as_object().expect("an object") {
            assert_eq!(&stored[address][column], value, "{models}: {column} at {address}");
        }
    }
}

#[test]
fn profiles_count_what_whole_traces_count() {
    let folder = Folder::new();
    let Some(program) = guest(&folder, "quicksort") else { return };
    for models in MODELS {
        compare(&folder, models, &[&program, "1500"]);
    }
}

#[test]
fn profiles_of_threads_and_of_floating_point_too() {
    let folder = Folder::new();
    for (name, args) in [("threads", &[][..]), ("matrix", &["20"])] {
        let Some(program) = guest(&folder, name) else { return };
        for models in &MODELS[..3] {
            compare(&folder, models, &[&[&*program], args].concat());
        }
    }
}

#[test]
fn interpreted_and_generated_profiles_are_the_same() {
    let folder = Folder::new();
    for (name, models) in
        [("quicksort", &[][..]), ("quicksort", &["--config", "small.toml"]), ("onward", &[])]
    {
        let Some(program) = guest(&folder, name) else { return };
        for (file, more) in [("a.profile", &[][..]), ("b.profile", &["--interpret"])] {
            let words = [&["sim", "--profile", file], more, models, &["--", &program, "1500"]];
            good(ichnos(&folder, &words.concat()));
        }
        assert_eq!(folder.read("a.profile"), folder.read("b.profile"), "{name} {models:?}");
    }
}

#[test]
fn a_profile_names_functions_and_lines_and_goes_to_cachegrind() {
    let folder = Folder::new();
    let Some(program) = guest(&folder, "quicksort") else { return };
    good(ichnos(&folder, &["sim", "--profile", "a.profile", "--", &program, "1500"]));
    let words = ["annotate", "--lines", "--cachegrind-out", "cg.out", "a.profile"];
    let text = good(ichnos(&folder, &words)).stdout;
    assert!(text.contains("quicksort.c") && text.contains("sort"), "{text}");
    let ir = asked(&folder, "annotate", &["a.profile"])["totals"]["Ir"].to_string();
    if tool::have("cli: profile in cg_annotate", &["cg_annotate"]) {
        let text = good(native(&folder, "cg_annotate", &["cg.out"])).stdout;
        let digits = |line: &str| line.replace(',', "");
        assert!(text.lines().any(|l| digits(l).contains(&ir) && l.contains("TOTALS")), "{text}");
    }
}

#[test]
fn profiles_are_for_riscv_programs_and_damaged_ones_are_refused() {
    let folder = Folder::new();
    let run = ichnos(&folder, &["sim", "--profile", "a.profile", "--", "/bin/true"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("is no riscv64 program"), "{}", run.stderr);
    folder.write("bad.profile", b"ichnos profile 1\ncolumns: Ir\ninsn: zz 13 1\nend: 1\n");
    let run = ichnos(&folder, &["annotate", "bad.profile"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("line 3 of the profile"), "{}", run.stderr);
}
