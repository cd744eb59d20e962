//! Programs behave under the engine as they do without it, and their records are those of
//! single stepping.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[path = "it/hazards.rs"]
mod hazards;
#[path = "it/mappings.rs"]
mod mappings;
#[path = "it/programs.rs"]
mod programs;
#[path = "it/sieve.rs"]
mod sieve;
#[path = "it/windows.rs"]
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use ichnos_base::{Batch, Null, Record, Sink};
use ichnos_collect_exec::{Launch, Paths, Record as What, Watch};

/// Restartable sequences are refused under the engine; without them both sides do the same.
const PINNED: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");

#[derive(Clone, Copy)]
enum Link {
    Dynamic,
    Static,
}

/// Builds a guest program, once: several tests use it, and what runs cannot be written.
fn guest(name: &str, link: Link) -> PathBuf {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(name);
    let (kind, flags): (_, &[&str]) = match link {
        Link::Dynamic => ("dynamic", &[]),
        Link::Static => ("static", &["-static"]),
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(kind);
    std::fs::create_dir_all(&folder).expect("a folder for guests");
    let out = folder.join(name).with_extension("");
    let mut built_before = BUILT.lock().expect("no test fails here");
    if !built_before.insert(out.clone()) {
        return out;
    }
    let built = Command::new("cc")
        .args(["-O2", "-pthread"])
        .args(flags)
        .arg(source.with_extension("c"))
        .arg("-o")
        .arg(&out)
        .status()
        .expect("a C compiler");
    assert!(built.success(), "{name} does not compile");
    out
}

fn native(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).output().expect("it runs natively")
}

fn piped(program: &Path, args: &[&str]) -> Launch {
    let mut launch = Launch::new(program);
    launch.command().args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    launch
}

/// Under the engine the program does what it does natively, also if it is recorded and as many paths are made as can be.
fn same(program: &Path, args: &[&str]) {
    let want = native(program, args);
    let got = piped(program, args).spawn().expect("it starts").wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&got.stdout), text(&want.stdout), "{program:?} {}", text(&got.stderr));
    assert_eq!(got.status, want.status, "{program:?} {}", text(&got.stderr));
    let out = hazards::fresh_file();
    let mut launch = Launch::new(program);
    launch.record(What::All).paths(Paths::Eager);
    let file = std::fs::File::create(&out).expect("a file");
    launch.command().args(args).stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, left_behind: &mut |_| () };
    let outcome = launch.spawn().expect("it starts").drain(watch).expect("it is drained");
    assert_eq!(hazards::read(&out), text(&want.stdout), "{program:?} with paths");
    assert_eq!(outcome.status, want.status, "{program:?} with paths");
}

#[test]
fn signals_arrive_as_natively() {
    same(&guest("signals", Link::Dynamic), &[]);
    same(&guest("signals", Link::Static), &[]);
}

#[test]
fn threads_run_and_end() {
    same(&guest("threads", Link::Dynamic), &[]);
    same(&guest("threads", Link::Static), &[]);
}

#[test]
fn processes_fork_and_exec() {
    same(&guest("processes", Link::Dynamic), &[]);
    same(&guest("processes", Link::Static), &[]);
}

#[test]
fn code_made_at_run_time_may_change() {
    same(&guest("jit", Link::Dynamic), &[]);
}

#[test]
fn system_programs_do_their_work() {
    let sh = Path::new("/bin/sh");
    same(
        sh,
        &["-c", "for i in 1 2 3; do echo $i | tr 1 x; done; ls /usr | sort | head -3; exit 4"],
    );
    same(sh, &["-c", "kill -9 $$"]);
    same(Path::new("/bin/ls"), &["/usr"]);
}

#[test]
fn a_script_runs_its_interpreter() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("script.sh");
    ichnos_testkit::guest::install(&path, b"#!/bin/sh\necho script $0 $1\n");
    same(&path, &["argument"]);
}

#[test]
fn what_cannot_run_is_said() {
    let missing = Launch::new("/nonexistent/program").spawn().expect_err("there is none");
    assert!(missing.to_string().contains("/nonexistent/program"), "{missing}");
}

#[test]
fn the_kernel_gives_the_same_addresses() {
    let script = "grep -e '\\[heap\\]' -e '\\[stack\\]' -e vdso -e libc.so /proc/self/maps";
    let mut plain = Command::new("setarch");
    plain.args(["-R", "/bin/sh", "-c", script]);
    let want = plain.output().expect("setarch");
    let got = piped(Path::new("/bin/sh"), &["-c", script]).spawn().expect("it starts");
    let got = String::from_utf8(got.wait_with_output().expect("it ends").stdout).expect("text");
    for line in String::from_utf8(want.stdout).expect("text").lines() {
        assert!(got.contains(line), "{line} is missing in\n{got}");
    }
}

#[derive(Default)]
struct Keep(BTreeMap<u32, Vec<Record>>);

impl Sink for Keep {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.0.entry(batch.thread.0).or_default().extend_from_slice(batch.records);
        Ok(true)
    }
}

/// The records are those of single stepping, one by one: with paths as they are made, which is seldom in programs as short as these,
/// and with as many as can be.
fn equal(program: &Path, args: &[&str]) {
    let mut config = ichnos_collect_step::Config::new(program).args(args.iter().copied());
    config.env = Some(vec![(PINNED.0.into(), PINNED.1.into())]);
    let mut theirs = Keep::default();
    ichnos_collect_step::run(&config, &mut theirs).expect("it is stepped");
    for paths in [Paths::Hot, Paths::Eager] {
        equal_to(&theirs, program, args, paths);
    }
}

fn equal_to(theirs: &Keep, program: &Path, args: &[&str], paths: Paths) {
    let mut launch = Launch::new(program);
    launch.record(What::All).paths(paths);
    launch.command().args(args).env_clear().env(PINNED.0, PINNED.1);
    let mut ours = Keep::default();
    launch.spawn().expect("it starts").collect(&mut ours).expect("it is collected");
    assert_eq!(ours.0.len(), theirs.0.len(), "number of threads of {program:?}");
    for (id, want) in &theirs.0 {
        let got = ours.0.get(id).map_or(&[][..], Vec::as_slice);
        let same = got.iter().zip(want).take_while(|(a, b)| a == b).count();
        let around = |all: &[Record]| {
            all.iter().skip(same.saturating_sub(3)).take(8).copied().collect::<Vec<_>>()
        };
        assert!(
            same == got.len() && same == want.len(),
            "{program:?} thread {id}: {same} same of {} and {}: {:#?} {:#?}",
            got.len(),
            want.len(),
            around(got),
            around(want)
        );
        assert!(want.len() > 10_000);
    }
}

#[test]
fn records_equal_those_of_single_stepping() {
    equal(&guest("small", Link::Static), &[]);
    equal(&guest("varying", Link::Static), &[]);
    equal(Path::new("/bin/true"), &[]);
}

#[test]
fn recorded_programs_behave_as_natively() {
    for name in ["threads", "processes"] {
        let program = guest(name, Link::Dynamic);
        let mut launch = piped(&program, &[]);
        launch.record(What::All);
        launch.command().stdout(Stdio::null()).stderr(Stdio::null());
        let outcome = launch.spawn().expect("it starts").collect(&mut Null).expect("collected");
        assert_eq!(outcome.status, native(&program, &[]).status);
        assert!(outcome.insns > 1_000_000, "{outcome:?}");
    }
}
