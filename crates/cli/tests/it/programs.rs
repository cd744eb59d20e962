//! Real programs through `ichnos step`: output and exit status as native, the
//! trace clean, and what comes out of the file exactly what was pushed into it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use ichnos_base::{Source, Tee, ThreadId};
use ichnos_collect_step::{Collector, Config, Values};
use ichnos_replay::Replay;
use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::{Item, Recording, tool};
use ichnos_trace::{Options, Reader, Writer};

use crate::support::{Folder, Run, ichnos, native};

/// The program in its own clothes and under ichnos: same output, same end.
#[track_caller]
fn same_as_native(folder: &Folder, program: &str, args: &[&str]) -> Run {
    let alone = native(folder, program, args);
    let mut line = vec!["step", "-q", "-o", "t.ichnos", "--", program];
    line.extend(args);
    let traced = ichnos(folder, &line);
    assert_eq!(traced.stdout, alone.stdout, "{program}");
    assert_eq!(traced.stderr, alone.stderr, "{program}");
    assert_eq!(traced.status, alone.status, "{program}");
    let check = ichnos(folder, &["check", "t.ichnos"]);
    assert_eq!(check.status, 0, "{program}: {}{}", check.stdout, check.stderr);
    traced
}

/// What was pushed into a file comes out of it: records, values and events of
/// each thread in order, and the same code.
#[track_caller]
fn round_trip(folder: &Folder, program: &str, args: &[&str], values: Values) {
    let path = folder.path().join("r.ichnos");
    let mut config = Config::new(program).args(args.iter().copied());
    config.values = values;
    config.folder = Some(folder.path().to_owned());
    let mut options = Options::default();
    // Several chunks even of a short run.
    options.chunk_insns = 50_000;
    let writer = Writer::create(&path, options).unwrap();
    let mut tee = Tee::new(writer, Recording::new());
    Collector::new(&config).run(&mut tee).unwrap();
    let (writer, pushed) = tee.into_inner();
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.totals(), pushed.totals(), "{program}");
    assert_eq!(writer.totals(), &pushed.totals(), "{program}");
    let mut told = Recording::new();
    Replay::new(&reader).drive(&mut told).unwrap();
    assert!(told.complaints.is_empty(), "{program}: {:?}", told.complaints);
    assert_eq!(told.threads(), pushed.threads());
    for thread in (0..pushed.threads()).map(ThreadId) {
        let streams = [stream(&pushed, thread), stream(&told, thread)];
        let [a, b] = &streams;
        let differ = a.iter().zip(b).position(|(x, y)| x != y);
        if let Some(at) = differ {
            panic!("{program}: thread {thread}, item {at}: {:?} became {:?}", a[at], b[at]);
        }
        assert_eq!(a.len(), b.len(), "{program}: thread {thread}");
    }
    // An instruction that only ever faulted has code but no record, and is not in
    // the file; that all executed code is told, `check` sees to.
    let (all, told) = (code(&pushed), code(&told));
    assert!(!told.is_empty());
    for (place, byte) in told {
        assert_eq!(all.get(&place), Some(&byte), "{program}: code at {place:x?}");
    }
}

fn stream(recording: &Recording, thread: ThreadId) -> Vec<&Item> {
    recording.thread(thread).filter(|i| !matches!(i, Item::Code { .. })).collect()
}

/// The bytes of all code told, by address: told in other portions, but the same.
/// Programs that change their code are left out by the caller.
fn code(recording: &Recording) -> BTreeMap<(u32, u64), u8> {
    let mut all = BTreeMap::new();
    for (_, item) in &recording.items {
        if let Item::Code { process, pc, bytes } = item {
            for (i, byte) in bytes.iter().enumerate() {
                all.insert((process.0, pc.0 + i as u64), *byte);
            }
        }
    }
    all
}

#[track_caller]
fn guest_program(source: &str, link: Link, args: &[&str]) {
    let folder = Folder::new();
    let program = guest::build(source, link, &[]);
    let program = program.to_str().unwrap();
    same_as_native(&folder, program, args);
    round_trip(&folder, program, args, Values::Omit);
}

#[track_caller]
fn installed_program(name: &str, args: &[&str], files: &[(&str, &[u8])]) {
    if !tool::have(&format!("programs::{name}"), &[name]) {
        return;
    }
    let folder = Folder::new();
    for (file, bytes) in files {
        folder.write(file, bytes);
    }
    same_as_native(&folder, name, args);
    round_trip(&folder, name, args, Values::Omit);
}

#[test]
fn static_hello() {
    guest_program("hello.c", Link::Static, &["world"]);
}

#[test]
fn two_threads_with_a_mutex() {
    let folder = Folder::new();
    let program = guest::build("mutex.c", Link::Dynamic, &[]);
    let program = program.to_str().unwrap();
    same_as_native(&folder, program, &[]);
    round_trip(&folder, program, &[], Values::Omit);
}

#[test]
fn fork_exec_and_wait() {
    guest_program("forkexec.c", Link::Dynamic, &[]);
}

#[test]
fn signal_handlers() {
    guest_program("signals.c", Link::Dynamic, &[]);
}

#[test]
fn flags_that_are_loaded() {
    guest_program("flags.c", Link::Static, &[]);
}

#[test]
fn setjmp_and_longjmp() {
    guest_program("jump.c", Link::Static, &[]);
}

#[test]
fn an_exception_in_cxx() {
    guest_program("throw.cc", Link::Static, &[]);
}

#[test]
fn repeated_string_instructions() {
    guest_program("rep.c", Link::Static, &[]);
}

#[test]
fn vector_instructions_with_masks_and_gathers() {
    if tool::have_cpu("programs::vector", &["avx512f", "avx512bw", "avx512vl"]) {
        guest_program("vector.c", Link::Dynamic, &[]);
    }
}

#[test]
fn bzip2() {
    let text = b"footprints in the sand, footprints in the snow\n".repeat(8);
    installed_program("bzip2", &["-1kf", "text"], &[("text", &text)]);
}

#[test]
fn gzip() {
    let text = b"footprints in the sand, footprints in the snow\n".repeat(16);
    installed_program("gzip", &["-kf", "text"], &[("text", &text)]);
}

#[test]
fn sqlite3() {
    let script =
        "create table t(a,b); insert into t values(1,'x'),(2,'y'); select sum(a),max(b) from t;";
    installed_program("sqlite3", &[":memory:", script], &[]);
}

#[test]
fn lua() {
    installed_program("lua5.4", &["-e", "local s=0 for i=1,200 do s=s+i end print(s)"], &[]);
}

#[test]
fn a_shell_pipeline() {
    installed_program("sh", &["-c", "echo one two | wc -w; exit 7"], &[]);
}

#[test]
fn a_shell_that_waits_for_a_job() {
    installed_program("sh", &["-c", "true & wait; echo done"], &[]);
}

#[test]
fn values_come_back_too() {
    let folder = Folder::new();
    let program = guest::build("bare_sort.c", Link::Bare, &[]);
    round_trip(&folder, program.to_str().unwrap(), &[], Values::Collect);
    let program = guest::build("hello.c", Link::Static, &[]);
    round_trip(&folder, program.to_str().unwrap(), &["x"], Values::Collect);
}

/// Equal runs give equal traces, byte for byte in what was executed.
#[test]
fn two_runs_are_equal() {
    let folder = Folder::new();
    let program = guest::build("bare_crc.c", Link::Bare, &[]);
    let program = program.to_str().unwrap();
    for name in ["a.ichnos", "b.ichnos"] {
        ichnos(&folder, &["step", "-q", "-o", name, "--", program]);
    }
    let diff = ichnos(&folder, &["diff", "--json", "a.ichnos", "b.ichnos"]);
    assert_eq!(diff.status, 0, "{}{}", diff.stdout, diff.stderr);
}
