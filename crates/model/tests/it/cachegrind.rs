//! The hierarchy against cachegrind: the reference stream of a real program, as
//! `valgrind --tool=lackey --trace-mem=yes` prints it, is fed to the model, and
//! every count must equal that of `valgrind --tool=cachegrind --cache-sim=yes`
//! of the same program with the same caches.
//!
//! Both tools run the program in the same synthetic processor and in the same
//! environment, so the streams are the same to the last reference. Without
//! Valgrind or a C compiler there is nothing to compare and the test says so.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(clippy::print_stderr, reason = "a test that cannot run says why")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ichnos_base::{Batch, GuestVa, InsnKind, Record, Sink, ThreadId};
use ichnos_model::{CacheConfig, Hierarchy, HierarchyConfig};

/// Three caches as cachegrind's options write them.
struct Geometry {
    i1: &'static str,
    d1: &'static str,
    ll: &'static str,
}

const GEOMETRIES: [Geometry; 3] = [
    Geometry { i1: "32768,8,64", d1: "49152,12,64", ll: "2097152,16,64" },
    Geometry { i1: "1024,2,32", d1: "512,1,32", ll: "4096,4,32" },
    Geometry { i1: "4096,4,64", d1: "2048,2,64", ll: "65536,8,128" },
];

/// Valgrind with an environment that is the same for every tool.
fn valgrind(tool: &str, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new("valgrind");
    command.env_clear().env("PATH", "/usr/bin:/bin").arg(format!("--tool={tool}"));
    command.args(options).args(program).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Feeds lackey's lines to the model.
fn simulate(program: &[&str], models: &mut [Hierarchy], scratch: &Path) {
    let log = scratch.join("lackey.log");
    let file = format!("--log-file={}", log.display());
    let status = valgrind("lackey", &["--trace-mem=yes", "--basic-counts=no", &file], program)
        .stderr(Stdio::null())
        .status()
        .expect("valgrind starts");
    assert!(status.success(), "lackey of {program:?} ended with {status}");
    let mut records = Vec::new();
    for line in BufReader::new(fs::File::open(&log).expect("lackey wrote its log")).lines() {
        push(&line.expect("lackey writes text"), &mut records);
        if records.len() > 1 << 16 {
            flush(&mut records, models);
        }
    }
    flush(&mut records, models);
    fs::remove_file(&log).expect("the log is ours");
}

fn flush(records: &mut Vec<Record>, models: &mut [Hierarchy]) {
    for model in models {
        model.records(&Batch::new(ThreadId(0), 0, records)).expect("models cannot fail");
    }
    records.clear();
}

/// One line: `I  addr,size`, ` L addr,size`, ` S addr,size` or ` M addr,size`.
fn push(line: &str, records: &mut Vec<Record>) {
    let (Some(kind), Some((addr, size))) =
        (line.get(..3), line.get(3..).and_then(|r| r.split_once(',')))
    else {
        return;
    };
    let (Ok(addr), Ok(size)) = (u64::from_str_radix(addr, 16), size.trim().parse::<u32>()) else {
        return;
    };
    let addr = GuestVa(addr);
    match kind {
        "I  " => records.push(Record::insn(addr, size as u8, InsnKind::OTHER)),
        " L " => records.push(Record::load(addr, size)),
        " S " => records.push(Record::store(addr, size)),
        " M " => records.extend([Record::load(addr, size), Record::store(addr, size)]),
        _ => {}
    }
}

/// Cachegrind's totals: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw.
fn cachegrind(program: &[&str], geometry: &Geometry, scratch: &Path) -> Vec<u64> {
    let out = scratch.join("cachegrind.out");
    let options = [
        "--cache-sim=yes".to_owned(),
        format!("--I1={}", geometry.i1),
        format!("--D1={}", geometry.d1),
        format!("--LL={}", geometry.ll),
        format!("--cachegrind-out-file={}", out.display()),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let status = valgrind("cachegrind", &options, program)
        .stderr(Stdio::null())
        .status()
        .expect("valgrind starts");
    assert!(status.success(), "cachegrind of {program:?} ended with {status}");
    let text = fs::read_to_string(&out).expect("cachegrind wrote its file");
    assert!(text.contains("events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw"));
    let summary = text.lines().find_map(|line| line.strip_prefix("summary:")).expect("a summary");
    fs::remove_file(&out).expect("the file is ours");
    summary.split_whitespace().map(|n| n.parse().expect("a count")).collect()
}

fn model(geometry: &Geometry) -> Hierarchy {
    let cache = |text| CacheConfig::parse("cache", text).expect("a constant that is right");
    let config =
        HierarchyConfig::cachegrind(cache(geometry.i1), cache(geometry.d1), cache(geometry.ll));
    Hierarchy::new(&config).expect("a constant that is right")
}

fn counts(model: &Hierarchy) -> Vec<u64> {
    let report = model.report();
    let stats = |name| report.total(name).expect("the cache exists");
    let (i1, d1, ll) = (stats("l1i"), stats("l1d"), stats("ll"));
    vec![
        i1.accesses.fetch,
        i1.misses.fetch,
        ll.misses.fetch,
        d1.accesses.load,
        d1.misses.load,
        ll.misses.load,
        d1.accesses.store,
        d1.misses.store,
        ll.misses.store,
    ]
}

fn check(program: &[&str], scratch: &Path) {
    let mut models: Vec<Hierarchy> = GEOMETRIES.iter().map(model).collect();
    simulate(program, &mut models, scratch);
    for (geometry, model) in GEOMETRIES.iter().zip(&models) {
        let theirs = cachegrind(program, geometry, scratch);
        let label = format!("{program:?} {} {} {}", geometry.i1, geometry.d1, geometry.ll);
        assert_eq!(counts(model), theirs, "{label}");
        assert!(theirs[0] > 10_000 && theirs[4] > 0, "{label}: a program that does something");
    }
}

/// Walks arrays in both directions, modifies in place, copies unaligned.
const SOURCE: &str = r#"
#include <string.h>
#include <stdlib.h>
static unsigned table[5000];
int main(void) {
    char *p = malloc(30000);
    unsigned sum = 0;
    for (int i = 0; i < 5000; i++) table[i] = i * 2654435761u;
    for (int i = 0; i < 20000; i++) table[(i * 7919) % 5000] += i;
    memset(p, 7, 30000);
    for (int i = 0; i < 100; i++) memmove(p + i * 13, p + 15000 + i * 7, 61);
    for (int i = 4999; i >= 0; i--) sum += table[i] ^ p[i];
    return sum == 12345;
}
"#;

fn available(program: &str) -> bool {
    ichnos_testkit::tool::have("model::cachegrind", &[program])
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("the build's temporary folder is writable");
    folder
}

#[test]
fn equals_cachegrind_on_a_static_program() {
    if !available("valgrind") || !available("gcc") {
        return;
    }
    let folder = scratch("cachegrind-static");
    let (source, program) = (folder.join("walk.c"), folder.join("walk"));
    fs::write(&source, SOURCE).expect("the folder is writable");
    let built = Command::new("gcc")
        .args(["-O1", "-static", "-o"])
        .args([&program, &source])
        .status()
        .expect("gcc starts");
    assert!(built.success());
    check(&[program.to_str().expect("the path is text")], &folder);
}

#[test]
fn equals_cachegrind_on_a_dynamic_program() {
    if !available("valgrind") {
        return;
    }
    check(&["/bin/true"], &scratch("cachegrind-dynamic"));
}

#[test]
fn equals_cachegrind_on_a_compressor() {
    if !available("valgrind") || !Path::new("/bin/bzip2").exists() {
        return;
    }
    let folder = scratch("cachegrind-bzip2");
    let input = folder.join("input");
    let text: String = (0..200u32).map(|i| format!("{} {}\n", i * i, i % 7)).collect();
    fs::write(&input, text).expect("the folder is writable");
    check(&["/bin/bzip2", "-1", "-kc", input.to_str().expect("the path is text")], &folder);
}
