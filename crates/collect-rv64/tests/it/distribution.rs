//! Real programs, as Debian builds them for riscv64, behave as under QEMU:
//! interpreters, a database, a compressor, a compiler, all dynamically linked.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;

use crate::debian;
use crate::guests::{Folder, here, under_qemu};

/// Programs of the distribution with their arguments: `@` is a script of this
/// folder, `%` a text.
const PROGRAMS: &[&[&str]] = &[
    &["usr/bin/bzip2", "-9c", "%"],
    &["usr/bin/bzip2", "-t", "%"],
    &["usr/bin/lua5.4", "@words.lua", "%"],
    &["usr/bin/lua5.4", "-e", "x = 1 +"],
    &["usr/bin/perl", "@words.pl", "%"],
    &["usr/bin/perl", "-ne", "print scalar reverse $_ if /fn/", "%"],
    &["usr/bin/python3.13", "-B", "-S", "-E", "@words.py", "%"],
    &["usr/bin/sqlite3", ":memory:", ".read @words.sql"],
    &["usr/bin/sqlite3", ":memory:", "select * from nothing"],
    &[
        "usr/libexec/gcc/riscv64-linux-gnu/14/cc1",
        "-quiet",
        "-O2",
        "-march=rv64gc",
        "-mabi=lp64d",
        "@words.c",
        "-o",
        "-",
    ],
];

#[test]
fn debians_programs_behave_as_under_qemu() {
    let Some(root) = debian::programs() else { return };
    let folder = Folder::new("distribution");
    let text = folder.0.join("text");
    std::fs::write(&text, include_str!("distribution.rs")).expect("the text can be written");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/scripts/");
    let place = |word: &&str| {
        word.replace('@', &scripts.to_string_lossy()).replace('%', &text.to_string_lossy())
    };
    let sysroot = root.to_string_lossy();
    for line in PROGRAMS {
        let (program, args) = line.split_first().expect("a program is named");
        let args: Vec<String> = args.iter().map(place).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let program = root.join(program);
        let Some((theirs, expected)) = under_qemu(&program, &args, Some(&sysroot)) else { return };
        let (ours, found, _) = here(&program, &args, &folder, Some(&sysroot));
        assert_eq!(ours.status, theirs.status, "{line:?}");
        assert!(found == expected, "{line:?}: {} against {}", ours.output, theirs.output);
    }
}
