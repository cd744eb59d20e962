//! Threads that switch between the two copies of their code without rest, while exceptions, signals and jumps fly: they
//! do what they do alone.
//!
//! With `ICHNOS_INLINE=all` each way of switching goes on for a minute, and how often threads switched is told.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ichnos_base::{Batch, Event, Sink, ThreadId};
use ichnos_collect_asm as asm;
use ichnos_testkit::guest;

use crate::support::{Folder, good, ichnos, native};

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

/// Counts how often threads switch.
#[derive(Default)]
struct Switches(u64);

impl Sink for Switches {
    type Error = Infallible;

    fn records(&mut self, _: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn takes_references(&self) -> bool {
        true
    }

    fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.0 += u64::from(matches!(event, Event::ModeSwitch { .. }));
        Ok(true)
    }
}

/// Records a program again and again until a time is over, at least once, and looks that it says what it says alone. Answers
/// how often threads switched.
fn switches(folder: &Folder, line: &str, choice: &asm::Choice, time: Duration) -> u64 {
    let alone = good(native(folder, "sh", &["-c", line]));
    let out = folder.path().join("out");
    let line = format!("exec {line} > {}", out.display());
    let (begun, mut switches, mut runs) = (Instant::now(), Switches::default(), 0);
    while runs == 0 || begun.elapsed() < time {
        let mut config = asm::Config::new("sh", ["-c", line.as_str()].map(Into::into));
        config.choice = Some(choice.clone());
        let outcome = asm::record(&config, &mut switches).expect("it can be recorded");
        assert_eq!(outcome.status, ichnos_base::EndStatus::Exited(0));
        assert_eq!(std::fs::read_to_string(&out).expect("what it said"), alone.stdout);
        runs += 1;
    }
    let (count, took) = (switches.0, begun.elapsed().as_secs_f64());
    // Who asks for the long run wants the figures.
    let _ = writeln!(
        std::io::stderr(),
        "{count} switches in {runs} runs of {took:.1} s together, {:.0} a second: {:?}",
        count as f64 / took,
        choice.when
    );
    count
}

/// How long threads switch, and how many rounds their program makes each time.
fn extent() -> (Duration, u32) {
    if std::env::var("ICHNOS_INLINE").as_deref() == Ok("all") {
        (Duration::from_secs(60), 40_000)
    } else {
        (Duration::ZERO, 2000)
    }
}

/// Every thread switches at every other event.
#[test]
fn threads_that_switch_at_every_other_event_do_what_they_did() {
    let folder = Folder::new();
    let (time, rounds) = extent();
    let line = format!("{} 8 {rounds}", turmoil(&folder));
    let count = switches(&folder, &line, &asm::Choice::sample(1, 1), time);
    assert!(count > 10_000, "{count}");
}

/// The word changes all the time.
#[test]
fn a_word_switched_without_rest_changes_nothing() {
    let folder = Folder::new();
    let (time, rounds) = extent();
    let line = format!("{} 8 {rounds}", turmoil(&folder));
    let word = Arc::new(asm::Word::open(&folder.path().join("word")).expect("a word"));
    let over = Arc::new(AtomicBool::new(false));
    let (mine, ends) = (Arc::clone(&word), Arc::clone(&over));
    let writer = std::thread::spawn(move || {
        let mut changes = 0u64;
        while !ends.load(Ordering::Relaxed) {
            mine.set((changes % 2) as u32).expect("it can be written");
            changes += 1;
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(4) {
                std::hint::spin_loop();
            }
        }
        changes
    });
    let choice = asm::Choice::new(asm::When::Shared(word));
    // How often threads are there when the word changes is a matter of luck on a busy machine.
    let mut count = 0;
    for _ in 0..20 {
        count += switches(&folder, &line, &choice, time);
        if count > 100 {
            break;
        }
    }
    over.store(true, Ordering::Relaxed);
    let changes = writer.join().expect("the writer ends");
    assert!(changes > 1000 && count > 100, "{changes} changes, {count} switches");
}
