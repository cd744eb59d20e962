//! What a trace leaves out is said.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_testkit::guest;
use serde_json::Value;

use crate::support::{Folder, Run, good, ichnos};

/// A program built by `ichnos cc` tells of what was built so alone; the code cache tells of all.
#[test]
fn what_was_not_traced_is_said() {
    let folder = Folder::new();
    let source = guest::folder().join("fft.c");
    let line = ["cc", "--", "gcc", "-O2", "-pthread", "-o", "prog", source.to_str().unwrap()];
    good(ichnos(&folder, &[&line[..], &["-lm"]].concat()));
    let program = ["--", "./prog", "1", "6", "1"];
    let insns = |run: &Run| {
        let last = run.stdout.lines().last().unwrap();
        serde_json::from_str::<Value>(last).unwrap()["instructions"].as_u64().unwrap()
    };
    let said = "parts of the program were not traced";
    let line = ["sim", "--json", "-o", "cc.ichnos"];
    let part = good(ichnos(&folder, &[&line[..], &program].concat()));
    assert!(part.stderr.contains(said) && part.stderr.contains("`ichnos cc`"), "{}", part.stderr);
    let line = ["sim", "--json", "--collector", "exec"];
    let all = good(ichnos(&folder, &[&line[..], &program].concat()));
    assert!(!all.stderr.contains(said), "{}", all.stderr);
    assert!(insns(&all) > insns(&part) + 10_000, "the library is not there");
    let gaps = good(ichnos(&folder, &["dump", "cc.ichnos"])).stdout.matches(" E gap ").count();
    let gaps = format!(": {} gaps: ", ichnos_report::number::thousands(gaps as u64));
    for verb in [
        &["sim"][..],
        &["sim", "--jobs", "1"],
        &["sim", "--branch", "tage"],
        &["annotate"],
        &["locality"],
    ] {
        let run = good(ichnos(&folder, &[verb, &["cc.ichnos"]].concat()));
        assert_eq!(run.stderr.matches(said).count(), 1, "{verb:?}: {}", run.stderr);
        assert!(run.stderr.contains(&gaps), "{verb:?}: no {gaps}: {}", run.stderr);
    }
    // Samples of another program.
    let line = ["record", "-q", "--sample", "10K:1K", "-o", "s.ichnos", "--", "true"];
    good(ichnos(&folder, &line));
    let run = good(ichnos(&folder, &["sim", "s.ichnos"]));
    assert!(run.stderr.contains(said) && run.stderr.contains("between samples"), "{}", run.stderr);
}

/// Functions that untraced code calls return into it: their returns are nobody's to predict, however many models run at once.
#[test]
fn returns_to_untraced_code_are_not_counted() {
    let folder = Folder::new();
    let source = b"#include <stdlib.h>
        static int order(const void *a, const void *b) { return *(int *)a - *(int *)b; }
        int main(void) {
            static int numbers[500];
            for (int i = 0; i < 500; i++) numbers[i] = i * 7919 % 500;
            qsort(numbers, 500, sizeof *numbers, order);
            return numbers[0];
        }";
    folder.write("sort.c", source);
    good(ichnos(&folder, &["cc", "--", "gcc", "-O2", "-o", "sort", "sort.c"]));
    good(ichnos(&folder, &["record", "-q", "-o", "cc.ichnos", "--", "./sort"]));
    let sim = |jobs| {
        let line = ["sim", "--json", "--branch", "tage", "--jobs", jobs, "cc.ichnos"];
        good(ichnos(&folder, &line)).json()
    };
    let (one, two) = (sim("1"), sim("2"));
    assert_eq!(one, two);
    let rows = one["branches"].as_array().unwrap();
    let returns = rows.iter().find(|row| row["branches"] == "returns").unwrap();
    assert!(returns["predicted"].as_u64().unwrap() < 100, "thousands of callbacks: {returns}");
}
