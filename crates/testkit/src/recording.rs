//! A sink that keeps everything, in the order in which it was told, one item at
//! a time: the naive twin of a trace file.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;

use ichnos_base::{
    About, Batch, Code, Event, FileOff, GuestVa, Map, MapKind, ProcessId, Protection, Record, Sink,
    ThreadId, Totals,
};

/// A whole trace.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Recording {
    /// Everything, in the order in which it was told, with whose it is.
    pub items: Vec<(ThreadId, Item)>,
    /// What was wrong with the batches themselves.
    pub complaints: Vec<String>,
    /// The command of the traced program.
    pub command: Vec<String>,
    /// Whether values were promised.
    pub values: bool,
    /// How often the end was told.
    pub finished: u32,
    insns: Vec<u64>,
}

/// One thing told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A record, with its bytes if values were collected.
    Record(Record, Option<Box<[u8]>>),
    /// An event.
    Event(OwnedEvent),
    /// Code.
    Code {
        /// The address space.
        process: ProcessId,
        /// Where.
        pc: GuestVa,
        /// What.
        bytes: Vec<u8>,
    },
}

/// An event that owns its texts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnedEvent {
    /// An event without texts.
    Plain(Event<'static>),
    /// [`Event::Exec`] and its path.
    Exec(String),
    /// [`Event::Map`].
    Map(OwnedMap),
    /// [`Event::Marker`].
    Marker(u64, String),
}

/// [`Map`] with texts of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of Map")]
pub struct OwnedMap {
    pub start: GuestVa,
    pub len: u64,
    pub protection: Protection,
    pub kind: MapKind,
    pub offset: FileOff,
    pub bias: u64,
    pub path: String,
    pub build_id: Vec<u8>,
}

impl OwnedEvent {
    /// Keeps an event.
    #[must_use]
    pub fn of(event: &Event<'_>) -> Self {
        match *event {
            Event::Exec { path } => Self::Exec(path.into()),
            Event::Marker { id, text } => Self::Marker(id, text.into()),
            Event::Map(map) => Self::Map(OwnedMap {
                start: map.start,
                len: map.len,
                protection: map.protection,
                kind: map.kind,
                offset: map.offset,
                bias: map.bias,
                path: map.path.into(),
                build_id: map.build_id.into(),
            }),
            Event::ThreadStart(start) => Self::Plain(Event::ThreadStart(start)),
            Event::ThreadEnd(end) => Self::Plain(Event::ThreadEnd(end)),
            Event::ThreadCreate { child } => Self::Plain(Event::ThreadCreate { child }),
            Event::ThreadJoin { child } => Self::Plain(Event::ThreadJoin { child }),
            Event::Unmap { start, len } => Self::Plain(Event::Unmap { start, len }),
            Event::Lock { op, kind, addr } => Self::Plain(Event::Lock { op, kind, addr }),
            Event::Barrier { phase, addr } => Self::Plain(Event::Barrier { phase, addr }),
            Event::Cond { op, addr } => Self::Plain(Event::Cond { op, addr }),
            Event::Syscall { number, args } => Self::Plain(Event::Syscall { number, args }),
            Event::SyscallReturn { number, result } => {
                Self::Plain(Event::SyscallReturn { number, result })
            }
            Event::Signal(info) => Self::Plain(Event::Signal(info)),
            Event::SignalReturn { pc } => Self::Plain(Event::SignalReturn { pc }),
            Event::Migrate { cpu } => Self::Plain(Event::Migrate { cpu }),
            Event::ModeSwitch { mode } => Self::Plain(Event::ModeSwitch { mode }),
            Event::Gap { reason, insns, skipped } => {
                Self::Plain(Event::Gap { reason, insns, skipped })
            }
            Event::Timestamp { ns } => Self::Plain(Event::Timestamp { ns }),
            Event::Trap(info) => Self::Plain(Event::Trap(info)),
            Event::Privilege { level } => Self::Plain(Event::Privilege { level }),
            Event::AddressSpace { id } => Self::Plain(Event::AddressSpace { id }),
            ref other => panic!("an event that the recording does not know: {other:?}"),
        }
    }

    /// The event again.
    #[must_use]
    pub fn event(&self) -> Event<'_> {
        match self {
            Self::Plain(event) => *event,
            Self::Exec(path) => Event::Exec { path },
            Self::Marker(id, text) => Event::Marker { id: *id, text },
            Self::Map(map) => Event::Map(Map {
                start: map.start,
                len: map.len,
                protection: map.protection,
                kind: map.kind,
                offset: map.offset,
                bias: map.bias,
                path: &map.path,
                build_id: &map.build_id,
            }),
        }
    }
}

impl Recording {
    /// An empty recording.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The records of all threads in the order told.
    pub fn records(&self) -> impl Iterator<Item = (ThreadId, &Record)> {
        self.items.iter().filter_map(|(thread, item)| match item {
            Item::Record(record, _) => Some((*thread, record)),
            _ => None,
        })
    }

    /// The events of all threads in the order told.
    pub fn events(&self) -> impl Iterator<Item = (ThreadId, Event<'_>)> {
        self.items.iter().filter_map(|(thread, item)| match item {
            Item::Event(event) => Some((*thread, event.event())),
            _ => None,
        })
    }

    /// What one thread was told, in order.
    pub fn thread(&self, thread: ThreadId) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |(owner, _)| *owner == thread).map(|(_, item)| item)
    }

    /// How many of each sort.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.records().for_each(|(_, record)| totals.count(record));
        totals
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.items.iter().map(|(thread, _)| thread.0 + 1).max().unwrap_or(0)
    }

    /// Notes what is wrong with a batch as a whole.
    fn inspect(&mut self, batch: &Batch<'_>) {
        let thread = batch.thread;
        if self.insns.len() <= thread.index() {
            self.insns.resize(thread.index() + 1, 0);
        }
        let before = &mut self.insns[thread.index()];
        if batch.insns_before != *before {
            let (got, expected) = (batch.insns_before, *before);
            self.complaints.push(format!("thread {thread}: insns_before {got}, not {expected}"));
        }
        *before += batch.records.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
        let bytes: usize = batch.records.iter().map(Record::value_len).sum();
        if batch.values.is_some() != self.values || batch.values.is_some_and(|v| v.len() != bytes) {
            let got = batch.values.map(<[u8]>::len);
            self.complaints.push(format!("thread {thread}: {got:?} bytes of values, not {bytes}"));
        }
    }
}

impl Sink for Recording {
    type Error = Infallible;

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        self.command = about.command.iter().map(|word| (*word).into()).collect();
        self.values = about.values;
        Ok(true)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        self.inspect(batch);
        let mut values = batch.values;
        for record in batch.records {
            let bytes = values.and_then(|bytes| bytes.split_at_checked(record.value_len()));
            values = bytes.map(|(_, rest)| rest);
            let own = bytes.map(|(own, _)| own.into());
            self.items.push((batch.thread, Item::Record(*record, own)));
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        self.items.push((thread, Item::Event(OwnedEvent::of(event))));
        Ok(true)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, Infallible> {
        let Code { process, pc, bytes } = *code;
        self.items.push((thread, Item::Code { process, pc, bytes: bytes.into() }));
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        self.finished += 1;
        Ok(())
    }
}
