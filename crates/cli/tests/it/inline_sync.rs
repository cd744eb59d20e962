//! Synchronisation in inline traces: what the code cache tells of the ordinary build, thread by thread.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::ops::Range;

use ichnos_flow::Level;
use ichnos_testkit::guest;
use serde_json::Value;

use crate::inline_compare::Stepped;
use crate::support::{Folder, good, ichnos, native};

/// What libraries have for themselves. Their code has no notes, so that the code cache alone sees what it locks.
struct Libraries {
    range: Range<u64>,
    /// What the program has among it.
    except: Vec<Range<u64>>,
}

impl Libraries {
    /// Those of a program: files of their own, or in the program itself if that has no loader, where a symbol
    /// table says from which source each variable is.
    fn of(folder: &Folder, program: &str) -> Self {
        let read = |what: &str| good(native(folder, "readelf", &["-W", what, program])).stdout;
        if read("--program-headers").contains("INTERP") {
            return Self { range: 0x7fff_f000_0000..0x7fff_f800_0000, except: Vec::new() };
        }
        let (mut low, mut high, mut except, mut is_own) = (u64::MAX, 0, Vec::new(), false);
        for line in read("--symbols").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, value, size, sort, bind, _, _, name] = words[..] else { continue };
            if sort == "FILE" {
                is_own = guest::folder().join(name).exists();
            }
            let (Ok(start), Ok(size)) = (u64::from_str_radix(value, 16), size.parse::<u64>())
            else {
                continue;
            };
            if sort == "OBJECT" {
                (low, high) = (low.min(start), high.max(start + size));
                except.extend((is_own && bind == "LOCAL").then_some(start..start + size));
            }
        }
        assert!(!except.is_empty(), "{program} has nothing");
        Self { range: low..high, except }
    }

    fn have(&self, object: u64) -> bool {
        self.range.contains(&object) && !self.except.iter().any(|r| r.contains(&object))
    }
}

/// A thread's synchronisation: what, to what, when.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Told {
    what: String,
    object: u64,
    ns: u64,
}

/// Synchronisation in a trace, by thread, without futex calls and what libraries do for themselves.
fn told(folder: &Folder, trace: &str, program: &str) -> BTreeMap<u64, Vec<Told>> {
    let libraries = Libraries::of(folder, program);
    good(ichnos(folder, &["check", trace]));
    let dump = good(ichnos(folder, &["dump", "--format", "jsonl", trace])).stdout;
    let (mut all, mut clocks): (BTreeMap<u64, Vec<Told>>, BTreeMap<u64, u64>) = Default::default();
    for line in dump.lines().filter(|l| l.contains(r#""type":"event""#)) {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let thread = event["thread"].as_u64().expect("a thread");
        let object = u64::from_str_radix(text("addr").trim_start_matches("0x"), 16);
        let what = match event["event"].as_str() {
            Some("timestamp") => {
                clocks.insert(thread, event["ns"].as_u64().expect("a time"));
                continue;
            }
            Some("thread-join") => "join".to_owned(),
            Some("lock") if text("kind") != "futex" => text("op") + " " + &text("kind"),
            Some("cond") => text("op"),
            Some("barrier") => text("phase") + " barrier",
            _ => continue,
        };
        let object = object.unwrap_or_else(|_| event["child"].as_u64().unwrap_or(u64::MAX));
        if what == "join" || !libraries.have(object) {
            let ns = clocks.get(&thread).copied().unwrap_or(0);
            all.entry(thread).or_default().push(Told { what, object, ns });
        }
    }
    all
}

type Untimed = BTreeMap<u64, Vec<(String, u64)>>;

fn untimed(told: BTreeMap<u64, Vec<Told>>) -> Untimed {
    let of = |list: Vec<Told>| list.into_iter().map(|t| (t.what, t.object)).collect();
    told.into_iter().map(|(thread, list)| (thread, of(list))).collect()
}

/// Builds a guest as ever and through `ichnos cc`: two programs with names of equal length.
fn both(folder: &Folder, source: &str, flags: &str) -> [String; 2] {
    let compiler = if source.ends_with(".cc") { "g++" } else { "gcc" };
    let path = guest::folder().join(source).to_str().unwrap().to_owned();
    let programs = ["plain", "noted"].map(|n| folder.path().join(n).to_str().unwrap().to_owned());
    let line = |program: &str| {
        let words = [compiler, &path, "-o", program, "-pthread"].map(str::to_owned);
        let words = words.into_iter().chain(flags.split_whitespace().map(str::to_owned));
        words.chain(["-lm".to_owned()]).collect::<Vec<_>>()
    };
    let plain = line(&programs[0]);
    good(native(folder, &plain[0], &plain[1..].iter().map(String::as_str).collect::<Vec<_>>()));
    let noted = line(&programs[1]);
    let noted: Vec<_> = ["cc", "--"].into_iter().chain(noted.iter().map(String::as_str)).collect();
    good(ichnos(folder, &noted));
    programs
}

/// Records a program; what it prints is what it prints alone.
fn record(folder: &Folder, options: &[&str], program: &str, args: &[&str]) -> Untimed {
    let alone = native(folder, program, args);
    let line = [&["record", "-q", "-o", "t.ichnos"], options, &["--", program], args].concat();
    let traced = ichnos(folder, &line);
    assert_eq!((&traced.stdout, traced.status), (&alone.stdout, alone.status), "{}", traced.stderr);
    assert_eq!(alone.status, 0, "{program}: {}", alone.stdout);
    untimed(told(folder, "t.ichnos", program))
}

/// The inline trace's events are those of the code cache; answers them.
fn equal(folder: &Folder, source: &str, flags: &str, args: &[&str]) -> Untimed {
    let [plain, noted] = both(folder, source, flags);
    let expected = record(folder, &[], &plain, args);
    let found = record(folder, &[], &noted, args);
    for (thread, list) in &expected {
        let own = found.get(thread).map_or(&[][..], Vec::as_slice);
        for (i, (a, b)) in list.iter().zip(own).enumerate() {
            assert_eq!(a, b, "{source} {flags}: event {i} of thread {thread}");
        }
        assert_eq!(list.len(), own.len(), "{source} {flags}: thread {thread}");
    }
    assert_eq!(expected.len(), found.len(), "{source} {flags}");
    found
}

fn count(events: &Untimed, what: &str) -> usize {
    events.values().flatten().filter(|(w, _)| w == what).count()
}

#[test]
fn inline_tells_what_the_code_cache_tells() {
    let folder = Folder::new();
    for flags in ["-O0", "-O2", "-O2 -static", "-O1 -no-pie -fno-plt", "-O3 -fcf-protection=full"] {
        let events = equal(&folder, "locks.c", flags, &[]);
        assert_eq!(events.len(), 4, "{flags}");
        for (what, times) in [
            ("wait", 3),
            ("wake", 2),
            ("join", 3),
            ("enter barrier", 6),
            ("leave barrier", 6),
            ("request read", 3),
            ("request spin", 2),
            ("acquire spin", 1),
            ("destroy barrier", 1),
        ] {
            assert_eq!(count(&events, what), times, "{flags}: {what}");
        }
    }
}

#[test]
fn inline_tells_what_the_code_cache_tells_of_c_plus_plus() {
    let folder = Folder::new();
    for flags in ["-O0", "-O2", "-O2 -static -no-pie"] {
        let events = equal(&folder, "locks.cc", flags, &[]);
        assert_eq!((count(&events, "join"), count(&events, "wake")), (3, 2), "{flags}");
    }
}

#[test]
fn kernels_meet_at_barriers() {
    let folder = Folder::new();
    for (source, args) in [
        ("fft.c", "2 4 1"),
        ("lu.c", "3 16 8 contiguous"),
        ("radix.c", "2 60 1"),
        ("ocean.c", "2 15 1"),
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        for flags in ["-O0", "-O2"] {
            let events = equal(&folder, source, flags, &args);
            assert!(count(&events, "leave barrier") > 5, "{source} {flags}");
        }
    }
}

/// C's own threads: the code cache looks inside the functions, and tells none of them twice.
#[test]
fn threads_of_the_c_standard_are_told() {
    let folder = Folder::new();
    let events = equal(&folder, "locks.c", "-O2", &["s"]);
    let what = |thread: u64| events[&thread].iter().map(|(w, _)| w.as_str()).collect::<Vec<_>>();
    let first = [
        "join",
        "request mutex",
        "acquire mutex",
        "request mutex",
        "wait",
        "release mutex",
        "wake",
        "acquire mutex",
        "signal",
        "broadcast",
        "release mutex",
        "destroy",
        "destroy mutex",
    ];
    assert_eq!(what(0), first);
    assert_eq!(what(1), ["request mutex", "acquire mutex", "release mutex"]);
}

/// The records stay those of single stepping, at every level; events are the same at all of them.
#[test]
fn what_is_stored_around_calls_changes_no_record() {
    let folder = Folder::new();
    let [_, noted] = both(&folder, "locks.c", "-O2 -static");
    let stepped = Stepped::new(noted.as_ref());
    let expected = record(&folder, &[], &noted, &[]);
    for level in Level::ALL {
        assert_eq!(stepped.compare(level).threads, 4, "{level:?}");
    }
    assert!(stepped.compare_references() > 100);
    for level in ["none", "block", "superblock", "procedural"] {
        assert_eq!(record(&folder, &["--opt", level], &noted, &[]), expected, "{level}");
    }
}

/// A handler of a fault finds its stack where it would be, also if the copy has called a function to which the program jumps:
/// the kernel aligns signal frames to 64 bytes, so stacks are tried at each multiple of 16. One returns, one jumps.
#[test]
fn handlers_of_faults_find_their_stacks() {
    let folder = Folder::new();
    folder.write(
        "own.c",
        b"#include <pthread.h>\n#include <setjmp.h>\n#include <signal.h>\n#include <sys/mman.h>\n\
          static sigjmp_buf away;\nstatic volatile int handled;\nstatic void *page;\n\
          static void on(int s) { if (handled++) siglongjmp(away, s);\n\
          mprotect(page, 4096, PROT_READ | PROT_WRITE); }\n\
          __attribute__((noinline)) static int take(pthread_mutex_t *m) { return pthread_mutex_lock(m); }\n\
          int main(void) { struct sigaction a = {0}; a.sa_handler = on; sigaction(SIGSEGV, &a, 0);\n\
          page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
          if (take(page) != 0) return 1;\nif (!sigsetjmp(away, 1)) take((pthread_mutex_t *)16);\n\
          return handled != 2; }\n",
    );
    good(ichnos(&folder, &["cc", "--", "gcc", "-O2", "-static", "own.c", "-o", "own"]));
    let own = folder.path().join("own");
    good(native(&folder, own.to_str().unwrap(), &[]));
    for len in [1, 17, 33, 49] {
        let arg = "a".repeat(len);
        Stepped::with(own.as_os_str(), &[arg.into()]).compare(Level::Flow);
    }
}

/// Parts of a run tell parts of it, and a release only of what was seen to be acquired.
#[test]
fn parts_of_a_run_tell_parts() {
    let folder = Folder::new();
    for source in ["locks.c", "locks.cc"] {
        let [_, noted] = both(&folder, source, "-O2");
        let whole = record(&folder, &[], &noted, &[]);
        for plan in ["1:1", "3:2", "2:9"] {
            let some = record(&folder, &["--sample", plan], &noted, &[]);
            for (thread, list) in &some {
                let mut rest = whole[thread].iter();
                for event in list.iter().filter(|(what, _)| !what.starts_with("release")) {
                    assert!(rest.any(|e| e == event), "{source} {plan}: {event:?}");
                }
            }
        }
        assert!(count(&record(&folder, &["--sample", "1:9"], &noted, &[]), "request mutex") > 1);
    }
}

/// Handlers that begin anywhere, also between what is stored of a call and the call: nothing is lost or told twice.
#[test]
fn signals_come_between() {
    let folder = Folder::new();
    folder.write(
        "own.c",
        b"#include <pthread.h>\n#include <signal.h>\n#include <sys/time.h>\n\
          static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;\nstatic volatile long n, handled;\n\
          static void on(int s) { handled += s; }\n\
          __attribute__((noinline)) static int take(void) { return pthread_mutex_lock(&m); }\n\
          static void *work(void *p) { for (int i = 0; i < 4000; i++) {\n\
          if (i & 1) take(); else pthread_mutex_lock(&m); n++; pthread_mutex_unlock(&m); } return p; }\n\
          int main(void) { struct sigaction a = {0}; a.sa_handler = on; a.sa_flags = SA_RESTART;\n\
          sigaction(SIGALRM, &a, 0); struct itimerval often = {{0, 200}, {0, 200}}, never = {{0}};\n\
          setitimer(ITIMER_REAL, &often, 0); pthread_t t[2];\n\
          for (int i = 0; i < 2; i++) pthread_create(t + i, 0, work, 0);\n\
          for (int i = 0; i < 2; i++) pthread_join(t[i], 0); setitimer(ITIMER_REAL, &never, 0);\n\
          return n != 8000 || !handled; }\n",
    );
    good(ichnos(&folder, &["cc", "--", "gcc", "-O2", "-pthread", "own.c", "-o", "own"]));
    let own = folder.path().join("own").to_str().unwrap().to_owned();
    good(ichnos(&folder, &["record", "-q", "-o", "t.ichnos", "--", &own]));
    let events = untimed(told(&folder, "t.ichnos", &own));
    for thread in [1, 2] {
        let list = &events[&thread];
        let wanted = ["request mutex", "acquire mutex", "release mutex"];
        let other = list.iter().zip(wanted.into_iter().cycle()).find(|((a, _), b)| a != b);
        assert_eq!((other, list.len()), (None, 12_000), "thread {thread}");
    }
}

/// Threads that fight for locks: sorted by time, one holds a mutex at a time.
#[test]
fn times_tell_who_had_a_lock_when() {
    let folder = Folder::new();
    folder.write(
        "own.c",
        b"#include <pthread.h>\nstatic pthread_mutex_t m[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};\n\
          static long n[2];\nstatic void *work(void *p) { for (int i = 0; i < 3000; i++) { int k = i & 1;\n\
          pthread_mutex_lock(m + k); n[k]++; pthread_mutex_unlock(m + k); } return p; }\n\
          int main(void) { pthread_t t[4]; for (int i = 0; i < 4; i++) pthread_create(t + i, 0, work, 0);\n\
          for (int i = 0; i < 4; i++) pthread_join(t[i], 0); return n[0] + n[1] != 12000; }\n",
    );
    good(ichnos(&folder, &["cc", "--", "gcc", "-O2", "-pthread", "own.c", "-o", "own"]));
    let own = folder.path().join("own").to_str().unwrap().to_owned();
    good(ichnos(&folder, &["record", "-q", "-o", "t.ichnos", "--", &own]));
    let mut all: Vec<(u64, u64, u64, bool)> = Vec::new();
    for (thread, list) in told(&folder, "t.ichnos", &own) {
        for Told { what, object, ns } in list {
            if what.ends_with("e mutex") {
                all.push((object, ns, thread, what.starts_with("acquire")));
            }
        }
    }
    assert_eq!(all.len(), 24_000);
    all.sort_unstable();
    let mut holder = None;
    for (object, _, thread, acquires) in all {
        let was = std::mem::replace(&mut holder, acquires.then_some((object, thread)));
        assert_eq!(was, (!acquires).then_some((object, thread)));
    }
}
