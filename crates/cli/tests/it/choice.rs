//! `record` when not everything is recorded, or not into one file: samples, windows, the switch, a file a
//! process.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{Folder, ichnos, paused};

/// What `dump` prints of a trace that keeps every rule.
#[track_caller]
fn checked(folder: &Folder, file: &str) -> String {
    let check = ichnos(folder, &["check", file]);
    assert_eq!(check.status, 0, "{file}: {}{}", check.stdout, check.stderr);
    ichnos(folder, &["dump", file]).stdout
}

fn gaps(dump: &str, reason: &str) -> usize {
    dump.lines().filter(|l| l.contains(" E gap ") && l.contains(reason)).count()
}

#[test]
fn samples_and_windows_keep_the_rules() {
    let folder = Folder::new();
    let script = "for i in 1 2 3; do echo $i; done; (exit 3); /bin/true";
    let cases = [
        (&["--sample", "20K:1K"][..], "sampling"),
        (&["--start", "50K", "--stop", "60K"], "window"),
        (&["--sample", "5K:500", "--start", "100K"], "sampling"),
    ];
    for (flags, reason) in cases {
        let args =
            [&["record", "-q", "-o", "t.ichnos"], flags, &["--", "sh", "-c", script]].concat();
        let run = ichnos(&folder, &args);
        assert_eq!((run.status, run.stdout.as_str()), (0, "1\n2\n3\n"), "{}", run.stderr);
        let dump = checked(&folder, "t.ichnos");
        assert!(gaps(&dump, reason) > 1, "{flags:?}");
        assert!(dump.lines().filter(|l| l.contains(" I ")).count() > 1000, "{flags:?}");
    }
}

#[test]
fn functions_begin_and_end_what_is_recorded() {
    let folder = Folder::new();
    let program = "/bin/true";
    let run = |flags: &[&str]| {
        ichnos(&folder, &[&["record", "-o", "t.ichnos"], flags, &["--", program]].concat())
    };
    // A function of a library.
    let from_exit = run(&["--start", "@exit"]);
    assert_eq!(from_exit.status, 0, "{}", from_exit.stderr);
    let dump = checked(&folder, "t.ichnos");
    assert!(gaps(&dump, "window") > 0 && dump.lines().any(|l| l.contains(" I ")));
    let nowhere = run(&["--start", "@no_such_function"]);
    assert_eq!(nowhere.status, 0, "{}", nowhere.stderr);
    assert!(nowhere.stderr.contains("the symbol `no_such_function`"), "{}", nowhere.stderr);
    assert!(!checked(&folder, "t.ichnos").lines().any(|l| l.contains(" I ")));
}

/// A shell, a copy of it, and a program in the place of another copy.
#[test]
fn each_process_can_have_a_file() {
    let folder = Folder::new();
    let script = "(echo in); /bin/echo out; echo end";
    for verb in ["record", "step"] {
        let name = format!("{verb}.%p.ichnos");
        let run = ichnos(&folder, &[verb, "-q", "-o", &name, "--", "sh", "-c", script]);
        assert_eq!((run.status, run.stdout.as_str()), (0, "in\nout\nend\n"), "{}", run.stderr);
        let (mut processes, mut programs) = (BTreeSet::new(), BTreeSet::new());
        for file in folder.list().into_iter().filter(|name| name.starts_with(verb)) {
            let dump = checked(&folder, &file);
            let starts: Vec<&str> = dump.lines().filter(|l| l.contains("thread-start")).collect();
            assert_eq!(starts.len(), 1, "{file}");
            let number = file.split('.').nth(1).expect("a number");
            assert!(starts[0].contains(&format!("os_pid={number} ")), "{file}: {}", starts[0]);
            processes.insert(starts[0].to_owned());
            // What it runs is mapped, whether it was forked or not.
            assert!(dump.lines().any(|l| l.contains(" E map ") && l.contains("libc.so")), "{file}");
            assert!(dump.lines().filter(|l| l.contains(" I ")).count() > 100, "{file}");
            let own = |l: &&str| l.contains(" E exec ") && l.contains("echo");
            programs.extend(dump.lines().find(own).map(str::to_owned));
        }
        assert_eq!((processes.len(), programs.len()), (3, 1), "{verb}: {processes:?}");
    }
}

#[test]
fn a_recording_is_switched_while_it_runs() {
    let folder = Folder::new();
    // A loop without rest would store as much as the machine can: the whole dump is looked at here.
    let script = "select undef, undef, undef, 0.002 until -e 'done'";
    let mut recorder = paused(&folder, &["perl", "-e", script]);
    let number = recorder.id().to_string();
    let switch = |to: &str| ichnos(&folder, &["control", &number, to]);
    std::thread::sleep(Duration::from_millis(50));
    let on = switch("on");
    assert_eq!(on.status, 0, "{}", on.stderr);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(switch("off").status, 0);
    folder.write("done", b"");
    assert!(recorder.wait().expect("it ends").success());
    let dump = checked(&folder, "t.ichnos");
    let first = dump.lines().find(|l| l.contains(" I ") || l.contains(" E gap "));
    assert!(first.is_some_and(|l| l.contains(" E gap ")), "{first:?}");
    assert!(dump.lines().any(|l| l.contains(" I ")));
}

#[test]
fn what_cannot_be_switched_is_said() {
    let folder = Folder::new();
    let own = std::process::id().to_string();
    let run = ichnos(&folder, &["control", &own, "on"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains(&own), "{}", run.stderr);
}
