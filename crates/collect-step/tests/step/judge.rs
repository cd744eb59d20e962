//! Against judges not written here: Valgrind's lackey must have seen the same
//! references in the same order, and callgrind the same number of instructions.
//!
//! Lackey's rules differ from ours in ways written in `docs/EVENTS.md`; here our
//! records are put into lackey's form by exactly those rules and compared line
//! by line. Nothing is left out on either side.
//!
//! Valgrind puts the stack, and what `mmap` gives, at other addresses than the
//! kernel. Each such region must be moved by one constant, found at its first
//! reference and held to at every other; code, data and heap must not be moved.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::path::Path;

use ichnos_base::{EndStatus, Event, GuestVa, MapKind, Record};
use ichnos_collect_step::{Config, Values, run};
use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::lackey::{Line, Op};
use ichnos_testkit::{Item, Recording, callgrind, lackey, tool};

use crate::run::check_recording;

/// One of our records in lackey's form, and the region its address lies in.
#[derive(Clone, Copy, Debug)]
struct Ours {
    line: Line,
    region: Option<usize>,
}

/// Puts a recording into lackey's form.
struct Translator {
    lines: Vec<Ours>,
    /// Regions that Valgrind may move: start, end, and which.
    regions: Vec<(u64, u64, usize)>,
    next_region: usize,
    code: HashMap<u64, Vec<u8>>,
    insn: Insn,
}

/// The instruction being translated.
#[derive(Default)]
struct Insn {
    line: Option<Line>,
    repeat: Repeat,
    accesses: Vec<Line>,
}

/// How lackey counts an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Repeat {
    /// Once.
    #[default]
    No,
    /// Once per iteration of so many accesses, and once more when the count has
    /// run out.
    Counted(usize),
    /// The same, but without the last if a comparison ended it.
    Compared(usize),
}

/// What a string instruction's bytes say.
fn repeat_of(bytes: &[u8]) -> Repeat {
    let opcode = bytes.iter().position(|b| !matches!(b, 0x66 | 0x67 | 0xf2 | 0xf3 | 0x40..=0x4f));
    let Some(at) = opcode.filter(|at| bytes[..*at].iter().any(|b| matches!(b, 0xf2 | 0xf3))) else {
        return Repeat::No;
    };
    match bytes[at] {
        0xa4 | 0xa5 => Repeat::Counted(2),
        0xaa..=0xad => Repeat::Counted(1),
        0xa6 | 0xa7 => Repeat::Compared(2),
        0xae | 0xaf => Repeat::Compared(1),
        _ => Repeat::No,
    }
}

impl Translator {
    fn translate(recording: &Recording) -> Vec<Ours> {
        let mut translator = Self {
            lines: Vec::new(),
            regions: Vec::new(),
            next_region: 0,
            code: HashMap::new(),
            insn: Insn::default(),
        };
        for (_, item) in &recording.items {
            match item {
                Item::Record(record, _) => translator.record(record),
                Item::Event(event) => translator.event(&event.event()),
                Item::Code { pc, bytes, .. } => {
                    translator.code.insert(pc.0, bytes.clone());
                }
            }
        }
        translator.flush(None);
        translator.lines
    }

    fn event(&mut self, event: &Event<'_>) {
        let (start, len) = match event {
            Event::Map(map) => (map.start.0, map.len),
            Event::Unmap { start, len } => (start.0, *len),
            _ => return,
        };
        self.regions.retain(|(from, to, _)| *to <= start || *from >= start + len);
        if let Event::Map(map) = event
            && matches!(map.kind, MapKind::STACK | MapKind::OTHER)
            && !is_data(map.path)
        {
            self.regions.push((start, start + len, self.next_region));
            self.next_region += 1;
        }
    }

    fn record(&mut self, record: &Record) {
        let line = |op, addr, size| Line { op, addr, size };
        match *record {
            Record::Insn { len, pc, .. } => {
                self.flush(Some(pc.0));
                self.insn.line = Some(line(Op::Insn, pc, u32::from(len)));
                self.insn.repeat = self.code.get(&pc.0).map_or(Repeat::No, |b| repeat_of(b));
            }
            Record::Load { addr, size, .. } => self.insn.accesses.push(line(Op::Load, addr, size)),
            Record::Store { addr, size, .. } => {
                self.insn.accesses.push(line(Op::Store, addr, size));
            }
            Record::Prefetch { .. } | Record::Flush { .. } | Record::Branch { .. } => {}
        }
    }

    /// Writes the instruction gathered so far, in lackey's way.
    fn flush(&mut self, _next: Option<u64>) {
        let Insn { line, repeat, accesses } = std::mem::take(&mut self.insn);
        let Some(line) = line else { return };
        let per = match repeat {
            Repeat::No => {
                self.push(line);
                self.push_accesses(&accesses);
                return;
            }
            Repeat::Counted(per) | Repeat::Compared(per) => per,
        };
        for iteration in accesses.chunks(per) {
            self.push(line);
            self.push_accesses(iteration);
        }
        self.push(line);
    }

    /// A load and then a store of the same bytes are one line.
    fn push_accesses(&mut self, accesses: &[Line]) {
        let mut rest = accesses;
        while let [first, tail @ ..] = rest {
            rest = tail;
            let mut line = *first;
            if let [second, tail @ ..] = rest
                && (first.op, second.op) == (Op::Load, Op::Store)
                && (first.addr, first.size) == (second.addr, second.size)
            {
                line.op = Op::Modify;
                rest = tail;
            }
            self.push(line);
        }
    }

    fn push(&mut self, line: Line) {
        let inside = |(from, to, _): &&(u64, u64, usize)| (*from..*to).contains(&line.addr.0);
        let region = self.regions.iter().find(inside).map(|(_, _, id)| *id);
        self.lines.push(Ours { line, region });
    }
}

fn is_data(path: &str) -> bool {
    path == "[heap]"
}

fn compare(ours: &[Ours], theirs: &[Line]) {
    let mut moved: HashMap<usize, u64> = HashMap::new();
    for (at, (our, their)) in ours.iter().zip(theirs).enumerate() {
        let by = match our.region {
            Some(region) => {
                *moved.entry(region).or_insert(their.addr.0.wrapping_sub(our.line.addr.0))
            }
            None => 0,
        };
        let expected = Line { addr: our.line.addr.offset(by), ..our.line };
        assert!(expected == *their, "line {at}: {}", context(ours, theirs, at));
    }
    assert_eq!(ours.len(), theirs.len(), "{}", context(ours, theirs, ours.len().min(theirs.len())));
}

fn context(ours: &[Ours], theirs: &[Line], at: usize) -> String {
    let from = at.saturating_sub(8);
    let show = |line: Option<&Line>| {
        line.map_or(String::new(), |l| format!("{:?} {:x},{}", l.op, l.addr.0, l.size))
    };
    let rows = (from..at + 5).map(|i| {
        let left = show(ours.get(i).map(|o| &o.line));
        format!("{} {left:30} {}", if i == at { ">" } else { " " }, show(theirs.get(i)))
    });
    format!("ours, lackey's\n{}", rows.collect::<Vec<_>>().join("\n"))
}

fn judge(program: &Path, args: &[&str], env: &[(&str, &str)]) {
    let mut config = Config::new(program).args(args.iter().copied());
    config.env = Some(env.iter().map(|(name, value)| (name.into(), value.into())).collect());
    config.values = Values::Omit;
    let mut recording = Recording::new();
    let outcome = run(&config, &mut recording).expect("the program can be traced");
    assert!(matches!(outcome.status, EndStatus::Exited(_)));
    check_recording(&recording);
    let ours = Translator::translate(&recording);
    compare(&ours, &lackey::run(program, args, env));
    let insns = ours.iter().filter(|our| our.line.op == Op::Insn).count() as u64;
    assert_eq!(insns, callgrind::run(program, args, env));
}

fn judge_bare(source: &str) {
    if tool::have(source, &["valgrind", "gcc"]) {
        judge(&guest::build(source, Link::Bare, &[]), &[], &[]);
    }
}

#[test]
fn sort() {
    judge_bare("bare_sort.c");
}

#[test]
fn crc() {
    judge_bare("bare_crc.c");
}

#[test]
fn sieve() {
    judge_bare("bare_sieve.c");
}

#[test]
fn strings() {
    judge_bare("bare_strings.c");
}

#[test]
fn atomics() {
    judge_bare("bare_atomics.c");
}

#[test]
fn calls() {
    judge_bare("bare_calls.c");
}
