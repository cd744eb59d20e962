//! Writes SimPoint's basic-block vectors: one file a thread, one line an
//! interval, `T:id:count :id:count ...`.
//!
//! A block is a run of instructions that began after a control transfer (or a
//! jump in the addresses, for traces that tell no branches) and ends with the
//! next one; it is known by its process, its first and its last instruction. Ids
//! begin at 1 and are the same in all files of a trace. A count is entries times
//! instructions, as SimPoint wants it. An interval ends with the first block that
//! reaches its length; the instructions beyond it belong to the next one's length,
//! so that intervals do not drift. The last, shorter interval is written too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::path::{Path, PathBuf};

use ichnos_base::{Batch, Event, GuestVa, ProcessId, Record, Sink, ThreadId};

use crate::code_map::{AddrMap, Processes};
use crate::digits::push_decimal;
use crate::output::{Output, thread_path};
use crate::{Error, Format, Result, WriteOptions};

/// A sink that writes basic-block vectors.
pub struct BbvSink {
    path: PathBuf,
    thread: Option<ThreadId>,
    interval: u64,
    processes: Processes,
    ids: AddrMap<(u32, u64, u64), u32>,
    threads: AddrMap<u32, Thread>,
}

struct Thread {
    output: Output,
    process: ProcessId,
    /// The block being executed: first and last instruction, and how many.
    first: GuestVa,
    last: GuestVa,
    insns: u64,
    /// Where the next instruction lies if the block goes on.
    next: GuestVa,
    /// Whether the last instruction transfers control.
    ends: bool,
    /// Instructions by block in this interval.
    counts: AddrMap<u32, u64>,
    executed: u64,
}

impl BbvSink {
    /// Writes the first thread that executes anything to `path`, and others
    /// beside it. The file is made at once, so that a bad path is found before
    /// the work.
    pub fn create(path: &Path, options: &WriteOptions) -> Result<Self> {
        drop(Output::create(path)?);
        Ok(Self {
            path: path.to_owned(),
            thread: options.thread,
            interval: options.interval.max(1),
            processes: Processes::default(),
            ids: AddrMap::default(),
            threads: AddrMap::default(),
        })
    }

    fn open(&mut self, thread: ThreadId) -> Result<()> {
        if self.threads.contains_key(&thread.0) {
            return Ok(());
        }
        let first = self.threads.is_empty() || self.thread.is_some();
        let output = Output::create(&thread_path(&self.path, (!first).then_some(thread)))?;
        let state = Thread {
            output,
            process: self.processes.of(thread),
            first: GuestVa(0),
            last: GuestVa(0),
            insns: 0,
            next: GuestVa(0),
            ends: true,
            counts: AddrMap::default(),
            executed: 0,
        };
        self.threads.insert(thread.0, state);
        Ok(())
    }
}

impl Thread {
    fn insn(
        &mut self,
        record: &Record,
        ids: &mut AddrMap<(u32, u64, u64), u32>,
        interval: u64,
    ) -> Result<()> {
        let Record::Insn { len, kind, pc } = *record else { return Ok(()) };
        if self.ends || pc != self.next {
            self.leave(ids, interval)?;
            self.first = pc;
        }
        self.insns += 1;
        self.last = pc;
        self.next = pc.offset(u64::from(len));
        self.ends = kind.transfers();
        Ok(())
    }

    /// Counts the block that was executed, and ends the interval if it is full.
    fn leave(&mut self, ids: &mut AddrMap<(u32, u64, u64), u32>, interval: u64) -> Result<()> {
        if self.insns == 0 {
            return Ok(());
        }
        let fresh = u32::try_from(ids.len() + 1).unwrap_or(u32::MAX);
        let id = *ids.entry((self.process.0, self.first.0, self.last.0)).or_insert(fresh);
        *self.counts.entry(id).or_insert(0) += self.insns;
        self.executed += self.insns;
        self.insns = 0;
        if self.executed >= interval {
            self.line()?;
            self.executed %= interval;
        }
        Ok(())
    }

    fn line(&mut self) -> Result<()> {
        let mut counts: Vec<(u32, u64)> = self.counts.drain().collect();
        counts.sort_unstable();
        let mut text = vec![b'T'];
        for (id, count) in counts {
            text.push(b':');
            push_decimal(&mut text, u64::from(id));
            text.push(b':');
            push_decimal(&mut text, count);
            text.push(b' ');
        }
        text.push(b'\n');
        self.output.write_all(&text).map_err(|source| Error::Write { format: Format::Bbv, source })
    }
}

impl Sink for BbvSink {
    type Error = Error;

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool> {
        self.processes.note(thread, event);
        // A handler of signals or traps begins a block of its own, and so does what a gap or
        // an exec leaves behind.
        let breaks = matches!(
            event,
            Event::Signal(_)
                | Event::SignalReturn { .. }
                | Event::Trap(_)
                | Event::Gap { .. }
                | Event::Exec { .. }
        );
        if let Some(t) = self.threads.get_mut(&thread.0).filter(|_| breaks) {
            t.ends = true;
        }
        Ok(true)
    }

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool> {
        if self.thread.is_some_and(|wanted| wanted != batch.thread) {
            return Ok(true);
        }
        self.open(batch.thread)?;
        if let Some(thread) = self.threads.get_mut(&batch.thread.0) {
            for record in batch.records {
                thread.insn(record, &mut self.ids, self.interval)?;
            }
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        for (_, mut thread) in self.threads.drain() {
            thread.leave(&mut self.ids, self.interval)?;
            if !thread.counts.is_empty() {
                thread.line()?;
            }
            let done = thread.output.finish();
            done.map_err(|source| Error::Write { format: Format::Bbv, source })?;
        }
        Ok(())
    }
}
