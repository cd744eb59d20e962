//! Bad input and bad luck: a clear message, exit status 2, and nothing lost that
//! was written.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ichnos_report::number::thousands;

use crate::support::{Folder, Run, ichnos, native, shell};

/// The message names the thing, and the status says that ichnos failed.
#[track_caller]
fn refuses(run: &Run, words: &[&str]) {
    assert_eq!(run.status, 2, "stderr: {}", run.stderr);
    for word in words {
        assert!(run.stderr.contains(word), "no `{word}` in: {}", run.stderr);
    }
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    assert!(run.stderr.lines().count() <= 3, "too many words: {}", run.stderr);
}

#[test]
fn missing_program() {
    let folder = Folder::new();
    let run = ichnos(&folder, &["step", "--", "no-such-program-here"]);
    refuses(&run, &["no-such-program-here", "no program"]);
    assert!(folder.list().is_empty(), "left files behind: {:?}", folder.list());
}

#[test]
fn program_that_is_not_executable() {
    let folder = Folder::new();
    let path = folder.write("notes.txt", b"hello\n");
    let run = ichnos(&folder, &["step", "--", &path]);
    refuses(&run, &["notes.txt"]);
}

#[test]
fn program_that_is_not_a_program() {
    let folder = Folder::new();
    let path = folder.install("noise", b"\x01\x02\x03 not an executable");
    let run = ichnos(&folder, &["step", "--", &path]);
    refuses(&run, &["noise"]);
}

#[test]
fn program_of_32_bits() {
    let folder = Folder::new();
    let mut elf = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0];
    elf.resize(16, 0);
    elf.extend([2, 0, 3, 0, 1, 0, 0, 0]); // ET_EXEC, EM_386, version 1
    elf.resize(4096, 0);
    let path = folder.install("old32", &elf);
    let run = ichnos(&folder, &["step", "--", &path]);
    refuses(&run, &["old32", "32-bit"]);
}

#[test]
fn output_that_cannot_be_made() {
    let folder = Folder::new();
    let run = ichnos(&folder, &["step", "-o", "no/such/folder/x.ichnos", "--", "true"]);
    refuses(&run, &["no/such/folder/x.ichnos"]);
    let run = ichnos(&folder, &["step", "-o", "/proc/x.ichnos", "--", "true"]);
    refuses(&run, &["/proc/x.ichnos"]);
}

#[test]
fn output_onto_a_full_device() {
    let folder = Folder::new();
    let run = ichnos(&folder, &["step", "-o", "/dev/full", "--", "true"]);
    refuses(&run, &["/dev/full", "No space left"]);
}

/// A file-size limit stands in for a full disk: both make a write fail half-way,
/// and this one needs no privilege. What was written must still open.
#[test]
fn disk_full_half_way_keeps_what_was_written() {
    let folder = Folder::new();
    let command = format!(
        "trap '' XFSZ; ulimit -f 24; exec '{}' step --flush-every 2K --level 1 -o t.ichnos -- ls /usr/bin >/dev/null",
        env!("CARGO_BIN_EXE_ichnos")
    );
    let run = shell(&folder, &command);
    refuses(&run, &["t.ichnos"]);
    let whole = ichnos(&folder, &["info", "--json", "t.ichnos"]);
    assert_eq!(whole.status, 0, "{}", whole.stderr);
    let info = whole.json();
    assert!(info["instructions"].as_u64().unwrap() > 1000, "{info}");
    assert_eq!(info["complete"], false);
    keeps_the_rules_as_far_as_it_goes(&ichnos(&folder, &["check", "t.ichnos"]));
}

/// A file that ends early is not called clean, though what is there may be.
#[track_caller]
fn keeps_the_rules_as_far_as_it_goes(check: &Run) {
    assert_eq!(check.status, 1, "{}{}", check.stdout, check.stderr);
    assert!(check.stdout.contains("ends early: "), "{}", check.stdout);
    assert!(check.stdout.contains("keep all rules"), "{}", check.stdout);
    assert!(!check.stdout.contains("clean"), "{}", check.stdout);
}

#[test]
fn files_that_end_early_are_answered_for_and_said_to() {
    let folder = Folder::new();
    ichnos(&folder, &["step", "-q", "--flush-every", "2K", "-o", "t.ichnos", "--", "true"]);
    let bytes = folder.bytes("t.ichnos");
    folder.write("short.ichnos", &bytes[..bytes.len() * 3 / 4]);
    let whole = ichnos(&folder, &["info", "--json", "t.ichnos"]).json()["instructions"].as_u64();
    for verb in [&["sim"][..], &["annotate"], &["locality"], &["dump"], &["info", "--json"]] {
        let run = ichnos(&folder, &[verb, &["short.ichnos"]].concat());
        assert_eq!(run.status, 0, "{verb:?}: {}", run.stderr);
        let said = run.stderr.matches("short.ichnos: the file ends early").count();
        assert_eq!(said, 1, "{verb:?}: {}", run.stderr);
        let run = ichnos(&folder, &[verb, &["t.ichnos"]].concat());
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{verb:?}");
    }
    let part = ichnos(&folder, &["info", "--json", "short.ichnos"]).json();
    let insns = part["instructions"].as_u64();
    assert!(insns > Some(1000) && insns < whole, "{insns:?} of {whole:?}");
    let said = format!("{} instructions of 1 thread", thousands(insns.unwrap()));
    let run = ichnos(&folder, &["sim", "short.ichnos"]);
    assert!(run.stderr.contains(&said), "no `{said}` in {}", run.stderr);
    keeps_the_rules_as_far_as_it_goes(&ichnos(&folder, &["check", "short.ichnos"]));
    let json = ichnos(&folder, &["check", "--json", "short.ichnos"]).json();
    assert_eq!((&json["clean"], &json["complete"]), (&false.into(), &false.into()), "{json}");
    let cut = ichnos(&folder, &["cut", "short.ichnos", "-o", "c.ichnos"]);
    assert!(cut.stderr.contains("the file ends early"), "{}", cut.stderr);
}

/// Where no thread has a whole chunk there is nothing to answer for.
#[test]
fn files_that_end_before_the_first_chunk_are_refused() {
    let folder = Folder::new();
    ichnos(&folder, &["step", "-q", "-o", "t.ichnos", "--", "true"]);
    let bytes = folder.bytes("t.ichnos");
    folder.write("torn.ichnos", &bytes[..bytes.len() / 3]);
    for verb in ["sim", "annotate", "locality", "dump", "info", "check"] {
        let run = ichnos(&folder, &[verb, "torn.ichnos"]);
        refuses(&run, &["torn.ichnos", "ends early"]);
        assert_eq!(run.stdout, "", "{verb}");
    }
}

#[test]
fn killed_tracee_leaves_a_whole_trace() {
    let folder = Folder::new();
    let run = ichnos(&folder, &["step", "-o", "t.ichnos", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(run.status, 128 + 9, "{}", run.stderr);
    let info = ichnos(&folder, &["info", "--json", "t.ichnos"]).json();
    assert_eq!(info["complete"], true);
    assert_eq!(ichnos(&folder, &["check", "t.ichnos"]).status, 0);
}

#[test]
fn killed_collector_leaves_a_readable_trace() {
    let folder = Folder::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args(["step", "--flush-every", "2K", "-o", "t.ichnos", "--", "sh", "-c"])
        .arg("while :; do :; done")
        .current_dir(folder.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while folder.size("t.ichnos") < 8192 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let info = ichnos(&folder, &["info", "--json", "t.ichnos"]);
    assert_eq!(info.status, 0, "{}", info.stderr);
    let info = info.json();
    assert_eq!(info["complete"], false);
    assert!(info["instructions"].as_u64().unwrap() > 1000, "{info}");
    keeps_the_rules_as_far_as_it_goes(&ichnos(&folder, &["check", "t.ichnos"]));
    let salvage = ichnos(&folder, &["salvage", "t.ichnos", "-o", "s.ichnos"]);
    assert_eq!(salvage.status, 0, "{}", salvage.stderr);
    let salvaged = ichnos(&folder, &["info", "--json", "s.ichnos"]).json();
    assert_eq!(salvaged["complete"], true);
    assert_eq!(salvaged["instructions"], info["instructions"]);
}

/// The traced program must not outlive a killed collector as a stopped orphan.
#[test]
fn killed_collector_leaves_no_tracee_behind() {
    let folder = Folder::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args(["step", "-o", "t.ichnos", "--", "sh", "-c"])
        .arg("echo $$ > pid; while :; do :; done")
        .current_dir(folder.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    folder.wait_for("pid");
    let pid = folder.read("pid").trim().to_owned();
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = || !native(&folder, "kill", &["-0", &pid]).stderr.is_empty();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !gone() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(gone(), "process {pid} lives on");
}

#[test]
fn interrupt_finishes_the_trace() {
    let folder = Folder::new();
    let child = Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args(["step", "-o", "t.ichnos", "--", "sh", "-c"])
        .arg("echo up > up; while :; do :; done")
        .current_dir(folder.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    folder.wait_for("up");
    native(&folder, "kill", &["-TERM", &child.id().to_string()]);
    let out = child.wait_with_output().unwrap();
    assert!(!String::from_utf8_lossy(&out.stderr).contains("panicked"));
    let info = ichnos(&folder, &["info", "--json", "t.ichnos"]).json();
    assert_eq!(info["complete"], true);
    assert_eq!(ichnos(&folder, &["check", "t.ichnos"]).status, 0);
}

/// A signal for ichnos alone ends it as it would have ended the program, and the answer says that it is cut short.
#[test]
fn an_interrupt_is_told_by_status_and_words() {
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let folder = Folder::new();
        // Whoever runs the tests may ignore the signal, and what is ignored stays so.
        let child = Command::new("env")
            .args([&format!("--default-signal={signal}"), env!("CARGO_BIN_EXE_ichnos")])
            .args(["sim", "--", "sh", "-c", "echo up > up; while :; do :; done"])
            .current_dir(folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        folder.wait_for("up");
        native(&folder, "kill", &[&format!("-{signal}"), &child.id().to_string()]);
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{signal}: {said}");
        assert!(said.contains("ichnos: interrupted; "), "{signal}: {said}");
    }
}

#[test]
fn files_that_are_no_traces() {
    let folder = Folder::new();
    folder.write("empty.ichnos", b"");
    folder.write("text.ichnos", b"this is a letter to my aunt\n");
    for verb in ["info", "check", "dump", "sim"] {
        refuses(&ichnos(&folder, &[verb, "missing.ichnos"]), &["missing.ichnos"]);
        refuses(&ichnos(&folder, &[verb, "empty.ichnos"]), &["empty.ichnos"]);
        refuses(&ichnos(&folder, &[verb, "text.ichnos"]), &["text.ichnos"]);
        refuses(&ichnos(&folder, &[verb, "."]), &["."]);
    }
}

#[test]
fn damage_is_named_by_place() {
    let folder = Folder::new();
    ichnos(&folder, &["step", "-o", "t.ichnos", "--", "true"]);
    let mut bytes = folder.bytes("t.ichnos");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x40;
    folder.write("bad.ichnos", &bytes);
    let run = ichnos(&folder, &["check", "bad.ichnos"]);
    refuses(&run, &["bad.ichnos", "at offset"]);
    let salvage = ichnos(&folder, &["salvage", "bad.ichnos", "-o", "good.ichnos"]);
    assert_eq!(salvage.status, 0, "{}", salvage.stderr);
    assert_eq!(ichnos(&folder, &["check", "good.ichnos"]).status, 0);
}

/// `ichnos dump FILE | head` ends quietly.
#[test]
fn a_reader_that_hangs_up_is_no_failure() {
    let folder = Folder::new();
    ichnos(&folder, &["step", "-o", "t.ichnos", "--", "true"]);
    let line = format!(
        "'{}' dump t.ichnos | head -1; test ${{PIPESTATUS[0]}} = 0",
        env!("CARGO_BIN_EXE_ichnos")
    );
    let run = shell(&folder, &line);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.is_empty(), "{}", run.stderr);
}

#[test]
fn arguments_that_make_no_sense() {
    let folder = Folder::new();
    ichnos(&folder, &["step", "-o", "t.ichnos", "--", "true"]);
    refuses_usage(&ichnos(&folder, &["sim", "--l1d", "33000,8,64", "t.ichnos"]), "l1d");
    refuses_usage(&ichnos(&folder, &["sim", "--l1d", "32K,8", "t.ichnos"]), "l1d");
    refuses_usage(&ichnos(&folder, &["dump", "--range", "9..3", "t.ichnos"]), "range");
    refuses_usage(&ichnos(&folder, &["convert", "t.ichnos", "--to", "frob", "-o", "x"]), "frob");
    refuses_usage(&ichnos(&folder, &["sim"]), "");
    refuses_usage(&ichnos(&folder, &["frobnicate"]), "frobnicate");
}

#[track_caller]
fn refuses_usage(run: &Run, word: &str) {
    assert_eq!(run.status, 2, "stderr: {}", run.stderr);
    assert!(run.stderr.contains(word), "no `{word}` in: {}", run.stderr);
}

/// Data that arrives through a pipe and stops in the middle of a line.
#[test]
fn convert_names_the_line() {
    let folder = Folder::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args(["convert", "-", "--from", "lackey", "-o", "t.ichnos"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"I  0400,3\n L 7ff0,8\nI  04x3,3\n").unwrap();
    let out = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("line 3"), "{stderr}");
}
