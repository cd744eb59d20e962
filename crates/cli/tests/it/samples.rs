//! Samples of programs built by `ichnos cc`: each is the same window of the whole trace, record by record.
//!
//! The windows of a run are kept; the whole run is only looked at as it goes by, so that it can be a long one. All
//! programs of the benchmarks are compared, at their calls, and at their calls and loops: kernels, bzip2 and lua on small inputs, with
//! `ICHNOS_INLINE=all` sqlite3 and zstd as well, and all on inputs such as the benchmarks have.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use asm::Events::{Calls, CallsAndLoops, Loops};
use ichnos_base::{Batch, Event, Mode, Record, Sink, ThreadId};
use ichnos_collect_asm as asm;
use ichnos_flow::Level;

use crate::inline_compare::Loaded;
use crate::inline_kernels::build;
use crate::inline_projects;
use crate::support::Folder;

/// A window of a thread: how many events were passed over before it, and what is in it.
type Window = (u64, Vec<Record>);

/// Keeps everything, cut at gaps that count.
#[derive(Default)]
pub struct Parts {
    threads: BTreeMap<u32, Vec<Window>>,
    mode: BTreeMap<u32, Mode>,
    /// How often threads switched.
    pub switches: usize,
    /// What markers say: nothing, if all is well.
    pub marks: Vec<String>,
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
            _ => {}
        }
        Ok(true)
    }
}

/// Records a program, or the chosen parts of it.
#[track_caller]
pub fn record(program: &str, args: &[&str], choice: Option<asm::Choice>) -> Parts {
    let mut parts = Parts::default();
    into(program, args, (choice, Level::Flow), &mut parts);
    parts
}

#[track_caller]
fn into(
    program: &str,
    args: &[&str],
    (choice, level): (Option<asm::Choice>, Level),
    sink: &mut impl Sink<Error = Infallible>,
) {
    let mut config = asm::Config::new(program, args.iter().map(Into::into));
    (config.choice, config.level) = (choice, level);
    let outcome = asm::record(&config, sink).expect("it can be recorded");
    assert_eq!(outcome.status, ichnos_base::EndStatus::Exited(0), "{program}");
}

/// How a program is sampled: where it can switch, how many events are passed over and how many recorded, and how it is
/// planned.
#[derive(Clone, Copy, Debug)]
pub struct Plan(pub asm::Events, pub (u64, u64), pub Level);

/// The events of a program or library, by their places in its file, and by how much it was moved.
struct Places {
    loaded: Loaded,
    first: u64,
    is: Vec<bool>,
}

impl Places {
    fn new(image: &str, Plan(events, _, level): Plan) -> Self {
        let path = Path::new(image);
        let places = match events {
            Calls => asm::entries(path),
            _ => asm::event_places(path, events, level),
        };
        let places: Vec<u64> =
            places.expect("the program can be read").iter().map(|place| place.0).collect();
        let first = *places.iter().min().expect("it has events");
        let len = places.iter().max().map_or(0, |last| last - first + 1);
        let mut is = vec![false; usize::try_from(len).unwrap()];
        places.iter().for_each(|place| is[(place - first) as usize] = true);
        Self { loaded: Loaded::new(path), first, is }
    }

    /// Whether a record begins one.
    fn has(&self, record: &Record) -> bool {
        let (Record::Insn { pc, .. }, Some(bias)) = (record, self.loaded.bias) else {
            return false;
        };
        let at = pc.0.wrapping_sub(bias).wrapping_sub(self.first);
        usize::try_from(at).is_ok_and(|at| self.is.get(at) == Some(&true))
    }
}

/// How far a thread of the whole run is among its windows.
#[derive(Default)]
struct Progress {
    /// Events so far.
    event: u64,
    /// The window that is next or under way, and the event at which it begins.
    window: usize,
    begin: u64,
    /// If it is under way, how many records and events of it went by.
    inside: Option<(usize, u64)>,
}

/// Compares the samples of one plan with the whole run that goes by.
struct Comparison {
    name: String,
    plan: Plan,
    images: Vec<Places>,
    parts: Parts,
    threads: BTreeMap<u32, Progress>,
    samples: usize,
}

impl Comparison {
    fn new(images: &[&str], args: &[&str], plan: Plan) -> Self {
        let program = images[0];
        let Plan(events, (skipped, recorded), level) = plan;
        let mut choice = asm::Choice::sample(skipped, recorded);
        choice.events = events;
        let mut parts = Parts::default();
        into(program, args, (Some(choice), level), &mut parts);
        assert_eq!(parts.marks, Vec::<String>::new(), "{program}");
        let mut threads = BTreeMap::new();
        for (thread, windows) in &mut parts.threads {
            // Events passed over before a window that has nothing in it are passed over before the next one.
            let mut passed = 0;
            let mut kept: Vec<Window> = Vec::new();
            let last = windows.len().saturating_sub(1);
            for (i, (count, records)) in windows.drain(..).enumerate() {
                let exact = i == 0 || i == last || count == skipped;
                let early = skipped >= 64 && (skipped - 7..skipped).contains(&count);
                assert!(exact || early, "{program}: {plan:?}: a gap of {count} events");
                passed += count;
                if !records.is_empty() {
                    kept.push((std::mem::take(&mut passed), records));
                }
            }
            kept.push((passed, Vec::new()));
            let begin = kept[0].0;
            *windows = kept;
            threads.insert(*thread, Progress { begin, ..Progress::default() });
        }
        let name = format!("{program} {args:?}, {plan:?}");
        let images = images.iter().map(|image| Places::new(image, plan)).collect();
        Self { name, plan, images, parts, threads, samples: 0 }
    }

    fn records(&mut self, batch: &Batch<'_>) {
        let (name, thread) = (&self.name, batch.thread.0);
        let windows = &self.parts.threads[&thread];
        let now = self.threads.get_mut(&thread).expect("it was sampled, too");
        for record in batch.records {
            let event = self.images.iter().any(|places| places.has(record));
            let window = &windows[now.window].1;
            if let Some((at, seen)) = now.inside
                && at == window.len()
            {
                assert!(event, "{name}: thread {thread}: a sample ends early");
                assert_eq!(seen, self.plan.1.1, "{name}: thread {thread}: events of a sample");
                now.window += 1;
                now.begin = now.event + windows[now.window].0;
                now.inside = None;
            }
            let window = &windows[now.window].1;
            if event && now.inside.is_none() && now.event == now.begin && !window.is_empty() {
                now.inside = Some((0, 0));
                self.samples += 1;
            }
            now.event += u64::from(event);
            if let Some((at, seen)) = &mut now.inside {
                let same = windows[now.window].1[*at];
                assert_eq!(
                    same, *record,
                    "{name}: thread {thread}: record {at} of the sample at event {}",
                    now.begin
                );
                (*at, *seen) = (*at + 1, *seen + u64::from(event));
            }
        }
    }

    /// The whole is over: so are all threads' windows. The last one may be cut by the thread's end.
    fn end(&self) {
        let name = &self.name;
        for (thread, now) in &self.threads {
            let windows = &self.parts.threads[thread];
            let (passed, left) = match now.inside {
                Some((at, _)) => {
                    assert_eq!(at, windows[now.window].1.len(), "{name}: a sample beyond the end");
                    (now.event + windows[now.window + 1].0, &windows[now.window + 2..])
                }
                None => (now.begin, &windows[now.window + 1..]),
            };
            assert!(left.is_empty(), "{name}: thread {thread}: {} samples too many", left.len());
            assert_eq!(passed, now.event, "{name}: thread {thread}: all events");
        }
    }
}

/// A whole run, looked at as it goes by.
struct Whole<'a>(&'a mut [Comparison]);

impl Sink for Whole<'_> {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.0.iter_mut().for_each(|one| one.records(batch));
        Ok(true)
    }

    fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        let images = self.0.iter_mut().flat_map(|one| &mut one.images);
        images.for_each(|places| places.loaded.event(event));
        Ok(true)
    }
}

/// Checks that every sample is the same window of the whole trace: as many events from its beginning as the
/// gaps count, as long as it should be, and equal. Answers how many samples each plan had.
#[track_caller]
pub fn samples_are_windows(program: &str, args: &[&str], plans: &[Plan]) -> Vec<usize> {
    samples_of_images(&[program], args, plans)
}

/// The same of a program with libraries.
#[track_caller]
pub fn samples_of_images(images: &[&str], args: &[&str], plans: &[Plan]) -> Vec<usize> {
    let mut compared: Vec<_> =
        plans.iter().map(|plan| Comparison::new(images, args, *plan)).collect();
    let program = images[0];
    into(program, args, (None, Level::Flow), &mut Whole(&mut compared));
    compared.iter().for_each(Comparison::end);
    let samples: Vec<usize> = compared.iter().map(|one| one.samples).collect();
    if long() {
        // Who asks for the long run wants the figures.
        let mut told = format!("{program} {args:?}:");
        for (Plan(events, (skipped, recorded), _), samples) in plans.iter().zip(&samples) {
            let _ = write!(told, " {events:?} {skipped}:{recorded} {samples},");
        }
        let _ = writeln!(std::io::stderr(), "{told} all equal");
    }
    samples
}

fn long() -> bool {
    std::env::var("ICHNOS_INLINE").as_deref() == Ok("all")
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// As `ichnos record --sample` does it.
const AS_USED: [Plan; 4] = [
    Plan(Calls, (1000, 10), Level::Superblock),
    Plan(Calls, (300, 100), Level::Superblock),
    Plan(CallsAndLoops, (1000, 10), Level::Superblock),
    Plan(CallsAndLoops, (1000, 100), Level::Superblock),
];

#[test]
fn samples_of_kernels_are_windows_of_the_whole() {
    let folder = Folder::new();
    let mut plans =
        [(1, 1), (2, 1), (7, 3), (100, 10)].map(|p| Plan(Calls, p, Level::Flow)).to_vec();
    plans.extend([(1, 1), (50, 20)].map(|p| Plan(CallsAndLoops, p, Level::Flow)));
    plans.push(Plan(CallsAndLoops, (20, 7), Level::Superblock));
    plans.push(Plan(Loops, (20, 7), Level::Flow));
    for (source, small, larger) in [
        ("fft.c", "2 6 1", "2 14 4"),
        ("lu.c", "2 16 8 rows", "2 160 16 rows"),
        ("lu.c", "2 16 8 contiguous", "2 160 16 contiguous"),
        ("radix.c", "2 60 1", "2 200000 1"),
        ("ocean.c", "2 15 1", "2 127 10"),
        ("objects.cc", "20", "200"),
        ("waves.f90", "10 2", "100 30"),
    ] {
        for flags in ["-O2", "-O0"] {
            let Some(program) = build(&folder, source, flags) else { continue };
            let found = samples_are_windows(&program, &words(small), &plans);
            let (calls, loops) = found.split_at(4);
            assert!(calls.iter().sum::<usize>() > 1, "{source} {flags}: {found:?} samples");
            assert!(loops.iter().all(|found| *found > 3), "{source} {flags}: {found:?} samples");
        }
        if long() {
            let Some(program) = build(&folder, source, "-O2") else { continue };
            let found = samples_are_windows(&program, &words(larger), &AS_USED);
            // Some kernels hardly call anything.
            assert!(found[2..].iter().all(|found| *found > 100), "{source}: {found:?} samples");
        }
    }
}

#[test]
fn samples_of_real_programs_are_windows_of_the_whole() {
    let folder = Folder::new();
    let rows = if long() { 4000 } else { 20 };
    let text = |line: usize| format!("{} line {line}, {:x}\n", line * 7919 % 1009, line * line);
    folder.write("text", (0..rows * 2).map(text).collect::<String>().as_bytes());
    let (n, items) = if long() { (18, 8000) } else { (9, 20) };
    let script = format!(
        "local function f(n) if n < 2 then return n end return f(n-1) + f(n-2) end\n\
         local t = {{}} for i = 1, {items} do t[i] = (i * 7919) % 10007 end table.sort(t)\n\
         local w = {{}} for i = 1, {items} do local k = 'k' .. i % 51; w[k] = (w[k] or 0) + t[i] end\n\
         print(f({n}), w.k7, pcall(error, 'thrown'))\n"
    );
    folder.write("a.lua", script.as_bytes());
    let statements = format!(
        "create table t(id integer primary key, name text, n int);\n\
         with recursive c(i) as (select 1 union all select i + 1 from c where i < {rows})\n\
         insert into t select i, 'name' || (i * 7919 % 1009), i * 31 % 97 from c;\n\
         create index x on t(n, name);\n\
         select n % 10, count(*), sum(length(name)) from t group by n % 10;\n"
    );
    folder.write("a.sql", statements.as_bytes());
    let all = [
        ("bzip2", vec!["-9kc", "text"]),
        ("lua", vec!["a.lua"]),
        ("sqlite3", vec![":memory:", ".read a.sql"]),
        // Without threads whose ways depend on who comes first.
        ("zstd", vec!["-q", "-9", "-c", "--single-thread", "--no-asyncio", "text"]),
    ];
    for (name, args) in all.into_iter().take(if long() { 4 } else { 2 }) {
        let Some(program) = inline_projects::build(&folder, name, "-O2") else { continue };
        let program = program.to_str().unwrap();
        let here = folder.path().to_str().unwrap();
        let whole = |word: &&str| match *word {
            ".read a.sql" => format!(".read {here}/a.sql"),
            "text" | "a.lua" => format!("{here}/{word}"),
            _ => (*word).to_owned(),
        };
        let args: Vec<String> = args.iter().map(whole).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut plans = vec![
            Plan(Calls, (7, 3), Level::Flow),
            Plan(CallsAndLoops, (50, 20), Level::Superblock),
            // So many that functions which call each other first are one check.
            Plan(Calls, (64, 5), Level::Flow),
            Plan(CallsAndLoops, (101, 20), Level::Superblock),
        ];
        plans.extend(AS_USED.iter().filter(|_| long()));
        let found = samples_are_windows(program, &args, &plans);
        // bzip2 calls little for so short a text.
        assert!(found.iter().all(|found| *found > 0), "{name}: {found:?} samples");
        assert!(found[..2].iter().all(|found| *found > 3), "{name}: {found:?} samples");
        if name == "lua" {
            let parts = record(program, &args, Some(asm::Choice::sample(64, 5)));
            let mut gaps =
                parts.threads.values().flat_map(|windows| &windows[1..windows.len() - 1]);
            assert!(gaps.any(|(count, _)| *count < 64), "no sample begins at two events at once");
        }
    }
}
