//! Recording by way of a spool: nothing is different but that the program does not wait.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ichnos_testkit::guest::{self, Link};

use crate::inline_kernels::build;
use crate::support::{Folder, Run, good, ichnos, native};

/// How long to wait for what must come.
const PATIENCE: Duration = Duration::from_secs(120);
/// Enough rounds of `crowd` for a spool, in one thread, that one of 20 MB is too small for.
const ROUNDS: &str = "60";

pub fn crowd() -> String {
    guest::build("crowd.c", Link::Static, &["-O2"]).to_str().unwrap().to_owned()
}

/// Starts `ichnos record` of a crowd.
pub fn start(folder: &Folder, options: &[&str], crowd_args: &[&str]) -> Child {
    // Whoever runs the tests may ignore the signal, and what is ignored stays so.
    Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_ichnos"), "record"])
        .args(options)
        .args(["-o", "t.ichnos", "--", &crowd()])
        .args(crowd_args)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Records a crowd to the end; the most bytes that its spool was seen to have.
pub fn record(folder: &Folder, options: &[&str], crowd_args: &[&str]) -> u64 {
    let mut child = start(folder, options, crowd_args);
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(folder.size("t.ichnos.spool"));
        std::thread::sleep(Duration::from_millis(1));
    }
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!((run.status, run.stdout.as_str()), (7, "good\n"), "{}", run.stderr);
    assert!(!folder.list().contains(&"t.ichnos.spool".into()), "the spool is left");
    most
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn info(folder: &Folder, trace: &str) -> serde_json::Value {
    good(ichnos(folder, &["info", "--json", trace])).json()
}

pub fn insns(folder: &Folder, trace: &str) -> u64 {
    info(folder, trace)["instructions"].as_u64().unwrap()
}

pub fn assert_same(folder: &Folder, only: &str, first: &str, second: &str) {
    let diff = ichnos(folder, &["diff", "--first-only", "--only", only, first, second]);
    assert_eq!(diff.status, 0, "{}{}", diff.stdout, diff.stderr);
}

/// What one run came to is the same from memory and from the spool, to the last event and time, with all its processes and threads.
#[test]
fn the_spool_says_what_the_trace_says() {
    let folder = Folder::new();
    let mut child = start(&folder, &[], &["3", "3", "3"]);
    let (spool, link) = (folder.path().join("t.ichnos.spool"), folder.path().join("link"));
    wait_until("a spool is made", || std::fs::hard_link(&spool, &link).is_ok());
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!((child.wait().unwrap().code(), out.as_str()), (Some(7), "good\n"));
    assert!(!spool.exists(), "the spool is left");
    good(ichnos(&folder, &["check", "t.ichnos"]));
    let pack = good(ichnos(&folder, &["pack", "link", "-o", "p.ichnos"]));
    assert!(pack.stderr.contains("p.ichnos: "), "{}", pack.stderr);
    assert!(!link.exists(), "what was packed goes away");
    assert_same(&folder, "events", "t.ichnos", "p.ichnos");
    let (one, other) = (info(&folder, "t.ichnos"), info(&folder, "p.ichnos"));
    assert_eq!(one["threads"].as_array().unwrap().len(), 12, "{one}");
    for key in ["instructions", "command", "collector", "folder", "started_ns"] {
        assert_eq!(one[key], other[key], "{key}");
    }
}

/// Without a spool, with one that is too small, and with room for all.
#[test]
fn the_trace_is_the_same_with_and_without() {
    let folder = Folder::new();
    let crowd_args = ["1", "0", ROUNDS];
    assert!(record(&folder, &["-q"], &crowd_args) > 0, "there is no spool");
    good(native(&folder, "mv", &["t.ichnos", "a.ichnos"]));
    assert_eq!(record(&folder, &["-q", "--spool-limit", "0"], &crowd_args), 0);
    assert_same(&folder, "records", "a.ichnos", "t.ichnos");
    let most = record(&folder, &["-q", "--spool-limit", "20M"], &crowd_args);
    assert!((1..=20_000_000).contains(&most), "{most}");
    assert_same(&folder, "records", "a.ichnos", "t.ichnos");
    // Nobody may write there: the program waits, as without.
    assert_eq!(record(&folder, &["-q", "--spool", "/proc"], &crowd_args), 0);
    assert_same(&folder, "records", "a.ichnos", "t.ichnos");
    assert_eq!(info(&folder, "t.ichnos")["complete"], true);
}

/// Who reads the program's output sees its end while the trace is packed. Who then interrupts keeps what was packed, and the spool.
#[test]
fn interrupted_packing_goes_on_later() {
    let folder = Folder::new();
    let crowd_args = ["1", "0", "150"];
    let mut child = start(&folder, &[], &crowd_args);
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(out, "good\n");
    native(&folder, "kill", &["-INT", &child.id().to_string()]);
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!(run.status, 7, "{}", run.stderr);
    assert!(run.stderr.contains("packing was interrupted"), "{}", run.stderr);
    let check = good(ichnos(&folder, &["check", "t.ichnos"]));
    assert!(check.stderr.contains("`ichnos pack t.ichnos`"), "{}", check.stderr);
    let part = insns(&folder, "t.ichnos");
    good(native(&folder, "cp", &["t.ichnos", "part.ichnos"]));
    good(ichnos(&folder, &["pack", "t.ichnos"]));
    assert_eq!(folder.size("t.ichnos.spool"), 0);
    good(ichnos(&folder, &["check", "t.ichnos"]));
    let all = insns(&folder, "t.ichnos");
    assert!(part < all, "{part} of {all}");
    good(ichnos(
        &folder,
        &["cut", "--range", &format!("..{part}"), "t.ichnos", "-o", "cut.ichnos"],
    ));
    assert_same(&folder, "records", "part.ichnos", "cut.ichnos");
    // Nothing is left to do.
    let again = ichnos(&folder, &["pack", "t.ichnos"]);
    assert_eq!(again.status, 2);
    assert!(again.stderr.contains("no spool"), "{}", again.stderr);
}

/// A program that records itself ends before its trace is packed, too, but the spool has no name: what is interrupted then is not packed
/// later.
#[test]
fn programs_that_record_themselves_do_not_wait() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "radix.c", "-O2 -static") else { return };
    let line = ["record", "-o", "t.ichnos", "--", &program, "2", "2000000", "2"];
    let mut child = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_ichnos")])
        .args(line)
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(out.contains("sorted"), "{out}");
    native(&folder, "kill", &["-INT", &child.id().to_string()]);
    let run = Run::from(child.wait_with_output().unwrap());
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("packing was interrupted"), "{}", run.stderr);
    assert!(!folder.list().contains(&"t.ichnos.spool".into()), "the spool is left");
    good(ichnos(&folder, &["check", "t.ichnos"]));
    let part = insns(&folder, "t.ichnos");
    good(ichnos(
        &folder,
        &[
            "record",
            "-q",
            "--spool-limit",
            "0",
            "-o",
            "a.ichnos",
            "--",
            &program,
            "2",
            "2000000",
            "2",
        ],
    ));
    let all = insns(&folder, "a.ichnos");
    assert!(part < all, "{part} of {all}");
    // Who interrupts the program gets the whole trace of it.
    let mut child = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_ichnos")])
        .args(["record", "-o", "c.ichnos", "--", &program, "2", "20000", "1000000"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("there is a trace", || folder.size("c.ichnos") > 0);
    std::thread::sleep(Duration::from_millis(500));
    native(&folder, "kill", &["-INT", &child.id().to_string()]);
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("(interrupted)"), "{said}");
    good(ichnos(&folder, &["check", "c.ichnos"]));
    assert_eq!(info(&folder, "c.ichnos")["complete"], true);
}

/// What is to be packed later is stored and nothing else, and then there is the whole trace.
#[test]
fn packing_waits_until_it_is_asked_for() {
    let folder = Folder::new();
    let crowd_args = ["1", "0", ROUNDS];
    record(&folder, &["-q"], &crowd_args);
    good(native(&folder, "mv", &["t.ichnos", "a.ichnos"]));
    let run =
        Run::from(start(&folder, &["--pack", "later"], &crowd_args).wait_with_output().unwrap());
    assert_eq!((run.status, run.stdout.as_str()), (7, "good\n"), "{}", run.stderr);
    assert!(
        run.stderr.contains("bytes stored, not packed yet: `ichnos pack t.ichnos`"),
        "{}",
        run.stderr
    );
    assert!(folder.size("t.ichnos.spool") > 0);
    good(ichnos(&folder, &["pack", "t.ichnos"]));
    assert_eq!(folder.size("t.ichnos.spool"), 0);
    assert_same(&folder, "records", "a.ichnos", "t.ichnos");
    assert_eq!(info(&folder, "t.ichnos")["complete"], true);
}

/// If there is no room for all, or if all fits into memory, nothing is left for later.
#[test]
fn packing_waits_only_if_there_is_room_for_what_waits() {
    let folder = Folder::new();
    let crowd_args = ["1", "0", ROUNDS];
    record(&folder, &["-q"], &crowd_args);
    good(native(&folder, "mv", &["t.ichnos", "a.ichnos"]));
    for options in [["--spool-limit", "20M"], ["--spool", "/proc"]] {
        record(&folder, &[&["-q", "--pack", "later"][..], &options].concat(), &crowd_args);
        assert_same(&folder, "records", "a.ichnos", "t.ichnos");
    }
    good(ichnos(&folder, &["record", "-q", "--pack", "later", "-o", "s.ichnos", "--", "true"]));
    assert!(insns(&folder, "s.ichnos") > 10_000);
    assert_eq!(folder.size("s.ichnos.spool"), 0);
}

/// How nice the threads that pack are; none if there are none.
fn packers(child: &Child) -> Vec<i64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten();
    let stats =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let packers = stats.filter(|stat| stat.contains("(packer)"));
    packers.map(|stat| nice(stat.rsplit(')').next().unwrap())).collect()
}

/// The nineteenth number of a thread's state, of which the first two are missing here.
fn nice(stat: &str) -> i64 {
    stat.split_whitespace().nth(16).unwrap().parse().unwrap()
}

/// Packing stands back for a program only as long as that need not wait for it.
#[test]
fn packing_stands_back_if_nobody_waits() {
    let own = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let own = nice(own.rsplit(')').next().unwrap());
    let folder = Folder::new();
    for (options, wanted) in [(&["-q"][..], 19), (&["-q", "--spool-limit", "0"], own)] {
        // The program lives on behind its work: on a machine with other work to do, what stands back for it comes late.
        let mut child = start(&folder, options, &["1", "0", "100", "1000"]);
        wait_until("packers have that priority", || {
            let nice = packers(&child);
            assert!(child.try_wait().unwrap().is_none(), "it ended with {nice:?}");
            !nice.is_empty() && nice.iter().all(|nice| *nice == wanted)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = std::fs::remove_file(folder.path().join("t.ichnos.spool"));
    }
}

/// A collector that is killed leaves all that it has spooled; one that is interrupted packs it.
#[test]
fn what_a_killed_collector_spooled_is_not_lost() {
    let folder = Folder::new();
    // What was stored is packed, so it must not be too much; the program then waits for its end.
    let crowd_args = ["1", "0", "100", "1000"];
    let mut child = start(&folder, &["-q"], &crowd_args);
    wait_until("a spool is made", || folder.size("t.ichnos.spool") > 30_000_000);
    // Let something be in it.
    std::thread::sleep(Duration::from_millis(500));
    let busy = ichnos(&folder, &["pack", "t.ichnos"]);
    assert_eq!(busy.status, 2);
    assert!(busy.stderr.contains("uses it"), "{}", busy.stderr);
    child.kill().unwrap();
    child.wait().unwrap();
    let pack = good(ichnos(&folder, &["pack", "t.ichnos"]));
    assert!(pack.stderr.contains("what came last is missing"), "{}", pack.stderr);
    good(ichnos(&folder, &["check", "t.ichnos"]));
    let kept = insns(&folder, "t.ichnos");
    assert!(kept > 10_000, "{kept} instructions");
    good(native(&folder, "mv", &["t.ichnos", "killed.ichnos"]));
    // The same program again, ended in another way.
    let child = start(&folder, &["-q"], &crowd_args);
    wait_until("a spool is made", || folder.size("t.ichnos.spool") > 30_000_000);
    native(&folder, "kill", &["-INT", &child.id().to_string()]);
    let run = Run::from(child.wait_with_output().unwrap());
    assert!(run.status > 128, "{} {}", run.status, run.stderr);
    assert_eq!(folder.size("t.ichnos.spool"), 0);
    // The very last block of a killed program may be cut.
    let range = format!("..{}", kept.min(insns(&folder, "t.ichnos")) - 1000);
    for (from, to) in [("t.ichnos", "a.ichnos"), ("killed.ichnos", "b.ichnos")] {
        good(ichnos(&folder, &["cut", "--range", &range, from, "-o", to]));
    }
    assert_same(&folder, "records", "a.ichnos", "b.ichnos");
}

/// Files that are no spools, or of somebody else.
#[test]
fn pack_refuses_what_is_no_spool() {
    let folder = Folder::new();
    folder.write("t.ichnos.spool", b"ichnos spool 3\x1a\n\x05\0\0\0\0\0\0\099999");
    for (name, word) in [("t.ichnos", "another version"), ("nothing", "neither")] {
        let run = ichnos(&folder, &["pack", name]);
        assert_eq!(run.status, 2, "{name}");
        assert!(run.stderr.contains(word), "{name}: {}", run.stderr);
    }
    folder.write("t.ichnos.spool", b"something else");
    let run = ichnos(&folder, &["pack", "t.ichnos"]);
    assert!(run.status == 2 && run.stderr.contains("no spool"), "{}", run.stderr);
    assert!(folder.size("t.ichnos.spool") > 0);
}
