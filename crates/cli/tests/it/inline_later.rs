//! Programs built by `ichnos cc` whose trace is packed later: what lies in the spool is all that was to be told.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ichnos_base::{Batch, EndStatus, Event, Sink, ThreadId};
use ichnos_collect_asm as asm;
use ichnos_collect_exec::Spooled;

use crate::inline_kernels::build;
use crate::inline_libraries::loading;
use crate::support::{Folder, good, ichnos, native};

/// How long to wait for what must come.
const PATIENCE: Duration = Duration::from_secs(120);
/// Radix that stores more than is kept in memory, 64 MB, on two threads.
const MUCH: [&str; 3] = ["2", "2000000", "1"];

/// Handlers that return, to what they changed and to where nothing was, and that are left by a jump.
const RAISES: &[u8] = b"#define _GNU_SOURCE\n#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>\n\
    #include <ucontext.h>\nstatic sigjmp_buf back; static volatile long sum; static long room[4], *volatile at;\n\
    static void count(int n) { for (int i = 0; i < n; i++) sum += i; }\n\
    static void leave(int n) { sum += n; siglongjmp(back, 1); }\n\
    static void mend(int n, siginfo_t *i, void *c) { ucontext_t *u = c; at = room;\n\
    for (int r = 0; r < 16; r++) if (u->uc_mcontext.gregs[r] == 16) u->uc_mcontext.gregs[r] = (long)room; }\n\
    int main(void) { struct sigaction a = { .sa_sigaction = mend, .sa_flags = SA_SIGINFO };\n\
    signal(SIGUSR1, count); signal(SIGUSR2, leave); sigaction(SIGSEGV, &a, 0);\n\
    for (volatile long i = 0; i < 40; i++) { raise(SIGUSR1); if (!sigsetjmp(back, 1)) raise(SIGUSR2);\n\
    at = (long *)16; long *p = at; p[1] += i; } printf(\"%ld %ld\\n\", sum, room[1]); }\n";

/// All that each thread was said to do, but times, processors, and the system's own numbers.
#[derive(Default, PartialEq, Eq, Debug)]
struct Story(BTreeMap<u32, (u64, u64, u64)>);

impl Story {
    fn tell(&mut self, thread: ThreadId, what: &impl Hash) {
        let mut hasher = DefaultHasher::new();
        let (all, ..) = self.0.entry(thread.0).or_default();
        (*all, what).hash(&mut hasher);
        *all = hasher.finish();
    }
}

impl Sink for Story {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            self.tell(batch.thread, &format!("{record:?}"));
            self.0.entry(batch.thread.0).or_default().1 += 1;
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        let varies = matches!(
            event,
            Event::ThreadStart(_)
                | Event::Timestamp { .. }
                | Event::Migrate { .. }
                | Event::Marker { .. }
                | Event::Syscall { .. }
                | Event::SyscallReturn { .. }
        );
        if !varies {
            self.tell(thread, &format!("{event:?}"));
        }
        self.0.entry(thread.0).or_default().2 += u64::from(!varies);
        Ok(true)
    }
}

/// All goes to the spool once so many buffers were told as there are: with one, when that is full, or its thread ends.
fn config((program, args): (&str, &[&str]), buffers: u32) -> asm::Config {
    let mut config = asm::Config::new(program, args.iter().map(Into::into));
    config.buffers = buffers;
    config
}

fn told_at_once(config: &asm::Config) -> (EndStatus, Story) {
    let mut story = Story::default();
    let outcome = asm::record(config, &mut story).expect("it is recorded");
    (outcome.status, story)
}

/// What is told of a run whose spool is read when it is over, and its files are gone.
fn told_later(config: &asm::Config, gone: &[&Path]) -> (EndStatus, Story) {
    let folder = Folder::new();
    let path = folder.path().join("words.spool");
    let mut nothing = Story::default();
    let when = asm::Reads::Later(b"a note".to_vec());
    let spooling = asm::Spooling {
        place: asm::SpoolPlace { path: path.clone(), limit: 1 << 40, when },
        stop: &false.into(),
        hurried: &mut |_: &mut Story| panic!("somebody waits"),
        ended: &mut |_: &mut Story| panic!("somebody packs"),
        progress: &mut |_, _| true,
    };
    let outcome = asm::record_spooled(config, &mut nothing, spooling).expect("it is recorded");
    assert!(outcome.left, "{outcome:?}");
    assert_eq!((outcome.spooled, &nothing), (outcome.raw_bytes, &Story::default()));
    for path in gone {
        std::fs::remove_file(path).unwrap();
    }
    let spool = Spooled::open(&path).unwrap();
    assert_eq!(spool.note(), b"a note");
    let (mut story, mut read) = (Story::default(), Vec::new());
    let mut progress = |done: u64, all: u64| read.push((done, all));
    let packed = asm::Left::new(spool.into_spool())
        .pack(&mut story, &false.into(), &mut progress)
        .expect("it is read");
    assert!(packed.status.is_some() && !packed.stopped, "{packed:?}");
    assert_eq!(read.last(), Some(&(outcome.raw_bytes, outcome.raw_bytes)));
    assert!(read.is_sorted(), "{read:?}");
    (outcome.status, story)
}

/// The same as when it is told at once: threads, signals, exceptions, children, and libraries that come and go.
#[test]
fn what_is_told_later_is_what_is_told_at_once() {
    let folder = Folder::new();
    let examples: [(&str, &[&str]); 4] = [
        ("radix.c", &["3", "60000", "1"]),
        ("sequence.c", &["20"]),
        ("forkexec.c", &[]),
        ("throw.cc", &[]),
    ];
    for (source, args) in examples {
        let Some(program) = build(&folder, source, "-O2 -static") else { continue };
        let config = config((&program, args), 1);
        let at_once = told_at_once(&config);
        assert!(at_once.1.0.values().map(|(_, records, _)| records).sum::<u64>() > 100, "{source}");
        assert_eq!(told_later(&config, &[Path::new(&program)]), at_once, "{source}");
    }
    folder.write("raises.c", RAISES);
    good(ichnos(&folder, &["cc", "--", "gcc", "-O2", "raises.c", "-o", "raises"]));
    let raises = folder.path().join("raises");
    // Each handler has a buffer while it runs.
    let handled = config((raises.to_str().unwrap(), &[]), 4);
    let at_once = told_at_once(&handled);
    assert_eq!(told_later(&handled, &[&raises]), at_once, "signals");
    let built = loading(&folder, "-O2");
    let [one, other] = &built.libraries[..] else { panic!("there are two libraries") };
    let args = [one, other].map(|path| path.to_str().unwrap());
    let loads = config((&built.program, &args), 1);
    let at_once = told_at_once(&loads);
    assert_eq!(told_later(&loads, &[one, other]), at_once, "libraries");
}

fn insns(folder: &Folder, trace: &str) -> u64 {
    let info = good(ichnos(folder, &["info", "--json", trace])).json();
    info["instructions"].as_u64().unwrap()
}

#[test]
fn traces_are_packed_when_somebody_asks() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "radix.c", "-O2 -static") else { return };
    let alone = native(&folder, &program, &MUCH);
    let record = |options: &[&str], args: &[&str]| {
        let line = [&["record"], options, &["--", &program], args].concat();
        let run = ichnos(&folder, &line);
        assert_eq!(run.status, 0, "{}", run.stderr);
        run
    };
    let later = record(&["--pack", "later", "-o", "later.ichnos"], &MUCH);
    assert_eq!(later.stdout, alone.stdout);
    assert!(later.stderr.contains("not packed yet"), "{}", later.stderr);
    let spool = folder.size("later.ichnos.spool");
    assert!(spool > 1 << 20 && spool > folder.size("later.ichnos"), "{spool}");
    record(&["-o", "once.ichnos"], &MUCH);
    good(ichnos(&folder, &["pack", "later.ichnos"]));
    assert!(!folder.list().contains(&"later.ichnos.spool".into()));
    good(ichnos(&folder, &["check", "later.ichnos"]));
    assert_eq!(insns(&folder, "later.ichnos"), insns(&folder, "once.ichnos"));
    // What is little is packed at once.
    let little = record(&["--pack", "later", "-o", "little.ichnos"], &["2", "20000", "1"]);
    assert!(!little.stderr.contains("not packed yet"), "{}", little.stderr);
    assert!(!folder.list().contains(&"little.ichnos.spool".into()));
    good(ichnos(&folder, &["check", "little.ichnos"]));
    // Nobody makes a part of a whole later.
    let line =
        ["record", "--pack", "later", "--sample", "100:10", "--", &program, "2", "20000", "1"];
    let refused = ichnos(&folder, &line);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("packed later"), "{}", refused.stderr);
}

/// A recorder that is killed leaves what it had stored.
#[test]
fn what_a_killed_recorder_stored_is_there() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "radix.c", "-O2 -static") else { return };
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args(["record", "-q", "--pack", "later", "-o", "t.ichnos", "--", &program])
        .args(["2", "4000000", "1000"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    // Some notes follow the first buffers.
    while folder.size("t.ichnos.spool") < 256 << 20 {
        assert!(Instant::now() < deadline, "the spool does not grow");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(1200));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let packed = good(ichnos(&folder, &["pack", "t.ichnos"]));
    assert!(packed.stderr.contains("the recording was killed"), "{}", packed.stderr);
    good(ichnos(&folder, &["check", "t.ichnos"]));
    assert!(insns(&folder, "t.ichnos") > 10_000_000);
}
