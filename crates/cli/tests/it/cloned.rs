//! Programs built by `ichnos cc` of which parts are recorded: two copies of their code, and threads that switch
//! between them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ichnos_collect_asm as asm;

use crate::inline_kernels::build;
use crate::samples::record;
use crate::support::{Folder, good, ichnos, native, paused, shell};

/// Loops are events, too: a kernel that calls little is sampled often, and behaves as ever.
#[test]
fn loops_are_events_if_asked_for() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "ocean.c", "-O2") else { return };
    let calls = record(&program, &["2", "15", "1"], Some(asm::Choice::sample(10, 5)));
    let mut choice = asm::Choice::sample(10, 5);
    choice.events = asm::Events::CallsAndLoops;
    let loops = record(&program, &["2", "15", "1"], Some(choice));
    assert_eq!(loops.marks, Vec::<String>::new());
    assert!(loops.switches > 10 * calls.switches, "{} {}", loops.switches, calls.switches);
    let alone = native(&folder, &program, &["2", "31", "2"]);
    let line = ["record", "-q", "-o", "t.ichnos", "--sample", "20:5", "--events", "calls,loops"];
    let traced = ichnos(&folder, &[&line[..], &["--", &program, "2", "31", "2"]].concat());
    assert_eq!((traced.status, traced.stdout), (0, alone.stdout), "{}", traced.stderr);
    good(ichnos(&folder, &["check", "t.ichnos"]));
}

#[test]
fn equal_runs_have_equal_samples() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "lu.c", "-O2") else { return };
    for file in ["one.ichnos", "two.ichnos"] {
        let line = ["record", "-q", "-o", file, "--sample", "30:4", "--", &program];
        good(ichnos(&folder, &[&line[..], &["1", "24", "8", "rows"]].concat()));
        good(ichnos(&folder, &["check", file]));
    }
    good(ichnos(&folder, &["diff", "one.ichnos", "two.ichnos"]));
    let dump = ichnos(&folder, &["dump", "one.ichnos"]).stdout;
    let gaps = dump.lines().filter(|l| l.contains(" E gap ") && l.contains("sampling")).count();
    assert!(gaps > 5, "{gaps}");
    let line = ["record", "-q", "-o", "w.ichnos", "--start", "40", "--stop", "50", "--", &program];
    good(ichnos(&folder, &[&line[..], &["1", "24", "8", "rows"]].concat()));
    good(ichnos(&folder, &["check", "w.ichnos"]));
    let dump = ichnos(&folder, &["dump", "w.ichnos"]).stdout;
    let on = dump.lines().filter(|l| l.contains("mode-switch") && l.contains("inst")).count();
    assert_eq!(on, 1, "one window");
}

/// Builds a program that works until a file is there, and writes a byte to another for each round, if that has a name.
fn worker(folder: &Folder, name: &str) -> String {
    folder.write(
        &format!("{name}.c"),
        b"#include <unistd.h>\n#include <stdio.h>\n\
          __attribute__((noinline)) unsigned step(unsigned x) { return x * 1664525u + 1013904223u; }\n\
          int main(int c, char **v) { unsigned x = c; FILE *f = c > 2 ? fopen(v[2], \"w\") : 0;\n\
          while (access(v[1], 0) != 0) { if (f) { fputc('.', f); fflush(f); }\n\
          for (int i = 0; i < 20; i++) x = step(x);\n usleep(300); }\n return x == 1; }\n",
    );
    let program = folder.path().join(name).to_str().unwrap().to_owned();
    let source = format!("{program}.c");
    good(ichnos(folder, &["cc", "--", "gcc", "-O2", &source, "-o", &program]));
    program
}

/// Waits until such a program has begun two rounds more, not for ever: it has been through a whole one since.
fn two_rounds_more(folder: &Folder, file: &str) {
    let rounds = || std::fs::metadata(folder.path().join(file)).map_or(0, |m| m.len());
    let (begun, before) = (Instant::now(), rounds());
    while rounds() < before + 2 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_recording_is_switched_by_its_number() {
    let folder = Folder::new();
    let program = worker(&folder, "work");
    let mut recorder = paused(&folder, &[&program, "done", "rounds"]);
    let number = recorder.id().to_string();
    let switch = |to: &str| ichnos(&folder, &["control", &number, to]);
    two_rounds_more(&folder, "rounds");
    good(switch("on"));
    two_rounds_more(&folder, "rounds");
    good(switch("off"));
    two_rounds_more(&folder, "rounds");
    folder.write("done", b"");
    assert!(recorder.wait().expect("it ends").success());
    good(ichnos(&folder, &["check", "t.ichnos"]));
    let dump = ichnos(&folder, &["dump", "t.ichnos"]).stdout;
    let modes: Vec<&str> = dump.lines().filter(|l| l.contains("mode-switch")).collect();
    assert_eq!(modes.len(), 3, "exec, inst, exec: {modes:?}");
    assert!(dump.lines().any(|l| l.contains(" I ")));
}

/// Waits until all of these are there, not for ever, and switches a word on and off for a while; then says that it is
/// done.
fn switch_for_a_while(folder: &Folder, names: &[&str]) {
    let begun = Instant::now();
    let all_run = || names.iter().all(|name| folder.path().join(name).exists());
    while !all_run() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let line = ["control", "--file", "word", "--every", "300ms", "--for", "30ms", "--until", "4s"];
    good(ichnos(folder, &line));
    folder.write("done", b"");
}

/// Starts a recording that is switched by the word.
fn switched(folder: &Folder, file: &str, program: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args(["record", "-q", "--shared", "word", "-o", file, "--"])
        .args(program)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .spawn()
        .expect("it starts")
}

/// Two processes of one program and another program, each with its own recording, switched by one word.
#[test]
fn recordings_are_switched_together() {
    let folder = Folder::new();
    let (one, two) = (worker(&folder, "one"), worker(&folder, "two"));
    let runs = [(&one, "a"), (&one, "b"), (&two, "c")];
    let recorders = runs.map(|(program, name)| {
        switched(&folder, &format!("{name}.ichnos"), &[program, "done", name])
    });
    switch_for_a_while(&folder, &["a", "b", "c"]);
    for mut recorder in recorders {
        assert!(recorder.wait().expect("it ends").success());
    }
    let samples = runs.map(|(_, name)| samples_of(&folder, name));
    let samples: Vec<_> = samples.iter().flat_map(BTreeMap::values).cloned().collect();
    assert_eq!(samples.len(), 3);
    assert!(at_once(&samples).len() >= 2, "{samples:?}");
}

/// The same programs as children of a fourth, all in one recording.
#[test]
fn processes_of_a_tree_are_switched_together() {
    let folder = Folder::new();
    let (one, two) = (worker(&folder, "one"), worker(&folder, "two"));
    folder.write(
        "all.c",
        b"#include <sys/wait.h>\n#include <unistd.h>\n\
          int main(int c, char **v) { for (int i = 2; i + 1 < c; i += 2) if (fork() == 0) {\n\
          execl(v[i], v[i], v[1], v[i + 1], (char *)0); _exit(9); }\n\
          int status, worst = 0; while (wait(&status) > 0) worst |= status; return worst != 0; }\n",
    );
    good(ichnos(&folder, &["cc", "--", "gcc", "-O2", "all.c", "-o", "all"]));
    let program = ["./all", "done", &one, "a", &one, "b", &two, "c"];
    let mut recorder = switched(&folder, "t.ichnos", &program);
    switch_for_a_while(&folder, &["a", "b", "c"]);
    assert!(recorder.wait().expect("it ends").success());
    let samples: Vec<_> = samples_of(&folder, "t").into_values().collect();
    // The first only waits.
    assert_eq!(samples.len(), 3, "{samples:?}");
    assert!(at_once(&samples).len() >= 2, "{samples:?}");
}

/// The times in which all threads were recorded at once.
fn at_once(threads: &[Vec<(u64, u64)>]) -> Vec<(u64, u64)> {
    let both = |a: &(u64, u64), b: &(u64, u64)| (a.0.max(b.0), a.1.min(b.1));
    let all = threads.iter().cloned().reduce(|some, more| {
        let pairs = some.iter().flat_map(|a| more.iter().map(move |b| both(a, b)));
        pairs.filter(|(from, to)| from < to).collect()
    });
    all.unwrap_or_default()
}

/// The times between which each thread of a trace was recorded, in nanoseconds since 1970; threads that never were
/// are left out.
fn samples_of(folder: &Folder, name: &str) -> BTreeMap<u64, Vec<(u64, u64)>> {
    let file = format!("{name}.ichnos");
    good(ichnos(folder, &["check", &file]));
    let program = env!("CARGO_BIN_EXE_ichnos");
    let line =
        format!("'{program}' dump --format jsonl {file} | grep -e started_ns -e '\"event\":'");
    let dump = shell(folder, &line).stdout;
    let lines: Vec<serde_json::Value> =
        dump.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect();
    let begun = lines.iter().find_map(|l| l["started_ns"].as_u64()).expect("when it began");
    let mut now: BTreeMap<u64, u64> = BTreeMap::new();
    let mut since: BTreeMap<u64, u64> = BTreeMap::new();
    let mut samples: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for line in &lines {
        let Some(thread) = line["thread"].as_u64() else { continue };
        let last = now.entry(thread).or_default();
        match (line["event"].as_str(), line["mode"].as_str()) {
            (Some("timestamp"), _) => *last = line["ns"].as_u64().unwrap_or(0) + begun,
            (Some("mode-switch"), Some("inst")) => {
                since.insert(thread, *last);
            }
            (Some("mode-switch"), _) => {
                let sample = since.remove(&thread).map(|since| (since, *last));
                sample.into_iter().for_each(|s| samples.entry(thread).or_default().push(s));
            }
            _ => {}
        }
    }
    samples
}

/// The switch from C: the header that is shipped, used as it says.
#[test]
fn the_word_is_written_from_c() {
    let folder = Folder::new();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ichnos_switch.h");
    folder.write("ichnos_switch.h", &std::fs::read(header).expect("the header is there"));
    folder.write(
        "on.c",
        b"#include \"ichnos_switch.h\"\n\
          int main(int c, char **v) { volatile unsigned *word = ichnos_switch_open(v[1]);\n\
          if (!word || c != 2) return 1;\n\
          ichnos_switch_set(word, 1);\nreturn ichnos_switch_get(word) != 1; }\n",
    );
    good(native(&folder, "gcc", &["-Wall", "-Wextra", "-Werror", "on.c", "-o", "on"]));
    good(native(&folder, folder.path().join("on").to_str().unwrap(), &["word"]));
    let word = asm::Word::open(&folder.path().join("word")).expect("a word");
    assert_eq!(word.get().expect("it can be read"), 1);
    let Some(program) = build(&folder, "lu.c", "-O2") else { return };
    let line = ["record", "-q", "--shared", "word", "-o", "t.ichnos", "--", &program];
    good(ichnos(&folder, &[&line[..], &["1", "16", "8", "rows"]].concat()));
    let info = ichnos(&folder, &["info", "--json", "t.ichnos"]).json();
    assert!(info["instructions"].as_u64().unwrap() > 1000, "{info}");
}

/// Functions begin and end what is recorded, as often as they are entered.
#[test]
fn functions_begin_and_end_windows() {
    let folder = Folder::new();
    folder.write(
        "f.c",
        b"#define SEPARATE __attribute__((noinline, noclone))\nvolatile int x;\n\
          SEPARATE void before(void) { x += 1; }\n SEPARATE void inside(int n) { while (n--) x += n; }\n\
          SEPARATE void begin(void) { x += 2; }\n SEPARATE void end(void) { x += 3; }\n\
          int main(void) { for (int i = 0; i < 5; i++) { before(); begin(); inside(i); end(); } return 0; }\n",
    );
    good(ichnos(&folder, &["cc", "--", "gcc", "-O1", "f.c", "-o", "f"]));
    let line =
        ["record", "-q", "-o", "t.ichnos", "--start", "@begin", "--stop", "@end", "--", "./f"];
    good(ichnos(&folder, &line));
    good(ichnos(&folder, &["check", "t.ichnos"]));
    let dump = ichnos(&folder, &["dump", "--symbols", "t.ichnos"]).stdout;
    let on = dump.lines().filter(|l| l.contains("mode-switch") && l.contains("inst")).count();
    assert_eq!(on, 5, "{dump}");
    let told = |name: &str| dump.lines().any(|l| l.contains(" I ") && l.contains(name));
    assert!(told("begin") && told("inside") && !told("before") && !told("end"), "{dump}");
    let run = ichnos(&folder, &["record", "-o", "none", "--start", "@nowhere", "--", "./f"]);
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("nowhere"), "{}", run.stderr);
}

/// Markers begin and end what is recorded, in C and in C++.
#[test]
fn markers_begin_and_end_windows() {
    let folder = Folder::new();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ichnos_marker.h");
    folder.write("ichnos_marker.h", &std::fs::read(header).expect("the header is there"));
    let text =
        b"#include \"ichnos_marker.h\"\nICHNOS_MARKER(on)\nICHNOS_MARKER(off)\nvolatile int x;\n\
          __attribute__((noinline)) static void beside(void) { x += 1; }\n\
          __attribute__((noinline)) static void work(void) { x += 2; }\n\
          int main(void) { for (int i = 0; i < 3; i++) {\n\
          beside(); ICHNOS_MARK(on); work(); ICHNOS_MARK(off); } return 0; }\n";
    folder.write("m.c", text);
    folder.write("m.cc", text);
    for (compiler, source) in [("gcc", "m.c"), ("g++", "m.cc")] {
        let strict = ["-Wall", "-Wextra", "-Werror", "-O2"];
        let line = ["cc", "--", compiler, source, "-o", "m"];
        good(ichnos(&folder, &[&line[..], &strict].concat()));
        let line = ["record", "-q", "-o", "t.ichnos", "--start", "marker:on", "--stop"];
        good(ichnos(&folder, &[&line[..], &["marker:off", "--", "./m"]].concat()));
        good(ichnos(&folder, &["check", "t.ichnos"]));
        let dump = ichnos(&folder, &["dump", "--symbols", "t.ichnos"]).stdout;
        let on = dump.lines().filter(|l| l.contains("mode-switch") && l.contains("inst")).count();
        assert_eq!(on, 3, "{dump}");
        let told = |name: &str| dump.lines().any(|l| l.contains(" I ") && l.contains(name));
        assert!(told("work") && !told("beside"), "{dump}");
    }
}

/// Functions have events of their own: one without any never begins a sample, one with loops does so at turns.
#[test]
fn functions_have_events_of_their_own() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "ocean.c", "-O2") else { return };
    let args = ["2", "15", "1"];
    let plan = |events_for: Vec<(String, asm::Events)>| {
        let mut choice = asm::Choice::sample(10, 5);
        choice.events_for = events_for;
        record(&program, &args, Some(choice))
    };
    let every = plan(vec![]);
    let loops = plan(vec![("relax".into(), asm::Events::CallsAndLoops)]);
    let silent = plan(vec![("relax".into(), asm::Events::None)]);
    assert!(loops.switches > 2 * every.switches, "{} {}", loops.switches, every.switches);
    assert!(silent.switches < every.switches, "{} {}", silent.switches, every.switches);
    for parts in [every, loops, silent] {
        assert_eq!(parts.marks, Vec::<String>::new());
    }
}

/// The shipped tool sees samples and estimates the whole; the estimate lies near what the whole gives.
#[test]
fn a_tool_sees_the_samples() {
    let folder = Folder::new();
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin");
    let (include, source) = (plugin.join("include"), plugin.join("examples/six.c"));
    let line = ["-O2", "-shared", "-fPIC", "-I", include.to_str().unwrap(), "-o", "libsix.so"];
    good(native(&folder, "cc", &[&line[..], &[source.to_str().unwrap()]].concat()));
    let Some(program) = build(&folder, "objects.cc", "-O2") else { return };
    let counts = |flags: &[&str]| -> Vec<u64> {
        let line = [&["record", "--tool", "./libsix.so"], flags, &["--", &program, "200"]].concat();
        let run = good(ichnos(&folder, &line));
        let of = |line: &str| {
            line.rsplit(": ").next()?.split(", ratio").next()?.replace(',', "").parse().ok()
        };
        run.stderr.lines().filter_map(of).collect()
    };
    let whole = counts(&[]);
    let part = counts(&["--sample", "200:50"]);
    // References; misses of six caches; their bounds; samples.
    assert_eq!((whole.len(), part.len()), (20, 20), "{whole:?} {part:?}");
    assert!(part[19] > 100, "{} samples", part[19]);
    assert!(part[0] > whole[0] / 10 && part[0] < whole[0] / 3, "{whole:?} {part:?}");
    // The interval of each cache holds what the whole run has.
    let line = ["record", "--tool", "./libsix.so", "--sample", "200:50", "--", &program, "200"];
    let run = good(ichnos(&folder, &line));
    let intervals = run.stderr.lines().filter(|l| l.contains("ratio ") && !l.contains(", at "));
    let intervals: Vec<(f64, f64)> = intervals
        .map(|l| l.split(", ").last().unwrap().split_whitespace().collect::<Vec<_>>())
        .map(|w| (w[0].parse().unwrap(), w[2].parse().unwrap()))
        .collect();
    assert_eq!(intervals.len(), 6, "{}", run.stderr);
    for ((from, to), misses) in intervals.iter().zip(&whole[1..7]) {
        let ratio = *misses as f64 / whole[0] as f64;
        assert!((*from..=*to).contains(&ratio), "{from} to {to}: {ratio}");
    }
    let line = ["record", "--tool", "./libsix.so", "--sample", "200:50", "--warm-up", "300", "--"];
    let run = good(ichnos(&folder, &[&line[..], &[&program, "200"]].concat()));
    assert!(
        run.stderr.contains("4 ways, modulo, LRU: ") && run.stderr.contains("(95 %)"),
        "{}",
        run.stderr
    );
    let run = good(ichnos(&folder, &["record", "--trace", "events", "--", &program, "200"]));
    assert!(run.stderr.contains("standard deviation"), "{}", run.stderr);
}
