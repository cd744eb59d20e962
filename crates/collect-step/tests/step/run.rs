//! Runs a program natively and under the collector, and compares.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use ichnos_base::EndStatus;
use ichnos_collect_step::{Config, Outcome, Values, run};
use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::{Recording, check};

/// A traced run of a program.
pub struct Traced {
    pub recording: Recording,
    pub outcome: Outcome,
    pub output: Vec<u8>,
}

/// A file name that no other test has.
pub fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    env::temp_dir().join(format!("ichnos-step-{}-{number}-{name}", process::id()))
}

/// The guest that sends a program's output to a file: the collector hands its
/// own output on, and tests run side by side.
fn redirect() -> PathBuf {
    guest::build("bare_redirect.c", Link::Bare, &[])
}

/// Traces a program, collecting values if asked.
pub fn trace(program: &Path, args: &[&str], values: Values) -> Traced {
    trace_as(program, args, |config| config.values = values)
}

/// Traces a program in another than the usual way.
pub fn trace_as(program: &Path, args: &[&str], change: impl FnOnce(&mut Config)) -> Traced {
    let output = scratch("output");
    let mut config = Config::new(redirect());
    config.args = vec![output.clone().into(), program.into()];
    config.args.extend(args.iter().map(Into::into));
    change(&mut config);
    let mut recording = Recording::new();
    let outcome = run(&config, &mut recording).expect("the program can be traced");
    let traced = Traced { recording, outcome, output: fs::read(&output).unwrap_or_default() };
    let _ = fs::remove_file(&output);
    traced
}

/// Runs a program natively: its output and end.
pub fn native(program: &Path, args: &[&str]) -> (Vec<u8>, EndStatus) {
    let output = scratch("native");
    let mut command = Command::new(redirect());
    let status = command.arg(&output).arg(program).args(args).status().expect("the program runs");
    let text = fs::read(&output).unwrap_or_default();
    let _ = fs::remove_file(&output);
    let end = match (status.code(), status.signal()) {
        (Some(code), _) => EndStatus::Exited(code),
        (_, Some(signal)) => EndStatus::Killed(signal),
        _ => EndStatus::Unknown,
    };
    (text, end)
}

/// Traces a program and checks that it did as natively, and that the trace
/// keeps every rule.
pub fn check_program(program: &Path, args: &[&str], values: Values) -> Recording {
    let (output, end) = native(program, args);
    let traced = trace(program, args, values);
    let text = String::from_utf8_lossy;
    assert_eq!(text(&traced.output), text(&output));
    assert_eq!(traced.outcome.status, end);
    check_recording(&traced.recording);
    assert_eq!(traced.recording.totals().insns, traced.outcome.insns);
    assert_eq!(traced.recording.threads(), traced.outcome.threads);
    traced.recording
}

/// Checks that a trace keeps every rule.
pub fn check_recording(recording: &Recording) {
    let found = check::check(recording);
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}
