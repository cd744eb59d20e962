//! A command recorded and stepped, and where the two first differ.
//!
//! Traces of long runs do not fit into memory as text, so lines are compared by the digests of portions; the portion that
//! differs is then read again to show it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use ichnos_testkit::tool;

use crate::support::{Folder, Run, good, ichnos, native};

const ENVIRONMENT: [(&str, &str); 6] = [
    ("GLIBC_TUNABLES", "glibc.pthread.rseq=0:glibc.malloc.tcache_count=0"),
    ("LC_ALL", "C"),
    ("PATH", "/usr/bin:/bin"),
    ("PERL_HASH_SEED", "0"),
    ("PYTHONHASHSEED", "0"),
    ("TORTURE", "yes"),
];

/// A library by which it is always the same time, and a program always has the same number. It is loaded into the collector
/// too, which must know its own number.
const PINS: &str = "pins.so";
const PINS_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>
#include <unistd.h>
time_t time(time_t *t) { if (t) *t = 1600000000; return 1600000000; }
int clock_gettime(clockid_t c, struct timespec *t) { t->tv_sec = 1600000000; t->tv_nsec = 0; return 0; }
int gettimeofday(struct timeval *t, void *z) { t->tv_sec = 1600000000; t->tv_usec = 0; return 0; }
clock_t times(struct tms *t) { if (t) *t = (struct tms){ 0 }; return 1600000000; }
static int collects(void) {
    const char *name = program_invocation_short_name, *own = "ichnos";
    while (*name && *name == *own) name++, own++;
    return *name == *own;
}
pid_t getpid(void) { return collects() ? syscall(SYS_getpid) : 4321; }
pid_t getppid(void) { return collects() ? syscall(SYS_getppid) : 1234; }
"#;

/// How a command is compared.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// All threads of one recording, from beginning to end.
    Whole,
    /// Stepped for so many instructions only, which must be the first of those recorded.
    First(u64),
    /// Threads or processes that run at once: whether a lock is free, who comes first to a queue and who must sleep is a
    /// matter of luck, in two recordings as well. Each thread must be as stepped in one of several, made under different rules
    /// of who runs when.
    Free,
    /// The same, but not of the first thread, which waits for several others: whether it must sleep each time is too much luck.
    Made,
}

/// Who runs when.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// As the system likes.
    Usual,
    /// All on one processor.
    Held,
    /// The same, each until it sleeps.
    InTurn,
}

/// Where programs run, and where their traces are kept, which they must not see.
pub struct Place {
    pub folder: Folder,
    traces: Folder,
    /// The processor that programs are held to, with their collector: a step is then no errand to another one.
    pub processor: Option<usize>,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: Folder::new(), traces: Folder::new(), processor: None }
    }

    /// Gives dynamic programs the same time and the same number always.
    pub fn pin(&self) {
        self.folder.write("pins.c", PINS_SOURCE.as_bytes());
        let args = ["-shared", "-fPIC", "-O1", "-o", PINS, "pins.c"];
        good(native(&self.folder, "gcc", &args));
    }

    fn command(&self, rule: Rule) -> Command {
        let number = self.processor.unwrap_or(0).to_string();
        let held = ["taskset", "-c", &number];
        let words = match (rule, self.processor) {
            (Rule::Usual, _) | (Rule::Held, None) => Vec::new(),
            (Rule::Held, Some(_)) => held.to_vec(),
            (Rule::InTurn, _) => [&["chrt", "-f", "1"][..], &held].concat(),
        };
        let own = env!("CARGO_BIN_EXE_ichnos");
        let mut words = words.into_iter().chain([own]);
        let mut command = Command::new(words.next().unwrap_or(own));
        command.args(words);
        command
    }

    fn collect(&self, line: &mut Command, verb: &str, options: &[&str], command: &[&str]) -> Run {
        let pins = self.folder.path().join(PINS);
        let preload = pins.exists().then_some(("LD_PRELOAD", pins));
        let file = self.traces.path().join(verb).with_extension("ichnos");
        line.args([verb, "-q", "--no-vdso", "-o"]).arg(file);
        line.args(options).arg("--").args(command);
        line.current_dir(self.folder.path()).env_clear().envs(ENVIRONMENT).envs(preload);
        line.stdin(Stdio::null()).output().expect("ichnos runs").into()
    }
}

/// Whether a program may be run until it sleeps.
fn may_run_in_turn() -> bool {
    let mut chrt = Command::new("chrt");
    chrt.args(["-f", "1", "true"]).stderr(Stdio::null());
    chrt.status().is_ok_and(|status| status.success()) && tool::find("taskset").is_some()
}

/// System calls that give the system's number of a process or thread.
const NUMBERS: [u64; 13] = [39, 56, 57, 58, 61, 110, 111, 112, 121, 124, 186, 218, 435];

/// How many arguments system calls have; of others all six are compared.
fn arguments(number: u64) -> usize {
    match number {
        15 | 24 | 39 | 57 | 58 | 102 | 104 | 107 | 108 | 110 | 111 | 112 | 186 => 0,
        3 | 12 | 22 | 32 | 60 | 63 | 80 | 81 | 87 | 95 | 99 | 121 | 124 | 201 | 218 | 231 => 1,
        // Of a futex the address and what is done.
        202 => 2,
        4 | 5 | 6 | 11 | 21 | 33 | 35 | 62 | 200 | 77 | 79 | 82 | 83 | 90 | 91 | 96..=98 => 2,
        115 | 131 | 137 | 158 | 160 | 228 | 229 | 273 | 293 | 435 => 2,
        0..=2 | 7 | 8 | 10 | 16 | 20 | 28 | 41 | 42 | 59 | 72 | 89 | 92 | 94 | 120 => 3,
        129 | 203 | 204 | 217 | 234 | 258 | 263 | 269 | 292 | 318 | 436 => 3,
        13 | 14 | 17 | 18 | 61 | 221 | 230 | 257 | 262 | 264 | 267 | 280 | 302 | 334 | 439 => 4,
        25 | 56 | 157 | 247 | 271 | 316 | 332 => 5,
        _ => 6,
    }
}

/// A line of `dump` as it is compared, if it is: thread, and the rest.
fn normal(line: &str) -> Option<(u32, String)> {
    let mut words = line.splitn(3, ' ');
    let thread = words.next()?.parse().ok()?;
    let rest = words.nth(1)?;
    let Some(event) = rest.strip_prefix("E ") else { return Some((thread, rest.to_owned())) };
    let mut fields = event.split(' ');
    let name = fields.next()?;
    let mut field = |key: &str| fields.next()?.strip_prefix(key)?.strip_prefix('=');
    // Whom a signal is sent to, who is waited for, and whose processors are asked for, is given by the system's numbers.
    let whom = |number: u64| match number {
        61 | 62 | 129 | 200 | 203 | 204 => 1,
        234 => 2,
        _ => 0,
    };
    let text = match name {
        "timestamp" | "lock" | "cond" | "barrier" | "thread-join" => return None,
        "thread-start" => {
            let own = |f: &&str| !f.starts_with("os_");
            event.split(' ').filter(own).collect::<Vec<_>>().join(" ")
        }
        "syscall" => {
            let number = field("number")?.parse().ok()?;
            let args = field("args")?.split(',').take(arguments(number)).skip(whom(number));
            let args: Vec<&str> = args.collect();
            format!("syscall {number} {args:?}")
        }
        "syscall-return" => {
            let (number, result) = (field("number")?.parse().ok()?, field("result")?);
            let is_number = NUMBERS.contains(&number) && !result.starts_with(['-', '0']);
            format!("return of {number}: {}", if is_number { "a number" } else { result })
        }
        "map" => nameless(event),
        _ => event.to_owned(),
    };
    Some((thread, text))
}

/// A mapping's event without the number by which the system names a file that has no name.
fn nameless(event: &str) -> String {
    match event.split_once("/#") {
        Some((before, rest)) if rest.ends_with(" (deleted)\"") => format!("{before}/#"),
        _ => event.to_owned(),
    }
}

/// Calls for each line of a trace that is compared: its thread, its number in the thread, and the line.
fn each_line(place: &Place, file: &str, how: How, mut tell: impl FnMut(u32, usize, String)) {
    let range = match how {
        How::First(first) => format!("0..{first}"),
        How::Whole | How::Free | How::Made => format!("0..{}", u64::MAX),
    };
    let mut dump = Command::new(env!("CARGO_BIN_EXE_ichnos"))
        .args(["dump", "--range", &range, file])
        .current_dir(place.traces.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ichnos runs");
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    let mut count_and_tell = |thread: u32, line: String| {
        let count = counts.entry(thread).or_default();
        tell(thread, *count, line);
        *count += 1;
    };
    // A call that ends its own process, by a signal or a filter, seems to return when it is stepped.
    let mut returns: BTreeMap<u32, String> = BTreeMap::new();
    for line in BufReader::new(dump.stdout.take().expect("it is piped")).lines() {
        let Some((thread, line)) = normal(&line.expect("text")) else { continue };
        let before = returns.remove(&thread);
        if let Some(before) = before.filter(|_| !line.starts_with("thread-end killed=")) {
            count_and_tell(thread, before);
        }
        if line.starts_with("return of ") {
            returns.insert(thread, line);
        } else {
            count_and_tell(thread, line);
        }
    }
    returns.into_iter().for_each(|(thread, line)| count_and_tell(thread, line));
    assert!(dump.wait().expect("it ends").success(), "{file} cannot be dumped");
}

/// Lines in a portion.
const PORTION: usize = 1 << 12;

/// A thread's lines: how many, how many instructions among them, how many before those that follow the last instruction, and
/// a digest of each portion.
#[derive(Default)]
struct Stream {
    lines: usize,
    insns: usize,
    last_insn: usize,
    portions: Vec<u64>,
    digest: DefaultHasher,
}

impl Stream {
    fn add(&mut self, line: &str) {
        line.hash(&mut self.digest);
        self.lines += 1;
        if line.starts_with("I ") {
            self.insns += 1;
            self.last_insn = self.lines;
        }
        if self.lines.is_multiple_of(PORTION) {
            self.portions.push(self.digest.finish());
        }
    }

    fn equals(&self, other: &Self) -> bool {
        self.lines == other.lines && self.digest.finish() == other.digest.finish()
    }
}

fn streams(place: &Place, file: &str, how: How) -> BTreeMap<u32, Stream> {
    let mut threads: BTreeMap<u32, Stream> = BTreeMap::new();
    each_line(place, file, how, |thread, _, line| threads.entry(thread).or_default().add(&line));
    threads
}

/// The lines of a thread from a portion on, up to three portions of them.
fn portion(place: &Place, file: &str, how: How, [thread, number]: [usize; 2]) -> Vec<String> {
    let wanted = number * PORTION..(number + 3) * PORTION;
    let mut lines = Vec::new();
    each_line(place, file, how, |id, at, line| {
        if id as usize == thread && wanted.contains(&at) {
            lines.push(line);
        }
    });
    lines
}

const RECORDED: &str = "record.ichnos";
const STEPPED: &str = "step.ichnos";

/// Where a thread's lines first differ.
fn first_difference(place: &Place, thread: u32, how: How) -> Option<String> {
    let files = [RECORDED, STEPPED];
    let from = |file: &str| streams(place, file, how).remove(&thread).unwrap_or_default();
    let [a, b] = files.map(from);
    let same = a.portions.iter().zip(&b.portions).take_while(|(x, y)| x == y).count();
    // Some lines before the one that differs are shown too.
    let begin = same.saturating_sub(1);
    let [got, want] = files.map(|file| portion(place, file, how, [thread as usize, begin]));
    let equal = got.iter().zip(&want).take_while(|(x, y)| x == y).count();
    let at = begin * PORTION + equal;
    // Behind the last instruction of a thread that was ended is what ended it.
    if matches!(how, How::First(_)) && at >= b.last_insn {
        return None;
    }
    let mut text =
        format!("thread {thread} differs after {at} lines of {} and {}:", a.lines, b.lines);
    for (name, lines) in [("recorded", got), ("stepped", want)] {
        let _ = write!(text, "\n {name}:");
        for line in lines.iter().skip(equal.saturating_sub(6)).take(12) {
            let _ = write!(text, "\n  {line}");
        }
    }
    Some(text)
}

/// What was equal, to be shown.
#[derive(Debug)]
#[allow(dead_code, reason = "its fields are printed")]
pub struct Equal {
    pub threads: usize,
    pub insns: usize,
    pub lines: usize,
    /// How often the program was recorded until then.
    pub recordings: usize,
}

/// A command that was stepped, and what of it has been found in recordings.
struct Stepped<'a> {
    place: &'a Place,
    command: &'a [&'a str],
    how: How,
    run: Run,
    streams: BTreeMap<u32, Stream>,
    found: Vec<u32>,
}

impl<'a> Stepped<'a> {
    fn new(place: &'a Place, command: &'a [&'a str], how: How) -> Self {
        let limit = match how {
            How::First(first) => Some(first.to_string()),
            How::Whole | How::Free | How::Made => None,
        };
        let options: Vec<&str> = limit.iter().flat_map(|limit| ["--limit", limit]).collect();
        let run = place.collect(&mut place.command(Rule::Held), "step", &options, command);
        let streams = streams(place, STEPPED, how);
        Self { place, command, how, run, streams, found: Vec::new() }
    }

    /// Records the command, and says where that first differs.
    fn record(&mut self, rule: Rule) -> Result<(), String> {
        let Self { place, command, how, run, .. } = self;
        // Programs are short here: with as many paths as can be, there are some.
        let paths = ["--paths", "eager"];
        let record = place.collect(&mut place.command(rule), "record", &paths, command);
        let whole = !matches!(how, How::First(_));
        if whole && (record.status, &record.stdout) != (run.status, &run.stdout) {
            return Err(format!("they behave differently: {record:?} {run:?}"));
        }
        let check = ichnos(&place.traces, &["check", RECORDED]);
        if check.status != 0 {
            return Err(format!("the record is wrong: {}{}", check.stdout, check.stderr));
        }
        let got = streams(place, RECORDED, self.how);
        if whole && got.keys().ne(self.streams.keys()) {
            return Err(format!("threads {:?} and {:?}", got.keys(), self.streams.keys()));
        }
        let mut result = Ok(());
        let first = u32::from(matches!(self.how, How::Made));
        for (thread, want) in self.streams.range(first..) {
            let Some(got) = got.get(thread) else { return Err(format!("no thread {thread}")) };
            let same = want.equals(got);
            let difference = if same { None } else { first_difference(place, *thread, self.how) };
            match difference {
                None if !self.found.contains(thread) => self.found.push(*thread),
                None => {}
                Some(difference) if !self.found.contains(thread) => result = Err(difference),
                Some(_) => {}
            }
        }
        result
    }

    fn equal(&self, recordings: usize) -> Equal {
        let sum = |of: fn(&Stream) -> usize| self.streams.values().map(of).sum();
        let (insns, lines) = (sum(|stream| stream.insns), sum(|stream| stream.lines));
        Equal { threads: self.streams.len(), insns, lines, recordings }
    }
}

/// Steps and records a command; says where they first differ. Who came first when it was stepped is luck as well, so programs
/// whose threads run at once are stepped again before that is said.
pub fn compare(place: &Place, command: &[&str], how: How) -> Result<Equal, String> {
    let steppings = if matches!(how, How::Free | How::Made) { 3 } else { 1 };
    let mut result = Err(String::new());
    for _ in 0..steppings {
        result = compare_once(place, command, how);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn compare_once(place: &Place, command: &[&str], how: How) -> Result<Equal, String> {
    let mut stepped = Stepped::new(place, command, how);
    let rules = match how {
        // The clock ticks meanwhile, and a program may read it halfway.
        How::Whole | How::First(_) => vec![Rule::Held; 2],
        _ if may_run_in_turn() => [Rule::Usual, Rule::InTurn, Rule::Held].repeat(5),
        _ => [Rule::Usual, Rule::Held].repeat(8),
    };
    let mut last = String::new();
    for (before, rule) in rules.into_iter().enumerate() {
        if !matches!(how, How::Free | How::Made) {
            stepped.found.clear();
        }
        match stepped.record(rule) {
            Ok(()) => return Ok(stepped.equal(before + 1)),
            Err(difference) => last = difference,
        }
    }
    Err(last)
}
