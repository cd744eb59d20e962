//! Programs built by `ichnos cc` of which parts are recorded: two copies of their code, and threads that switch
//! between them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ichnos_base::{Batch, Event, GuestVa, MapKind, Mode, Record, Sink, ThreadId};
use ichnos_collect_asm as asm;
use ichnos_testkit::guest;

use crate::inline_kernels::build;
use crate::inline_projects;
use crate::support::{Folder, good, ichnos, native, paused, shell};

/// A window of a thread: how many events were passed over before it, and what is in it.
type Window = (u64, Vec<Record>);

/// Keeps everything, cut at gaps that count.
#[derive(Default)]
struct Parts {
    threads: BTreeMap<u32, Vec<Window>>,
    mode: BTreeMap<u32, Mode>,
    switches: usize,
    marks: Vec<String>,
    bias: Option<u64>,
    name: String,
    times: Vec<u64>,
}

impl Parts {
    fn of(&mut self, thread: u32) -> &mut Vec<Window> {
        self.threads.entry(thread).or_insert_with(|| vec![(0, Vec::new())])
    }
}

impl Sink for Parts {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let thread = batch.thread.0;
        assert_ne!(self.mode.get(&thread), Some(&Mode::Exec), "records in exec mode");
        if let Some((_, window)) = self.of(thread).last_mut() {
            window.extend(batch.records);
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::Gap { skipped: Some(count), .. } => {
                self.of(thread.0).push((*count, Vec::new()));
            }
            Event::ModeSwitch { mode } => {
                let before = self.mode.insert(thread.0, *mode);
                assert_ne!(before, Some(*mode), "two switches to one mode");
                self.switches += 1;
            }
            Event::Marker { text, .. } => self.marks.push((*text).to_owned()),
            Event::Map(map) if map.kind == MapKind::IMAGE && map.path == self.name => {
                self.bias.get_or_insert(map.bias);
            }
            Event::Timestamp { ns } => self.times.push(*ns),
            _ => {}
        }
        Ok(true)
    }
}

fn record(program: &str, args: &[&str], choice: Option<asm::Choice>) -> Parts {
    let mut config = asm::Config::new(program, args.iter().map(Into::into));
    config.choice = choice;
    let name = std::fs::canonicalize(program).unwrap().to_string_lossy().into_owned();
    let mut parts = Parts { name, ..Parts::default() };
    let outcome = asm::record(&config, &mut parts).expect("it can be recorded");
    assert_eq!(outcome.status, ichnos_base::EndStatus::Exited(0), "{program}");
    parts
}

/// A program's events: first instructions of functions, as the trace has them.
struct Entries(HashSet<GuestVa>);

impl Entries {
    fn new(program: &str, whole: &Parts) -> Self {
        let bias = whole.bias.unwrap_or(0);
        let entries = asm::entries(Path::new(program)).expect("the program can be read");
        assert!(!entries.is_empty());
        Self(entries.into_iter().map(|e| e.offset(bias)).collect())
    }

    fn is(&self, record: &Record) -> bool {
        matches!(record, Record::Insn { pc, .. } if self.0.contains(pc))
    }
}

/// Checks that every sample is the same window of the whole trace: as many events from its beginning as the
/// gaps count, and as long as it should be. Answers how many samples there were.
#[track_caller]
fn samples_are_windows(program: &str, args: &[&str], (skipped, recorded): (u64, u64)) -> usize {
    let whole = record(program, args, None);
    let parts = record(program, args, Some(asm::Choice::sample(skipped, recorded)));
    assert_eq!(parts.marks, Vec::<String>::new(), "{program}");
    let entries = Entries::new(program, &whole);
    let mut samples = 0;
    for (thread, windows) in &parts.threads {
        let all: Vec<Record> = whole.threads[thread].iter().flat_map(|w| w.1.clone()).collect();
        let is_event = |(_, record): &(usize, &Record)| entries.is(record);
        let events: Vec<usize> = all.iter().enumerate().filter(is_event).map(|e| e.0).collect();
        let mut event = 0;
        for (passed, window) in windows {
            event += usize::try_from(*passed).unwrap();
            if window.is_empty() {
                continue;
            }
            let from = events[event];
            let same = all.get(from..from + window.len());
            let differs = window.iter().zip(same.into_iter().flatten()).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{program}: thread {thread}, event {event}");
            assert!(same.is_some(), "{program}: thread {thread}: a sample beyond the end");
            let seen = window.iter().filter(|r| entries.is(r)).count();
            event += seen;
            samples += 1;
            let end = events.get(event).copied();
            // The last one may be cut by the thread's end.
            assert!(seen as u64 == recorded || end.is_none(), "{program}: {seen} events");
            assert!(end.is_none_or(|e| e == from + window.len()), "{program}: a sample ends early");
        }
        assert_eq!(event, events.len(), "{program}: thread {thread}: all events");
    }
    samples
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn samples_of_kernels_are_windows_of_the_whole() {
    let folder = Folder::new();
    for (source, args) in [
        ("fft.c", "2 6 1"),
        ("lu.c", "2 16 8 rows"),
        ("lu.c", "2 16 8 contiguous"),
        ("radix.c", "2 60 1"),
        ("ocean.c", "2 15 1"),
        ("objects.cc", "20"),
        ("waves.f90", "10 2"),
    ] {
        for flags in ["-O2", "-O0"] {
            let Some(program) = build(&folder, source, flags) else { continue };
            let found: usize = [(1, 1), (2, 1), (7, 3), (100, 10)]
                .map(|plan| samples_are_windows(&program, &words(args), plan))
                .iter()
                .sum();
            assert!(found > 1, "{source} {flags}: {found} samples");
        }
    }
}

#[test]
fn samples_of_real_programs_are_windows_of_the_whole() {
    let folder = Folder::new();
    folder.write("text", "all work and no play makes jack a dull boy\n".repeat(40).as_bytes());
    folder.write(
        "a.lua",
        b"local function f(n) if n < 2 then return n end return f(n-1) + f(n-2) end\nprint(f(9))\n",
    );
    for (name, args) in [("bzip2", "-9kc text"), ("lua", "a.lua")] {
        let Some(program) = inline_projects::build(&folder, name, "-O2") else { continue };
        let program = program.to_str().unwrap();
        let args: Vec<String> = words(args)
            .iter()
            .map(|w| folder.path().join(w))
            .map(|p| if p.exists() { p.to_string_lossy().into_owned() } else { "-9kc".into() })
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let found = samples_are_windows(program, &args, (7, 3));
        assert!(found > 3, "{name}: {found} samples");
    }
}

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

/// Builds the guest in which everything happens at once.
fn turmoil(folder: &Folder) -> String {
    let program = folder.path().join("turmoil").to_str().unwrap().to_owned();
    let source = guest::folder().join("turmoil.cc");
    let source = source.to_str().unwrap();
    good(ichnos(folder, &["cc", "--", "g++", "-O2", "-pthread", source, "-o", &program]));
    program
}

#[test]
fn switching_often_changes_nothing() {
    let folder = Folder::new();
    let program = turmoil(&folder);
    let alone = native(&folder, &program, &["8", "800"]);
    for plan in ["1:1", "3:2", "40:7"] {
        let line = ["record", "-q", "-o", "t.ichnos", "--sample", plan, "--", &program];
        let traced = ichnos(&folder, &[&line[..], &["8", "800"]].concat());
        assert_eq!(
            (traced.status, &traced.stdout),
            (0, &alone.stdout),
            "{plan}: {}",
            traced.stderr
        );
        good(ichnos(&folder, &["check", "t.ichnos"]));
        let dump = ichnos(&folder, &["dump", "t.ichnos"]).stdout;
        assert!(!dump.contains("events instead of"), "{plan}: a sample is uneven");
    }
}

/// The word changes all the time while threads, exceptions, signals and jumps go on. With `ICHNOS_INLINE=all`
/// for a minute.
#[test]
fn a_word_switched_without_rest_changes_nothing() {
    let folder = Folder::new();
    let program = turmoil(&folder);
    let long = std::env::var("ICHNOS_INLINE").as_deref() == Ok("all");
    let time = Duration::from_secs(if long { 60 } else { 2 });
    let alone = native(&folder, &program, &["8", "600"]);
    let file = folder.path().join("word");
    let word = Arc::new(asm::Word::open(&file).expect("a word"));
    let over = Arc::new(AtomicBool::new(false));
    let (mine, ends) = (Arc::clone(&word), Arc::clone(&over));
    let writer = std::thread::spawn(move || {
        let mut changes = 0u64;
        while !ends.load(Ordering::Relaxed) {
            mine.set((changes % 2) as u32).expect("it can be written");
            changes += 1;
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(8) {
                std::hint::spin_loop();
            }
        }
        changes
    });
    let (begun, mut runs) = (Instant::now(), 0);
    while begun.elapsed() < time || runs < 2 {
        let line = ["record", "-o", "none", "-q", "--shared", file.to_str().unwrap(), "--"];
        let traced = ichnos(&folder, &[&line[..], &[&program, "8", "600"]].concat());
        assert_eq!((traced.status, &traced.stdout), (0, &alone.stdout), "{}", traced.stderr);
        runs += 1;
    }
    over.store(true, Ordering::Relaxed);
    let changes = writer.join().expect("the writer ends");
    assert!(changes > 1000, "{changes}");
}

/// Builds a program that works until a file is there.
fn worker(folder: &Folder, name: &str) -> String {
    folder.write(
        &format!("{name}.c"),
        b"#include <unistd.h>\n#include <stdio.h>\n\
          __attribute__((noinline)) unsigned step(unsigned x) { return x * 1664525u + 1013904223u; }\n\
          int main(int c, char **v) { unsigned x = c; if (c > 2) fclose(fopen(v[2], \"w\"));\n\
          while (access(v[1], 0) != 0) {\n\
          for (int i = 0; i < 20; i++) x = step(x);\n usleep(300); }\n return x == 1; }\n",
    );
    let program = folder.path().join(name).to_str().unwrap().to_owned();
    let source = format!("{program}.c");
    good(ichnos(folder, &["cc", "--", "gcc", "-O2", &source, "-o", &program]));
    program
}

#[test]
fn a_recording_is_switched_by_its_number() {
    let folder = Folder::new();
    let program = worker(&folder, "work");
    let mut recorder = paused(&folder, &[&program, "done"]);
    let number = recorder.id().to_string();
    let switch = |to: &str| ichnos(&folder, &["control", &number, to]);
    std::thread::sleep(Duration::from_millis(100));
    good(switch("on"));
    std::thread::sleep(Duration::from_millis(50));
    good(switch("off"));
    std::thread::sleep(Duration::from_millis(50));
    folder.write("done", b"");
    assert!(recorder.wait().expect("it ends").success());
    good(ichnos(&folder, &["check", "t.ichnos"]));
    let dump = ichnos(&folder, &["dump", "t.ichnos"]).stdout;
    let modes: Vec<&str> = dump.lines().filter(|l| l.contains("mode-switch")).collect();
    assert_eq!(modes.len(), 3, "exec, inst, exec: {modes:?}");
    assert!(dump.lines().any(|l| l.contains(" I ")));
}

/// Two processes of one program and another program, each with its own recording, switched by one word.
#[test]
fn recordings_are_switched_together() {
    let folder = Folder::new();
    let (one, two) = (worker(&folder, "one"), worker(&folder, "two"));
    let runs = [(&one, "a"), (&one, "b"), (&two, "c")];
    let begun = Instant::now();
    let recorders: Vec<_> = runs
        .iter()
        .map(|(program, name)| {
            let file = format!("{name}.ichnos");
            Command::new(env!("CARGO_BIN_EXE_ichnos"))
                .args([
                    "record", "-q", "--shared", "word", "-o", &file, "--", program, "done", name,
                ])
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .spawn()
                .expect("it starts")
        })
        .collect();
    let all_run = || runs.iter().all(|(_, name)| folder.path().join(name).exists());
    while !all_run() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let line = ["control", "--file", "word", "--every", "300ms", "--for", "30ms", "--until", "4s"];
    good(ichnos(&folder, &line));
    folder.write("done", b"");
    for mut recorder in recorders {
        assert!(recorder.wait().expect("it ends").success());
    }
    let samples: Vec<Vec<(u64, u64)>> =
        runs.iter().map(|(_, name)| samples_of(&folder, name)).collect();
    for sample in &samples {
        assert!(sample.len() >= 2, "{samples:?}");
    }
    let overlap = |a: &(u64, u64), b: &(u64, u64)| a.0 < b.1 && b.0 < a.1;
    for other in &samples[1..] {
        let together = samples[0].iter().filter(|a| other.iter().any(|b| overlap(a, b))).count();
        assert!(together >= 2, "{samples:?}");
    }
}

/// The times between which a trace's only thread was recorded, in nanoseconds since 1970.
fn samples_of(folder: &Folder, name: &str) -> Vec<(u64, u64)> {
    let file = format!("{name}.ichnos");
    good(ichnos(folder, &["check", &file]));
    let program = env!("CARGO_BIN_EXE_ichnos");
    let line =
        format!("'{program}' dump --format jsonl {file} | grep -e started_ns -e '\"event\":'");
    let dump = shell(folder, &line).stdout;
    let lines: Vec<serde_json::Value> =
        dump.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect();
    let begun = lines.iter().find_map(|l| l["started_ns"].as_u64()).expect("when it began");
    let (mut now, mut since, mut samples) = (0, None, Vec::new());
    for line in &lines {
        match (line["event"].as_str(), line["mode"].as_str()) {
            (Some("timestamp"), _) => now = line["ns"].as_u64().unwrap_or(0) + begun,
            (Some("mode-switch"), Some("inst")) => since = Some(now),
            (Some("mode-switch"), _) => samples.extend(since.take().map(|since| (since, now))),
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
