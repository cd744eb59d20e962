//! Kernels in the spirit of SPLASH-2, a C++ and a Fortran program, traced inline: equal to step on
//! small inputs, behaving as if alone on larger ones.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_flow::Level;
use ichnos_testkit::{guest, tool};

use crate::inline_compare::Stepped;
use crate::support::{Folder, good, ichnos, native};

/// Source, arguments for stepping, arguments for a longer run.
const KERNELS: &[(&str, &str, &str)] = &[
    ("fft.c", "2 4 1", "3 14 2"),
    ("lu.c", "2 16 8 rows", "2 160 16 rows"),
    ("lu.c", "2 16 8 contiguous", "3 160 16 contiguous"),
    ("radix.c", "2 60 1", "4 100000 2"),
    ("ocean.c", "2 15 1", "2 127 4"),
    ("objects.cc", "2", "300"),
    ("waves.f90", "10 2", "80 10"),
];

/// Builds a kernel through `ichnos cc`; nothing if its compiler is missing.
pub fn build(folder: &Folder, source: &str, flags: &str) -> Option<String> {
    let compiler = match source.rsplit('.').next() {
        Some("cc") => "g++",
        Some("f90") => "gfortran",
        _ => "gcc",
    };
    if !tool::have(source, &[compiler]) {
        return None;
    }
    let path = guest::folder().join(source);
    let program = folder.path().join(source.replace('.', "_"));
    let (path, program) = (path.to_str().unwrap(), program.to_str().unwrap());
    let mut line = vec!["cc", "--", compiler, path, "-o", program, "-pthread"];
    line.extend(flags.split_whitespace());
    line.push("-lm");
    good(ichnos(folder, &line));
    Some(program.to_owned())
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn kernels_equal_step() {
    let folder = Folder::new();
    let long = std::env::var("ICHNOS_INLINE").as_deref() == Ok("all");
    let compilers: &[&str] = if long { &["-O0", "-O1", "-O2", "-O3", "-Os"] } else { &["-O2"] };
    for (source, small, _) in KERNELS {
        // A static C++ program takes a million steps before it throws for the first time.
        if *source == "objects.cc" && !long {
            continue;
        }
        for flags in compilers {
            let Some(program) = build(&folder, source, &format!("-static {flags}")) else {
                continue;
            };
            let args: Vec<_> = words(small).into_iter().map(Into::into).collect();
            let stepped = Stepped::with(program.as_ref(), &args);
            let levels = if long { &Level::ALL[..] } else { &[Level::None, Level::Flow] };
            for level in levels {
                let compared = stepped.compare(*level);
                assert!(compared.insns > 1000, "{source}: {compared:?}");
            }
            assert!(stepped.compare_references() > 300, "{source}");
        }
    }
}

#[test]
fn kernels_behave_as_if_alone() {
    let folder = Folder::new();
    for (source, _, larger) in KERNELS {
        let Some(program) = build(&folder, source, "-O2") else { continue };
        let alone = native(&folder, &program, &words(larger));
        assert_eq!(alone.status, 0, "{source}: {}{}", alone.stdout, alone.stderr);
        let line = [&["record", "-o", "none", "--", &program][..], &words(larger)].concat();
        let traced = ichnos(&folder, &line);
        assert_eq!(
            (traced.stdout, traced.status),
            (alone.stdout, 0),
            "{source}: {}",
            traced.stderr
        );
    }
}
