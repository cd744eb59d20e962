//! The index at the end of a finished file: where every chunk lies, and a copy
//! of the file header. It only repeats what the file says elsewhere, so a
//! file without one loses nothing: the reader scans instead.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::FileOff;

use crate::bytes::{Cursor, Parse, put_bytes, put_varint};
use crate::chunk::{ChunkHeader, HEADER_LEN};
use crate::error::Flaw;

/// What the last bytes of a finished file begin with.
const MAGIC: [u8; 8] = *b"iChnosIx";

/// Magic, the index chunk's offset, checksum.
pub(crate) const TRAILER_LEN: usize = 20;

/// A chunk and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkPlace {
    /// Where the chunk's header begins.
    pub offset: FileOff,
    /// What the chunk says about itself.
    pub header: ChunkHeader,
}

/// The index's one column.
pub(crate) fn put_index(header: &[u8], chunks: &[ChunkPlace]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, header);
    put_varint(&mut out, chunks.len() as u64);
    for chunk in chunks {
        put_varint(&mut out, chunk.offset.0);
        out.extend_from_slice(&chunk.header.to_bytes());
    }
    out
}

/// The copy of the file header, and all chunks.
pub(crate) fn get_index(column: &[u8]) -> Parse<(&[u8], Vec<ChunkPlace>)> {
    let mut from = Cursor::new(column);
    let header = from.bytes()?;
    let count = from.varint()?;
    if count > (from.left() / HEADER_LEN) as u64 {
        return Err(Flaw("it counts more chunks than it lists"));
    }
    let mut chunks = Vec::with_capacity(count as usize);
    let mut end = 0;
    for _ in 0..count {
        let offset = FileOff(from.varint()?);
        let header = ChunkHeader::parse(&from.array()?)?;
        if offset.0 < end {
            return Err(Flaw("its chunks are out of order"));
        }
        end = offset
            .0
            .checked_add(HEADER_LEN as u64 + u64::from(header.packed_len))
            .ok_or(Flaw("its chunks lie outside the file"))?;
        chunks.push(ChunkPlace { offset, header });
    }
    from.end()?;
    Ok((header, chunks))
}

/// The last bytes of a finished file.
pub(crate) fn put_trailer(index: FileOff) -> [u8; TRAILER_LEN] {
    let mut out = [0; TRAILER_LEN];
    out[..8].copy_from_slice(&MAGIC);
    out[8..16].copy_from_slice(&index.0.to_le_bytes());
    let crc = crc32fast::hash(&out[..16]);
    out[16..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Where the index chunk begins, if these are the last bytes of a finished file.
pub(crate) fn get_trailer(bytes: &[u8; TRAILER_LEN]) -> Option<FileOff> {
    let (body, crc) = bytes.split_at(16);
    if !body.starts_with(&MAGIC) || crc != crc32fast::hash(body).to_le_bytes() {
        return None;
    }
    let mut offset = [0; 8];
    offset.copy_from_slice(&body[8..]);
    Some(FileOff(u64::from_le_bytes(offset)))
}
