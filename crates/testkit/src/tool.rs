//! The programs that tests need but cannot bring along.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::env;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Where a program is, if it is installed.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Whether all these programs are installed. If not, says on stderr which test
/// is skipped and why.
#[must_use]
pub fn have(test: &str, names: &[&str]) -> bool {
    let missing: Vec<_> = names.iter().filter(|name| find(name).is_none()).copied().collect();
    if !missing.is_empty() {
        skip(test, &format!("{} not installed", missing.join(", ")));
    }
    missing.is_empty()
}

/// Whether the processor has all these features, named as `/proc/cpuinfo` does.
/// If not, says on stderr which test is skipped and why.
#[must_use]
pub fn have_cpu(test: &str, features: &[&str]) -> bool {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let missing: Vec<_> =
        features.iter().filter(|f| !flags.split(' ').any(|flag| flag == **f)).copied().collect();
    if !missing.is_empty() {
        skip(test, &format!("the processor lacks {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Says that a test is skipped: on stderr, and in the file that `ICHNOS_SKIPS`
/// names, because the test runner hides what a passing test prints.
#[allow(clippy::print_stderr, reason = "whoever runs the tests must see what was not tested")]
pub fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    if let Some(path) = env::var_os("ICHNOS_SKIPS") {
        let file = fs::OpenOptions::new().append(true).create(true).open(path);
        let written = file.and_then(|mut f| writeln!(f, "{test}: {reason}"));
        assert!(written.is_ok(), "the list of skipped tests cannot be written: {written:?}");
    }
}
