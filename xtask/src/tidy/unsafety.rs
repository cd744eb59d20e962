//! Where `unsafe` may stand: in the crates that the plan names, and in the files
//! that `ARCHITECTURE.md` lists; everywhere else it is forbidden by attribute.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;

use super::{File, Problem, is_rust};

/// Crates that may hold unsafe code, each for a reason in `ARCHITECTURE.md`.
const MAY: &[&str] = &[
    "tap",
    "rt",
    "codemem",
    "collect-step",
    "collect-exec",
    "collect-rv64",
    "collect-qemu",
    "plugin",
];

/// Checks the attributes of crate roots and the list of files.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let listed: BTreeSet<&str> = files
        .iter()
        .find(|f| f.path == "ARCHITECTURE.md")
        .map(|f| listed(&f.text).collect())
        .unwrap_or_default();
    for file in files.iter().filter(|f| is_rust(f) && !f.path.starts_with("fuzz/")) {
        let name = file.path.split('/').nth(1).unwrap_or_default();
        let root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
        if root && !MAY.contains(&name) && !file.text.contains("#![forbid(unsafe_code)]") {
            problems.push(Problem::new(&file.path, "lacks `#![forbid(unsafe_code)]`"));
        }
        let uses = file.text.lines().any(is_unsafe_code);
        if uses && !listed.contains(file.path.as_str()) {
            problems.push(Problem::new(
                &file.path,
                "holds unsafe code but is not in the list of ARCHITECTURE.md",
            ));
        }
        if !uses && listed.contains(file.path.as_str()) {
            problems.push(Problem::new(
                "ARCHITECTURE.md",
                format!("lists {} for unsafe code, but it holds none", file.path),
            ));
        }
    }
    problems
}

/// The paths in the list items of the section on unsafe code.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    let section = text.split("\n## ").find(|s| s.starts_with("Unsafe")).unwrap_or("");
    section.lines().filter_map(|l| l.strip_prefix("- `")).filter_map(|l| l.split('`').next())
}

fn is_unsafe_code(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or("");
    // In two parts, so that this file does not find itself.
    let word = concat!("un", "safe");
    [" {", " fn", " impl", " extern", "(no_mangle)"]
        .iter()
        .any(|tail| code.contains(&format!("{word}{tail}")))
}
