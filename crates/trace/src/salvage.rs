//! Salvage: all whole chunks of a damaged or unfinished file into a good one,
//! with a gap told wherever a chunk of a thread is missing.
//!
//! A stream chunk is whole when its checksums agree and it decodes, which it
//! does not when the roadmap chunk with its blocks is lost. Kept chunks are copied as they are
//! but for their place in the thread: sequence and first instruction
//! are counted anew, because what was lost is not known in general.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use ichnos_base::{Event, GapReason, ThreadId, Totals};

use crate::chunk::{ChunkHeader, ChunkKind};
use crate::error::Error;
use crate::header::Provenance;
use crate::input::Input;
use crate::mark::{Mode, TABLE_BITS};
use crate::output::Output;
use crate::pack::Packer;
use crate::reader::{Condition, Reader, read_copied_header, read_header};
use crate::scan::Hole;
use crate::unpack::Burst;

/// What a salvage kept and what it had to leave.
#[derive(Debug)]
pub struct Salvaged {
    /// The records kept.
    pub totals: Totals,
    /// Chunks kept.
    pub kept: usize,
    /// What was lost, in the order of the file.
    pub lost: Vec<Lost>,
}

/// Something that a salvage could not keep.
#[derive(Debug)]
#[non_exhaustive]
pub enum Lost {
    /// The file header. The provenance is that of its copy in the index, or unknown if that is
    /// lost, too.
    Header(Error),
    /// A chunk.
    Chunk(Error),
    /// A stretch in which no chunk was found.
    Stretch(Hole),
    /// The index: the writer did not finish, or the end of the file is damaged. No record is
    /// lost by that alone.
    Index,
}

/// Copies what is whole in the trace at `path` to `out`.
pub fn salvage<W: Write>(path: &Path, out: W) -> Result<Salvaged, Error> {
    salvage_input(Input::open(path)?, out)
}

/// Copies what is whole in a trace that lies in memory to `out`.
pub fn salvage_bytes<W: Write>(bytes: Vec<u8>, out: W) -> Result<Salvaged, Error> {
    salvage_input(Input::Bytes(bytes), out)
}

fn salvage_input<W: Write>(input: Input, out: W) -> Result<Salvaged, Error> {
    let mut lost = Vec::new();
    let mut headless = false;
    let about = match read_header(&input) {
        Ok(_) => None,
        Err(error @ Error::Read { .. }) => return Err(error),
        Err(error) => match (read_copied_header(&input)?, error) {
            // The header is damaged, whatever it claims: the index's copy is whole.
            (Some(about), error) => {
                lost.push(Lost::Header(error));
                Some(about)
            }
            (None, error @ (Error::Header { .. } | Error::NotATrace)) => {
                headless = true;
                lost.push(Lost::Header(error));
                Some(Provenance { collector: "unknown".to_owned(), ..Provenance::default() })
            }
            (None, error) => return Err(error),
        },
    };
    let reader = Reader::from_input(input, about)?;
    if headless && reader.chunks().is_empty() {
        return Err(Error::NotATrace);
    }
    salvage_from(&reader, lost, out)
}

/// Copies what is whole in an open trace to `out`.
fn salvage_from<W: Write>(reader: &Reader, mut lost: Vec<Lost>, out: W) -> Result<Salvaged, Error> {
    if let Condition::Unfinished { holes } = reader.condition() {
        lost.push(Lost::Index);
        lost.extend(holes.iter().copied().map(Lost::Stretch));
    }
    let mut job = Job {
        reader,
        output: Output::new(out, 3)?,
        threads: BTreeMap::new(),
        packer: Packer::new(),
        payload: Vec::new(),
    };
    job.output.put_header(reader.about())?;
    let mut kept = 0;
    for (number, place) in reader.chunks().iter().enumerate() {
        match job.copy(number, place.header) {
            Ok(()) => kept += 1,
            Err(error @ (Error::Write { .. } | Error::Read { .. })) => return Err(error),
            Err(error) => lost.push(Lost::Chunk(error)),
        }
    }
    job.output.put_index()?;
    Ok(Salvaged { totals: *job.output.totals(), kept, lost })
}

struct Job<'r, W: Write> {
    reader: &'r Reader,
    output: Output<W>,
    threads: BTreeMap<ThreadId, Progress>,
    packer: Packer,
    payload: Vec<u8>,
}

/// How far a thread's stream is, in the old file and in the new one.
#[derive(Clone, Copy, Default)]
struct Progress {
    expected_sequence: u32,
    expected_first: u64,
    sequence: u32,
    insns: u64,
}

impl<W: Write> Job<'_, W> {
    fn copy(&mut self, number: usize, header: ChunkHeader) -> Result<(), Error> {
        match header.kind {
            ChunkKind::ROADMAP => {
                let flaw = self.reader.roadmap_flaw(number);
                if let Some(flaw) = flaw {
                    return Err(flaw);
                }
                self.reader.payload(number, &mut self.payload)?;
                self.output.put_packed(header, &self.payload)
            }
            ChunkKind::STREAM => self.copy_stream(number, header),
            _ => Ok(()),
        }
    }

    fn copy_stream(&mut self, number: usize, header: ChunkHeader) -> Result<(), Error> {
        self.check(number)?;
        let mut at = self.threads.get(&header.thread).copied().unwrap_or_default();
        if header.sequence < at.expected_sequence {
            return Err(self.reader.damaged(number, "it repeats an earlier part of its thread"));
        }
        if header.sequence > at.expected_sequence {
            self.put_gap(&header, &mut at)?;
        }
        self.reader.payload(number, &mut self.payload)?;
        let moved = ChunkHeader { sequence: at.sequence, first: at.insns, ..header };
        self.output.put_packed(moved, &self.payload)?;
        at.sequence += 1;
        at.insns += header.totals.insns;
        at.expected_sequence = header.sequence.saturating_add(1);
        at.expected_first = header.first + header.totals.insns;
        self.threads.insert(header.thread, at);
        Ok(())
    }

    /// Decodes the chunk to its end.
    fn check(&self, number: usize) -> Result<(), Error> {
        let mut decoder = self.reader.decoder()?;
        decoder.open(number)?;
        let mut burst = Burst::default();
        while decoder.next(&mut burst)?.is_some() {}
        Ok(())
    }

    /// A chunk that holds nothing but the gap before `next`.
    fn put_gap(&mut self, next: &ChunkHeader, at: &mut Progress) -> Result<(), Error> {
        let insns = next.first.checked_sub(at.expected_first);
        let roadmap = self.reader.roadmap();
        self.packer.begin(roadmap, Mode { flags: 0, bits: *TABLE_BITS.start() });
        let gap = Event::Gap { reason: GapReason::Damage, insns, skipped: None };
        self.packer.event(&gap)?;
        self.packer.end();
        let header = ChunkHeader {
            kind: ChunkKind::STREAM,
            thread: next.thread,
            sequence: at.sequence,
            first: at.insns,
            totals: Totals::default(),
            first_ns: 0,
            last_ns: 0,
            blocks: 0,
            raw_len: 0,
            packed_len: 0,
            payload_crc: 0,
        };
        at.sequence += 1;
        self.output.put_chunk(header, &self.packer.columns)
    }
}
