//! What is recorded of a program when it is not everything: the very records that stand at the same
//! places of the whole, with gaps that count exactly what lies between.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;

use ichnos_base::{Batch, Event, Record, Sink, ThreadId};
use ichnos_collect_exec::{Choice, Function, Launch, Record as What, Vdso};

use super::{Link, PINNED, guest};

/// A thread's instructions, each with what belongs to it, and how many are missing before it.
#[derive(Default)]
struct Thread {
    insns: Vec<(u64, Vec<Record>)>,
    missing: u64,
}

#[derive(Default)]
struct Keep(BTreeMap<u32, Thread>);

impl Sink for Keep {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let thread = self.0.entry(batch.thread.0).or_default();
        for record in batch.records {
            if matches!(record, Record::Insn { .. }) {
                thread.insns.push((std::mem::take(&mut thread.missing), Vec::new()));
            }
            thread.insns.last_mut().expect("an instruction comes first").1.push(*record);
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if let Event::Gap { insns, .. } = event {
            self.0.entry(thread.0).or_default().missing += insns.expect("gaps are counted");
        }
        Ok(true)
    }
}

fn record(program: &Path, args: &[&str], choice: Option<Choice>) -> Keep {
    let mut launch = Launch::new(program);
    launch.record(What::All).vdso(Vdso::Hidden);
    if let Some(choice) = choice {
        launch.choose(choice);
    }
    let command = launch.command();
    command.args(args).env_clear().env(PINNED.0, PINNED.1);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut keep = Keep::default();
    launch.spawn().expect("it starts").collect(&mut keep).expect("it is collected");
    keep
}

/// Compares what a choice gives with the whole; gives how many instructions of all threads were recorded and
/// how many there are.
#[track_caller]
fn compare(whole: &Keep, part: &Keep) -> (usize, usize) {
    assert!(part.0.keys().all(|id| whole.0.contains_key(id)));
    let (mut recorded, mut all) = (0, 0);
    for (id, whole) in &whole.0 {
        all += whole.insns.len();
        let Some(part) = part.0.get(id) else { continue };
        let mut at = 0;
        for (missing, records) in &part.insns {
            at += *missing as usize;
            let want = whole.insns.get(at).map(|(_, records)| records);
            assert_eq!(Some(records), want, "thread {id}, instruction {at}");
            at += 1;
        }
        assert_eq!(at + part.missing as usize, whole.insns.len(), "thread {id}");
        recorded += part.insns.len();
    }
    (recorded, all)
}

#[test]
fn samples_are_windows_of_the_whole() {
    let programs = [guest("small", Link::Static), guest("varying", Link::Static)];
    for program in programs.iter().map(|p| p.as_path()).chain([Path::new("/bin/true")]) {
        let whole = record(program, &[], None);
        for sample in [(1000, 100), (37, 11), (5, 3000)] {
            let choice = Choice { sample: Some(sample), ..Choice::default() };
            let part = record(program, &[], Some(choice));
            let (recorded, all) = compare(&whole, &part);
            // Windows end with a block, so a short one may be several times as long as asked for.
            let share = sample.1 as f64 / (sample.0 + sample.1) as f64;
            let got = recorded as f64 / all as f64;
            assert!(got > share / 2.0 && got < share * 2.0 + 0.1, "{program:?} {sample:?} {got}");
            let again = record(program, &[], Some(choice));
            assert!(part.0.iter().zip(&again.0).all(|((_, a), (_, b))| a.insns == b.insns));
        }
    }
}

#[test]
fn a_window_begins_and_ends_where_it_is_told() {
    let program = guest("small", Link::Static);
    let whole = record(&program, &[], None);
    let choice = Choice { start: 5_000, stop: 9_000, ..Choice::default() };
    let part = record(&program, &[], Some(choice));
    let (recorded, _) = compare(&whole, &part);
    assert!((3_900..4_100).contains(&recorded), "{recorded}");
    assert!((5_000..5_100).contains(&part.0[&0].insns[0].0));
}

/// Signals, faults and restarted calls interrupt blocks that were counted; threads and children count for
/// themselves.
#[test]
fn nothing_is_lost_between_windows() {
    for name in ["signals", "processes", "threads"] {
        let program = guest(name, Link::Dynamic);
        let choice = Choice { sample: Some((100_000, 2_000)), ..Choice::default() };
        let mut launch = super::piped(&program, &[]);
        launch.record(What::All).choose(choice);
        launch.command().stdout(Stdio::null()).stderr(Stdio::null());
        let mut keep = Keep::default();
        let outcome = launch.spawn().expect("it starts").collect(&mut keep).expect("collected");
        assert_eq!(outcome.status, super::native(&program, &[]).status, "{name}");
        let insns: usize = keep.0.values().map(|thread| thread.insns.len()).sum();
        assert!(insns > 1000, "{name}: {insns}");
    }
}

/// The address of a function of a program that lies where its file says.
fn address(program: &Path, name: &str) -> u64 {
    let symbols = std::process::Command::new("nm").arg(program).output().expect("nm runs").stdout;
    let symbols = String::from_utf8_lossy(&symbols).into_owned();
    let line = symbols.lines().find(|line| line.ends_with(&format!(" T {name}")));
    let digits = line.and_then(|line| line.split(' ').next()).expect("the function has a symbol");
    u64::from_str_radix(digits, 16).expect("an address")
}

/// The instructions of the whole, in which thread and at which place, between the entries of two functions. Without the
/// first, a thread begins inside.
fn between(whole: &Keep, [begin, end]: [Option<u64>; 2]) -> Vec<(u32, usize)> {
    let mut found = Vec::new();
    for (&id, thread) in &whole.0 {
        let mut inside = begin.is_none();
        for (at, (_, records)) in thread.insns.iter().enumerate() {
            let Record::Insn { pc, .. } = records[0] else { panic!("no instruction") };
            inside = if Some(pc.0) == begin { true } else { inside && Some(pc.0) != end };
            if inside {
                found.push((id, at));
            }
        }
    }
    found
}

#[test]
fn functions_begin_and_end_windows() {
    let program = guest("gates", Link::Static);
    let whole = record(&program, &[], None);
    let sides = [
        [Some("work"), Some("rest")],
        [Some("rest"), Some("work")],
        [Some("last"), None],
        [None, Some("work")],
        [Some("no_such_function"), Some("work")],
    ];
    for names in sides {
        let functions = names.map(|name| name.and_then(Function::new));
        let part = record(&program, &[], Some(Choice { functions, ..Choice::default() }));
        compare(&whole, &part);
        let mut places = Vec::new();
        for (&id, thread) in &part.0 {
            let mut at = 0;
            for (missing, _) in &thread.insns {
                at += *missing as usize;
                places.push((id, at));
                at += 1;
            }
        }
        let known = names.map(|name| name.filter(|name| *name != "no_such_function"));
        let want = match (names[0], known[0]) {
            (Some(_), None) => Vec::new(),
            _ => between(&whole, known.map(|name| name.map(|name| address(&program, name)))),
        };
        assert!(places == want, "{names:?}: {} and {}", places.len(), want.len());
    }
}

/// How long a thread waits for another one is not the same in two runs; where each begins and ceases to be recorded is.
#[test]
fn functions_begin_and_end_windows_of_each_thread() {
    let program = guest("gates", Link::Static);
    let functions = ["work", "rest"].map(Function::new);
    let part = record(&program, &["two"], Some(Choice { functions, ..Choice::default() }));
    assert_eq!(part.0.values().filter(|thread| !thread.insns.is_empty()).count(), 2);
    let [work, rest] = ["work", "rest"].map(|name| address(&program, name));
    for thread in part.0.values() {
        let pc = |records: &[Record]| match records[0] {
            Record::Insn { pc, .. } => pc.0,
            _ => panic!("no instruction"),
        };
        let begins = thread.insns.iter().filter(|(missing, _)| *missing > 0);
        assert!(begins.clone().all(|(_, records)| pc(records) == work));
        assert_eq!(begins.count(), 15);
        assert!(thread.insns.iter().all(|(_, records)| pc(records) != rest));
    }
}
