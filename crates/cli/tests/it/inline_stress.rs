//! Inline tracing under pressure: many threads, too few buffers, sudden death.
//! With `ICHNOS_INLINE=all` the numbers are those that the project promises.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ichnos_base::{Batch, Event, Record, Sink, ThreadId};
use ichnos_collect_asm as asm;

use crate::inline_kernels::build;
use crate::support::{Folder, good, ichnos, native};

fn long() -> bool {
    std::env::var("ICHNOS_INLINE").as_deref() == Ok("all")
}

#[derive(Default)]
struct Counted {
    insns: BTreeMap<u32, u64>,
    starts: usize,
    ends: usize,
    starved: usize,
    images: usize,
    times: Vec<u64>,
    /// Whether a time was the last thing told.
    timed: bool,
}

impl Sink for Counted {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let insns = batch.records.iter().filter(|r| matches!(r, Record::Insn { .. })).count();
        *self.insns.entry(batch.thread.0).or_default() += insns as u64;
        Ok(true)
    }

    fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::ThreadStart(_) => self.starts += 1,
            Event::ThreadEnd(_) => self.ends += 1,
            Event::Marker { text, .. } if text.contains("no free buffer") => self.starved += 1,
            Event::Timestamp { ns } => self.times.push(*ns),
            Event::Map(map) if !map.build_id.is_empty() => self.images += 1,
            // Synchronisation has times of its own.
            Event::Lock { .. } | Event::Barrier { .. } | Event::Cond { .. } if self.timed => {
                self.times.pop();
            }
            Event::ThreadJoin { .. } if self.timed => drop(self.times.pop()),
            _ => {}
        }
        self.timed = matches!(event, Event::Timestamp { .. });
        Ok(true)
    }
}

fn count(program: &str, args: &str, buffers: Option<u32>) -> (Counted, asm::Outcome) {
    let mut config = asm::Config::new(program, args.split_whitespace().map(Into::into));
    config.buffers = buffers.unwrap_or(config.buffers);
    let mut counted = Counted::default();
    let outcome = asm::record(&config, &mut counted).expect("it can be recorded");
    (counted, outcome)
}

/// The same by way of a spool, which may have so many bytes.
fn count_spooled(
    (program, args): (&str, &str),
    buffers: u32,
    (path, limit): (&Path, u64),
) -> (Counted, asm::Outcome) {
    let mut config = asm::Config::new(program, args.split_whitespace().map(Into::into));
    config.buffers = buffers;
    let (mut counted, mut ends, mut read) = (Counted::default(), 0, Vec::new());
    let mut ended = |_: &mut Counted| {
        ends += 1;
        Ok(())
    };
    let mut progress = |done: u64, all: u64| {
        assert!(done <= all, "{done} of {all}");
        read.push(done);
        true
    };
    let spooling = asm::Spooling {
        place: asm::SpoolPlace { path: path.to_owned(), limit, when: asm::Reads::Beside },
        stop: &false.into(),
        hurried: &mut |_: &mut Counted| {},
        ended: &mut ended,
        progress: &mut progress,
    };
    let outcome = asm::record_spooled(&config, &mut counted, spooling).expect("it can be recorded");
    assert_eq!(ends, 1);
    assert!(read.is_sorted(), "{read:?}");
    assert!(!path.exists(), "the spool is left");
    (counted, outcome)
}

/// By way of a spool nothing is different, whether all goes there, or it is too small, or there is none.
#[test]
fn a_spool_changes_nothing_but_the_time() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "radix.c", "-O2 -static") else { return };
    let args = "4 400000 1";
    let (plenty, before) = count(&program, args, None);
    let spool = folder.path().join("words.spool");
    let nowhere = Path::new("/proc/words.spool");
    for (buffers, path, limit) in
        [(12, &*spool, 1 << 40), (64, &spool, 1 << 40), (12, &spool, 1 << 18), (12, nowhere, 1)]
    {
        let (found, outcome) = count_spooled((&program, args), buffers, (path, limit));
        assert_eq!((outcome.status, outcome.insns), (before.status, before.insns));
        assert_eq!(outcome.raw_bytes, before.raw_bytes);
        assert_eq!(found.insns, plenty.insns);
        assert_eq!((found.starts, found.ends), (plenty.starts, plenty.ends));
        assert_eq!(found.images, plenty.images);
        assert!(outcome.spooled < outcome.raw_bytes, "{outcome:?}");
        if path == nowhere {
            assert_eq!(outcome.spooled, 0);
        }
    }
    // Who reads slowly does not keep the program.
    let (_, outcome) = count_spooled((&program, "4 800000 1"), 12, (&spool, 1 << 40));
    assert!(outcome.spooled > 0, "{outcome:?}");
}

/// A sink that fails as no sink should.
struct Broken;

impl Sink for Broken {
    type Error = Infallible;

    fn records(&mut self, _: &Batch<'_>) -> Result<bool, Infallible> {
        panic_any("no more");
    }

    fn event(&mut self, _: ThreadId, _: &Event<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }
}

/// Neither the program nor who takes its buffers waits for a reader that has panicked, however few buffers there are.
#[test]
fn nobody_waits_for_a_reader_that_panics() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "radix.c", "-O2 -static") else { return };
    let mut config = asm::Config::new(&program, ["4", "400000", "1"].map(Into::into));
    config.buffers = 6;
    for limit in [1, 1 << 30] {
        let spooling = asm::Spooling {
            place: asm::SpoolPlace {
                path: folder.path().join("words.spool"),
                limit,
                when: asm::Reads::Beside,
            },
            stop: &false.into(),
            hurried: &mut |_: &mut Broken| {},
            ended: &mut |_: &mut Broken| Ok(()),
            progress: &mut |_, _| true,
        };
        let record = AssertUnwindSafe(|| asm::record_spooled(&config, &mut Broken, spooling));
        let why = catch_unwind(record).expect_err("the reader's panic");
        assert_eq!(why.downcast_ref(), Some(&"no more"));
    }
}

#[test]
fn two_eight_and_sixty_four_threads() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "radix.c", "-O2 -static") else { return };
    for threads in ["2", "8", "64"] {
        let alone = native(&folder, &program, &[threads, "20000", "1"]);
        let line = ["record", "-q", "-o", "t.ichnos", "--", &program, threads, "20000", "1"];
        let traced = ichnos(&folder, &line);
        assert_eq!((traced.status, &traced.stdout), (0, &alone.stdout), "{}", traced.stderr);
        good(ichnos(&folder, &["check", "t.ichnos"]));
        let info = ichnos(&folder, &["info", "--json", "t.ichnos"]).json();
        let found = info["threads"].as_array().map(Vec::len);
        assert_eq!(found, threads.parse().ok(), "{info}");
    }
}

#[test]
fn threads_made_and_joined_in_sequence() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "sequence.c", "-O2 -static") else { return };
    let count_of = if long() { 10_000 } else { 2_000 };
    let (counted, outcome) = count(&program, &count_of.to_string(), None);
    assert_eq!(outcome.status, ichnos_base::EndStatus::Exited(0));
    assert_eq!((counted.starts, counted.ends), (count_of + 1, count_of + 1));
    let mut others = counted.insns.iter().filter(|(thread, _)| **thread != 0);
    let first = others.next().map(|(_, insns)| *insns);
    assert!(first.is_some_and(|insns| insns > 20), "{first:?}");
    // Every thread does the same.
    assert!(others.all(|(_, insns)| Some(*insns) == first));
    assert_eq!(counted.insns.len(), count_of + 1);
}

/// With hardly more buffers than threads all stop again and again, and nothing is lost.
#[test]
fn starved_threads_stop_and_lose_nothing() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "radix.c", "-O2 -static") else { return };
    let args = "8 400000 1";
    let (plenty, before) = count(&program, args, None);
    let (starved, outcome) = count(&program, args, Some(9));
    assert_eq!(outcome.status, before.status);
    assert!(outcome.waits > 0 && starved.starved > 0, "{outcome:?}");
    assert_eq!(starved.insns, plenty.insns);
    assert!(starved.times.len() > 4, "{}", starved.times.len());
    // Each thread has one when it begins, too.
    assert_eq!(outcome.changes + starved.starts as u64, starved.times.len() as u64);
    assert!(starved.images > 0);
}

/// With fewer buffers than threads those that wait lose theirs, and nothing is lost but time.
#[test]
fn threads_take_turns_with_buffers() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "radix.c", "-O2 -static") else { return };
    let args = "8 100000 1";
    let (plenty, before) = count(&program, args, None);
    for buffers in [5, 2, 1] {
        let (few, outcome) = count(&program, args, Some(buffers));
        assert_eq!((outcome.status, outcome.insns), (before.status, before.insns));
        assert!(
            few.starved > 0 && outcome.changes > before.changes,
            "{}, {outcome:?}, {before:?}",
            few.starved
        );
        assert_eq!(few.insns, plenty.insns);
        assert_eq!(outcome.raw_bytes, before.raw_bytes);
        assert_eq!((few.starts, few.ends), (plenty.starts, plenty.ends));
    }
}

/// Threads lose their buffers wherever they are, also where they have put something on the stack for a while.
#[test]
fn threads_lose_their_buffers_anywhere() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "fills.c", "-O2 -static") else { return };
    let args = "4 400000";
    let (plenty, before) = count(&program, args, None);
    assert_eq!(before.status, ichnos_base::EndStatus::Exited(0));
    for buffers in [2, 1] {
        let (few, outcome) = count(&program, args, Some(buffers));
        assert_eq!((outcome.status, outcome.insns), (before.status, before.insns));
        assert!(few.starved > 0, "{outcome:?}");
        assert_eq!(few.insns, plenty.insns);
        assert_eq!(outcome.raw_bytes, before.raw_bytes);
    }
}

/// More threads alive at once than there are buffers: each waits twice until all others have come as far.
#[test]
fn more_threads_at_once_than_buffers() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "neighbours.c", "-O2") else { return };
    let insns_of_others = |counted: &Counted| -> Vec<u64> {
        counted.insns.iter().filter(|(thread, _)| **thread != 0).map(|(_, n)| *n).collect()
    };
    let (few, _) = count(&program, "8 10", None);
    let all = insns_of_others(&few);
    let each = *all.first().unwrap();
    assert_eq!(all, [each; 8]);
    let threads = 1_600;
    let (many, outcome) = count(&program, &format!("{threads} 10"), None);
    assert_eq!(outcome.status, ichnos_base::EndStatus::Exited(0));
    assert!(outcome.waits > 0 && many.starved > 0, "{outcome:?}");
    assert_eq!((many.starts, many.ends), (threads + 1, threads + 1));
    // Every thread does the same, however many there are.
    assert_eq!(insns_of_others(&many), vec![each; threads]);

    let args = [&threads.to_string(), "10"];
    let alone = native(&folder, &program, &args);
    let line = ["record", "-q", "-o", "t.ichnos", "--", &program, args[0], args[1]];
    let traced = ichnos(&folder, &line);
    assert_eq!((traced.status, &traced.stdout), (0, &alone.stdout), "{}", traced.stderr);
    good(ichnos(&folder, &["check", "t.ichnos"]));
    let info = ichnos(&folder, &["info", "--json", "t.ichnos"]).json();
    assert_eq!(info["threads"].as_array().map(Vec::len), Some(threads + 1));
}

/// The program's process, as the system tells it.
fn child_of(pid: u32) -> Option<u32> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let children = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        if let Some(child) = children.split_whitespace().next() {
            return child.parse().ok();
        }
    }
    None
}

#[test]
fn what_a_killed_program_stored_is_there() {
    let folder = Folder::new();
    // One makes threads all the time, and stores little enough to be done with soon; two of the other's are busy in loops.
    let programs = ["sequence.c", "radix.c"].map(|name| build(&folder, name, "-O2 -static"));
    let [Some(sequence), Some(radix)] = programs else { return };
    let lines = [vec![&*sequence, "1000000"], vec![&*radix, "2", "20000", "1000000"]];
    let runs = if long() { 200 } else { 10 };
    let mut killed = 0;
    for (run, line) in (0..runs).zip(lines.iter().cycle()) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichnos"));
        command.args(["record", "-q", "-o", "t.ichnos", "--"]).args(line);
        command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut recorder = command.spawn().unwrap();
        let child = loop {
            match child_of(recorder.id()) {
                Some(child) => break child,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        // Moments spread over set-up and work; the outcome must not depend on which.
        std::thread::sleep(Duration::from_millis(run * 37 % 200));
        killed += 1;
        good(native(&folder, "bash", &["-c", &format!("kill -9 {child} || true")]));
        recorder.wait().unwrap();
        if Path::new(&folder.path().join("t.ichnos")).exists() {
            let check = ichnos(&folder, &["check", "t.ichnos"]);
            assert_eq!(check.status, 0, "run {run}: {}{}", check.stdout, check.stderr);
            std::fs::remove_file(folder.path().join("t.ichnos")).unwrap();
        }
    }
    assert_eq!(killed, runs);
}
