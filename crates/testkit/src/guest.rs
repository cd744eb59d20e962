//! Guest programs: small sources under `guests/`, compiled when first needed
//! and kept under the target folder until source or flags change.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

/// How a guest is linked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Link {
    /// With the system's shared libraries.
    Dynamic,
    /// Without shared libraries, at fixed addresses.
    Static,
    /// Without any library: the source brings its own `_start`.
    Bare,
}

impl Link {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Dynamic => &["-pthread"],
            Self::Static => &["-static", "-no-pie", "-pthread"],
            Self::Bare => &["-static", "-no-pie", "-nostdlib", "-ffreestanding", "-fno-builtin"],
        }
    }
}

/// The folder of the sources.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("guests")
}

fn cache() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target =
        target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    target.join("guests")
}

/// Builds a guest, or finds it built. `source` is a file name in [`folder`],
/// with the ending that says its language: `.c`, `.cc` or `.S`.
///
/// # Panics
///
/// If the compiler is missing or refuses the source: a test cannot go on.
#[must_use]
pub fn build(source: &str, link: Link, flags: &[&str]) -> PathBuf {
    let path = folder().join(source);
    let text = fs::read(&path).unwrap_or_else(|e| panic!("guest {}: {e}", path.display()));
    let mut hasher = DefaultHasher::new();
    let shared = fs::read(folder().join("bare.h")).unwrap_or_default();
    (&text, shared, link, flags).hash(&mut hasher);
    let stem = source.replace('.', "_");
    let program = cache().join(format!("{stem}-{:016x}", hasher.finish()));
    if !program.exists() {
        compile(&path, link, flags, &program);
    }
    program
}

/// Writes a file that can be executed at once. Another process does it: while this
/// one has the file open for writing, a test beside it may fork, and until that
/// child has executed its own program the kernel refuses this one as busy.
///
/// # Panics
///
/// If the file cannot be written.
pub fn install(path: &Path, content: &[u8]) {
    let draft = path.with_extension("draft");
    fs::write(&draft, content).unwrap_or_else(|e| panic!("{}: {e}", draft.display()));
    let status = Command::new("install").args(["-m", "755"]).args([&draft, path]).status();
    assert!(status.expect("install starts").success(), "{} is not written", path.display());
    fs::remove_file(&draft).expect("the draft is ours");
}

fn compile(source: &Path, link: Link, flags: &[&str], program: &Path) {
    fs::create_dir_all(cache()).expect("the target folder is writable");
    let compiler = if source.extension().is_some_and(|e| e == "cc") { "g++" } else { "gcc" };
    // Tests run side by side: each builds under a name of its own, and the first wins. Nobody's program is replaced, which
    // may run by then.
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    let own = program.with_extension(format!("{}-{thread}", process::id()));
    let mut command = Command::new(compiler);
    command.args(["-O2", "-g", "-o"]).arg(&own).arg(source).args(link.flags()).args(flags);
    let output = command.output().unwrap_or_else(|e| panic!("{compiler}: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed:\n{errors}");
    let linked = fs::hard_link(&own, program);
    let is_there = linked.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists);
    assert!(linked.is_ok() || is_there, "{}: {linked:?}", program.display());
    fs::remove_file(&own).expect("the program is ours");
}
