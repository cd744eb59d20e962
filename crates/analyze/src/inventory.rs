//! What is in a trace: the counts and lists that `ichnos info` shows.
//!
//! Memory grows with the program (threads, images, distinct instructions and
//! touched pages), not with the length of the trace. Images beyond
//! [`MOST_IMAGES`] are counted and not listed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;

use ichnos_base::{
    About, Batch, EndStatus, Event, FileOff, GuestVa, InsnKind, Isa, Map, MapKind, ProcessId,
    Record, Sink, ThreadId, ThreadStart, Totals,
};

use crate::footprint::{Footprint, Touched};
use crate::hash::FastMap;
use crate::pcs::Pcs;

/// How many mapped images are listed.
pub const MOST_IMAGES: usize = 10_000;

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

/// Part of a file in memory that may be executed, or that is an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image {
    /// In which address space.
    pub process: ProcessId,
    /// First address.
    pub start: GuestVa,
    /// Bytes.
    pub len: u64,
    /// Where in the file it begins.
    pub offset: FileOff,
    /// Run-time addresses minus the file's own.
    pub bias: u64,
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
    /// Executable mappings of images, in order of appearance.
    pub images: Vec<Image>,
    /// Image mappings beyond what is listed.
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

    /// What was found, with the `top` instructions executed most.
    #[must_use]
    pub fn into_stock(self, top: usize) -> Stock {
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
            top: hottest(&self.pcs, &self.executions, top),
            distinct_insns: self.pcs.keys().len() as u64,
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

    fn map(&mut self, process: ProcessId, map: &Map<'_>) {
        if map.kind != MapKind::IMAGE && map.kind != MapKind::VDSO {
            return;
        }
        if self.images.len() >= MOST_IMAGES {
            self.images_left_out += 1;
            return;
        }
        self.images.push(Image {
            process,
            start: map.start,
            len: map.len,
            offset: map.offset,
            bias: map.bias,
            path: map.path.into(),
            build_id: map.build_id.into(),
        });
    }
}

fn hottest(pcs: &Pcs, executions: &[u64], top: usize) -> Vec<HotInsn> {
    let all = pcs.keys().iter().zip(executions);
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

    fn take(&mut self, record: &Record, memory: &mut Memory) {
        self.totals.count(record);
        match *record {
            Record::Insn { len, kind, pc } => {
                self.kinds[(kind.0 as usize).min(KINDS - 1)] += 1;
                memory.code.touch(pc, len.into());
            }
            Record::Load { size, addr, .. } => {
                self.bytes_loaded += u64::from(size);
                memory.data.touch(addr, size);
            }
            Record::Store { size, addr, .. } => {
                self.bytes_stored += u64::from(size);
                memory.data.touch(addr, size);
            }
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
        let thread = self.threads.entry(batch.thread).or_default();
        let process = thread.start.map_or_else(ProcessId::default, |start| start.process);
        let memory = self.processes.entry(process).or_default();
        for record in batch.records {
            thread.take(record, memory);
            if let Record::Insn { pc, .. } = *record {
                let number = self.pcs.number(process, pc);
                match self.executions.get_mut(number) {
                    Some(count) => *count += 1,
                    None => self.executions.push(1),
                }
            }
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.events += 1;
        let thread = self.threads.entry(thread).or_default();
        let process = thread.start.map_or_else(ProcessId::default, |start| start.process);
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
