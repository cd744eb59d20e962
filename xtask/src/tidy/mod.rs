//! House rules that a program can check. Each rule is a file; all problems are
//! listed before the verdict, so that one run shows everything.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod arrows;
mod format;
mod sources;
mod unsafety;
mod words;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::run;

/// What a rule found wrong: where, and what.
pub struct Problem {
    pub place: String,
    pub what: String,
}

impl Problem {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

/// A source file of the repository: its path from the root, and its text.
pub struct File {
    pub path: String,
    pub text: String,
}

/// Checks every rule.
pub fn all() -> Result<()> {
    let files = tracked()?;
    let mut problems = arrows::check()?;
    problems.extend(sources::check(&files));
    problems.extend(unsafety::check(&files));
    problems.extend(words::check(&files));
    problems.extend(format::check(&files));
    for problem in &problems {
        println!("tidy: {}: {}", problem.place, problem.what);
    }
    if !problems.is_empty() {
        bail!("{} problems", problems.len());
    }
    println!("tidy: {} files are in order", files.len());
    Ok(())
}

/// The text files of the checkout that git knows or would take.
fn tracked() -> Result<Vec<File>> {
    let mut git = std::process::Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    let names = run::output(git.current_dir(run::root()))?;
    let mut files = Vec::new();
    for name in names.split('\0').filter(|n| !n.is_empty()) {
        let full: PathBuf = run::root().join(name);
        // A file that is deleted but still in the index, or that is not text.
        let Ok(bytes) = std::fs::read(&full) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: name.to_owned(), text });
        }
    }
    Ok(files)
}

/// Whether a path is Rust source.
pub fn is_rust(file: &File) -> bool {
    Path::new(&file.path).extension().is_some_and(|e| e == "rs")
}
