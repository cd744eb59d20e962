//! Each verb on a trace of a real program, with answers that can be checked by
//! other means.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::process::{Command, Stdio};

use ichnos_testkit::guest::{self, Link};

use crate::support::{Folder, good, ichnos, native, sample, shell};

#[test]
fn step_says_what_it_wrote_and_where() {
    let folder = Folder::new();
    let run = good(ichnos(&folder, &["step", "--", "true"]));
    assert!(run.stdout.is_empty());
    let name = folder.list().pop().unwrap();
    assert!(name.starts_with("true.") && name.ends_with(".ichnos"), "{name}");
    assert!(run.stderr.contains(&name), "{}", run.stderr);
    let info = ichnos(&folder, &["info", "--json", &name]).json();
    assert_eq!(info["file_bytes"].as_u64(), Some(folder.size(&name)));
    let bits = info["bits_per_instruction"].as_f64().unwrap();
    let expected = folder.size(&name) as f64 * 8.0 / info["instructions"].as_f64().unwrap();
    assert!((bits - expected).abs() < 1e-9);
}

#[test]
fn step_needs_no_dashes_and_passes_flags_on() {
    let folder = Folder::new();
    let run = ichnos(&folder, &["step", "-q", "-o", "none", "sh", "-c", "exit 5"]);
    assert_eq!(run.status, 5, "{}", run.stderr);
    assert!(folder.list().is_empty());
}

/// Nobody looks at what is dropped, so that it costs no more than taking it; the status is the program's, and no file is made.
#[test]
fn record_drops_what_nobody_wants() {
    let folder = Folder::new();
    let run = ichnos(&folder, &["record", "-o", "none", "--", "sh", "-c", "echo told; exit 5"]);
    assert_eq!((run.status, run.stdout.as_str()), (5, "told\n"), "{}", run.stderr);
    let run = ichnos(&folder, &["record", "-o", "none", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(run.status, 137, "{}", run.stderr);
    assert!(folder.list().is_empty());
}

#[test]
fn step_stops_at_the_limit() {
    let folder = Folder::new();
    let run = ichnos(&folder, &["step", "--limit", "10K", "-o", "t.ichnos", "--", "true"]);
    assert!(run.stderr.contains("limit"), "{}", run.stderr);
    let info = ichnos(&folder, &["info", "--json", "t.ichnos"]).json();
    assert_eq!(info["instructions"], 10_000);
    good(ichnos(&folder, &["check", "t.ichnos"]));
}

#[test]
fn info_counts_what_dump_prints() {
    let (folder, _) = sample();
    let info = good(ichnos(folder, &["info", "--json", "sort.ichnos"])).json();
    let dump = good(ichnos(folder, &["dump", "sort.ichnos"])).stdout;
    let count =
        |kind: &str| dump.lines().filter(|l| l.split(' ').nth(2) == Some(kind)).count() as u64;
    assert_eq!(info["instructions"].as_u64(), Some(count("I")));
    assert_eq!(info["loads"].as_u64(), Some(count("L")));
    assert_eq!(info["stores"].as_u64(), Some(count("S")));
    assert_eq!(info["branches"].as_u64(), Some(count("B")));
    assert_eq!(info["threads"][0]["instructions"], info["instructions"]);
    assert_eq!(info["complete"], true);
    assert!(count("I") > 1000);
    let text = good(ichnos(folder, &["info", "sort.ichnos"])).stdout;
    assert!(text.contains("bits per instruction"), "{text}");
}

#[test]
fn dump_names_functions_and_lines() {
    let (folder, program) = sample();
    let dump =
        good(ichnos(folder, &["dump", "--symbols", "--range", "0..1", "sort.ichnos"])).stdout;
    let line = dump.lines().find(|l| l.split(' ').nth(2) == Some("I")).unwrap();
    let entry = native(folder, "readelf", &["-h", program]).stdout;
    let entry = entry.lines().find(|l| l.contains("Entry point")).unwrap();
    let entry = entry.rsplit(' ').next().unwrap();
    assert!(line.contains(entry), "{line} / {entry}");
    let nm = native(folder, "nm", &[program]).stdout;
    let start = nm.lines().find(|l| l.ends_with(" _start")).unwrap();
    assert!(
        u64::from_str_radix(&entry[2..], 16)
            == u64::from_str_radix(start.split(' ').next().unwrap(), 16)
    );
    assert!(line.contains("_start+0x0"), "{line}");
    let whole = good(ichnos(folder, &["dump", "--symbols", "sort.ichnos"])).stdout;
    assert!(whole.contains("(bare_sort.c:"), "source lines are named");
    let later = good(ichnos(folder, &["dump", "--symbols", "--range", "500..501", "sort.ichnos"]));
    assert!(later.stdout.contains("+0x"), "what was mapped before is known: {}", later.stdout);
}

#[test]
fn dump_in_every_format_tells_the_same() {
    let (folder, _) = sample();
    let text = good(ichnos(folder, &["dump", "sort.ichnos"])).stdout;
    let records = text.lines().filter(|l| l.split(' ').nth(2) != Some("E")).count();
    let jsonl = good(ichnos(folder, &["dump", "--format", "jsonl", "sort.ichnos"])).stdout;
    for line in jsonl.lines() {
        let _: serde_json::Value = serde_json::from_str(line).unwrap();
    }
    let kinds = |mark: &str| jsonl.lines().filter(|l| l.contains(mark)).count();
    assert_eq!(
        kinds("\"type\":\"insn\""),
        text.lines().filter(|l| l.split(' ').nth(2) == Some("I")).count()
    );
    let lackey = good(ichnos(folder, &["dump", "--format", "lackey", "sort.ichnos"])).stdout;
    let din = good(ichnos(folder, &["dump", "--format", "din", "sort.ichnos"])).stdout;
    let fetches = |t: &str, mark: &str| t.lines().filter(|l| l.starts_with(mark)).count();
    assert_eq!(fetches(&lackey, "I "), fetches(&din, "2 "));
    assert!(records > din.lines().count(), "din has no branches");
}

#[test]
fn a_range_is_a_part_of_the_whole() {
    let (folder, _) = sample();
    let whole = good(ichnos(folder, &["dump", "sort.ichnos"])).stdout;
    let part = good(ichnos(folder, &["dump", "--range", "100..200", "sort.ichnos"])).stdout;
    let record = |l: &&str| l.split(' ').nth(2) != Some("E");
    let expected: Vec<&str> = whole
        .lines()
        .filter(record)
        .filter(|l| (100..200).contains(&l.split(' ').nth(1).unwrap().parse::<u64>().unwrap()))
        .collect();
    let got: Vec<&str> = part.lines().filter(record).collect();
    assert_eq!(got, expected);
}

#[test]
fn cut_keeps_what_was_asked_for() {
    let (folder, _) = sample();
    good(ichnos(folder, &["cut", "sort.ichnos", "--range", "100..200", "-o", "cut.ichnos"]));
    good(ichnos(folder, &["check", "cut.ichnos"]));
    let info = good(ichnos(folder, &["info", "--json", "cut.ichnos"])).json();
    assert_eq!(info["instructions"], 100);
    let record = |l: &&str| l.split(' ').nth(2) != Some("E");
    let strip = |text: &str| -> Vec<String> {
        let fields = |l: &str| l.splitn(3, ' ').nth(2).unwrap_or_default().to_owned();
        text.lines().filter(record).map(fields).collect()
    };
    let part = good(ichnos(folder, &["dump", "--range", "100..200", "sort.ichnos"])).stdout;
    let cut = good(ichnos(folder, &["dump", "cut.ichnos"])).stdout;
    assert_eq!(strip(&cut), strip(&part));
}

#[test]
fn diff_finds_the_first_difference() {
    let (folder, _) = sample();
    let program = guest::build("bare_sieve.c", Link::Bare, &[]);
    ichnos(folder, &["step", "-q", "-o", "sieve.ichnos", "--", program.to_str().unwrap()]);
    let same = good(ichnos(folder, &["diff", "--json", "sort.ichnos", "sort.ichnos"])).json();
    assert_eq!(same["similarity"]["instructions"]["low"], 1.0);
    let other = ichnos(folder, &["diff", "sort.ichnos", "sieve.ichnos"]);
    assert_eq!(other.status, 1, "{}", other.stderr);
    assert!(other.stdout.contains("differ after"), "{}", other.stdout);
}

/// Live and from the file, the model counts the same.
#[test]
fn sim_live_equals_sim_of_the_trace() {
    let (folder, program) = sample();
    let stored = good(ichnos(folder, &["sim", "--json", "sort.ichnos"])).json();
    let live = ichnos(folder, &["sim", "--json", "-o", "kept.ichnos", "--", program]);
    let json = live.stdout.lines().last().unwrap();
    let live: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(live["caches"], stored["caches"]);
    let kept = good(ichnos(folder, &["sim", "--json", "kept.ichnos"])).json();
    assert_eq!(kept, stored);
    assert!(stored["caches"][0]["accesses"].as_u64().unwrap() > 1000);
}

#[test]
fn sim_prints_text_csv_and_json() {
    let (folder, _) = sample();
    let text = good(ichnos(folder, &["sim", "sort.ichnos"])).stdout;
    assert!(text.contains("l1d") && text.contains("miss ratio"), "{text}");
    let csv = good(ichnos(folder, &["sim", "--csv", "--l3", "none", "sort.ichnos"])).stdout;
    assert!(csv.starts_with("cache,accesses,misses"), "{csv}");
    assert!(!csv.contains("\nl3,"), "{csv}");
}

#[test]
fn converted_traces_come_back() {
    let (folder, _) = sample();
    for (format, name) in [
        ("din", "t.din"),
        ("lackey", "t.lackey"),
        ("champsim", "t.champsimtrace.xz"),
        ("drmemtrace", "t.trace.zip"),
        ("gem5", "t.ptrc.gz"),
    ] {
        good(ichnos(folder, &["convert", "sort.ichnos", "--to", format, "-o", name]));
        let back = format!("{format}.ichnos");
        good(ichnos(folder, &["convert", name, "--from", format, "-o", &back]));
        let info = good(ichnos(folder, &["info", "--json", &back])).json();
        let first = good(ichnos(folder, &["info", "--json", "sort.ichnos"])).json();
        assert_eq!(info["instructions"], first["instructions"], "{format}");
        assert_eq!(info["loads"], first["loads"], "{format}");
        assert_eq!(info["stores"], first["stores"], "{format}");
    }
    good(ichnos(
        folder,
        &["convert", "sort.ichnos", "--to", "bbv", "--interval", "1K", "-o", "t.bb"],
    ));
    let line = native(folder, "sh", &["-c", "cat t.*bb* | grep ^T | head -1"]).stdout;
    assert!(line.starts_with("T:"), "{line}");
}

/// Any format is good enough for the verbs that only read records.
#[test]
fn sim_reads_other_formats_directly() {
    let (folder, _) = sample();
    good(ichnos(folder, &["convert", "sort.ichnos", "--to", "lackey", "-o", "direct.lackey"]));
    let stored = good(ichnos(folder, &["sim", "--json", "sort.ichnos"])).json();
    let direct = good(ichnos(folder, &["sim", "--json", "direct.lackey"])).json();
    assert_eq!(direct["caches"], stored["caches"]);
}

#[test]
fn every_help_has_an_example() {
    let folder = Folder::new();
    let all = good(ichnos(&folder, &["--help"])).stdout;
    for verb in [
        "record", "boot", "step", "sim", "info", "dump", "check", "salvage", "cut", "diff",
        "convert",
    ] {
        assert!(all.contains(verb));
        let help = good(ichnos(&folder, &[verb, "--help"])).stdout;
        assert!(help.contains("Example"), "{verb}: {help}");
        assert!(help.contains(&format!("ichnos {verb}")), "{verb}: {help}");
    }
}

/// The judge's own trace through our file and model gives the judge's own counts.
#[test]
fn lackey_text_piped_through_convert_counts_as_cachegrind() {
    if !ichnos_testkit::tool::have("verbs::cachegrind", &["valgrind"]) {
        return;
    }
    let (folder, program) = sample();
    let line = format!(
        "valgrind --tool=lackey --trace-mem=yes --log-fd=9 {program} 9>&1 >/dev/null | \
         '{}' convert - --from lackey -o lk.ichnos",
        env!("CARGO_BIN_EXE_ichnos")
    );
    good(shell(folder, &line));
    let caches = ["--I1=1024,2,64", "--D1=1024,2,64", "--LL=8192,4,64"];
    let line = format!(
        "valgrind --tool=cachegrind --cache-sim=yes --cachegrind-out-file=cg.out {} {program}",
        caches.join(" ")
    );
    shell(folder, &line);
    let summary = folder.read("cg.out");
    let summary = summary.lines().find(|l| l.starts_with("summary:")).unwrap();
    let theirs: Vec<u64> = summary.split(' ').skip(1).map(|n| n.parse().unwrap()).collect();
    let sim = good(ichnos(
        folder,
        &[
            "sim",
            "--json",
            "--cachegrind",
            "--l1i",
            "1K,2,64",
            "--l1d",
            "1K,2,64",
            "--l3",
            "8K,4,64",
            "lk.ichnos",
        ],
    ))
    .json();
    let [i1, d1, ll] = [0, 1, 2].map(|i| sim["caches"][i].clone());
    let n = |v: &serde_json::Value, key: &str| v[key].as_u64().unwrap();
    // Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw
    assert_eq!(theirs[0], n(&sim, "instructions"));
    assert_eq!(theirs[1], n(&i1, "fetch_misses"));
    assert_eq!(theirs[2], n(&ll, "fetch_misses"));
    assert_eq!(theirs[4], n(&d1, "load_misses"));
    assert_eq!(theirs[5], n(&ll, "load_misses"));
    assert_eq!(theirs[7], n(&d1, "store_misses"));
    assert_eq!(theirs[8], n(&ll, "store_misses"));
    assert!(theirs[1] > 0 && theirs[4] > 0, "{summary}");
}

/// `ichnos info FILE | head -0`: whoever reads the answer may go away.
#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let (folder, _) = sample();
    for verb in ["info", "check", "dump"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ichnos"))
            .args([verb, "sort.ichnos"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ichnos runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ichnos ends");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{verb}");
        assert!(output.status.success(), "{verb}: {}", output.status);
    }
}
