//! Simulation of a stored thread with its chunks unpacked ahead, on other processors.
//!
//! A chunk is unpacked alone, into memory; the models hear the chunks in order. Each of the
//! few unpacking threads holds one chunk, as blocks and addresses: about 5 bytes an instruction, 40 MiB a
//! chunk. Only what the models of [`crate::simulation`] listen to is kept, and that there are gaps.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::ops::Range;

use anyhow::Result;
use ichnos_base::{
    Batch, BlockId, Blocks, DriveError, EndStatus, Event, GapReason, Record, Shapes, Sink,
    ThreadId, ThreadStart,
};
use ichnos_replay::{Piece, Replay};
use ichnos_trace::Reader;

/// Unpacking takes somewhat longer than the models that take blocks; more threads would wait.
const THREADS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// A chunk with more records than these is not unpacked into memory: a repeated string instruction has as many as it likes.
const MOST: u64 = 1 << 25;

/// Whether all chunks are such as can lie in memory.
pub fn is_possible(reader: &Reader) -> bool {
    reader.chunks().iter().all(|place| place.header.totals.records() <= MOST)
}

/// Tells a stored trace of one thread to a sink that takes blocks.
pub fn drive<S>(reader: &Reader, sink: &mut S) -> Result<()>
where
    S: Sink<Error = anyhow::Error>,
{
    let replay = Replay::new(reader);
    let shapes = replay.ways();
    if !reader.about().with(|about| sink.begin(about))? {
        return sink.finish();
    }
    let mut failed = None;
    let hear = |chunk: Chunk| match chunk.tell(&*shapes, sink) {
        Ok(more) => more,
        Err(error) => {
            failed = Some(error);
            false
        }
    };
    let (make, kept) = (|_: &Piece| Chunk::default(), |_: &Piece, chunk| chunk);
    let done = replay.map_chunks_in_order(THREADS, make, kept, hear);
    if let Some(error) = failed {
        return Err(error);
    }
    done.map_err(|error| match error {
        DriveError::Source(error) => anyhow::Error::from(error),
        DriveError::Sink(never) => match never {},
    })?;
    sink.finish()
}

/// What a chunk told.
#[derive(Default)]
struct Chunk {
    told: Vec<(ThreadId, Told)>,
    records: Vec<Record>,
    blocks: Vec<BlockId>,
    words: Vec<u64>,
}

enum Told {
    Records { insns_before: u64, records: Range<usize> },
    Blocks { insns_before: u64, blocks: Range<usize>, words: Range<usize> },
    Start(ThreadStart),
    Migrate(u32),
    Gap(GapReason),
    End(EndStatus),
}

impl Chunk {
    /// Tells it all again; whether the sink wants more.
    fn tell<S: Sink>(&self, shapes: &dyn Shapes, sink: &mut S) -> Result<bool, S::Error> {
        for &(thread, ref told) in &self.told {
            let more = match *told {
                Told::Records { insns_before, ref records } => {
                    let records = self.records.get(records.clone()).unwrap_or_default();
                    sink.records(&Batch::new(thread, insns_before, records))?
                }
                Told::Blocks { insns_before, ref blocks, ref words } => {
                    let blocks = self.blocks.get(blocks.clone()).unwrap_or_default();
                    let words = self.words.get(words.clone()).unwrap_or_default();
                    sink.blocks(&Blocks { thread, insns_before, blocks, words, shapes })?
                }
                Told::Start(start) => sink.event(thread, &Event::ThreadStart(start))?,
                Told::Migrate(cpu) => sink.event(thread, &Event::Migrate { cpu })?,
                Told::Gap(reason) => {
                    sink.event(thread, &Event::Gap { reason, insns: None, skipped: None })?
                }
                Told::End(status) => sink.event(thread, &Event::ThreadEnd(status))?,
            };
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Appends to a list; where it lies there.
fn append<T: Copy>(list: &mut Vec<T>, more: &[T]) -> Range<usize> {
    let start = list.len();
    list.extend_from_slice(more);
    start..list.len()
}

impl Sink for Chunk {
    type Error = Infallible;

    fn records(&mut self, batch: &Batch<'_>) -> Result<bool, Infallible> {
        let records = append(&mut self.records, batch.records);
        let insns_before = batch.insns_before;
        self.told.push((batch.thread, Told::Records { insns_before, records }));
        Ok(true)
    }

    fn takes_blocks(&self) -> bool {
        true
    }

    fn blocks(&mut self, told: &Blocks<'_>) -> Result<bool, Infallible> {
        let blocks = append(&mut self.blocks, told.blocks);
        let words = append(&mut self.words, told.words);
        let insns_before = told.insns_before;
        self.told.push((told.thread, Told::Blocks { insns_before, blocks, words }));
        Ok(true)
    }

    fn event(&mut self, thread: ThreadId, event: &Event<'_>) -> Result<bool, Infallible> {
        let told = match *event {
            Event::ThreadStart(start) => Told::Start(start),
            Event::Migrate { cpu } => Told::Migrate(cpu),
            Event::Gap { reason, .. } => Told::Gap(reason),
            Event::ThreadEnd(status) => Told::End(status),
            _ => return Ok(true),
        };
        self.told.push((thread, told));
        Ok(true)
    }
}
