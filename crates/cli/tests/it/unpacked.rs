//! A recording that is not packed yet is a trace like any other.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::spool::{assert_same, crowd, info, insns, record, start, wait_until};
use crate::support::{Folder, Run, good, ichnos, native, shell};

/// A crowd that does the same in every run, and more than fits into memory.
const CROWD: [&str; 3] = ["1", "0", "30"];
/// What a verb says before it packs.
const FIRST: &str = "packing it first";

/// A folder with an unpacked recording, `t.ichnos`, a copy of one that all tests share.
fn unpacked() -> Folder {
    static SHARED: OnceLock<Folder> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let folder = Folder::new();
        record(&folder, &["-q"], &CROWD);
        good(native(&folder, "mv", &["t.ichnos", "a.ichnos"]));
        let run = start(&folder, &["--pack", "later"], &CROWD).wait_with_output().unwrap();
        assert_eq!(run.status.code(), Some(7));
        assert!(folder.size("t.ichnos") > 0 && folder.size("t.ichnos.spool") > 0);
        folder
    });
    let folder = Folder::new();
    let from = shared.path().to_str().unwrap();
    good(native(&folder, "cp", &["-r", "--reflink=auto", &format!("{from}/."), "."]));
    folder
}

/// Runs a verb so that Ctrl-C reaches it whatever whoever runs the tests ignores.
fn spawn(folder: &Folder, args: &[&str]) -> Child {
    Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_ichnos")])
        .args(args)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn end(child: Child) -> Run {
    Run::from(child.wait_with_output().unwrap())
}

/// Nothing of the recording has changed.
#[track_caller]
fn assert_unpacked(folder: &Folder) {
    let shared = unpacked();
    for file in ["t.ichnos", "t.ichnos.spool"] {
        assert!(folder.bytes(file) == shared.bytes(file), "{file} is another");
    }
    let left = folder.list();
    assert!(!left.iter().any(|name| name.ends_with(".packing") && name != "t.ichnos.packing"));
}

/// Every verb that reads a trace packs it, says so once, and answers as it does for any other.
#[test]
fn every_verb_packs_what_it_reads() {
    for (args, status) in [
        (&["info", "--json", "t.ichnos"][..], 0),
        (&["check", "--json", "t.ichnos"], 0),
        (&["sim", "--json", "t.ichnos"], 0),
        (&["dump", "--format", "jsonl", "--range", "5000..5100", "t.ichnos"], 0),
        (&["cut", "--range", "5000..6000", "t.ichnos", "-o", "o.ichnos"], 0),
        (&["convert", "--range", "..1000", "t.ichnos", "-o", "o.din"], 0),
        (&["salvage", "--json", "t.ichnos", "-o", "o.ichnos"], 0),
        (&["diff", "--first-only", "--only", "records", "a.ichnos", "t.ichnos"], 0),
    ] {
        let folder = unpacked();
        let run = ichnos(&folder, args);
        assert_eq!(run.status, status, "{args:?}: {}", run.stderr);
        assert_eq!(run.stderr.matches(FIRST).count(), 1, "{args:?}: {}", run.stderr);
        assert!(!run.stdout.contains("pack"), "{args:?}: {}", run.stdout);
        if args.contains(&"--json") {
            run.json();
        }
        assert!(!folder.list().contains(&"t.ichnos.spool".into()), "{args:?}");
        assert_eq!(insns(&folder, "t.ichnos"), insns(&folder, "a.ichnos"), "{args:?}");
        let again = ichnos(&folder, &["info", "t.ichnos"]);
        assert_eq!((again.status, again.stderr.as_str()), (0, ""), "{args:?}");
    }
}

/// The spool says where the trace goes, whatever its own name is; a trace that was moved with its spool stays where it is; and
/// two of them can be compared.
#[test]
fn spools_are_traces_too() {
    let folder = unpacked();
    good(native(&folder, "mkdir", &["f"]));
    // The note has the place of the first recording, in the folder that all tests share.
    good(shell(&folder, "cp t.ichnos f/x.ichnos && cp t.ichnos.spool f/x.ichnos.spool"));
    let diff = good(ichnos(
        &folder,
        &["diff", "--first-only", "--only", "events", "f/x.ichnos", "t.ichnos"],
    ));
    assert_eq!(diff.stderr.matches(FIRST).count(), 2, "{}", diff.stderr);
    assert_same(&folder, "records", "a.ichnos", "f/x.ichnos");
    let folder = Folder::new();
    good(native(&folder, "mkdir", &["f"]));
    let run = end(start(&folder, &["--pack", "later", "--spool", "f"], &CROWD));
    assert!(run.stderr.contains("`ichnos pack f/t.ichnos.spool`"), "{}", run.stderr);
    let lost = ichnos(&folder, &["info", "t.ichnos"]);
    assert_eq!(lost.status, 2);
    assert!(lost.stderr.contains("name FOLDER/t.ichnos.spool"), "{}", lost.stderr);
    good(native(&folder, "mv", &["f/t.ichnos.spool", "f/any"]));
    let found = good(ichnos(&folder, &["info", "--json", "f/any"]));
    assert!(found.stderr.contains(FIRST), "{}", found.stderr);
    let whole = info(&folder, "t.ichnos");
    assert_eq!((whole["complete"].as_bool(), &whole), (Some(true), &found.json()));
    assert_eq!(folder.list().len(), 2);
}

/// What is to be read must not be written: it is the packed file, whatever was named.
#[test]
fn a_trace_that_was_packed_first_is_not_overwritten() {
    let folder = Folder::new();
    end(start(&folder, &["--pack", "later"], &CROWD));
    for (verb, more) in [("cut", &["--range", "..9"][..]), ("convert", &[]), ("salvage", &[])] {
        let spool = folder.path().join("t.ichnos.spool");
        if !spool.exists() {
            end(start(&folder, &["--pack", "later"], &CROWD));
        }
        let run = ichnos(&folder, &[&[verb, "t.ichnos.spool", "-o", "t.ichnos"], more].concat());
        assert_eq!(run.status, 2, "{verb}: {}", run.stderr);
        assert!(run.stderr.contains("is the trace to be read"), "{verb}: {}", run.stderr);
        good(ichnos(&folder, &["check", "t.ichnos"]));
    }
}

/// Where the trace cannot be kept, it is there for one answer; where it cannot be made at all, nothing is lost.
#[test]
fn what_cannot_be_kept_is_answered_for() {
    let folder = unpacked();
    // Not even the system's superuser can make a file of that.
    good(native(&folder, "mkdir", &["t.ichnos.packing", "tmp"]));
    let answer = |temporary: &str, args: &[&str]| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_ichnos"));
        run.args(args).current_dir(folder.path()).env("TMPDIR", folder.path().join(temporary));
        Run::from(run.output().unwrap())
    };
    let expected = insns(&folder, "a.ichnos");
    let run = good(answer("tmp", &["info", "--json", "t.ichnos"]));
    assert!(run.stderr.contains("cannot be kept"), "{}", run.stderr);
    assert!(run.stderr.contains("t.ichnos.spool is left"), "{}", run.stderr);
    assert_eq!(run.json()["instructions"], expected);
    assert!(run.json()["file_bytes"].as_u64().unwrap_or(expected) > folder.size("t.ichnos"));
    good(answer("tmp", &["salvage", "t.ichnos", "-o", "s.ichnos"]));
    assert_same(&folder, "records", "a.ichnos", "s.ichnos");
    assert_eq!(std::fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
    assert_unpacked(&folder);
    let run = answer("missing", &["info", "t.ichnos"]);
    assert_eq!((run.status, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("missing either"), "{}", run.stderr);
    assert_unpacked(&folder);
    good(native(&folder, "rmdir", &["t.ichnos.packing"]));
    // No file may be as large as the trace.
    let line =
        format!("trap '' XFSZ; ulimit -f 100; {} info t.ichnos", env!("CARGO_BIN_EXE_ichnos"));
    let run = shell(&folder, &line);
    assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{}", run.stderr);
    assert_eq!(run.stderr.matches("File too large").count(), 2, "{}", run.stderr);
    assert!(!folder.list().contains(&"t.ichnos.packing".into()));
    assert_unpacked(&folder);
    good(ichnos(&folder, &["info", "t.ichnos"]));
    assert!(!folder.list().contains(&"t.ichnos.spool".into()));
}

/// What lies where a trace was to be made is only replaced if it is of the same recording.
#[test]
fn other_traces_stay() {
    let folder = Folder::new();
    end(start(&folder, &["--pack", "later"], &CROWD));
    good(native(&folder, "mv", &["t.ichnos.spool", "old"]));
    good(ichnos(&folder, &["record", "-q", "-o", "t.ichnos", "--", "true"]));
    let other = folder.bytes("t.ichnos");
    let run = good(ichnos(&folder, &["info", "--json", "old"]));
    assert!(run.stderr.contains("t.ichnos is something else"), "{}", run.stderr);
    assert!(run.json()["instructions"].as_u64().unwrap() > insns(&folder, "t.ichnos"));
    assert!(folder.bytes("t.ichnos") == other && folder.size("old") > 0);
    // One that was cut short has what is whole of it, and not what a spool of another run has.
    good(native(&folder, "mv", &["old", "t.ichnos.spool"]));
    folder.write("t.ichnos", &other[..other.len() - 9]);
    let run = good(ichnos(&folder, &["info", "--json", "t.ichnos"]));
    assert!(run.stderr.contains("of another recording"), "{}", run.stderr);
    assert!(folder.bytes("t.ichnos") == other[..other.len() - 9]);
    assert!(folder.size("t.ichnos.spool") > 0);
}

/// While a recording runs, nobody packs it; when it was killed, what it stored is packed, and what was packed before is replaced.
#[test]
fn a_killed_recording_is_packed_and_a_running_one_is_not() {
    let folder = Folder::new();
    let mut child = start(&folder, &["-q"], &["1", "0", "100", "1000"]);
    wait_until("a spool is made", || folder.size("t.ichnos.spool") > 30_000_000);
    let early = ichnos(&folder, &["info", "--json", "t.ichnos"]);
    assert!(early.stderr.contains("recording still runs"), "{}", early.stderr);
    match early.status {
        0 => assert_eq!(early.json()["complete"], false),
        status => assert_eq!((status, early.stdout.as_str()), (2, "")),
    }
    let spool = ichnos(&folder, &["info", "t.ichnos.spool"]);
    assert_eq!(spool.status, 2, "{}", spool.stdout);
    assert!(spool.stderr.contains("recording still runs"), "{}", spool.stderr);
    child.kill().unwrap();
    child.wait().unwrap();
    let run = good(ichnos(&folder, &["check", "t.ichnos"]));
    assert!(run.stderr.contains(FIRST), "{}", run.stderr);
    assert!(run.stderr.contains("what came last is missing"), "{}", run.stderr);
    assert_eq!(folder.size("t.ichnos.spool"), 0);
    assert_eq!(info(&folder, "t.ichnos")["complete"], true);
}

/// Several verbs at once: one packs, the others say so, wait for nothing and break nothing.
#[test]
fn one_of_several_verbs_packs() {
    let folder = unpacked();
    let verbs: Vec<Child> = (0..4).map(|_| spawn(&folder, &["info", "t.ichnos"])).collect();
    let runs: Vec<Run> = verbs.into_iter().map(end).collect();
    assert_eq!(runs.iter().filter(|run| run.stderr.contains(FIRST)).count(), 1, "{runs:?}");
    for run in &runs {
        let refused = run.status == 2 && run.stderr.contains("somebody packs it now");
        assert!(run.status == 0 || refused, "{run:?}");
    }
    assert!(runs.iter().any(|run| run.status == 0), "{runs:?}");
    assert_same(&folder, "records", "a.ichnos", "t.ichnos");
    let left = folder.list();
    assert!(!left.iter().any(|name| name.contains(".spool") || name.contains(".packing")));
}

/// Who interrupts packing finds everything as it was; who interrupts a verb behind it ends the verb.
#[test]
fn an_interrupt_leaves_what_was_there() {
    let folder = unpacked();
    let child = spawn(&folder, &["info", "t.ichnos"]);
    wait_until("it packs", || folder.size("t.ichnos.packing") > 0);
    native(&folder, "kill", &["-INT", &child.id().to_string()]);
    let run = end(child);
    assert_eq!(run.status, 2, "{}", run.stderr);
    assert!(run.stderr.contains("interrupted; t.ichnos.spool is left"), "{}", run.stderr);
    assert!(!folder.list().contains(&"t.ichnos.packing".into()));
    assert_unpacked(&folder);
    let child = spawn(&folder, &["dump", "t.ichnos"]);
    wait_until("it is packed", || !folder.path().join("t.ichnos.spool").exists());
    // Whoever packs listens until the spool is let go.
    std::thread::sleep(std::time::Duration::from_millis(300));
    native(&folder, "kill", &["-INT", &child.id().to_string()]);
    let run = end(child);
    assert_eq!(run.status, 130, "{}", run.stderr);
    assert_same(&folder, "records", "a.ichnos", "t.ichnos");
}

/// Of a recording with a file for each process all are made; the one that was named is answered for.
#[test]
fn each_process_gets_its_file() {
    let folder = Folder::new();
    let crowd = crowd();
    let line = ["record", "--pack", "later", "-o", "t.%p.ichnos", "--", &crowd, "2", "0", "30"];
    for named in [0, 1] {
        let run = ichnos(&folder, &line);
        assert_eq!(run.status, 7, "{}", run.stderr);
        let spool = ["t.%p.ichnos.spool", "t.%p.ichnos"][named];
        let run = ichnos(&folder, &["info", spool]);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{}", run.stderr);
        assert_eq!(run.stderr.matches(FIRST).count(), 1, "{}", run.stderr);
        let files = folder.list();
        assert_eq!(files.len(), 2, "{files:?}");
        for file in files {
            assert!(run.stderr.contains(&file), "{file}: {}", run.stderr);
            good(ichnos(&folder, &["check", &file]));
            std::fs::remove_file(folder.path().join(file)).unwrap();
        }
    }
    let child = Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args(["record", "-q", "-o", "t.%p.ichnos", "--", &crowd, "2", "0", "60", "1000"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // The program outlives its recorder, and must not hold what whoever runs the tests reads.
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.unwrap();
    let begun = || folder.list().into_iter().find(|name| !name.contains('%'));
    wait_until("a spool and a trace are made", || {
        folder.size("t.%p.ichnos.spool") > 30_000_000 && begun().is_some()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = begun().unwrap();
    let run = good(ichnos(&folder, &["info", "--json", &begun]));
    assert!(run.stderr.contains(FIRST), "{}", run.stderr);
    assert_eq!(run.json()["complete"], true);
    assert!(!folder.list().contains(&"t.%p.ichnos.spool".into()));
}

/// Spools that nobody understands are named and left.
#[test]
fn a_spool_of_another_build_is_refused() {
    let folder = unpacked();
    let stub = folder.bytes("t.ichnos");
    folder.write("t.ichnos.spool", b"ichnos spool 3\x1a\n\x05\0\0\0\0\0\0\099999");
    for name in ["t.ichnos", "t.ichnos.spool"] {
        let run = ichnos(&folder, &["sim", name]);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{name}");
        assert!(run.stderr.contains("another version"), "{name}: {}", run.stderr);
        assert!(run.stderr.contains("t.ichnos.spool"), "{name}: {}", run.stderr);
    }
    assert!(folder.bytes("t.ichnos") == stub && folder.size("t.ichnos.spool") > 0);
}
