//! Real C programs, static and dynamic, behave as under QEMU; runs repeat to
//! the instruction; and what sinks see obeys the trace's laws.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::process::Command;

use ichnos_base::{
    Batch, Code, EndStatus, Event, GuestVa, InsnKind, MapKind, ProcessId, Record, Sink, ThreadId,
    Totals,
};
use ichnos_collect_rv64::Speed;
use ichnos_collect_rv64::user::{Program, run};
use ichnos_isa_rv64::Insn;

use crate::elf::executable;
use crate::guests::{Folder, compile, config, here, here_at, under_qemu};

const SYSROOT: &str = "/usr/riscv64-linux-gnu";
const PROGRAMS: &[(&str, &[&str])] = &[
    ("hello", &["one", "two words"]),
    ("quicksort", &["20000"]),
    ("matrix", &["40"]),
    ("threads", &[]),
    ("unix", &["file-of-the-test"]),
    ("channels", &[]),
    ("calls", &[]),
];

/// How much of a TCP connection one read gets is the host's matter, and so is how often these read.
const READS_AS_IT_COMES: &[&str] = &["channels"];

#[test]
fn static_programs_behave_as_under_qemu() {
    let folder = Folder::new("static");
    for (name, args) in PROGRAMS {
        let Some(program) = compile(&folder, name, &["-static"]) else { return };
        let Some((theirs, _)) = under_qemu(&program, args, None) else { return };
        let (ours, _, first) = here(&program, args, &folder, None);
        assert_eq!(ours, theirs, "{name}");
        let (again, _, mut second) = here(&program, args, &folder, None);
        let (interpreted, _, mut third) =
            here_at(Speed::Interpreted, &program, args, &folder, None);
        if READS_AS_IT_COMES.contains(name) {
            second.retired = first.retired;
            third.retired = first.retired;
        }
        assert_eq!((&again, &second), (&ours, &first), "{name} does not repeat");
        assert_eq!((interpreted, third), (ours, first), "{name} interpreted");
    }
}

#[test]
fn dynamic_programs_behave_as_under_qemu() {
    if !Path::new(SYSROOT).exists() {
        ichnos_testkit::tool::skip(
            "collect-rv64: dynamic programs",
            "there is no riscv64 C library",
        );
        return;
    }
    let folder = Folder::new("dynamic");
    for (name, args) in PROGRAMS {
        let Some(program) = compile(&folder, name, &[]) else { return };
        let Some((theirs, _)) = under_qemu(&program, args, Some(SYSROOT)) else { return };
        // What other tests start has copies of all descriptors for a moment, so that a pipe may not be broken yet.
        let (ours, _, _) = here(&program, args, &folder, Some(SYSROOT));
        let ours =
            if ours == theirs { ours } else { here(&program, args, &folder, Some(SYSROOT)).0 };
        assert_eq!(ours, theirs, "{name}");
    }
}

/// Random numbers are inputs, too: a run that repeats must get the same ones.
#[test]
fn random_numbers_repeat() {
    let folder = Folder::new("random");
    let Some(program) = compile(&folder, "random", &["-static"]) else { return };
    let (first, _, insns) = here(&program, &[], &folder, None);
    let lines: std::collections::BTreeSet<&str> = first.output.lines().collect();
    assert_eq!((lines.len(), first.output.lines().count()), (4, 4), "{}", first.output);
    assert!(lines.iter().all(|line| line.len() == 32 && line.contains(['1', '5', '9', 'd'])));
    let (second, _, again) = here(&program, &[], &folder, None);
    assert_eq!((second, again), (first, insns));
}

/// What QEMU does not say, the host's kernel does.
#[test]
fn descriptors_without_room_are_cut_as_on_the_host() {
    if !ichnos_testkit::tool::have("collect-rv64: cut descriptors", &["gcc"]) {
        return;
    }
    let folder = Folder::new("cut");
    let Some(program) = compile(&folder, "calls", &["-static"]) else { return };
    let native = folder.0.join("calls.native");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/calls.c");
    let mut gcc = Command::new("gcc");
    gcc.arg("-o").arg(&native).arg(source);
    assert!(gcc.status().expect("gcc runs").success(), "the program does not compile");
    let theirs = Command::new(&native).arg("cut").output().expect("it runs").stdout;
    let theirs = String::from_utf8_lossy(&theirs).into_owned();
    assert!(theirs.contains("flags: 8") && theirs.contains("files: 3"), "{theirs}");
    assert_eq!(here(&program, &["cut"], &folder, None).0.output, theirs);
}

/// The host's network decides when bytes arrive, so such a program behaves the
/// same but need not repeat to the instruction.
#[test]
fn programs_talk_over_the_hosts_network() {
    let folder = Folder::new("internet");
    let Some(program) = compile(&folder, "channels", &["-static"]) else { return };
    let Some((theirs, _)) = under_qemu(&program, &["internet"], None) else { return };
    assert!(theirs.output.contains("300000 bytes") && !theirs.output.contains("NO"));
    for speed in [Speed::Generated, Speed::Interpreted] {
        assert_eq!(here_at(speed, &program, &["internet"], &folder, None).0, theirs);
    }
}

/// Follows each thread and checks that its records make sense.
#[derive(Default)]
pub(crate) struct Checker {
    pub(crate) totals: Totals,
    threads: HashMap<ThreadId, Follow>,
    code: HashMap<(ProcessId, GuestVa), Vec<u8>>,
    started: u32,
    ended: u32,
}

#[derive(Default)]
struct Follow {
    process: ProcessId,
    insns: u64,
    /// Where the next instruction must be; unknown after events that move it.
    next: Option<GuestVa>,
    last: Option<(GuestVa, u8, InsnKind)>,
}

impl Sink for Checker {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.totals.count_batch(batch);
        let follow = self.threads.get_mut(&batch.thread).expect("the thread has started");
        assert_eq!(batch.insns_before, follow.insns);
        for record in batch.records {
            match *record {
                Record::Insn { len, kind, pc } => {
                    if let Some(next) = follow.next {
                        assert_eq!(pc, next, "after {:?}", follow.last);
                    }
                    let bytes = self.code.get(&(follow.process, pc)).expect("its code was told");
                    assert_eq!(bytes.len(), usize::from(len));
                    let mut word = [0; 4];
                    word[..bytes.len()].copy_from_slice(bytes);
                    let insn =
                        Insn::decode(u32::from_le_bytes(word)).expect("it is an instruction");
                    assert_eq!((insn.len, insn.kind()), (len, kind));
                    follow.insns += 1;
                    follow.next = Some(pc.offset(len.into()));
                    follow.last = Some((pc, len, kind));
                }
                Record::Branch { taken, target } => {
                    assert!(follow.last.is_some_and(|(_, _, kind)| kind.transfers()));
                    if taken {
                        follow.next = Some(target);
                    }
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        match event {
            Event::ThreadStart(start) => {
                self.started += 1;
                let follow = Follow { process: start.process, ..Follow::default() };
                assert!(self.threads.insert(thread, follow).is_none(), "a thread starts once");
            }
            Event::ThreadEnd(_) => self.ended += 1,
            Event::Signal(signal) => {
                self.threads.entry(thread).or_default().next = Some(signal.handler);
            }
            Event::Trap(trap) => {
                let follow = self.threads.entry(thread).or_default();
                assert!(follow.next.is_none_or(|next| next == trap.interrupted), "{trap:?}");
                follow.next = Some(trap.handler);
            }
            Event::SignalReturn { pc } => self.threads.entry(thread).or_default().next = Some(*pc),
            Event::Exec { .. } => self.threads.entry(thread).or_default().next = None,
            _ => {}
        }
        Ok(true)
    }

    fn code(&mut self, _: ThreadId, code: &Code<'_>) -> Result<bool, Infallible> {
        self.code.insert((code.process, code.pc), code.bytes.to_vec());
        Ok(true)
    }
}

/// The images that were mapped.
#[derive(Default)]
struct Paths(Vec<String>);

impl Sink for Paths {
    type Error = Infallible;

    fn records(&mut self, _: &Batch<'_>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn event(&mut self, _: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        if let Event::Map(map) = event
            && map.kind == MapKind::IMAGE
        {
            self.0.push(map.path.to_owned());
        }
        Ok(true)
    }
}

/// Who reads the trace may stand in another folder, and images are looked up by these names.
#[test]
fn programs_named_from_here_are_told_by_their_whole_path() {
    let folder = Folder::new("relative");
    let place = folder.0.join("prog");
    let code: [u32; 3] = [0x0000_0513, 0x05d0_0893, 0x0000_0073]; // exit(0)
    let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(&place, executable(0x1_0000, &bytes, 0)).expect("a program");
    let here = std::env::current_dir().expect("a folder");
    let up: std::path::PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(place.strip_prefix("/").expect("a whole path"));
    assert!(relative.is_relative() && relative.is_file());
    let (config, _file) = config(&relative, &[], &folder, None);
    let mut paths = Paths::default();
    let outcome = run(&config, &mut paths).expect("it runs");
    assert_eq!(outcome.status, EndStatus::Exited(0));
    assert!(!paths.0.is_empty());
    for path in &paths.0 {
        assert!(Path::new(path).is_absolute(), "{path}");
        assert_eq!(Path::new(path).canonicalize().ok(), place.canonicalize().ok());
    }
}

#[test]
fn records_follow_the_program() {
    let folder = Folder::new("records");
    for (name, args) in PROGRAMS {
        let Some(program) = compile(&folder, name, &["-static"]) else { return };
        let (untraced, _, counted) = here(&program, args, &folder, None);
        let (config, _file) = config(&program, args, &folder, None);
        let mut checker = Checker::default();
        let outcome = run(&config, &mut checker).expect("the traced run works");
        assert_eq!(outcome.status, untraced.status, "{name}");
        assert_eq!(outcome.retired, checker.totals.insns, "{name}");
        assert_eq!(outcome.retired, counted.retired, "{name}: tracing must not change the run");
        assert_eq!(checker.started, checker.ended, "{name}");
        let threads = match *name {
            "threads" => 7,
            "unix" => 2,
            "channels" => 10,
            "calls" => 3,
            _ => 1,
        };
        assert_eq!(checker.started, threads, "{name}");
        assert!(
            checker.totals.loads > 100
                && checker.totals.stores > 100
                && checker.totals.branches > 100
        );
        assert_ne!(outcome.status, EndStatus::Unknown);
    }
}

/// Two programs share the machine: both behave as alone, in turns, and the trace
/// tells them apart; a fault in one leaves the other alone.
#[test]
fn programs_run_beside_each_other() {
    let folder = Folder::new("beside");
    let Some(sort) = compile(&folder, "quicksort", &["-static"]) else { return };
    let Some(matrix) = compile(&folder, "matrix", &["-static"]) else { return };
    let Some(unix) = compile(&folder, "unix", &["-static"]) else { return };
    let alone = [(&sort, "20000"), (&matrix, "40")].map(|(p, n)| here(p, &[n], &folder, None));
    let together = |others: &[&Path]| {
        let (mut config, mut file) = config(&sort, &["20000"], &folder, None);
        for other in others {
            let args = vec![other.into(), "40".into()];
            config.beside.push(Program { file: other.to_path_buf(), args });
        }
        let mut checker = Checker::default();
        let outcome = run(&config, &mut checker).expect("the programs run");
        assert_eq!(outcome.retired, checker.totals.insns);
        assert_eq!(checker.started, checker.ended);
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("the output is text");
        (outcome, text, checker)
    };
    let (outcome, text, checker) = together(&[&matrix]);
    assert_eq!(outcome.status, EndStatus::Exited(0));
    assert_eq!(outcome.retired, alone.iter().map(|(_, _, o)| o.retired).sum::<u64>());
    for (left, _, _) in &alone {
        assert!(text.contains(left.output.trim_end()), "{text}");
    }
    assert_eq!((checker.started, checker.threads.len()), (2, 2));
    assert_ne!(checker.threads[&ThreadId(0)].process, checker.threads[&ThreadId(1)].process);
    let (again, same, _) = together(&[&matrix]);
    assert_eq!((again, same), (outcome, text), "runs must repeat");
    // The last one ends itself by a signal.
    let (outcome, text, _) = together(&[&matrix, &unix]);
    assert_eq!(outcome.status, EndStatus::Killed(15));
    assert!(text.contains(alone[0].0.output.trim_end()), "{text}");
}
