//! What every Rust file looks like: a header that says what it owns, a licence
//! line, and a length that a person can read.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{File, Problem, is_rust};

const LICENCE: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0";

/// Lines beyond which a file must be cut along its nouns.
const LONGEST: usize = 800;

/// Files that are tables or flat lists of cases, where length is no burden.
const TABLES: &[&str] = &[];

/// Checks header, licence line and length of each Rust file.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| is_rust(f)) {
        if !file.text.starts_with("//! ") {
            problems.push(Problem::new(
                format!("{}:1", file.path),
                "the first line must be a `//!` that says what the file owns",
            ));
        }
        if !file.text.lines().any(|l| l == LICENCE) {
            problems.push(Problem::new(&file.path, format!("lacks the line `{LICENCE}`")));
        }
        let lines = file.text.lines().count();
        if lines > LONGEST && !TABLES.contains(&file.path.as_str()) {
            problems.push(Problem::new(
                &file.path,
                format!("has {lines} lines; cut it along its nouns (the limit is {LONGEST})"),
            ));
        }
    }
    problems
}
