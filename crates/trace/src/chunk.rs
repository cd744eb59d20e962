//! The chunk header: kind, owner, lengths, counts and checksums, 116 bytes. The
//! payload's checksum lies in the header and the header's own covers it, so a
//! chunk whose two checksums agree is whole.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{ThreadId, Totals};

use crate::bytes::{Cursor, Parse};
use crate::error::Flaw;

/// How long a chunk header is.
pub(crate) const HEADER_LEN: usize = 116;

/// What every chunk header begins with.
pub(crate) const MAGIC: [u8; 4] = *b"iCk\x1a";

/// The most bytes a chunk's columns may unpack to. A reader checks this before
/// it allocates; a writer cuts its chunks long before.
pub const MAX_RAW: u32 = 64 << 20;

/// The most bytes a chunk may take in the file: unpackable columns are stored as
/// they are, with a few bytes of lengths.
pub(crate) const MAX_PACKED: u32 = MAX_RAW + 4096;

/// The most instructions one stream chunk may hold. Bounds the time that a chunk of
/// a few hostile bytes can cost.
pub const MAX_INSNS: u64 = 1 << 28;

/// The most records one stream chunk may hold: many more, because a single repeated string instruction
/// makes as many accesses as the program has memory, and no chunk ends within an execution.
pub const MAX_RECORDS: u64 = 1 << 40;

/// What sort of chunk. Unknown values survive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct ChunkKind(pub u16);

impl ChunkKind {
    /// Blocks of the roadmap.
    pub const ROADMAP: Self = Self(1);
    /// A piece of a thread's stream.
    pub const STREAM: Self = Self(2);
    /// The index at the end.
    pub const INDEX: Self = Self(3);
}

/// What a chunk says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    /// What sort of chunk it is.
    pub kind: ChunkKind,
    /// Whose stream, for stream chunks; 0 otherwise.
    pub thread: ThreadId,
    /// Counts the chunks of one thread's stream, or the roadmap chunks, from 0.
    pub sequence: u32,
    /// Bytes of all columns unpacked.
    pub raw_len: u32,
    /// Bytes of payload that follow this header.
    pub packed_len: u32,
    /// Instructions of the thread before this chunk; for a roadmap chunk, the
    /// number of its first block.
    pub first: u64,
    /// What the chunk's records count.
    pub totals: Totals,
    /// The first timestamp in the chunk; 0 if it has none.
    pub first_ns: u64,
    /// The last timestamp in the chunk; 0 if it has none.
    pub last_ns: u64,
    /// Blocks of the roadmap that must be known to read the chunk; for a
    /// roadmap chunk, how many blocks it holds.
    pub blocks: u32,
    /// The payload's CRC-32.
    pub payload_crc: u32,
}

impl ChunkHeader {
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.kind.0.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        for n in [self.thread.0, self.sequence, self.raw_len, self.packed_len] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        let t = &self.totals;
        let counts = [t.insns, t.loads, t.stores, t.branches, t.taken, t.prefetches, t.flushes];
        out.extend_from_slice(&self.first.to_le_bytes());
        for n in counts.into_iter().chain([self.first_ns, self.last_ns]) {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&self.payload_crc.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
        let mut bytes = [0; HEADER_LEN];
        bytes.copy_from_slice(&out);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Parse<Self> {
        let (body, crc) = bytes.split_at(HEADER_LEN - 4);
        if !body.starts_with(&MAGIC) {
            return Err(Flaw("it does not begin with the chunk magic"));
        }
        if crc != crc32fast::hash(body).to_le_bytes() {
            return Err(Flaw("its header's checksum is wrong"));
        }
        let mut from = Cursor::new(&body[4..]);
        let kind = ChunkKind(u16::from_le_bytes(from.array()?));
        if from.array::<2>()? != [0; 2] {
            return Err(Flaw("its reserved field is not 0"));
        }
        let mut u32s = [0; 4];
        for n in &mut u32s {
            *n = u32::from_le_bytes(from.array()?);
        }
        let mut u64s = [0; 10];
        for n in &mut u64s {
            *n = u64::from_le_bytes(from.array()?);
        }
        let [first, insns, loads, stores, branches, taken, prefetches, flushes, first_ns, last_ns] =
            u64s;
        let header = Self {
            kind,
            thread: ThreadId(u32s[0]),
            sequence: u32s[1],
            raw_len: u32s[2],
            packed_len: u32s[3],
            first,
            totals: Totals { insns, loads, stores, branches, taken, prefetches, flushes },
            first_ns,
            last_ns,
            blocks: u32::from_le_bytes(from.array()?),
            payload_crc: u32::from_le_bytes(from.array()?),
        };
        header.check_limits()?;
        Ok(header)
    }

    fn check_limits(&self) -> Parse<()> {
        if self.raw_len > MAX_RAW || self.packed_len > MAX_PACKED {
            return Err(Flaw("its lengths exceed what a chunk may hold"));
        }
        let t = &self.totals;
        let records = [t.insns, t.loads, t.stores, t.branches, t.prefetches, t.flushes]
            .iter()
            .try_fold(0u64, |sum, n| sum.checked_add(*n));
        if t.insns > MAX_INSNS || records.is_none_or(|n| n > MAX_RECORDS) || t.taken > t.branches {
            return Err(Flaw("its counts exceed what a chunk may hold"));
        }
        self.first.checked_add(t.insns).map(|_| ()).ok_or(Flaw("its counts exceed 64 bits"))
    }

    /// Whether `payload` is the one this header was made for.
    pub(crate) fn check_payload(&self, payload: &[u8]) -> Parse<()> {
        if payload.len() as u64 != u64::from(self.packed_len) {
            return Err(Flaw("it ends too early"));
        }
        if crc32fast::hash(payload) != self.payload_crc {
            return Err(Flaw("its checksum is wrong"));
        }
        Ok(())
    }
}
