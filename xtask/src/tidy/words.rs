//! Words that do not belong into a repository: unfinished-work macros, notes
//! without an issue, and addresses of one machine.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{File, Problem, is_rust};

/// Where people keep their files, in parts so that this file is no example.
const HOMES: [&str; 2] = [concat!("/ho", "me/"), concat!("/ro", "ot/")];

/// Checks each line of code and text.
pub fn check(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.path != "xtask/src/tidy/words.rs") {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(what) = fault(line, is_rust(file)) {
                problems.push(Problem::new(format!("{}:{}", file.path, number + 1), what));
            }
        }
    }
    problems
}

fn fault(line: &str, rust: bool) -> Option<&'static str> {
    if rust && (line.contains("todo!(") || line.contains("unimplemented!(")) {
        return Some("unfinished code");
    }
    if rust && line.contains("TODO") && !line.contains("TODO(#") {
        return Some("a TODO needs its issue: TODO(#n)");
    }
    if HOMES.iter().any(|home| line.contains(home)) {
        return Some("a path of one machine");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_found_and_issues_excused() {
        assert!(fault("    todo!()", true).is_some());
        assert!(fault("// TODO: later", true).is_some());
        assert!(fault("// TODO(#12): when pages grow", true).is_none());
        assert!(fault(&format!("see {}x", HOMES[1]), false).is_some());
    }
}
