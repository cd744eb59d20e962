//! The hazards of running a program from a code cache, one torture program each (`docs/HAZARDS.md` has the
//! list): what it prints about itself and how it ends are the same natively, under the engine
//! alone and while it is recorded.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};

use ichnos_base::{Batch, Known, Lines, Null, Sieve, Sink};
use ichnos_collect_exec::{Fallback, Launch, Paths, Record as What};
use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::tool;

/// What a run showed.
#[derive(PartialEq, Eq, Debug)]
pub struct Shown {
    text: String,
    status: ExitStatus,
}

impl Shown {
    /// Behind a sieve, flags that an instruction is about to overwrite are not kept for a fault of it to show.
    fn without_dead_flags(self) -> Self {
        let line = |line: &str| line.split(" flags ").next().unwrap_or_default().to_owned();
        Self { text: self.text.lines().map(line).collect::<Vec<_>>().join("\n"), ..self }
    }
}

/// Counts records, all of which must be understood for that.
struct Counted(u64);

impl Sink for Counted {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.0 += batch.records.len() as u64;
        Ok(true)
    }
}

/// A file for a program's output: unlike a pipe it may fill while nobody reads.
pub fn fresh_file() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}.out", std::process::id()))
}

/// What a program has written to such a file, which goes.
pub fn read(path: &Path) -> String {
    let bytes = fs::read(path).expect("the program's output");
    fs::remove_file(path).expect("a file of ours");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// As the system runs it.
pub fn alone(program: &Path, args: &[&str]) -> Shown {
    let path = fresh_file();
    let status = Command::new(program)
        .args(args)
        .env("TORTURE", "yes")
        .stdin(std::process::Stdio::null())
        .stdout(File::create(&path).expect("a file"))
        .status()
        .expect("it runs natively");
    Shown { text: read(&path), status }
}

/// Under the engine, recorded or not.
pub fn engine(program: &Path, args: &[&str], what: What) -> Shown {
    engine_as(program, args, what, |_| ())
}

/// The same, with these paths.
pub fn engine_along(program: &Path, args: &[&str], what: What, paths: Paths) -> Shown {
    engine_as(program, args, what, |launch| {
        launch.paths(paths);
    })
}

/// The same, with something set before.
fn engine_as(program: &Path, args: &[&str], what: What, set: impl FnOnce(&mut Launch)) -> Shown {
    let (shown, complaints) = heard(program, args, what, set);
    assert!(!complaints.contains("ichnos:"), "{program:?}: {complaints}");
    shown
}

/// The same, and what was said on standard error.
fn heard(
    program: &Path,
    args: &[&str],
    what: What,
    set: impl FnOnce(&mut Launch),
) -> (Shown, String) {
    let (path, complaints) = (fresh_file(), fresh_file());
    let mut launch = super::piped(program, args);
    launch.record(what).paths(Paths::Eager);
    set(&mut launch);
    let command = launch.command();
    command.env("TORTURE", "yes").stdout(File::create(&path).expect("a file"));
    command.stderr(File::create(&complaints).expect("a file"));
    let mut tracee = launch.spawn().expect("it starts");
    let status = match what {
        What::Nothing => tracee.wait().expect("it ends"),
        What::Sifted(_) => tracee.collect(&mut Null).expect("it is collected").status,
        _ => {
            let mut counted = Counted(0);
            let done = tracee.collect(&mut counted).expect("it is collected");
            assert!(counted.0 > 0, "{program:?}");
            done.status
        }
    };
    (Shown { text: read(&path), status }, read(&complaints))
}

/// Caches of 64 sets.
const SIEVE: Sieve = Sieve {
    code: Lines { shift: 6, sets: 6, ways: 8, known: Known::All },
    data: Lines { shift: 6, sets: 6, ways: 8, known: Known::All },
};

/// A torture program does the same in all four ways; `traced` are its arguments while recorded.
fn tortured_as(name: &str, args: &[&str], traced: &[&str]) {
    let program = guest::build(&format!("torture_{name}.c"), Link::Dynamic, &["-w"]);
    let want = alone(&program, args);
    assert!(want.status.success() && want.text.lines().count() > 0, "{name}: {want:?}");
    assert_eq!(engine(&program, args, What::Nothing), want, "{name} under the engine");
    let want = alone(&program, traced);
    assert_eq!(engine(&program, traced, What::All), want, "{name} recorded");
    let got = engine(&program, traced, What::Sifted(SIEVE));
    assert_eq!(got.without_dead_flags(), want.without_dead_flags(), "{name} behind a sieve");
}

fn tortured(name: &str, args: &[&str]) {
    tortured_as(name, args, args);
}

#[test]
fn faults_show_the_exact_state() {
    tortured("faults", &[]);
}

/// Also where a buffer ends between what the block that faults has stored and what it would have.
#[test]
fn faults_may_come_at_a_buffers_end() {
    tortured("edges", &[]);
    let program = guest::build("torture_edges.c", Link::Dynamic, &["-w"]);
    let want = alone(&program, &[]);
    assert_eq!(engine_along(&program, &[], What::All, Paths::Hot), want);
}

#[test]
fn signals_come_as_natively() {
    tortured("signals", &[]);
}

#[test]
fn code_may_change() {
    tortured("code", &[]);
}

#[test]
fn odd_control_flow_works() {
    tortured("flow", &[]);
}

#[test]
fn processor_state_is_kept() {
    tortured("state", &[]);
}

#[test]
fn the_address_space_is_as_natively() {
    tortured("memory", &[]);
}

#[test]
fn processes_and_threads_begin_and_end() {
    tortured("processes", &[]);
}

#[test]
fn a_thousand_threads() {
    tortured("processes", &["threads", "1000"]);
}

#[test]
fn a_thousand_forks() {
    tortured_as("processes", &["forks", "1000"], &["forks", "100"]);
}

/// More processes than can live at once in a tree: those that have ended make room.
#[test]
fn thousands_of_forks_one_after_another() {
    let program = guest::build("torture_processes.c", Link::Dynamic, &["-w"]);
    let args = ["forks", "4200"];
    assert_eq!(engine(&program, &args, What::Nothing), alone(&program, &args));
}

/// The least cache holds less than the start of a dynamic program takes, so it fills again and again, also
/// while other threads run in it and while signals come.
#[test]
fn a_full_cache_is_emptied() {
    let small = |launch: &mut Launch| {
        launch.cache_limit(0);
    };
    for name in ["flow", "signals", "code", "processes"] {
        let program = guest::build(&format!("torture_{name}.c"), Link::Dynamic, &["-w"]);
        let want = alone(&program, &[]);
        for what in [What::Nothing, What::All, What::Sifted(SIEVE)] {
            assert_eq!(engine_as(&program, &[], what, small), want, "{name}, {what:?}");
        }
    }
    let threads = super::guest("threads", super::Link::Dynamic);
    let want = alone(&threads, &[]);
    assert_eq!(engine_as(&threads, &[], What::Nothing, small), want, "threads");
}

/// Operands that gs leads to, calls of 32-bit programs, transactions, far jumps, jumps to addresses that cannot be, string
/// instructions that fault halfway, alignment checks.
#[test]
fn what_few_programs_do_works() {
    tortured("gaps", &[]);
}

/// What the engine cannot do ends with a message, or, if that is wanted, without the engine; also when other threads run,
/// sleep and begin. With many of them, all are called more than once before the last has come.
#[test]
fn programs_go_on_untraced_where_they_cannot_be_followed() {
    let program = guest::build("torture_fallback.c", Link::Dynamic, &["-w"]);
    for args in [&[][..], &["6"], &["15"]] {
        let want = alone(&program, args);
        for what in [What::Nothing, What::All, What::Sifted(SIEVE)] {
            let (shown, said) = heard(&program, args, what, |launch| {
                launch.fallback(Fallback::Untraced);
            });
            assert!(said.contains("call 13 of 32-bit programs"), "{what:?}: {said}");
            assert!(said.contains("the program goes on untraced"), "{what:?}: {said}");
            assert_eq!(shown, want, "{what:?} {args:?}");
        }
        let (shown, said) = heard(&program, args, What::All, |_| ());
        assert_eq!((shown.status.code(), shown.text.as_str()), (Some(2), "code 5\n"), "{said}");
        assert!(
            said.contains("call 13 of 32-bit programs") && !said.contains("untraced"),
            "{said}"
        );
    }
}

/// Threads that all live at once.
#[test]
fn a_crowd_of_threads_meets() {
    let program = guest::build("torture_processes.c", Link::Dynamic, &["-w"]);
    if !alone(&program, &["together", "2000"]).status.success() {
        tool::skip("hazards::a_crowd_of_threads_meets", "2,000 threads at once are not allowed");
        return;
    }
    let args = ["together", "1500"];
    let want = alone(&program, &args);
    for what in [What::Nothing, What::All] {
        assert_eq!(engine(&program, &args, what), want, "{what:?}");
    }
}
