//! Our records in lackey's form, by the rules of `docs/EVENTS.md`, and the comparison
//! line by line. Nothing is left out on either side.
//!
//! Valgrind puts the stack, the heap and what `mmap` gives at other addresses
//! than the kernel does. Each such region (of the heap, each piece that one `brk`
//! gave; of the stack, each text at its end) must be moved by one constant, found at
//! its first reference and held to at every other; the program's code and data must not
//! be moved.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{AccessFlags, Event, GuestVa, MapKind, Record};
use ichnos_testkit::lackey::{Line, Op};
use ichnos_testkit::{Item, Recording};

use crate::layout::Layout;
use crate::subject::Subject;

/// One of our records in lackey's form, and the region its address lies in.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    pub line: Line,
    region: Option<usize>,
    presence: Presence,
}

/// Whether lackey must have a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    Certain,
    /// Only if the count of a `scas` ran out, which the records do not tell: they
    /// have the places that were read, not the register they were compared with.
    IfCountRanOut,
    /// It must, but where is Valgrind's affair: a register that a bit test goes to
    /// is stored to its own stack, the byte of the bit is taken there, and the
    /// register loaded back from the same place.
    Scratch,
}

/// The region of the heap's first piece; the other pieces follow.
const HEAP: usize = 1 << 32;

/// The region of the program's first argument; the other arguments, the environment's
/// variables and the program's path follow.
const TEXTS: usize = 1 << 33;

/// Puts a recording into lackey's form.
pub struct Translator {
    lines: Vec<Ours>,
    /// Regions that Valgrind may move: start, end, and which.
    regions: Vec<(u64, u64, usize)>,
    next_region: usize,
    /// What each `brk` answered.
    breaks: Vec<u64>,
    /// Where the program's own code and data end and its heap may begin: the
    /// kernel shows the two as one mapping.
    image_end: u64,
    /// Bytes of each text at the stack's end.
    texts: Vec<u64>,
    code: HashMap<u64, Vec<u8>>,
    insn: Insn,
}

/// The instruction being translated.
#[derive(Default)]
struct Insn {
    line: Option<Line>,
    repeat: Repeat,
    accesses: Vec<Line>,
    /// What was read or written, access by access.
    values: Vec<Box<[u8]>>,
    /// What lackey shows of a bit test on a register.
    bits: Option<BitTest>,
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
    Compared(While, usize),
}

/// How long a comparing string instruction goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum While {
    Equal,
    Different,
}

/// A bit test on a register by a bit number in a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BitTest {
    /// What is done to the byte of the bit.
    op: Op,
    /// The register's bytes.
    size: u32,
}

/// Whether an instruction is such a bit test.
fn bit_test_of(bytes: &[u8]) -> Option<BitTest> {
    let is_prefix = |b: &u8| matches!(b, 0x66 | 0xf2 | 0xf3 | 0x40..=0x4f);
    let at = bytes.iter().position(|b| !is_prefix(b))?;
    let (prefixes, rest) = bytes.split_at(at);
    let [0x0f, opcode @ (0xa3 | 0xab | 0xb3 | 0xbb), 0xc0..=0xff, ..] = rest else { return None };
    let op = if *opcode == 0xa3 { Op::Load } else { Op::Modify };
    let size = match prefixes {
        [.., 0x48..=0x4f] => 8,
        _ if prefixes.contains(&0x66) => 2,
        _ => 4,
    };
    Some(BitTest { op, size })
}

/// What a string instruction's bytes say.
fn repeat_of(bytes: &[u8]) -> Repeat {
    let opcode = bytes.iter().position(|b| !matches!(b, 0x66 | 0x67 | 0xf2 | 0xf3 | 0x40..=0x4f));
    let Some(at) = opcode.filter(|at| bytes[..*at].iter().any(|b| matches!(b, 0xf2 | 0xf3))) else {
        return Repeat::No;
    };
    let goes_on = if bytes[..at].contains(&0xf3) { While::Equal } else { While::Different };
    match bytes[at] {
        0xa4 | 0xa5 => Repeat::Counted(2),
        0xaa..=0xad => Repeat::Counted(1),
        0xa6 | 0xa7 => Repeat::Compared(goes_on, 2),
        0xae | 0xaf => Repeat::Compared(goes_on, 1),
        _ => Repeat::No,
    }
}

impl Translator {
    pub fn translate(recording: &Recording, subject: &Subject) -> Vec<Ours> {
        let mut translator = Self {
            lines: Vec::new(),
            regions: Vec::new(),
            next_region: 0,
            breaks: Vec::new(),
            image_end: Layout::of(&subject.program).image_end(),
            texts: subject.texts(),
            code: HashMap::new(),
            insn: Insn::default(),
        };
        for (_, item) in &recording.items {
            match item {
                Item::Record(record, value) => translator.record(record, value.as_deref()),
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
            if map.kind == MapKind::STACK {
                self.place_texts(start + len);
            }
            let id = if map.kind == MapKind::HEAP { HEAP } else { self.next_region };
            self.regions.push((start, start + len, id));
            self.next_region += 1;
        }
    }

    /// The texts lie at the stack's end, before one word of zero.
    fn place_texts(&mut self, stack_end: u64) {
        let mut end = stack_end - 8;
        for (n, len) in self.texts.iter().enumerate().rev() {
            self.regions.push((end - len, end, TEXTS + n));
            end -= len;
        }
    }

    fn record(&mut self, record: &Record, value: Option<&[u8]>) {
        let line = |op, addr, size| Line { op, addr, size };
        match *record {
            Record::Insn { len, pc, .. } => {
                self.flush();
                self.insn.line = Some(line(Op::Insn, pc, u32::from(len)));
                let bytes = self.code.get(&pc.0).map_or(&[][..], Vec::as_slice);
                self.insn.repeat = repeat_of(bytes);
                self.insn.bits = bit_test_of(bytes);
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
            Record::Prefetch { .. } | Record::Flush { .. } | Record::Branch { .. } => return,
        }
        self.insn.values.extend(value.map(Box::from));
    }

    /// Writes the instruction gathered so far, in lackey's way.
    fn flush(&mut self) {
        let Insn { line, repeat, accesses, values, bits, locked, .. } =
            std::mem::take(&mut self.insn);
        let Some(line) = line else { return };
        let per = match repeat {
            Repeat::No => {
                self.push(line);
                if let Some(test) = bits {
                    self.push_scratch(test);
                }
                if locked && let [load, ..] = accesses[..] {
                    self.push(load);
                }
                self.push_accesses(&accesses);
                return;
            }
            Repeat::Counted(per) | Repeat::Compared(_, per) => per,
        };
        let compares = matches!(repeat, Repeat::Compared(..));
        for iteration in accesses.chunks(per) {
            self.push(line);
            if compares {
                iteration.iter().rev().for_each(|access| self.push(*access));
            } else {
                self.push_accesses(iteration);
            }
        }
        // One more line tells that the count has run out. A comparison that ends the
        // instruction leaves none, even if it was the last.
        match (repeat, values.last_chunk::<2>()) {
            (Repeat::Compared(While::Equal, 2), Some([one, two])) if one != two => {}
            (Repeat::Compared(While::Different, 2), Some([one, two])) if one == two => {}
            (Repeat::Compared(_, 1), _) if !accesses.is_empty() => {
                self.push_as(line, Presence::IfCountRanOut);
            }
            _ => self.push(line),
        }
    }

    /// What lackey shows of a bit test on a register.
    fn push_scratch(&mut self, test: BitTest) {
        let all = [(Op::Store, test.size), (test.op, 1), (Op::Load, test.size)];
        // What is only tested is not loaded back.
        let shown = if test.op == Op::Load { &all[..2] } else { &all[..] };
        for &(op, size) in shown {
            self.push_as(Line { op, addr: GuestVa(0), size }, Presence::Scratch);
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
        self.push_as(line, Presence::Certain);
    }

    fn push_as(&mut self, line: Line, presence: Presence) {
        let inside = |(from, to, _): &&(u64, u64, usize)| (*from..*to).contains(&line.addr.0);
        let region = self.regions.iter().find(inside).map(|(_, _, id)| *id);
        let region = region.filter(|_| line.addr.0 >= self.image_end).map(|id| match id {
            HEAP => HEAP + self.breaks.iter().filter(|end| **end <= line.addr.0).count(),
            id => id,
        });
        self.lines.push(Ours { line, region, presence });
    }
}

/// Compares line by line; answers how many instruction lines there are, or where they differ.
pub fn compare(ours: &[Ours], theirs: &[Line]) -> Result<u64, String> {
    let mut moved: HashMap<usize, u64> = HashMap::new();
    let (mut at, mut insns) = (0, 0);
    let mut scratch = 0..0;
    for (n, our) in ours.iter().enumerate() {
        let their = theirs.get(at).copied();
        if our.presence == Presence::Scratch {
            let place = their.filter(|t| (t.op, t.size) == (our.line.op, our.line.size));
            let Some(Line { addr, .. }) = place else { return differ(ours, theirs, n, at) };
            let right = match our.line.size {
                1 => scratch.contains(&addr.0),
                size if our.line.op == Op::Store => {
                    scratch = addr.0..addr.0 + u64::from(size);
                    true
                }
                _ => addr.0 == scratch.start,
            };
            if !right {
                return Err(format!(
                    "line {at}: a bit test goes to {:x}, not {scratch:x?}",
                    addr.0
                ));
            }
            at += 1;
            continue;
        }
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
            return differ(ours, theirs, n, at);
        }
    }
    match theirs.get(at..) {
        None | Some([]) => Ok(insns),
        Some(more) => Err(format!("lackey has more: {:?}", &more[..more.len().min(3)])),
    }
}

fn differ(ours: &[Ours], theirs: &[Line], n: usize, at: usize) -> Result<u64, String> {
    Err(format!("line {at}: {}", context(&ours[n.saturating_sub(8)..], theirs, at)))
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
