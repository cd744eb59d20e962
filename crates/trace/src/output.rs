//! Where a trace goes: header, chunks and index in order, each chunk whole, and
//! the list of what was written.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{self, Write};

use ichnos_base::{FileOff, ThreadId, Totals};

use crate::chunk::{ChunkHeader, ChunkKind, HEADER_LEN, MAX_RAW};
use crate::columns::ColumnPacker;
use crate::error::Error;
use crate::header::Provenance;
use crate::index::{ChunkPlace, put_index, put_trailer};
use crate::pack::CODES;
use crate::roadmap_codec::RoadmapColumns;

/// A trace file being written, front to back.
#[derive(Debug)]
pub(crate) struct Output<W: Write> {
    out: W,
    offset: u64,
    header: Vec<u8>,
    packer: ColumnPacker,
    chunks: Vec<ChunkPlace>,
    roadmaps: u32,
    totals: Totals,
}

impl<W: Write> Output<W> {
    pub(crate) fn new(out: W, level: i32) -> Result<Self, Error> {
        let packer =
            ColumnPacker::new(level).map_err(|source| Error::Write { written: 0, source })?;
        Ok(Self {
            out,
            offset: 0,
            header: Vec::new(),
            packer,
            chunks: Vec::new(),
            roadmaps: 0,
            totals: Totals::default(),
        })
    }

    pub(crate) const fn written(&self) -> u64 {
        self.offset
    }

    pub(crate) const fn totals(&self) -> &Totals {
        &self.totals
    }

    pub(crate) fn into_inner(self) -> W {
        self.out
    }

    pub(crate) fn put_header(&mut self, about: &Provenance) -> Result<(), Error> {
        self.header = about.to_bytes()?;
        let header = std::mem::take(&mut self.header);
        self.write(&header)?;
        self.header = header;
        self.flush()
    }

    pub(crate) fn put_roadmap(&mut self, blocks: &RoadmapColumns) -> Result<(), Error> {
        let header = ChunkHeader {
            kind: ChunkKind::ROADMAP,
            thread: ThreadId(0),
            sequence: self.roadmaps,
            first: u64::from(blocks.first),
            totals: Totals::default(),
            first_ns: 0,
            last_ns: 0,
            blocks: blocks.count,
            raw_len: 0,
            packed_len: 0,
            payload_crc: 0,
        };
        self.roadmaps += 1;
        self.put_chunk(header, &blocks.columns)
    }

    /// Packs columns and writes them under `header`, whose lengths and checksum are
    /// filled in here.
    pub(crate) fn put_chunk(
        &mut self,
        header: ChunkHeader,
        columns: &[Vec<u8>],
    ) -> Result<(), Error> {
        let dense = (header.kind == ChunkKind::STREAM).then_some(CODES);
        let packed = self.packer.pack(columns, dense);
        let (payload, raw) =
            packed.map_err(|source| Error::Write { written: self.offset, source })?;
        let header = ChunkHeader {
            raw_len: raw as u32,
            packed_len: payload.len() as u32,
            payload_crc: crc32fast::hash(&payload),
            ..header
        };
        self.put_packed(header, &payload)
    }

    /// Writes a chunk as it is.
    pub(crate) fn put_packed(&mut self, header: ChunkHeader, payload: &[u8]) -> Result<(), Error> {
        let offset = FileOff(self.offset);
        self.write(&header.to_bytes())?;
        self.write(payload)?;
        if header.kind != ChunkKind::INDEX {
            self.chunks.push(ChunkPlace { offset, header });
        }
        if header.kind == ChunkKind::STREAM {
            self.totals.add(&header.totals);
        }
        self.flush()
    }

    /// Writes the index, the last thing in a file. A trace of so many chunks that their
    /// list is no valid chunk goes without: readers scan then.
    pub(crate) fn put_index(&mut self) -> Result<(), Error> {
        let index = FileOff(self.offset);
        if self.chunks.len() * (HEADER_LEN + 10) + self.header.len() >= MAX_RAW as usize {
            return Ok(());
        }
        let column = put_index(&self.header, &self.chunks);
        let header = ChunkHeader {
            kind: ChunkKind::INDEX,
            thread: ThreadId(0),
            sequence: 0,
            first: 0,
            totals: Totals::default(),
            first_ns: 0,
            last_ns: 0,
            blocks: 0,
            raw_len: 0,
            packed_len: 0,
            payload_crc: 0,
        };
        self.put_chunk(header, &[column])?;
        self.write(&put_trailer(index))?;
        self.flush()
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let done = self.out.flush();
        done.map_err(|source| self.failed(source))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let done = self.out.write_all(bytes);
        done.map_err(|source| self.failed(source))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    const fn failed(&self, source: io::Error) -> Error {
        Error::Write { written: self.offset, source }
    }
}
