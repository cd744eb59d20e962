//! The reader: opens a trace, says what is in it, and hands out its chunks.
//!
//! Memory: the roadmap and the list of chunks stay; a [`Decoder`] holds one chunk's
//! columns (at most [`MAX_RAW`](crate::MAX_RAW) bytes unpacked and as many
//! packed), whatever the file claims.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::path::Path;

use ichnos_base::{Event, FileOff, Record, ThreadId, ThreadStart, Totals};

use crate::chunk::{ChunkKind, HEADER_LEN};
use crate::columns::ColumnUnpacker;
use crate::error::{Error, Flaw};
use crate::header::{PREFIX_LEN, Provenance};
use crate::index::{ChunkPlace, TRAILER_LEN, get_index, get_trailer};
use crate::input::Input;
use crate::pack::{COLUMNS, MARKS};
use crate::roadmap::Roadmap;
use crate::roadmap_codec::{ROADMAP_COLUMNS, read_roadmap};
use crate::scan::{Hole, scan};
use crate::unpack::{Burst, Item, Unpacker, first_event};

/// Whether a file is all that its writer meant it to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// The writer finished it, and index and chunk list are there.
    Complete,
    /// The index is missing: the writer was stopped, or the file was cut short. The list
    /// of chunks was made by scanning.
    Unfinished {
        /// Stretches that hold no whole chunk; the last one is usually
        /// the chunk that was being written.
        holes: Vec<Hole>,
    },
}

/// A thread of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Its id.
    pub id: ThreadId,
    /// How it began, if its stream says so.
    pub start: Option<ThreadStart>,
    /// What its records count.
    pub totals: Totals,
    /// Its chunks in order, as numbers into [`Reader::chunks`].
    pub chunks: Vec<usize>,
}

/// An open trace.
#[derive(Debug)]
pub struct Reader {
    input: Input,
    about: Provenance,
    condition: Condition,
    chunks: Vec<ChunkPlace>,
    roadmap: Roadmap,
    roadmap_flaws: Vec<Error>,
    threads: Vec<Thread>,
}

impl Reader {
    /// Opens a trace file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::from_input(Input::open(path)?, None)
    }

    /// Opens a trace that lies in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Error> {
        Self::from_input(Input::Bytes(bytes), None)
    }

    /// Opens a trace; with `about` given, whatever the file header says.
    pub(crate) fn from_input(input: Input, about: Option<Provenance>) -> Result<Self, Error> {
        let (about, start) = match about {
            Some(about) => (about, FileOff(0)),
            None => read_header(&input)?,
        };
        let mut unpacker = Columns::new()?;
        let (chunks, condition) = match read_index(&input, &mut unpacker)? {
            Some(index) => (index.chunks, Condition::Complete),
            None => {
                let found = scan(&input, start)?;
                (found.chunks, Condition::Unfinished { holes: found.holes })
            }
        };
        let mut reader = Self {
            input,
            about,
            condition,
            chunks,
            roadmap: Roadmap::default(),
            roadmap_flaws: Vec::new(),
            threads: Vec::new(),
        };
        reader.read_roadmap(&mut unpacker);
        reader.list_threads(&mut unpacker);
        Ok(reader)
    }

    /// Where the trace comes from.
    #[must_use]
    pub const fn about(&self) -> &Provenance {
        &self.about
    }

    /// Whether the file is complete.
    #[must_use]
    pub const fn condition(&self) -> &Condition {
        &self.condition
    }

    /// Roadmap chunks that could not be read. Stream chunks that need their blocks are
    /// refused when they are decoded.
    #[must_use]
    pub fn roadmap_flaws(&self) -> &[Error] {
        &self.roadmap_flaws
    }

    /// What is wrong with a roadmap chunk, if anything is.
    pub(crate) fn roadmap_flaw(&self, number: usize) -> Option<Error> {
        self.roadmap_flaws.iter().find_map(|flaw| match *flaw {
            Error::Damaged { chunk, offset, flaw } if chunk == number => {
                Some(Error::Damaged { chunk, offset, flaw })
            }
            _ => None,
        })
    }

    /// What all records count.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.threads.iter().for_each(|t| totals.add(&t.totals));
        totals
    }

    /// How long the file is.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.input.len()
    }

    /// The threads, by id.
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// One thread.
    pub fn thread(&self, id: ThreadId) -> Result<&Thread, Error> {
        let at = self.threads.binary_search_by_key(&id, |t| t.id);
        at.ok().and_then(|at| self.threads.get(at)).ok_or(Error::NoThread(id))
    }

    /// All chunks in the order of the file.
    #[must_use]
    pub fn chunks(&self) -> &[ChunkPlace] {
        &self.chunks
    }

    /// The static part of the trace.
    #[must_use]
    pub const fn roadmap(&self) -> &Roadmap {
        &self.roadmap
    }

    /// A decoder for this trace's stream chunks.
    pub fn decoder(&self) -> Result<Decoder<'_>, Error> {
        Ok(Decoder {
            reader: self,
            columns: Columns::new()?,
            unpacker: Unpacker::new(),
            place: None,
        })
    }

    /// Which chunk of a thread holds the instruction with this number; the last
    /// one if there are not so many.
    pub fn chunk_of(&self, thread: &Thread, insn: u64) -> Option<usize> {
        let first = |chunk: &usize| self.chunks.get(*chunk).map_or(0, |c| c.header.first);
        let at = thread.chunks.partition_point(|c| first(c) <= insn);
        thread.chunks.get(at.saturating_sub(1)).copied()
    }

    /// Refuses a chunk whose forerunner in the thread's stream is missing.
    pub fn check_sequence(&self, thread: &Thread, chunk: usize) -> Result<(), Error> {
        let at = thread.chunks.iter().position(|c| *c == chunk).unwrap_or(0);
        let place = self.place(chunk)?;
        if place.header.sequence as usize == at {
            return Ok(());
        }
        Err(Error::Missing { thread: thread.id, sequence: at as u32, offset: place.offset })
    }

    fn place(&self, chunk: usize) -> Result<ChunkPlace, Error> {
        let missing = Error::NoChunk { chunk, chunks: self.chunks.len() };
        self.chunks.get(chunk).copied().ok_or(missing)
    }

    /// Reads a chunk's payload and checks it.
    pub(crate) fn payload(&self, chunk: usize, out: &mut Vec<u8>) -> Result<ChunkPlace, Error> {
        let place = self.place(chunk)?;
        let damaged = |f: Flaw| Error::Damaged { chunk, offset: place.offset, flaw: f.0 };
        self.input.read(place.offset, HEADER_LEN + place.header.packed_len as usize, out)?;
        if out.get(..HEADER_LEN) != Some(&place.header.to_bytes()[..]) {
            return Err(damaged(Flaw("its header is not the one that the index lists")));
        }
        out.drain(..HEADER_LEN);
        place.header.check_payload(out).map_err(damaged)?;
        Ok(place)
    }

    fn read_roadmap(&mut self, columns: &mut Columns) {
        for chunk in 0..self.chunks.len() {
            let header = self.chunks[chunk].header;
            if header.kind == ChunkKind::ROADMAP
                && let Err(error) = self.read_roadmap_chunk(chunk, columns)
            {
                self.roadmap_flaws.push(error);
            }
        }
    }

    fn read_roadmap_chunk(&mut self, chunk: usize, columns: &mut Columns) -> Result<(), Error> {
        let place = self.payload(chunk, &mut columns.payload)?;
        let damaged = |f: Flaw| Error::Damaged { chunk, offset: place.offset, flaw: f.0 };
        let mut unpacked: [Vec<u8>; ROADMAP_COLUMNS] = Default::default();
        let raw_len = place.header.raw_len;
        let done = columns.unpacker.unpack(&columns.payload, raw_len, &mut unpacked);
        done.map_err(damaged)?;
        let first = u32::try_from(place.header.first).unwrap_or(u32::MAX);
        read_roadmap(&mut self.roadmap, (first, place.header.blocks), &unpacked).map_err(damaged)
    }

    fn list_threads(&mut self, columns: &mut Columns) {
        let mut threads: BTreeMap<ThreadId, Thread> = BTreeMap::new();
        for (number, chunk) in self.chunks.iter().enumerate() {
            if chunk.header.kind != ChunkKind::STREAM {
                continue;
            }
            let id = chunk.header.thread;
            let thread = threads.entry(id).or_insert_with(|| Thread {
                id,
                start: None,
                totals: Totals::default(),
                chunks: Vec::new(),
            });
            thread.chunks.push(number);
            thread.totals.add(&chunk.header.totals);
        }
        self.threads = threads.into_values().collect();
        let starts: Vec<_> = self.threads.iter().map(|t| self.thread_start(t, columns)).collect();
        for (thread, start) in self.threads.iter_mut().zip(starts) {
            thread.start = start;
        }
    }

    /// How a thread began: the first thing in its stream. Only marks are looked at.
    fn thread_start(&self, thread: &Thread, columns: &mut Columns) -> Option<ThreadStart> {
        let place = self.payload(*thread.chunks.first()?, &mut columns.payload).ok()?;
        let mut unpacked: [Vec<u8>; COLUMNS] = Default::default();
        let raw_len = place.header.raw_len;
        columns.unpacker.unpack(&columns.payload, raw_len, &mut unpacked).ok()?;
        match first_event(&unpacked[MARKS]).ok()?? {
            Event::ThreadStart(start) => Some(start),
            _ => None,
        }
    }

    /// An error about a chunk.
    pub(crate) fn damaged(&self, chunk: usize, flaw: &'static str) -> Error {
        let offset = self.chunks.get(chunk).map_or(FileOff(0), |c| c.offset);
        Error::Damaged { chunk, offset, flaw }
    }
}

/// Unpacking with its working memory.
#[derive(Debug)]
struct Columns {
    unpacker: ColumnUnpacker,
    payload: Vec<u8>,
}

impl Columns {
    fn new() -> Result<Self, Error> {
        let unpacker =
            ColumnUnpacker::new().map_err(|source| Error::Read { offset: FileOff(0), source })?;
        Ok(Self { unpacker, payload: Vec::new() })
    }
}

/// Decodes stream chunks one at a time: block executions, words and marks. What
/// `replay` makes records of.
#[derive(Debug)]
pub struct Decoder<'r> {
    reader: &'r Reader,
    columns: Columns,
    unpacker: Unpacker,
    place: Option<(usize, FileOff)>,
}

impl<'r> Decoder<'r> {
    /// The trace that is decoded.
    #[must_use]
    pub const fn reader(&self) -> &'r Reader {
        self.reader
    }

    /// Starts on a stream chunk.
    pub fn open(&mut self, chunk: usize) -> Result<ChunkPlace, Error> {
        self.place = None;
        let place = self.reader.payload(chunk, &mut self.columns.payload)?;
        self.place = Some((chunk, place.offset));
        if place.header.kind != ChunkKind::STREAM {
            return Err(self.damaged(Flaw("it is no stream chunk")));
        }
        if place.header.blocks as usize > self.reader.roadmap.len() {
            return Err(self.damaged(Flaw("it needs blocks that are not there")));
        }
        let raw_len = place.header.raw_len;
        let columns = &mut self.unpacker.columns;
        let done = self.columns.unpacker.unpack(&self.columns.payload, raw_len, columns);
        done.and_then(|()| self.unpacker.begin(&self.reader.roadmap))
            .map_err(|f| self.damaged(f))?;
        Ok(place)
    }

    /// The next item of the chunk, or nothing at its end.
    pub fn next(&mut self, burst: &mut Burst) -> Result<Option<Item<'_>>, Error> {
        let place = self.place;
        self.unpacker.next(&self.reader.roadmap, burst).map_err(|f| damaged(place, f))
    }

    /// Whether the chunk holds values.
    #[must_use]
    pub const fn has_values(&self) -> bool {
        self.unpacker.has_values
    }

    /// Appends the values of records that came out of this chunk, in their order.
    pub fn values(&mut self, records: &[Record], out: &mut Vec<u8>) -> Result<(), Error> {
        self.unpacker.read_values(records, out).map_err(|f| self.damaged(f))
    }

    /// The chunk's records are all out: whether they used up its values and are as many as
    /// its header says.
    pub fn check_end(&self, totals: &Totals) -> Result<(), Error> {
        self.unpacker.check_values().map_err(|f| self.damaged(f))?;
        let header = self.place.and_then(|(chunk, _)| self.reader.chunks.get(chunk));
        if header.is_some_and(|c| c.header.totals == *totals) {
            Ok(())
        } else {
            Err(self.damaged(Flaw("its records are not as many as its header says")))
        }
    }

    /// An error about the present chunk.
    #[must_use]
    pub fn refuse(&self, flaw: &'static str) -> Error {
        self.damaged(Flaw(flaw))
    }

    fn damaged(&self, flaw: Flaw) -> Error {
        damaged(self.place, flaw)
    }
}

fn damaged(place: Option<(usize, FileOff)>, flaw: Flaw) -> Error {
    let (chunk, offset) = place.unwrap_or((0, FileOff(0)));
    Error::Damaged { chunk, offset, flaw: flaw.0 }
}

/// The provenance, and where the first chunk is expected.
pub(crate) fn read_header(input: &Input) -> Result<(Provenance, FileOff), Error> {
    let mut bytes = Vec::new();
    input.read(FileOff(0), PREFIX_LEN, &mut bytes)?;
    let len = Provenance::len(&bytes)?;
    input.read(FileOff(0), len, &mut bytes)?;
    Ok((Provenance::parse(&bytes)?, FileOff(len as u64)))
}

/// What an index says.
struct Index {
    /// The copy of the file header, if it is whole.
    about: Option<Provenance>,
    chunks: Vec<ChunkPlace>,
}

/// The provenance as the index repeats it, if the file has a whole one.
pub(crate) fn read_copied_header(input: &Input) -> Result<Option<Provenance>, Error> {
    Ok(read_index(input, &mut Columns::new()?)?.and_then(|index| index.about))
}

/// The index, if the file has a whole one.
fn read_index(input: &Input, columns: &mut Columns) -> Result<Option<Index>, Error> {
    let Some(trailer) = input.len().checked_sub(TRAILER_LEN as u64) else { return Ok(None) };
    let bytes = &mut columns.payload;
    input.read(FileOff(trailer), TRAILER_LEN, bytes)?;
    let Some(index) = bytes.first_chunk().and_then(get_trailer) else { return Ok(None) };
    let Some(len) = trailer.checked_sub(index.0) else { return Ok(None) };
    let listed = read_index_at(input, index, len, columns)?;
    Ok(listed.filter(|listed| {
        let end = |c: &ChunkPlace| c.offset.0 + HEADER_LEN as u64 + u64::from(c.header.packed_len);
        listed.chunks.last().is_none_or(|c| end(c) <= index.0)
    }))
}

fn read_index_at(
    input: &Input,
    index: FileOff,
    len: u64,
    columns: &mut Columns,
) -> Result<Option<Index>, Error> {
    let bytes = &mut columns.payload;
    input.read(index, HEADER_LEN, bytes)?;
    let Some(header) = bytes.first_chunk().and_then(|b| crate::chunk::ChunkHeader::parse(b).ok())
    else {
        return Ok(None);
    };
    let whole =
        header.kind == ChunkKind::INDEX && HEADER_LEN as u64 + u64::from(header.packed_len) == len;
    if !whole {
        return Ok(None);
    }
    input.read(index.offset(HEADER_LEN as u64), header.packed_len as usize, bytes)?;
    let mut unpacked = [Vec::new()];
    if header.check_payload(bytes).is_err()
        || columns.unpacker.unpack(bytes, header.raw_len, &mut unpacked).is_err()
    {
        return Ok(None);
    }
    let index = get_index(&unpacked[0]).ok();
    Ok(index.map(|(header, chunks)| Index { about: Provenance::parse(header).ok(), chunks }))
}
