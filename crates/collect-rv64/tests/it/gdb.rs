//! A real gdb attaches to machines and programs, stops them where it wants, and
//! leaves them what they would have been without it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ichnos_base::EndStatus;
use ichnos_collect_rv64::GdbAt;
use ichnos_collect_rv64::system::{Ending, Script};
use ichnos_collect_rv64::{system, user};

use crate::bare;
use crate::guests::{self, Folder};

fn have_gdb() -> bool {
    let status = Command::new("gdb-multiarch").arg("--version").stdout(Stdio::null()).status();
    if !status.is_ok_and(|s| s.success()) {
        ichnos_testkit::tool::skip("collect-rv64: gdb", "gdb-multiarch is not installed");
        return false;
    }
    true
}

/// What gdb prints when it carries out commands on the machine at a socket.
fn gdb(program: &Path, socket: &Path, commands: &[&str]) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !socket.exists() {
        assert!(Instant::now() < deadline, "nobody listens at {}", socket.display());
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut client = Command::new("gdb-multiarch");
    client.args(["-batch", "-nx", "-q", "-ex", "set confirm off", "-ex", "set pagination off"]);
    client.arg("-ex").arg(format!("target remote {}", socket.display()));
    for command in commands {
        client.args(["-ex", command]);
    }
    let output = client.arg(program).stdin(Stdio::null()).output().expect("gdb runs");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a machine with gdb on it: its outcome, and what gdb printed.
fn debug_machine(mut config: system::Config, commands: &[&str]) -> (system::Outcome, String) {
    let system::Boot::Bare(program) = config.boot.clone() else { panic!("a bare program") };
    let socket = socket_beside(&program);
    config.gdb = Some(GdbAt::Path(socket.clone()));
    std::thread::scope(|scope| {
        let machine = scope.spawn(move || {
            let mut console = Script::new(std::io::sink(), Vec::new());
            system::run_untraced(&config, &mut console).expect("the machine runs")
        });
        let text = gdb(&program, &socket, commands);
        (machine.join().expect("the machine does not panic"), text)
    })
}

fn socket_beside(program: &Path) -> PathBuf {
    program.with_extension("gdb")
}

/// The parts must appear in this order.
fn assert_parts(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing in: {text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn gdb_stops_steps_and_watches_two_harts() {
    let folder = Folder::new("gdb");
    let Some(program) = bare::compile(&folder, "debug") else { return };
    if !have_gdb() {
        return;
    }
    let config = bare::config(&program, 2);
    let undisturbed = bare::passes(config.clone());
    let commands = [
        "info threads",
        "break square",
        "continue",
        "print n",
        "continue",
        "info threads",
        "delete",
        "break square if $mhartid == 1 && n == 3",
        "continue",
        "info threads",
        "delete",
        "break change",
        "continue",
        "print counters[0]",
        "print/x $mhartid",
        "print/x $priv",
        "print/x $misa & 0x20",
        "watch watched",
        "delete 3",
        "x/i $pc",
        "stepi",
        "continue",
        "print ratio",
        "print watched",
        "info registers sp",
        "monitor count",
        "monitor translate 0x80000000",
        "monitor nonsense",
        "monitor help",
        "detach",
    ];
    let (outcome, text) = debug_machine(config, &commands);
    assert_parts(
        &text,
        &[
            "hart 0, machine mode, running",
            "hart 1, machine mode, running",
            "Thread 1 hit Breakpoint 1, square (n=n@entry=1)",
            "$1 = 1",
            "square (n=n@entry=2)",
            "* 1 ",
            "Thread 2 hit Breakpoint 2, square (n=n@entry=3)",
            "* 2 ",
            "Thread 1 hit Breakpoint 3, change (to=to@entry=7)",
            "$2 = 2000",
            "$3 = 0x0",
            "$4 = 0x3",
            "$5 = 0x20",
            "=> 0x",
            "Old value = 1",
            "New value = 7",
            "$6 = 1.5",
            "$7 = 7",
            "sp ",
            "0x80000000",
            "there is no such command",
            "monitor translate ADDR",
        ],
    );
    assert_eq!(outcome, undisturbed, "gdb must not change the run: {text}");
}

#[test]
fn gdb_changes_what_it_is_told_to_and_kills() {
    let folder = Folder::new("gdb-set");
    let Some(program) = bare::compile(&folder, "debug") else { return };
    if !have_gdb() {
        return;
    }
    let config = bare::config(&program, 1);
    let commands = [
        "hbreak change",
        "continue",
        "set var counters[1] = 2000",
        "set $a0 = 9",
        "set $fa0 = 2.5",
        "print $fa0",
        "print/x $pc == &change",
        "rwatch ratio",
        "continue",
        "print watched",
        "print counters[1]",
        "kill",
    ];
    let (outcome, text) = debug_machine(config, &commands);
    assert_parts(
        &text,
        &["double = 2.5", "$2 = 0x1", "read watchpoint", "Value = 1.5", "$3 = 9", "$4 = 2000"],
    );
    assert_eq!(outcome.ending, Ending::Killed);
}

/// A machine that nobody stops is interrupted, and goes on when gdb is gone.
#[test]
fn gdb_interrupts_a_running_machine() {
    let folder = Folder::new("gdb-stop");
    let Some(program) = bare::compile(&folder, "debug") else { return };
    if !have_gdb() {
        return;
    }
    // One hart alone waits for ever for the other: only an interrupt ends it.
    let mut config = bare::config(&program, 1);
    config.limit = None;
    let commands = [
        "python import threading, gdb",
        "python threading.Timer(0.5, lambda: gdb.post_event(gdb.interrupt)).start() \
         if hasattr(gdb, 'interrupt') else \
         threading.Timer(0.5, lambda: gdb.post_event(lambda: gdb.execute('interrupt'))).start()",
        "continue",
        "print counters[0]",
        "set var counters[1] = 2000",
        "detach",
    ];
    let (outcome, text) = debug_machine(config, &commands);
    assert_parts(&text, &["SIGINT", "$1 = 2000"]);
    assert_eq!(outcome.ending, Ending::ToHost(0));
}

#[test]
fn gdb_debugs_a_program_with_threads() {
    let folder = Folder::new("gdb-user");
    let Some(program) = guests::compile(&folder, "threads", &["-static", "-g"]) else { return };
    if !have_gdb() {
        return;
    }
    let (_, _, undisturbed) = guests::here(&program, &[], &folder, None);
    let (mut config, _output) = guests::config(&program, &[], &folder, None);
    let socket = socket_beside(&program);
    config.gdb = Some(GdbAt::Path(socket.clone()));
    let commands = [
        "break main",
        "continue",
        "info threads",
        "break work",
        "continue",
        "info threads",
        "detach",
    ];
    let (outcome, text) = std::thread::scope(|scope| {
        let machine = scope.spawn(move || user::run_untraced(&config).expect("it runs"));
        let text = gdb(&program, &socket, &commands);
        (machine.join().expect("the machine does not panic"), text)
    });
    assert_parts(
        &text,
        &["Breakpoint 1, main", "threads 1000, thread 1000", "Breakpoint 2, work "],
    );
    assert_eq!(outcome.status, EndStatus::Exited(0));
    assert_eq!(outcome, undisturbed, "gdb must not change the run: {text}");
}
