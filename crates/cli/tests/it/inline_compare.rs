//! A program recorded inline against the same program single-stepped: the records of noted
//! functions must be the same, thread by thread.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use ichnos_base::{
    About, Batch, EndStatus, Event, GuestVa, Isa, MapKind, Protection, Record, Sink, Source,
    ThreadId,
};
use ichnos_collect_asm as asm;
use ichnos_collect_step as step;
use ichnos_flow::Level;
use ichnos_replay::Replay;
use ichnos_trace::{Options, Reader, Writer};

/// A program or library: where its noted functions lie in its file, and by how much it was moved, if it is there.
pub struct Image {
    ranges: Vec<Range<GuestVa>>,
    loaded: Loaded,
}

/// Where a program or library is loaded, as events tell.
pub struct Loaded {
    path: String,
    /// By how much it was moved, and where its code lies.
    pub bias: Option<u64>,
    code: GuestVa,
}

impl Loaded {
    /// One that is not there yet.
    pub fn new(path: &Path) -> Self {
        let path = std::fs::canonicalize(path).unwrap().to_string_lossy().into_owned();
        Self { path, bias: None, code: GuestVa(0) }
    }

    /// Takes notice of it if it comes, and if it goes or something else comes to its place.
    pub fn event(&mut self, event: &Event<'_>) {
        let (start, len) = match event {
            Event::Map(map) => (map.start, map.len),
            Event::Unmap { start, len } => (*start, *len),
            _ => return,
        };
        if self.bias.is_some() && (start..start.offset(len)).contains(&self.code) {
            self.bias = None;
        }
        if let Event::Map(map) = event
            && map.kind == MapKind::IMAGE
            && map.path == self.path
            && map.protection.0 & Protection::EXEC.0 != 0
        {
            (self.bias, self.code) = (Some(map.bias), start);
        }
    }
}

impl Image {
    /// One that is not there yet.
    pub fn new(path: &Path) -> Self {
        let ranges = asm::noted(path).expect("it can be read");
        assert!(!ranges.is_empty(), "no notes");
        Self { ranges, loaded: Loaded::new(path) }
    }

    /// Takes notice of it if it comes or goes.
    pub fn event(&mut self, event: &Event<'_>) {
        self.loaded.event(event);
    }

    /// Whether an instruction is one of its noted functions, where they lie now.
    pub fn holds(&self, pc: GuestVa) -> bool {
        let Some(bias) = self.loaded.bias else { return false };
        let pc = GuestVa(pc.0.wrapping_sub(bias));
        let i = self.ranges.partition_point(|r| r.start <= pc);
        i > 0 && self.ranges[i - 1].contains(&pc)
    }
}

/// Keeps the records of some code, by thread; of all, if no images are named.
#[derive(Default)]
struct Keep {
    images: Vec<Image>,
    threads: BTreeMap<u32, Vec<Record>>,
    inside: BTreeMap<u32, bool>,
    ends: BTreeMap<u32, EndStatus>,
    gaps: usize,
}

impl Sink for Keep {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        for record in batch.records {
            let thread = batch.thread.0;
            if let Record::Insn { pc, .. } = record {
                let inside = self.images.is_empty() || self.images.iter().any(|i| i.holds(*pc));
                self.inside.insert(thread, inside);
            }
            if self.inside.get(&thread) == Some(&true) {
                self.threads.entry(thread).or_default().push(*record);
            }
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.images.iter_mut().for_each(|image| image.event(event));
        match event {
            Event::ThreadEnd(status) => drop(self.ends.insert(thread.0, *status)),
            Event::Gap { .. } => self.gaps += 1,
            _ => {}
        }
        Ok(true)
    }
}

/// Keeps references, by thread; takes nothing else.
#[derive(Default)]
struct References(BTreeMap<u32, Vec<Record>>);

impl Sink for References {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.0.entry(batch.thread.0).or_default().extend_from_slice(batch.records);
        Ok(true)
    }

    fn takes_references(&self) -> bool {
        true
    }
}

/// What a comparison found, for the caller to look at.
#[derive(Debug)]
pub struct Compared {
    /// Instructions of noted functions.
    pub insns: usize,
    /// Threads.
    pub threads: usize,
    /// Gaps in the inline trace.
    pub gaps: usize,
}

/// Records a program into a trace with many chunks, and plays it.
fn store(config: &asm::Config, sink: &mut Keep) -> asm::Outcome {
    let mut options = Options::default();
    options.chunk_insns = 10_000;
    let mut writer = Writer::new(Vec::new(), options).expect("a writer");
    writer.begin(&About { isa: Isa::X86_64, ..About::default() }).expect("it begins");
    let recorded = asm::record(config, &mut writer).expect("it can be recorded");
    let reader = Reader::from_bytes(writer.into_inner()).expect("a trace");
    assert_eq!(reader.totals().insns, recorded.insns, "instructions that were counted");
    Replay::new(&reader).drive(sink).expect("it can be played");
    recorded
}

/// A program that was single-stepped.
pub struct Stepped {
    program: OsString,
    args: Vec<OsString>,
    status: EndStatus,
    kept: Keep,
}

impl Stepped {
    /// Steps a program that has notes.
    pub fn new(program: &OsStr) -> Self {
        Self::with(program, &[])
    }

    /// Steps a program that has notes, with arguments.
    pub fn with(program: &OsStr, args: &[OsString]) -> Self {
        Self::of_images(program, args, &[])
    }

    /// Steps a program that has notes and libraries that have some.
    pub fn of_images(program: &OsStr, args: &[OsString], libraries: &[&Path]) -> Self {
        let paths = [Path::new(program)].into_iter().chain(libraries.iter().copied());
        let mut kept = Keep { images: paths.map(Image::new).collect(), ..Keep::default() };
        let mut config = step::Config::new(program);
        config.args = args.to_vec();
        let outcome = step::Collector::new(&config).run(&mut kept).expect("it can be stepped");
        kept.threads.retain(|_, records| !records.is_empty());
        let program = program.to_owned();
        Self { program, args: args.to_vec(), status: outcome.status, kept }
    }

    /// Records the program inline, once record by record and once into a trace, which takes what threads stored; panics where
    /// either differs.
    pub fn compare(&self, level: Level) -> Compared {
        let mut config = asm::Config::new(&self.program, self.args.iter().cloned());
        config.level = level;
        let mut stored = Keep::default();
        let recorded = store(&config, &mut stored);
        self.equals(&recorded, stored);
        let mut inline = Keep::default();
        let recorded = asm::record(&config, &mut inline).expect("it can be recorded");
        self.equals(&recorded, inline)
    }

    fn equals(&self, recorded: &asm::Outcome, mut inline: Keep) -> Compared {
        assert_eq!(recorded.status, self.status, "the program ended otherwise");
        inline.threads.retain(|_, records| !records.is_empty());
        let numbers = |kept: &Keep| kept.threads.keys().copied().collect::<Vec<_>>();
        assert_eq!(numbers(&self.kept), numbers(&inline), "threads");
        for (thread, expected) in &self.kept.threads {
            same(*thread, expected, &inline.threads[thread]);
        }
        assert_eq!(self.kept.ends, inline.ends, "ends of threads");
        assert_eq!(recorded.left_out, 0, "functions were left out");
        let is_insn = |r: &&Record| matches!(r, Record::Insn { .. });
        let insns = self.kept.threads.values().flatten().filter(is_insn).count();
        Compared { insns, threads: self.kept.threads.len(), gaps: inline.gaps }
    }
}

impl Stepped {
    /// Records the program's references alone, one by one; panics where they differ. Answers how many there are.
    pub fn compare_references(&self) -> usize {
        let mut references = References::default();
        let config = asm::Config::new(&self.program, self.args.iter().cloned());
        let recorded = asm::record(&config, &mut references).expect("it can be recorded");
        assert_eq!(recorded.status, self.status, "the program ended otherwise");
        let is_reference = |r: &&Record| !matches!(r, Record::Insn { .. } | Record::Branch { .. });
        let mut count = 0;
        for (thread, records) in &self.kept.threads {
            let expected: Vec<Record> = records.iter().filter(is_reference).copied().collect();
            same(*thread, &expected, &references.0.remove(thread).unwrap_or_default());
            count += expected.len();
        }
        assert!(references.0.values().all(Vec::is_empty), "threads");
        count
    }
}

fn same(thread: u32, expected: &[Record], got: &[Record]) {
    let differs = expected.iter().zip(got).position(|(a, b)| a != b);
    let at = differs.or((expected.len() != got.len()).then(|| expected.len().min(got.len())));
    if let Some(at) = at {
        let around = |all: &[Record]| -> String {
            let part = &all[at.saturating_sub(8).min(all.len())..(at + 4).min(all.len())];
            part.iter().map(|r| format!("  {r:x?}\n")).collect()
        };
        panic!(
            "thread {thread} differs at record {at} of {} and {}:\nstep\n{}inline\n{}",
            expected.len(),
            got.len(),
            around(expected),
            around(got),
        );
    }
}
