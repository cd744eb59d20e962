//! Rust programs, built by `ichnos cc -- rustc`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_flow::Level;
use ichnos_testkit::{guest, tool};

use crate::inline_compare::Stepped;
use crate::support::{Folder, good, ichnos, native};

/// Threads, maps, trait objects, panics that are caught on the way through frames that drop something.
#[test]
fn rust_programs_equal_step() {
    if !tool::have("inline_rust", &["rustc", "cc"]) {
        return;
    }
    let folder = Folder::new();
    let source = guest::folder().join("caught.rs");
    let source = source.to_str().unwrap();
    for flags in
        ["-O", "-C opt-level=0 -g", "--emit=link,dep-info -Copt-level=2 -C strip=debuginfo"]
    {
        let program = folder.path().join("caught");
        let program = program.to_str().unwrap();
        let mut line = vec!["cc", "--", "rustc", "--edition=2024", source, "-o", program];
        line.extend(flags.split_whitespace());
        good(ichnos(&folder, &line));
        // The last is the first, asked for in the words of cargo.
        if !flags.starts_with("--emit") {
            let stepped = Stepped::new(program.as_ref());
            for level in [Level::None, Level::Flow] {
                let found = stepped.compare(level);
                assert!(found.insns > 10_000 && found.threads == 4, "{flags}: {found:?}");
            }
            assert!(stepped.compare_references() > 1000, "{flags}");
        }
        // All threads at once, too.
        let args = ["8", "together"];
        let alone = native(&folder, program, &args);
        assert_eq!(alone.status, 0, "{flags}: {}", alone.stderr);
        assert!(alone.stdout.starts_with("0: "), "{flags}: {}", alone.stdout);
        let line = ["record", "-q", "-o", "t.ichnos", "--", program, args[0], args[1]];
        let traced = ichnos(&folder, &line);
        assert_eq!((traced.status, &traced.stdout), (0, &alone.stdout), "{}", traced.stderr);
        good(ichnos(&folder, &["check", "t.ichnos"]));
        let info = ichnos(&folder, &["info", "t.ichnos"]);
        assert!(info.stdout.contains("collect-asm"), "{flags}: {}", info.stdout);
        std::fs::remove_file(program).unwrap();
    }
    // Nothing else is left behind.
    assert!(!folder.path().join("caught.s").exists());
    for (flags, says) in [("-Clto", "-flto"), ("-Cno-such-option", "no-such-option")] {
        let refused = ichnos(&folder, &["cc", "--", "rustc", flags, source]);
        assert!(refused.status != 0 && refused.stderr.contains(says), "{}", refused.stderr);
    }
}
