//! Takes what the engines store and hands it to a sink, as records.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ichnos_base::{Batch, Code, EndStatus, Event, ProcessId, Record, Sink, ThreadId, ThreadStart};
use ichnos_tap::{BufferKind, Taken};

use super::book::Book;
use super::channel::Channel;
use super::launch::Tracee;
use super::stream::{Item, Stream};
use crate::Error;

/// How long to sleep at most before looking whether the program has ended.
const PATIENCE: Duration = Duration::from_millis(20);

/// Why a collection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError<E> {
    /// The sink failed.
    #[error("the sink failed")]
    Sink(E),
    /// Something else did.
    #[error(transparent)]
    Host(Error),
}

/// What came of a collection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// How the program ended.
    pub status: ExitStatus,
    /// Instructions recorded.
    pub insns: u64,
    /// Bytes that came through the tap.
    pub raw_bytes: u64,
    /// How often a thread had to wait for a free buffer.
    pub waits: u32,
}

struct Collector<'a, S: Sink> {
    sink: &'a mut S,
    book: Book,
    threads: HashMap<u32, Thread>,
    raw_bytes: u64,
    insns: u64,
}

struct Thread {
    stream: Stream,
    insns: u64,
    ended: bool,
}

impl Tracee {
    /// Runs the program to its end and gives everything it does to the sink.
    ///
    /// # Errors
    ///
    /// If the sink fails, or the stream of a thread cannot be understood.
    pub fn collect<S: Sink>(mut self, sink: &mut S) -> Result<Outcome, CollectError<S::Error>> {
        let channel = self.channel();
        let mut collector = Collector::new(sink);
        let mut ticket = 0;
        loop {
            let seen = channel.header().doorbell.load(Ordering::Acquire);
            let ended = self.has_ended();
            while let Some(taken) = channel.header().next_full(ticket) {
                collector.buffer(&channel, &taken)?;
                channel.clear(taken.index, taken.len);
                channel.free(taken.index);
                ticket += 1;
            }
            if ended {
                break;
            }
            channel.sleep(seen, PATIENCE);
        }
        collector.orphans(&channel)?;
        let failed = |source| CollectError::Host(Error::Channel { source });
        let status = self.wait().map_err(failed)?;
        collector.finish()?;
        let waits = channel.header().waits.load(Ordering::Relaxed);
        let (insns, raw_bytes) = (collector.insns, collector.raw_bytes);
        Ok(Outcome { status, insns, raw_bytes, waits })
    }
}

impl Tracee {
    /// Runs the program to its end, takes what it stores and drops it: what collection costs without
    /// anybody looking. No instruction is counted.
    ///
    /// # Errors
    ///
    /// What the system says about the program's end.
    pub fn drain(mut self) -> Result<Outcome, Error> {
        let channel = self.channel();
        let (mut ticket, mut raw_bytes) = (0, 0);
        loop {
            let seen = channel.header().doorbell.load(Ordering::Acquire);
            let ended = self.has_ended();
            while let Some(taken) = channel.header().next_full(ticket) {
                raw_bytes += taken.len;
                channel.free(taken.index);
                ticket += 1;
            }
            if ended {
                break;
            }
            channel.sleep(seen, PATIENCE);
        }
        let status = self.wait().map_err(|source| Error::Channel { source })?;
        let waits = channel.header().waits.load(Ordering::Relaxed);
        Ok(Outcome { status, insns: 0, raw_bytes, waits })
    }
}

impl<'a, S: Sink> Collector<'a, S> {
    fn new(sink: &'a mut S) -> Self {
        Self { sink, book: Book::default(), threads: HashMap::new(), raw_bytes: 0, insns: 0 }
    }

    fn buffer(&mut self, channel: &Channel, taken: &Taken) -> Result<(), CollectError<S::Error>> {
        let bytes = channel.bytes(taken.index, taken.len);
        self.raw_bytes += taken.len;
        if taken.kind == BufferKind::ROADMAP {
            self.book.read(bytes);
            return Ok(());
        }
        self.stream(taken, bytes)
    }

    fn stream(&mut self, taken: &Taken, bytes: &[u8]) -> Result<(), CollectError<S::Error>> {
        let id = ThreadId(taken.thread);
        let process = ProcessId(taken.process);
        if !self.threads.contains_key(&taken.thread) {
            let start = ThreadStart { process, ..ThreadStart::default() };
            self.sink.event(id, &Event::ThreadStart(start)).map_err(CollectError::Sink)?;
            let thread = Thread { stream: Stream::new(), insns: 0, ended: false };
            self.threads.insert(taken.thread, thread);
        }
        let Some(thread) = self.threads.get_mut(&taken.thread) else { return Ok(()) };
        let Thread { stream, insns, ended } = thread;
        let (sink, before) = (&mut *self.sink, *insns);
        let mut error = None;
        let mut tell = |records: &mut Vec<Record>, item: Item| {
            let done = match item {
                Item::Many => flush(sink, id, insns, records),
                Item::Block(block) => {
                    let code = Code { process: block.process, pc: block.entry, bytes: &block.code };
                    flush(sink, id, insns, records).and_then(|()| sink.code(id, &code).map(drop))
                }
                Item::End(status) => {
                    *ended = true;
                    let end = Event::ThreadEnd(EndStatus::Exited((status & 0xff) as i32));
                    flush(sink, id, insns, records).and_then(|()| sink.event(id, &end).map(drop))
                }
            };
            if let Err(e) = done {
                error.get_or_insert(e);
            }
        };
        let read = stream.read(bytes, &self.book, &mut tell);
        if let Some(error) = error {
            return Err(CollectError::Sink(error));
        }
        flush(self.sink, id, insns, &mut stream.records).map_err(CollectError::Sink)?;
        self.insns += *insns - before;
        read.map_err(|broken| {
            CollectError::Host(Error::Stream { thread: id.0, why: broken.why, at: broken.at })
        })
    }

    /// Takes what threads left behind that were killed.
    fn orphans(&mut self, channel: &Channel) -> Result<(), CollectError<S::Error>> {
        let mut left: Vec<Taken> = channel.header().orphans().collect();
        left.sort_by_key(|t| t.kind != BufferKind::ROADMAP);
        for taken in left {
            let whole = Taken { len: u64::MAX, ..taken };
            // What a dying thread did not finish is not an error.
            let _ = self.buffer(channel, &whole);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), CollectError<S::Error>> {
        let mut ids: Vec<u32> = self.threads.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(thread) = self.threads.get_mut(&id) else { continue };
            let before = thread.insns;
            thread.stream.end();
            let records = &mut thread.stream.records;
            flush(self.sink, ThreadId(id), &mut thread.insns, records)
                .map_err(CollectError::Sink)?;
            self.insns += thread.insns - before;
            if !thread.ended {
                let end = Event::ThreadEnd(EndStatus::Unknown);
                self.sink.event(ThreadId(id), &end).map_err(CollectError::Sink)?;
            }
        }
        self.sink.finish().map_err(CollectError::Sink)
    }
}

fn flush<S: Sink>(
    sink: &mut S,
    id: ThreadId,
    insns: &mut u64,
    records: &mut Vec<Record>,
) -> Result<(), S::Error> {
    if records.is_empty() {
        return Ok(());
    }
    sink.records(&Batch::new(id, *insns, records))?;
    *insns += records.iter().filter(|r| matches!(r, Record::Insn { .. })).count() as u64;
    records.clear();
    Ok(())
}
