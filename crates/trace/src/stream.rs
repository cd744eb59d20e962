//! One thread's stream while it is written: its records become block executions
//! in an open chunk, and the chunk goes to the file when it is full.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::Write;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use ichnos_base::{Batch, BlockId, Code, Event, Leave, ProcessId, Record, RefKind, Step, ThreadId};

use crate::book::Book;
use crate::chunk::ChunkHeader;
use crate::error::Error;
use crate::hash::QuickMap;
use crate::mark::{HAS_VALUES, Mode};
use crate::output::Output;
use crate::pack::Packer;
use crate::path::{Due, Path};
use crate::plan::Gathering;
use crate::raw_line::RawLine;
use crate::roadmap_codec::MAX_UNFOLDED;
use crate::writer::Options;

/// Columns longer than this close a chunk, far below what a reader accepts.
const CLOSE_RAW: usize = 16 << 20;

/// Accesses beyond this close a chunk.
const CLOSE_ACCESSES: u64 = 1 << 26;

/// Instructions beyond this close a chunk, whatever the options say.
const CLOSE_INSNS: u64 = 1 << 26;

/// After so many executions it is looked at how much a chunk holds.
const LOOK: u64 = 64;

/// The longest event, and the longest value of one access, that fits a chunk.
const MAX_PIECE: usize = 16 << 20;

/// What all streams share.
#[derive(Debug)]
pub(crate) struct Tools<W: Write> {
    pub(crate) book: Book,
    pub(crate) output: Output<W>,
    #[allow(clippy::vec_box, reason = "packers move between streams as boxes")]
    pub(crate) pool: Vec<Box<Packer>>,
    pub(crate) options: Options,
    /// Where raw chunks are packed.
    pub(crate) line: RawLine,
    /// The slot of the next word that is planned.
    pub(crate) next_slot: u32,
    /// Instructions and chunks of each thread that are in the file.
    pub(crate) ends: QuickMap<u32, (u64, u32)>,
}

/// One thread's stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) thread: ThreadId,
    /// When it was last used, by the writer's count.
    pub(crate) used: u64,
    /// When the open chunk was opened.
    pub(crate) opened: Instant,
    pub(crate) process: ProcessId,
    pub(crate) packer: Option<Box<Packer>>,
    pub(crate) path: Path,
    previous: BlockId,
    /// What is told raw. Then there is no packer.
    pub(crate) raw: Option<Gathering>,
    /// Who will say what the register that is followed holds behind the last raw chunk.
    pub(crate) followed: Option<Receiver<u64>>,
    pub(crate) flags: u8,
    pub(crate) words: Vec<u64>,
}

impl Stream {
    pub(crate) fn new(thread: ThreadId) -> Self {
        Self {
            thread,
            used: 0,
            opened: Instant::now(),
            process: ProcessId(0),
            packer: None,
            path: Path::default(),
            previous: BlockId(0),
            raw: None,
            followed: None,
            flags: 0,
            words: Vec::new(),
        }
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.packer.is_some() || self.raw.is_some()
    }

    /// The open chunk, opened if need be.
    pub(crate) fn open<W: Write>(&mut self, tools: &mut Tools<W>) -> &mut Packer {
        debug_assert!(self.raw.is_none());
        let (opened, flags) = (&mut self.opened, self.flags);
        self.packer.get_or_insert_with(|| {
            *opened = Instant::now();
            tools.packer(flags)
        })
    }

    /// Packs a batch.
    pub(crate) fn records<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        batch: &Batch<'_>,
    ) -> Result<(), Error> {
        let flags = if batch.values.is_some() { HAS_VALUES } else { 0 };
        if flags != self.flags && !batch.records.is_empty() {
            self.close(tools)?;
            self.flags = flags;
        }
        let mut values = batch.values.unwrap_or_default();
        for record in batch.records {
            if flags == 0 {
                self.record(tools, record)?;
                continue;
            }
            self.make_way(tools, record)?;
            let due = self.path.take(record);
            if record.value_len() > 0 {
                if record.value_len() > MAX_PIECE {
                    return Err(Error::Misuse("one access has a value of more than 16 MiB"));
                }
                let (value, rest) = values
                    .split_at_checked(record.value_len())
                    .ok_or(Error::Misuse("a batch has fewer values than its accesses need"))?;
                self.path.values.extend_from_slice(value);
                values = rest;
            }
            if due != Due::Nothing {
                self.pack_due(tools, due)?;
            }
        }
        if values.is_empty() {
            Ok(())
        } else {
            Err(Error::Misuse("a batch has more values than its accesses need"))
        }
    }

    /// Packs a record without values.
    #[inline]
    pub(crate) fn record<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        record: &Record,
    ) -> Result<(), Error> {
        self.make_way(tools, record)?;
        match self.path.take(record) {
            Due::Nothing => Ok(()),
            due => self.pack_due(tools, due),
        }
    }

    /// Packs what must go before a record.
    #[inline]
    pub(crate) fn make_way<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        record: &Record,
    ) -> Result<(), Error> {
        while let due @ (Due::Path | Due::Loose) = self.path.before(record) {
            self.pack_due(tools, due)?;
        }
        Ok(())
    }

    /// Packs an event.
    pub(crate) fn event<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        event: &Event<'_>,
    ) -> Result<(), Error> {
        self.settle(tools)?;
        if let Event::ThreadStart(start) = event {
            self.process = start.process;
        }
        self.open(tools);
        if let Some(packer) = &mut self.packer {
            packer.event(event)?;
        }
        self.close_if_full(tools)
    }

    /// Packs whatever is held back.
    pub(crate) fn settle<W: Write>(&mut self, tools: &mut Tools<W>) -> Result<(), Error> {
        if !self.path.records.is_empty() {
            self.pack_due(tools, Due::Path)?;
        }
        if !self.path.loose.is_empty() {
            self.pack_due(tools, Due::Loose)?;
        }
        Ok(())
    }

    /// Packs whatever is held back, if it was executed over these bytes.
    pub(crate) fn settle_over<W: Write>(
        &mut self,
        tools: &mut Tools<W>,
        code: &Code<'_>,
    ) -> Result<(), Error> {
        if self.process != code.process {
            return Ok(());
        }
        let (start, len) = (code.pc.0, code.bytes.len() as u64);
        if self.path.covers(start, len) { self.settle(tools) } else { Ok(()) }
    }

    #[inline]
    fn pack_due<W: Write>(&mut self, tools: &mut Tools<W>, due: Due) -> Result<(), Error> {
        self.open(tools);
        if due == Due::Path {
            self.pack_path(tools)?;
            self.path.clear_path();
            return if self.is_long(tools) { self.close_if_full(tools) } else { Ok(()) };
        }
        if let Some(packer) = &mut self.packer {
            packer.loose(&self.path.loose);
            if self.flags != 0 {
                packer.put_values(&self.path.loose, &self.path.values);
            }
        }
        self.path.clear_loose();
        self.close_if_full(tools)
    }

    fn pack_path<W: Write>(&mut self, tools: &mut Tools<W>) -> Result<(), Error> {
        let Some(packer) = &mut self.packer else { return Ok(()) };
        if self.flags != 0 {
            packer.put_values(&self.path.records, &self.path.values);
        }
        let mut rest = self.path.records.as_slice();
        while !rest.is_empty() {
            let mut len = rest.len();
            let id = match tools.book.find(self.process, self.previous, rest)? {
                Some(id) => id,
                None => {
                    len = tools.book.uniform(self.process, rest, &mut Vec::new());
                    let found = tools.book.find(self.process, self.previous, &rest[..len])?;
                    found.ok_or(Error::Misuse("an instruction's code changed while it ran"))?
                }
            };
            execute(packer, &tools.book, (id, &rest[..len]), &mut self.words);
            self.previous = id;
            rest = &rest[len..];
        }
        Ok(())
    }

    /// Whether it may be time to close the chunk, after an execution. What columns hold is looked at now and then: an
    /// execution adds some kilobytes at most, unless it is wide.
    #[inline]
    pub(crate) fn is_long<W: Write>(&self, tools: &Tools<W>) -> bool {
        self.packer.as_ref().is_some_and(|packer| {
            packer.insns() >= tools.options.chunk_insns.min(CLOSE_INSNS)
                || packer.clock().is_multiple_of(LOOK)
                || packer.is_wide
        })
    }

    /// Closes the chunk if it is time.
    pub(crate) fn close_if_full<W: Write>(&mut self, tools: &mut Tools<W>) -> Result<(), Error> {
        let Some(packer) = &mut self.packer else { return Ok(()) };
        packer.is_wide = self.flags != 0;
        let full = packer.insns() >= tools.options.chunk_insns.min(CLOSE_INSNS)
            || packer.accesses() >= CLOSE_ACCESSES
            || packer.raw_len() >= CLOSE_RAW
            || tools.book.encoder.unfolded() >= MAX_UNFOLDED / 2;
        if full { self.close_chunk(tools) } else { Ok(()) }
    }

    /// Packs what is held back and hands the open chunk to the file.
    pub(crate) fn close<W: Write>(&mut self, tools: &mut Tools<W>) -> Result<(), Error> {
        self.settle(tools)?;
        self.close_chunk(tools)?;
        self.close_raw(tools)
    }

    fn close_chunk<W: Write>(&mut self, tools: &mut Tools<W>) -> Result<(), Error> {
        let Some(mut packer) = self.packer.take() else { return Ok(()) };
        if packer.is_empty() {
            tools.pool.push(packer);
            return Ok(());
        }
        packer.end();
        // What the thread did before may still be packed.
        tools.drain()?;
        tools.put_roadmap()?;
        let header = tools.stream_header(self.thread, &packer.totals, packer.blocks);
        let (first_ns, last_ns) = (packer.first_ns, packer.last_ns);
        let header = ChunkHeader { first_ns, last_ns, ..header };
        tools.output.put_chunk(header, &packer.columns)?;
        tools.pool.push(packer);
        Ok(())
    }
}

impl<W: Write> Tools<W> {
    /// A packer with a new chunk.
    pub(crate) fn packer(&mut self, flags: u8) -> Box<Packer> {
        let mode = Mode { flags, bits: self.options.table_bits() };
        let mut packer = self.pool.pop().unwrap_or_else(|| Box::new(Packer::new()));
        packer.begin(&self.book.roadmap, mode);
        packer
    }

    /// Hands the blocks made since the last time to the file.
    pub(crate) fn put_roadmap(&mut self) -> Result<(), Error> {
        if self.book.encoder.is_empty() {
            return Ok(());
        }
        let done = self.book.encoder.finish();
        self.output.put_roadmap(&done)
    }

    /// Writes the index.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.drain()?;
        self.put_roadmap()?;
        self.output.put_index()
    }
}

/// Packs one execution of a block.
#[inline]
fn execute(
    packer: &mut Packer,
    book: &Book,
    (id, path): (BlockId, &[Record]),
    words: &mut Vec<u64>,
) {
    let Some(entry) = book.roadmap.get(id) else { return };
    packer.grow(&book.roadmap);
    words.clear();
    if entry.shape.plain {
        words.extend(entry.shape.words.iter().map(|w| address(&path[w.record as usize])));
    } else {
        gather(packer, (&entry.block.steps, path), words);
    }
    let leave = match (entry.shape.last_exit, path.last()) {
        (Some(_), Some(&Record::Branch { taken, target })) => Leave::Outcome { taken, target },
        _ => Leave::Silent,
    };
    packer.execute(id, words, leave);
}

/// The words of an execution with flexible instructions, whose accesses are packed.
#[cold]
fn gather(packer: &mut Packer, (steps, path): (&[Step], &[Record]), words: &mut Vec<u64>) {
    let mut rest = path;
    for step in steps {
        if let Step::Flex { slot } = step {
            let len = rest.iter().take_while(|r| RefKind::of(r).is_some()).count();
            packer.flex(*slot, &rest[..len]);
            rest = &rest[len..];
            continue;
        }
        if let (Step::Ref(_), Some(record)) = (step, rest.first()) {
            words.push(address(record));
        }
        rest = rest.get(1..).unwrap_or_default();
    }
}

#[inline]
fn address(record: &Record) -> u64 {
    match record {
        Record::Insn { pc, .. } => pc.0,
        Record::Branch { target, .. } => target.0,
        Record::Load { addr, .. }
        | Record::Store { addr, .. }
        | Record::Prefetch { addr, .. }
        | Record::Flush { addr, .. } => addr.0,
    }
}

/// Whether an event fits a chunk.
pub(crate) fn check_event(event: &Event<'_>) -> Result<(), Error> {
    if event_len(event) > MAX_PIECE {
        return Err(Error::Misuse("an event is longer than 16 MiB"));
    }
    Ok(())
}

/// About how long an event's texts are.
fn event_len(event: &Event<'_>) -> usize {
    match event {
        Event::Exec { path } => path.len(),
        Event::Map(map) => map.path.len() + map.build_id.len(),
        Event::Marker { text, .. } => text.len(),
        _ => 0,
    }
}
