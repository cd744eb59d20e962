//! What is in a trace: the counts and lists that `ichnos info` shows.
//!
//! Memory grows with the program (threads, images, distinct instructions and
//! touched pages), not with the length of the trace. Images beyond
//! [`MOST_IMAGES`] are counted and not listed.
//!
//! Whoever knows what each thread counts (a stored trace says so) can have the
//! rest found by blocks instead of records ([`Inventory::with_totals`]), and
//! stretches of threads apart from each other ([`Share`]).
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;

use ichnos_base::{
    About, Batch, Blocks, EndStatus, Event, GuestVa, InsnKind, Isa, Map, MapKind, ProcessId,
    Record, Sink, ThreadId, ThreadStart, Totals,
};

use crate::executed::Executed;
use crate::footprint::{Footprint, Touched};
use crate::hash::FastMap;
use crate::pcs::Pcs;

mod share;

pub use share::Share;

/// How many mapped images are listed.
pub const MOST_IMAGES: usize = 10_000;

/// How many images back another part of one is looked for: programs change the
/// protection of what they mapped last.
const NEIGHBOURS: usize = 64;

/// Holes between the parts of one image are smaller than this.
const FAR: u64 = 16 << 20;

/// How many kinds of instruction are told apart; the last stands for all that
/// this version does not know.
pub const KINDS: usize = 9;

/// Takes stock of a trace.
#[derive(Debug, Default)]
pub struct Inventory {
    provenance: Provenance,
    threads: BTreeMap<ThreadId, Thread>,
    processes: FastMap<ProcessId, Memory>,
    images: Vec<Image>,
    images_left_out: u64,
    syscalls: BTreeMap<u64, u64>,
    events: u64,
    gaps: u64,
    counts: Counts,
    /// What threads count, if that is known.
    known: BTreeMap<ThreadId, Totals>,
    executed: Executed,
    /// Who ran what is in `executed`.
    runner: Option<(ThreadId, ProcessId)>,
    /// Whether images are listed as they are mapped, for somebody else to make wholes of.
    lists_maps: bool,
}

/// How often each instruction ran.
#[derive(Debug, Default)]
struct Counts {
    pcs: Pcs,
    executions: Vec<u64>,
}

/// Where the trace comes from, kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Provenance {
    /// The instruction set.
    pub isa: Isa,
    /// Which collector.
    pub collector: String,
    /// The traced command.
    pub command: Vec<String>,
    /// The folder in which it ran.
    pub folder: String,
    /// Host name, kernel and processor.
    pub host: String,
    /// When it started, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Whether there are values.
    pub values: bool,
    /// Whether there are branch outcomes.
    pub branches: bool,
}

/// One thread's share.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    /// How it began, if that was told.
    pub start: Option<ThreadStart>,
    /// How it ended, if that was told.
    pub end: Option<EndStatus>,
    /// Its records.
    pub totals: Totals,
    /// Bytes loaded.
    pub bytes_loaded: u64,
    /// Bytes stored.
    pub bytes_stored: u64,
    /// Instructions by kind: index is the kind's number, the last is for
    /// unknown ones.
    pub kinds: [u64; KINDS],
    /// First and last clock, if any was told.
    pub clock: Option<(u64, u64)>,
}

/// A program or library in memory, from its first mapped byte to its last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// In which address space.
    pub process: ProcessId,
    /// First address.
    pub start: GuestVa,
    /// Bytes, holes between its parts included.
    pub len: u64,
    /// The file.
    pub path: String,
    /// The build-id, if it has one.
    pub build_id: Vec<u8>,
}

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct Stock {
    /// Where the trace comes from.
    pub provenance: Provenance,
    /// All threads.
    pub threads: BTreeMap<ThreadId, Thread>,
    /// All threads together; its start, end and clock are those of the whole.
    pub total: Thread,
    /// Programs and libraries, in order of appearance.
    pub images: Vec<Image>,
    /// Mappings of further images.
    pub images_left_out: u64,
    /// How often each system call was made.
    pub syscalls: BTreeMap<u64, u64>,
    /// Events of all sorts.
    pub events: u64,
    /// Gaps among them.
    pub gaps: u64,
    /// Memory fetched from.
    pub code: Touched,
    /// Memory loaded from and stored to.
    pub data: Touched,
    /// Distinct instructions.
    pub distinct_insns: u64,
    /// The instructions executed most, most first.
    pub top: Vec<HotInsn>,
}

/// One instruction and how often it ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotInsn {
    /// In which address space.
    pub process: ProcessId,
    /// Where.
    pub pc: GuestVa,
    /// How often.
    pub executions: u64,
}

#[derive(Debug, Default)]
struct Memory {
    code: Footprint,
    data: Footprint,
}

impl Inventory {
    /// An inventory of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same of a trace of which it is known what the records of each thread count. It takes
    /// blocks, which do not tell how branches went.
    #[must_use]
    pub fn with_totals(known: impl IntoIterator<Item = (ThreadId, Totals)>) -> Self {
        Self { known: known.into_iter().collect(), ..Self::default() }
    }

    /// What was found, with the `top` instructions executed most.
    #[must_use]
    pub fn into_stock(mut self, top: usize) -> Stock {
        self.settle();
        for (id, thread) in &mut self.threads {
            if let Some(totals) = self.known.get(id) {
                thread.totals = *totals;
            }
        }
        let mut total = Thread::default();
        for thread in self.threads.values() {
            total.add(thread);
        }
        let (mut code, mut data) = (Touched::default(), Touched::default());
        for memory in self.processes.values() {
            code.add(memory.code.size());
            data.add(memory.data.size());
        }
        Stock {
            top: self.counts.hottest(top),
            distinct_insns: self.counts.pcs.keys().len() as u64,
            provenance: self.provenance,
            threads: self.threads,
            total,
            images: self.images,
            images_left_out: self.images_left_out,
            syscalls: self.syscalls,
            events: self.events,
            gaps: self.gaps,
            code,
            data,
        }
    }

    /// Multiplies out what ran as blocks.
    fn settle(&mut self) {
        let Some((thread, process)) = self.runner.take() else { return };
        let thread = self.threads.entry(thread).or_default();
        let memory = self.processes.entry(process).or_default();
        self.executed.take(|record, times| {
            thread.take(record, times);
            if let Record::Insn { len, pc, .. } = *record {
                memory.code.touch(pc, len.into());
                self.counts.add(process, pc, times);
            }
        });
    }

    /// What runs as blocks from now on is this thread's.
    fn run_by(&mut self, thread: ThreadId, process: ProcessId) {
        if self.runner != Some((thread, process)) {
            self.settle();
            self.runner = Some((thread, process));
        }
    }

    /// Where a thread is, which from now on is one of those in the trace.
    fn home(&mut self, thread: ThreadId) -> ProcessId {
        let start = self.threads.entry(thread).or_default().start;
        start.map_or_else(ProcessId::default, |start| start.process)
    }

    fn map(&mut self, process: ProcessId, map: &Map<'_>) {
        if map.kind != MapKind::IMAGE && map.kind != MapKind::VDSO {
            return;
        }
        let image = Image {
            process,
            start: map.start,
            len: map.len,
            path: map.path.into(),
            build_id: map.build_id.into(),
        };
        if self.lists_maps {
            self.images.push(image);
        } else {
            self.add_image(image);
        }
    }

    fn add_image(&mut self, part: Image) {
        let last = self.images.iter_mut().rev().take(NEIGHBOURS);
        let mut same = last.filter(|i| i.process == part.process && i.path == part.path);
        if same.any(|image| image.take_in(&part)) {
            return;
        }
        if self.images.len() >= MOST_IMAGES {
            self.images_left_out += 1;
            return;
        }
        self.images.push(part);
    }
}

impl Image {
    /// Grows to hold another part of the same image. A part that lies far away
    /// belongs to another copy of it.
    fn take_in(&mut self, part: &Self) -> bool {
        let start = self.start.min(part.start);
        let end = |start: GuestVa, len: u64| start.0.saturating_add(len);
        let len = end(self.start, self.len).max(end(part.start, part.len)) - start.0;
        if self.build_id != part.build_id
            || len > self.len.saturating_add(part.len).saturating_add(FAR)
        {
            return false;
        }
        (self.start, self.len) = (start, len);
        true
    }
}

impl Counts {
    #[inline]
    fn add(&mut self, process: ProcessId, pc: GuestVa, times: u64) {
        let number = self.pcs.number(process, pc);
        match self.executions.get_mut(number) {
            Some(count) => *count += times,
            None => self.executions.push(times),
        }
    }

    fn hottest(&self, top: usize) -> Vec<HotInsn> {
        let all = self.pcs.keys().iter().zip(&self.executions);
        let mut hot: Vec<_> =
            all.map(|(&(process, pc), &executions)| HotInsn { process, pc, executions }).collect();
        let order = |h: &HotInsn| (std::cmp::Reverse(h.executions), h.process, h.pc);
        if top < hot.len() {
            hot.select_nth_unstable_by_key(top, order);
            hot.truncate(top);
        }
        hot.sort_by_key(order);
        hot
    }
}

impl Thread {
    /// Adds another thread's counts.
    fn add(&mut self, other: &Self) {
        self.totals.add(&other.totals);
        self.bytes_loaded += other.bytes_loaded;
        self.bytes_stored += other.bytes_stored;
        for (mine, theirs) in self.kinds.iter_mut().zip(other.kinds) {
            *mine += theirs;
        }
        self.clock = match (self.clock, other.clock) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (a, b) => a.or(b),
        };
    }

    /// Instructions of one kind.
    #[must_use]
    pub fn of_kind(&self, kind: InsnKind) -> u64 {
        self.kinds[(kind.0 as usize).min(KINDS - 1)]
    }

    /// What a record is, but for what it counts.
    #[inline]
    fn take(&mut self, record: &Record, times: u64) {
        match *record {
            Record::Insn { kind, .. } => {
                self.kinds[(kind.0 as usize).min(KINDS - 1)] += times;
            }
            Record::Load { size, .. } => self.bytes_loaded += u64::from(size) * times,
            Record::Store { size, .. } => self.bytes_stored += u64::from(size) * times,
            _ => {}
        }
    }
}

impl Sink for Inventory {
    type Error = Infallible;

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        self.provenance = Provenance {
            isa: about.isa,
            collector: about.collector.into(),
            command: about.command.iter().map(|&word| word.into()).collect(),
            folder: about.folder.into(),
            host: about.host.into(),
            started_ns: about.started_ns,
            values: about.values,
            branches: about.branches,
        };
        Ok(true)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let process = self.home(batch.thread);
        let thread = self.threads.entry(batch.thread).or_default();
        let memory = self.processes.entry(process).or_default();
        thread.totals.count_batch(batch);
        for record in batch.records {
            thread.take(record, 1);
            match *record {
                Record::Insn { len, pc, .. } => {
                    memory.code.touch(pc, len.into());
                    self.counts.add(process, pc, 1);
                }
                Record::Load { size, addr, .. } | Record::Store { size, addr, .. } => {
                    memory.data.touch(addr, size);
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        !self.known.is_empty()
    }

    fn blocks(&mut self, blocks: &Blocks<'_>) -> Result<bool, Infallible> {
        let process = self.home(blocks.thread);
        self.run_by(blocks.thread, process);
        let data = &mut self.processes.entry(process).or_default().data;
        let mut words = blocks.words;
        for block in blocks.blocks {
            let reaches = self.executed.run(*block, blocks.shapes);
            let Some((own, later)) = words.split_at_checked(reaches.len()) else { break };
            words = later;
            for (reach, word) in reaches.iter().zip(own) {
                if *reach > 0 {
                    data.touch(GuestVa(*word), *reach);
                }
            }
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.events += 1;
        let process = self.home(thread);
        let thread = self.threads.entry(thread).or_default();
        match event {
            Event::ThreadStart(start) => thread.start = Some(*start),
            Event::ThreadEnd(status) => thread.end = Some(*status),
            Event::Syscall { number, .. } => *self.syscalls.entry(*number).or_default() += 1,
            Event::Gap { .. } => self.gaps += 1,
            Event::Timestamp { ns } => {
                let first = thread.clock.map_or(*ns, |(first, _)| first);
                thread.clock = Some((first, *ns));
            }
            Event::Map(map) => self.map(process, map),
            _ => {}
        }
        Ok(true)
    }
}
