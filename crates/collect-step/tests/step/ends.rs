//! Programs that cannot be traced, and traces that end before their programs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ichnos_base::{Batch, DriveError, EndStatus, Event, Null, Sink, ThreadId};
use ichnos_collect_step::{Collector, Config, Ending, Error, OnStop, run};
use ichnos_testkit::Recording;
use ichnos_testkit::guest::{self, Link};

use crate::run::{check_recording, scratch};

fn refused(program: &Path) -> Error {
    match run(&Config::new(program), &mut Null) {
        Err(DriveError::Source(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn executable(name: &str, content: &[u8]) -> std::path::PathBuf {
    let path = scratch(name);
    guest::install(&path, content);
    path
}

#[test]
fn missing_program() {
    let error = refused(Path::new("/no/such/program"));
    assert!(matches!(error, Error::NotFound { .. }));
    assert_eq!(error.to_string(), "there is no program `/no/such/program`");
}

#[test]
fn not_executable() {
    let path = scratch("plain");
    fs::write(&path, b"text").unwrap();
    assert!(matches!(refused(&path), Error::NotExecutable { .. }));
    assert!(matches!(refused(Path::new("/")), Error::NotExecutable { .. }));
    let _ = fs::remove_file(path);
}

#[test]
fn not_a_format_the_kernel_knows() {
    let path = executable("noise", b"\x01\x02 no program, though marked as one\n");
    assert!(matches!(refused(&path), Error::Exec { .. }));
    let _ = fs::remove_file(path);
}

#[test]
fn thirty_two_bit_program() {
    let mut head = b"\x7fELF\x01\x01\x01".to_vec();
    head.resize(64, 0);
    (head[16], head[18]) = (2, 3);
    let path = executable("elf32", &head);
    let error = refused(&path);
    assert!(error.to_string().contains("a 32-bit x86 executable"), "{error}");
    let _ = fs::remove_file(path);
}

#[test]
fn missing_folder() {
    let mut config = Config::new("true");
    config.folder = Some("/no/such/folder".into());
    assert!(matches!(run(&config, &mut Null), Err(DriveError::Source(Error::Exec { .. }))));
}

#[test]
fn limit() {
    let mut config = Config::new(guest::build("bare_sort.c", Link::Bare, &[]));
    config.limit = Some(1000);
    let mut recording = Recording::new();
    let outcome = run(&config, &mut recording).unwrap();
    assert_eq!((outcome.insns, outcome.ending), (1000, Ending::Limit));
    assert_eq!(outcome.status, EndStatus::Killed(9));
    check_recording(&recording);
}

#[test]
fn stop_flag_kills() {
    let config = Config::new(guest::build("exitgroup.c", Link::Static, &["-DFOREVER"]));
    let flag = AtomicBool::new(false);
    let mut recording = Recording::new();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            flag.store(true, Ordering::Relaxed);
        });
        Collector::new(&config).stop_flag(&flag).run(&mut recording)
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.ending, outcome.status), (Ending::Stopped, EndStatus::Killed(9)));
    check_recording(&recording);
}

#[test]
fn stop_flag_lets_go() {
    let done = scratch("done");
    let script = format!("sleep 1; echo on > {}", done.display());
    let mut config = Config::new("sh").args(["-c", &script]);
    config.on_stop = OnStop::Detach;
    let flag = AtomicBool::new(false);
    let mut recording = Recording::new();
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            flag.store(true, Ordering::Relaxed);
        });
        Collector::new(&config).stop_flag(&flag).run(&mut recording)
    });
    assert_eq!(outcome.unwrap().status, EndStatus::Unknown);
    check_recording(&recording);
    assert!(appears(&done), "the program ran on");
    let _ = fs::remove_file(done);
}

fn appears(path: &Path) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        if path.exists() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Kills the program from outside at its first batch, and keeps everything.
#[derive(Default)]
struct Killer {
    recording: Recording,
    pid: u32,
    batches: u32,
}

impl Sink for Killer {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.batches += 1;
        if self.batches == 3 {
            let _ = Command::new("kill").args(["-9", &self.pid.to_string()]).status();
        }
        Sink::records(&mut self.recording, batch)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if let Event::ThreadStart(start) = event {
            self.pid = start.os_pid;
        }
        self.recording.event(thread, event)
    }

    fn code(&mut self, id: ThreadId, code: &ichnos_base::Code<'_>) -> Result<bool, Infallible> {
        self.recording.code(id, code)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        self.recording.finish()
    }
}

#[test]
fn killed_from_outside() {
    let mut killer = Killer::default();
    let config = Config::new(guest::build("bare_sort.c", Link::Bare, &[]));
    let outcome = run(&config, &mut killer).unwrap();
    assert_eq!((outcome.status, outcome.ending), (EndStatus::Killed(9), Ending::Complete));
    check_recording(&killer.recording);
}

/// Has seen enough after one batch.
struct Enough(u32);

impl Sink for Enough {
    type Error = Infallible;

    fn records(&mut self, _batch: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(false)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        self.0 += 1;
        Ok(())
    }
}

#[test]
fn a_sink_that_has_seen_enough() {
    let mut sink = Enough(0);
    let config = Config::new(guest::build("bare_sort.c", Link::Bare, &[]));
    let outcome = run(&config, &mut sink).unwrap();
    assert_eq!((outcome.ending, sink.0), (Ending::Enough, 1));
}

/// Fails at once.
struct Broken;

impl Sink for Broken {
    type Error = &'static str;

    fn records(&mut self, _batch: &Batch<'_>) -> Result<bool, &'static str> {
        Err("full")
    }
}

#[test]
fn a_sink_that_fails() {
    let config = Config::new(guest::build("bare_sort.c", Link::Bare, &[]));
    assert!(matches!(run(&config, &mut Broken), Err(DriveError::Sink("full"))));
}

/// Traces a program that never ends, in a process that the next test kills.
#[test]
fn collector_to_be_killed() {
    let Some(told) = std::env::var_os("ICHNOS_STEP_TELLS") else { return };
    struct Tell(std::ffi::OsString);
    impl Sink for Tell {
        type Error = Infallible;
        fn records(&mut self, _batch: &Batch<'_>) -> Result<bool, Infallible> {
            Ok(true)
        }
        fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
            if let Event::ThreadStart(start) = event {
                fs::write(&self.0, start.os_pid.to_string()).unwrap();
            }
            Ok(true)
        }
    }
    let _ = run(&Config::new("sleep").args(["1000"]), &mut Tell(told));
}

#[test]
fn no_tracee_outlives_its_collector() {
    let told = scratch("pid");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ends::collector_to_be_killed"])
        .env("ICHNOS_STEP_TELLS", &told)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(appears(&told));
    thread::sleep(Duration::from_millis(100));
    let pid = fs::read_to_string(&told).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    let stat = format!("/proc/{pid}/stat");
    // A zombie that nobody reaps is as dead as one that is gone.
    let alive = || fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z "));
    while alive() {
        assert!(start.elapsed() < Duration::from_secs(10), "process {pid} lives on");
        thread::sleep(Duration::from_millis(20));
    }
    let _ = fs::remove_file(told);
}
