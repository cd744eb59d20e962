//! The file format's version: the code and `docs/FORMAT.md` must name the same,
//! and the document's history must have an entry for it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{File, Problem};

/// Compares `VERSION` in the trace crate with the document.
pub fn check(files: &[File]) -> Vec<Problem> {
    let Some(code) = files.iter().find(|f| f.path == "crates/trace/src/header.rs") else {
        return Vec::new();
    };
    let Some(version) = version(&code.text) else {
        return vec![Problem::new(&code.path, "no line `pub const VERSION: u16 = N;`")];
    };
    let Some(doc) = files.iter().find(|f| f.path == "docs/FORMAT.md") else {
        return vec![Problem::new("docs/FORMAT.md", "is missing")];
    };
    let entry = format!("### Version {version}");
    if doc.text.lines().any(|l| l.starts_with(&entry)) {
        return Vec::new();
    }
    vec![Problem::new(&doc.path, format!("its history lacks the heading `{entry}`"))]
}

fn version(text: &str) -> Option<u16> {
    let line = text.lines().find_map(|l| l.trim().strip_prefix("pub const VERSION: u16 = "))?;
    line.strip_suffix(';')?.parse().ok()
}
