//! Against judges not written here: Valgrind's lackey must have seen the same
//! references in the same order, and callgrind the same number of instructions.
//!
//! Lackey's rules differ from ours in ways written in `docs/EVENTS.md`; here our
//! records are put into lackey's form by exactly those rules and compared line
//! by line. Nothing is left out on either side.
//!
//! Valgrind puts the stack, the heap and what `mmap` gives at other addresses
//! than the kernel does. Each such region (of the heap, each piece that one `brk`
//! gave) must be moved by one constant, found at its first reference and held to
//! at every other; the program's code and data must not be moved.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::path::Path;

use ichnos_base::{AccessFlags, EndStatus, Event, MapKind, Record};
use ichnos_collect_step::{Config, Values, run};
use ichnos_testkit::callgrind::{self, Tool};
use ichnos_testkit::guest::{self, Link};
use ichnos_testkit::lackey::{Line, Op};
use ichnos_testkit::{Item, Recording, lackey, tool};

use crate::run::check_recording;

/// One of our records in lackey's form, and the region its address lies in.
#[derive(Clone, Copy, Debug)]
struct Ours {
    line: Line,
    region: Option<usize>,
    presence: Presence,
}

/// Whether lackey must have a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    Certain,
    /// Only if the count of a comparing string instruction ran out, which the
    /// records do not tell.
    IfCountRanOut,
}

/// The region of the heap's first piece; the other pieces follow.
const HEAP: usize = 1 << 32;

/// Puts a recording into lackey's form.
struct Translator {
    lines: Vec<Ours>,
    /// Regions that Valgrind may move: start, end, and which.
    regions: Vec<(u64, u64, usize)>,
    next_region: usize,
    /// What each `brk` answered.
    breaks: Vec<u64>,
    /// Where the program's own code and data end and its heap may begin: the
    /// kernel shows the two as one mapping.
    image_end: u64,
    code: HashMap<u64, Vec<u8>>,
    insn: Insn,
}

/// The instruction being translated.
#[derive(Default)]
struct Insn {
    line: Option<Line>,
    repeat: Repeat,
    accesses: Vec<Line>,
    /// Whether it is `cmpxchg` or a wider form of it.
    compares: bool,
    /// Whether it is any other locked read-modify-write.
    locked: bool,
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
    /// The same, but without the last if a comparison ended it. Where two places
    /// are compared, lackey reads the destination first.
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
    fn translate(recording: &Recording, image_end: u64) -> Vec<Ours> {
        let mut translator = Self {
            lines: Vec::new(),
            regions: Vec::new(),
            next_region: 0,
            breaks: Vec::new(),
            image_end,
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
        translator.flush();
        translator.lines
    }

    fn event(&mut self, event: &Event<'_>) {
        let (start, len) = match event {
            Event::Map(map) => (map.start.0, map.len),
            Event::Unmap { start, len } => (start.0, *len),
            Event::SyscallReturn { number: 12, result } => {
                self.breaks.push(result.cast_unsigned());
                return;
            }
            _ => return,
        };
        self.regions.retain(|(from, to, _)| *to <= start || *from >= start + len);
        if let Event::Map(map) = event
            && map.kind != MapKind::IMAGE
        {
            let id = if map.kind == MapKind::HEAP { HEAP } else { self.next_region };
            self.regions.push((start, start + len, id));
            self.next_region += 1;
        }
    }

    fn record(&mut self, record: &Record) {
        let line = |op, addr, size| Line { op, addr, size };
        match *record {
            Record::Insn { len, pc, .. } => {
                self.flush();
                self.insn.line = Some(line(Op::Insn, pc, u32::from(len)));
                let bytes = self.code.get(&pc.0).map_or(&[][..], Vec::as_slice);
                self.insn.repeat = repeat_of(bytes);
                self.insn.compares =
                    bytes.windows(2).any(|w| matches!(w, [0x0f, 0xb0 | 0xb1 | 0xc7]));
            }
            Record::Load { addr, size, flags } => {
                self.insn.locked = flags.has(AccessFlags::ATOMIC) && !self.insn.compares;
                self.insn.accesses.push(line(Op::Load, addr, size));
            }
            Record::Store { addr, size, .. } => {
                self.insn.accesses.push(line(Op::Store, addr, size));
            }
            Record::Prefetch { .. } | Record::Flush { .. } | Record::Branch { .. } => {}
        }
    }

    /// Writes the instruction gathered so far, in lackey's way.
    fn flush(&mut self) {
        let Insn { line, repeat, accesses, locked, .. } = std::mem::take(&mut self.insn);
        let Some(line) = line else { return };
        let per = match repeat {
            Repeat::No => {
                self.push(line);
                if locked && let [load, ..] = accesses[..] {
                    self.push(load);
                }
                self.push_accesses(&accesses);
                return;
            }
            Repeat::Counted(per) | Repeat::Compared(per) => per,
        };
        let compares = repeat == Repeat::Compared(per);
        for iteration in accesses.chunks(per) {
            self.push(line);
            if compares {
                iteration.iter().rev().for_each(|access| self.push(*access));
            } else {
                self.push_accesses(iteration);
            }
        }
        self.push(line);
        if let Some(last) = self.lines.last_mut()
            && compares
            && !accesses.is_empty()
        {
            last.presence = Presence::IfCountRanOut;
        }
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
        let region = region.filter(|_| line.addr.0 >= self.image_end).map(|id| match id {
            HEAP => HEAP + self.breaks.iter().filter(|end| **end <= line.addr.0).count(),
            id => id,
        });
        self.lines.push(Ours { line, region, presence: Presence::Certain });
    }
}

/// Compares line by line; answers how many instruction lines there are.
fn compare(ours: &[Ours], theirs: &[Line]) -> u64 {
    let mut moved: HashMap<usize, u64> = HashMap::new();
    let (mut at, mut insns) = (0, 0);
    for (n, our) in ours.iter().enumerate() {
        let their = theirs.get(at).copied();
        let by = match (our.region, their) {
            (Some(region), Some(their)) => {
                *moved.entry(region).or_insert(their.addr.0.wrapping_sub(our.line.addr.0))
            }
            _ => 0,
        };
        let expected = Line { addr: our.line.addr.offset(by), ..our.line };
        if their == Some(expected) {
            at += 1;
            insns += u64::from(expected.op == Op::Insn);
        } else if our.presence == Presence::Certain {
            panic!("line {at}: {}", context(&ours[n.saturating_sub(8)..], theirs, at));
        }
    }
    assert_eq!(at, theirs.len(), "lackey has more: {:?}", theirs.get(at..at + 3));
    insns
}

fn context(ours: &[Ours], theirs: &[Line], at: usize) -> String {
    let show = |line: Option<&Line>| {
        line.map_or(String::new(), |l| format!("{:?} {:x},{}", l.op, l.addr.0, l.size))
    };
    let rows = (0..14).map(|i| {
        let left = show(ours.get(i).map(|o| &o.line));
        let right = show((at + i).checked_sub(8).and_then(|at| theirs.get(at)));
        format!("{} {left:30} {right}", if i == 8 { ">" } else { " " })
    });
    format!("ours, lackey's\n{}", rows.collect::<Vec<_>>().join("\n"))
}

fn record(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Recording {
    let mut config = Config::new(program).args(args.iter().copied());
    config.env = Some(env.iter().map(|(name, value)| (name.into(), value.into())).collect());
    config.values = Values::Omit;
    let mut recording = Recording::new();
    let outcome = run(&config, &mut recording).expect("the program can be traced");
    assert!(matches!(outcome.status, EndStatus::Exited(_)));
    check_recording(&recording);
    recording
}

fn judge(program: &Path, args: &[&str], env: &[(&str, &str)]) {
    let recording = record(program, args, env);
    let ours = Translator::translate(&recording, image_end(program));
    let insns = compare(&ours, &lackey::run(program, args, env));
    assert_eq!(insns, callgrind::run(Tool::Cachegrind, program, args, env));
    let counted = callgrind::run(Tool::Callgrind, program, args, env);
    assert_eq!(insns - last_block(&recording), counted);
}

/// How many instructions follow the last transfer or returned system call:
/// callgrind counts a block when the next one begins, and so never the last.
fn last_block(recording: &Recording) -> u64 {
    let mut insns = 0;
    for (_, item) in &recording.items {
        match item {
            Item::Record(Record::Insn { .. }, _) => insns += 1,
            Item::Record(Record::Branch { .. }, _) => insns = 0,
            Item::Event(event) if matches!(event.event(), Event::SyscallReturn { .. }) => insns = 0,
            _ => {}
        }
    }
    insns
}

fn judge_bare(source: &str) {
    if tool::have(source, &["valgrind", "gcc", "nm"]) {
        judge(&guest::build(source, Link::Bare, &["-DQUIET"]), &[], &[]);
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

#[test]
fn library() {
    if !tool::have("library", &["valgrind", "gcc", "nm"]) {
        return;
    }
    let program = guest::build("library.c", Link::Static, &["-lm"]);
    // The library picks its string functions by what the processor says, and
    // Valgrind's processor says less: with both told to do without, they pick
    // the same.
    let tunables = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-AVX_Fast_Unaligned_Load,\
        -ERMS,-FSRM,-BMI2,-LZCNT,-MOVBE,-RTM,-SSE4_2,-SSE4_1,-SSSE3,-FMA,-FMA4,-POPCNT:\
        glibc.cpu.x86_non_temporal_threshold=0xc0000:glibc.cpu.x86_rep_movsb_threshold=0x800:\
        glibc.cpu.x86_rep_stosb_threshold=0x800:glibc.pthread.rseq=0";
    let env = [("GLIBC_TUNABLES", tunables)];
    judge_from(&program, &env, "main");
}

/// Judges a program of the C library from its `main` on: what comes before asks
/// the processor, which is another one under Valgrind.
fn judge_from(program: &Path, env: &[(&str, &str)], symbol: &str) {
    let start = address_of(program, symbol);
    let recording = record(program, &[], env);
    let ours = Translator::translate(&recording, image_end(program));
    let first = ours.iter().position(|our| our.line.addr.0 == start).expect("main is reached");
    let theirs = lackey::run(program, &[], env);
    let their_first = theirs.iter().position(|line| line.addr.0 == start).expect("main is reached");
    let insns = compare(&ours[first..], &theirs[their_first..]);
    assert!(insns > 10_000, "{insns}");
}

fn image_end(program: &Path) -> u64 {
    address_of(program, "_end").next_multiple_of(4096)
}

fn address_of(program: &Path, symbol: &str) -> u64 {
    let output = std::process::Command::new("nm").arg(program).output().expect("nm runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.split(' ').nth(2) == Some(symbol));
    let hex = line.and_then(|line| line.split(' ').next()).expect("the symbol is there");
    u64::from_str_radix(hex, 16).expect("an address")
}
