//! System calls that noted functions make themselves: told as single stepping tells them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;

use ichnos_base::{Batch, EndStatus, Event, Record, Sink, ThreadId};
use ichnos_collect_asm as asm;
use ichnos_collect_step as step;
use ichnos_flow::Level;

use crate::inline_compare::{Image, Stepped};
use crate::inline_kernels::build;
use crate::support::{Folder, good, ichnos, native};

const WRITE: u64 = 1;
const PAUSE: u64 = 34;
const GETPID: u64 = 39;
const FORK: u64 = 57;
const WAIT4: u64 = 61;
const EXIT_GROUP: u64 = 231;

/// What was asked for, and the answer if there was one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Call {
    number: u64,
    args: [u64; 6],
    result: Option<i64>,
}

/// Keeps the system calls of noted functions, by thread.
struct Keep {
    image: Image,
    inside: BTreeMap<u32, bool>,
    calls: BTreeMap<u32, Vec<Call>>,
    gaps: usize,
}

impl Keep {
    fn new(program: &str) -> Self {
        let image = Image::new(program.as_ref());
        Self { image, inside: BTreeMap::new(), calls: BTreeMap::new(), gaps: 0 }
    }

    fn is_inside(&self, thread: ThreadId) -> bool {
        self.inside.get(&thread.0) == Some(&true)
    }
}

impl Sink for Keep {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            if let Record::Insn { pc, .. } = record {
                self.inside.insert(batch.thread.0, self.image.holds(*pc));
            }
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.image.event(event);
        let inside = self.is_inside(thread);
        match *event {
            Event::Syscall { number, args } if inside => {
                let calls = self.calls.entry(thread.0).or_default();
                calls.push(Call { number, args, result: None });
            }
            Event::SyscallReturn { number, result } if inside => {
                let last = self.calls.get_mut(&thread.0).and_then(|all| all.last_mut());
                let last = last.expect("a call before its return");
                assert_eq!((last.number, last.result), (number, None));
                // Processes have other numbers in every run.
                let is_process = [GETPID, FORK, WAIT4].contains(&number);
                last.result = Some(if is_process { result.signum() } else { result });
            }
            Event::Gap { .. } => self.gaps += 1,
            _ => {}
        }
        Ok(true)
    }
}

fn stepped(program: &str) -> (Keep, EndStatus) {
    let mut keep = Keep::new(program);
    let config = step::Config::new(program);
    let outcome = step::Collector::new(&config).run(&mut keep).expect("it can be stepped");
    (keep, outcome.status)
}

fn recorded(program: &str, args: &[&str], level: Level) -> (Keep, EndStatus) {
    let mut keep = Keep::new(program);
    let mut config = asm::Config::new(program, args.iter().map(Into::into));
    config.level = level;
    let outcome = asm::record(&config, &mut keep).expect("it can be recorded");
    (keep, outcome.status)
}

#[test]
fn system_calls_of_noted_functions_equal_step() {
    let folder = Folder::new();
    for flags in ["-O2", "-O0", "-O2 -static"] {
        let Some(program) = build(&folder, "asks.c", flags) else { return };
        let (expected, status) = stepped(&program);
        let numbers = |keep: &Keep, thread: u32| -> Vec<u64> {
            keep.calls[&thread].iter().map(|call| call.number).collect()
        };
        assert_eq!(status, EndStatus::Exited(5));
        assert_eq!(numbers(&expected, 0), [1, 1, 1, 3, 39, FORK, WAIT4, EXIT_GROUP]);
        assert_eq!(numbers(&expected, 1), [WRITE, 60]);
        for level in Level::ALL {
            let (found, ended) = recorded(&program, &[], level);
            assert_eq!(ended, status, "{flags}");
            assert_eq!(found.calls, expected.calls, "{flags} {level:?}");
        }
        // Records are the same, too.
        assert!(Stepped::new(program.as_ref()).compare(Level::Flow).insns > 50);
    }
}

/// A call that a signal interrupts is told once, and its return behind the handler.
#[test]
fn traces_with_system_calls_are_good() {
    let folder = Folder::new();
    let Some(program) = build(&folder, "asks.c", "-O2") else { return };
    let (found, status) = recorded(&program, &["signal"], Level::Flow);
    assert_eq!(status, EndStatus::Exited(5));
    let pauses: Vec<_> = found.calls[&0].iter().filter(|call| call.number == PAUSE).collect();
    assert!(matches!(pauses[..], [Call { result: Some(-4), .. }]), "{pauses:?}");
    let alone = native(&folder, &program, &["signal"]);
    for how in ["-o t.ichnos", "-o t.ichnos --sample 2:1", "-o t.ichnos --sample 1:3"] {
        let how: Vec<&str> = how.split(' ').collect();
        let line = [&["record", "-q"][..], &how, &["--", &program, "signal"]].concat();
        let traced = ichnos(&folder, &line);
        assert_eq!((traced.status, &traced.stdout), (5, &alone.stdout), "{}", traced.stderr);
        good(ichnos(&folder, &["check", "t.ichnos"]));
    }
}
