//! A sink that keeps everything, and sources that tell it again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ichnos_base::{
    About, Batch, Code, Event, GuestVa, Isa, ProcessId, Record, Sink, Source, ThreadId,
};
use ichnos_convert::{
    Compression, Error, Format, ReadOptions, WriteOptions, create_sink, open_source, reader_source,
    writer_sink,
};

/// One thing that was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    Record(Record),
    Event(Event<'static>),
    Code(GuestVa, Vec<u8>),
}

/// All that was told, in order, with the thread it was about.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Tape {
    pub isa: Isa,
    pub branches: bool,
    pub items: Vec<(ThreadId, Item)>,
    pub finished: bool,
    /// Instructions so far, to check what batches say.
    insns: BTreeMap<ThreadId, u64>,
}

impl Tape {
    /// The records alone, of all threads in the order told.
    pub fn records(&self) -> Vec<Record> {
        self.threads_records().into_iter().map(|(_, r)| r).collect()
    }

    /// The records with their threads.
    pub fn threads_records(&self) -> Vec<(ThreadId, Record)> {
        let record = |(thread, item): &(ThreadId, Item)| match item {
            Item::Record(record) => Some((*thread, *record)),
            _ => None,
        };
        self.items.iter().filter_map(record).collect()
    }

    /// The items of one thread, the start and end of it aside.
    pub fn thread(&self, thread: ThreadId) -> Vec<Item> {
        let of = |(t, item): &(ThreadId, Item)| match item {
            Item::Event(Event::ThreadStart(_) | Event::ThreadEnd(_)) => None,
            item => (*t == thread).then(|| item.clone()),
        };
        self.items.iter().filter_map(of).collect()
    }

    /// Tells the tape to a sink, in batches of different lengths.
    pub fn play<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        sink.begin(&About { isa: self.isa, branches: self.branches, ..About::default() })?;
        let mut insns: BTreeMap<ThreadId, u64> = BTreeMap::new();
        let mut at = 0;
        while let Some((thread, item)) = self.items.get(at) {
            match item {
                Item::Event(event) => {
                    sink.event(*thread, event)?;
                    at += 1;
                }
                Item::Code(pc, bytes) => {
                    sink.code(*thread, &Code { process: ProcessId(0), pc: *pc, bytes })?;
                    at += 1;
                }
                Item::Record(_) => {
                    let limit = 1 + at % 5;
                    let run: Vec<Record> = self.items[at..]
                        .iter()
                        .take(limit)
                        .map_while(|(t, i)| match i {
                            Item::Record(r) if t == thread => Some(*r),
                            _ => None,
                        })
                        .collect();
                    let before = insns.entry(*thread).or_default();
                    sink.records(&Batch::new(*thread, *before, &run))?;
                    *before +=
                        run.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
                    at += run.len();
                }
            }
        }
        sink.finish()
    }
}

impl Sink for Tape {
    type Error = Infallible;

    fn begin(&mut self, about: &About<'_>) -> Result<bool, Infallible> {
        assert!(self.items.is_empty(), "begin comes first");
        self.isa = about.isa;
        self.branches = about.branches;
        Ok(true)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        assert!(!batch.records.is_empty() && !self.finished);
        let before = self.insns.entry(batch.thread).or_default();
        assert_eq!(batch.insns_before, *before, "instructions before the batch");
        for record in batch.records {
            *before += u64::from(matches!(record, Record::Insn { .. }));
            self.items.push((batch.thread, Item::Record(*record)));
        }
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        let seen = self.items.iter().any(|(t, _)| *t == thread);
        assert_eq!(!seen, matches!(event, Event::ThreadStart(_)), "threads start first");
        self.items.push((thread, Item::Event(own(event))));
        Ok(true)
    }

    fn code(&mut self, thread: ThreadId, code: &Code<'_>) -> Result<bool, Infallible> {
        self.items.push((thread, Item::Code(code.pc, code.bytes.to_vec())));
        Ok(true)
    }

    fn finish(&mut self) -> Result<(), Infallible> {
        assert!(!self.finished, "finish comes once");
        self.finished = true;
        Ok(())
    }
}

/// Events that readers tell, without borrowed parts.
fn own(event: &Event<'_>) -> Event<'static> {
    match *event {
        Event::ThreadStart(start) => Event::ThreadStart(start),
        Event::ThreadEnd(status) => Event::ThreadEnd(status),
        Event::Timestamp { ns } => Event::Timestamp { ns },
        Event::Migrate { cpu } => Event::Migrate { cpu },
        Event::Syscall { number, args } => Event::Syscall { number, args },
        Event::SyscallReturn { number, result } => Event::SyscallReturn { number, result },
        Event::Signal(signal) => Event::Signal(signal),
        Event::SignalReturn { pc } => Event::SignalReturn { pc },
        Event::Gap { reason, insns, skipped } => Event::Gap { reason, insns, skipped },
        Event::Marker { id, .. } => Event::Marker { id, text: "" },
        ref other => panic!("no reader tells {other:?}"),
    }
}

/// Bytes written by a sink.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().expect("not poisoned").clone()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a stream format's writer makes of a tape.
pub fn written(format: Format, tape: &Tape, options: &WriteOptions) -> Vec<u8> {
    let shared = Shared::default();
    let mut sink = writer_sink(format, Box::new(shared.clone()), Compression::None, options)
        .expect("a stream format");
    tape.play(&mut sink).expect("memory does not fail");
    shared.bytes()
}

/// What a format's reader makes of bytes.
pub fn read(format: Format, bytes: &[u8], options: &ReadOptions) -> Result<Tape, Error> {
    let input = Box::new(io::Cursor::new(bytes.to_vec()));
    collect(reader_source(format, input, options)?)
}

/// What a format's reader makes of a file.
pub fn read_file(format: Format, path: &Path, options: &ReadOptions) -> Result<Tape, Error> {
    collect(open_source(format, path, options)?)
}

/// Writes a tape to a file.
pub fn write_file(format: Format, tape: &Tape, path: &Path, options: &WriteOptions) {
    let mut sink = create_sink(format, path, options).expect("the folder is writable");
    tape.play(&mut sink).expect("the disk is not full");
}

fn collect(mut source: impl Source<Error = Error>) -> Result<Tape, Error> {
    let mut tape = Tape::default();
    match source.drive(&mut tape) {
        Ok(()) => {
            assert!(tape.finished);
            Ok(tape)
        }
        Err(ichnos_base::DriveError::Source(error)) => Err(error),
        Err(ichnos_base::DriveError::Sink(never)) => match never {},
    }
}

/// A path for one test.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("convert");
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    folder.join(name)
}
