//! Finding the chunks of a file without an index: front to back, and past
//! damage by looking for the next whole chunk header.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::FileOff;

use crate::chunk::{ChunkHeader, ChunkKind, HEADER_LEN, MAGIC};
use crate::error::Error;
use crate::index::{ChunkPlace, TRAILER_LEN, get_trailer};
use crate::input::Input;

/// How much is looked at in one piece when searching past damage.
const WINDOW: usize = 1 << 16;

/// What a scan found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// All stream and roadmap chunks that lie whole in the file.
    pub(crate) chunks: Vec<ChunkPlace>,
    /// Stretches that are no chunk.
    pub(crate) holes: Vec<Hole>,
    /// An index chunk, if one was seen.
    pub(crate) index: Option<ChunkPlace>,
}

/// A stretch of a file that holds no whole chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// Where it begins.
    pub offset: FileOff,
    /// How long it is.
    pub len: u64,
}

/// Scans from `start`, where the first chunk is expected, to the end.
pub(crate) fn scan(input: &Input, start: FileOff) -> Result<Found, Error> {
    let mut found = Found::default();
    let mut at = start;
    let mut bytes = Vec::new();
    while at.0 < input.len() {
        if let Some(header) = whole_chunk(input, at, &mut bytes)? {
            let place = ChunkPlace { offset: at, header };
            if header.kind == ChunkKind::INDEX {
                found.index = Some(place);
            } else {
                found.chunks.push(place);
            }
            at = at.offset(HEADER_LEN as u64 + u64::from(header.packed_len));
            continue;
        }
        if is_trailer(input, at, &mut bytes)? {
            break;
        }
        let next = next_magic(input, at.offset(1), &mut bytes)?;
        found.hole(at, next.since(at));
        at = next;
    }
    Ok(found)
}

impl Found {
    fn hole(&mut self, offset: FileOff, len: u64) {
        match self.holes.last_mut() {
            Some(last) if last.offset.offset(last.len) == offset => last.len += len,
            _ => self.holes.push(Hole { offset, len }),
        }
    }
}

/// The header of the chunk at `at`, if there is one and the file is long enough.
fn whole_chunk(
    input: &Input,
    at: FileOff,
    bytes: &mut Vec<u8>,
) -> Result<Option<ChunkHeader>, Error> {
    input.read(at, HEADER_LEN, bytes)?;
    let Some(first) = bytes.first_chunk() else { return Ok(None) };
    let Ok(header) = ChunkHeader::parse(first) else { return Ok(None) };
    let end = at.0 + HEADER_LEN as u64 + u64::from(header.packed_len);
    Ok((end <= input.len()).then_some(header))
}

fn is_trailer(input: &Input, at: FileOff, bytes: &mut Vec<u8>) -> Result<bool, Error> {
    if input.len() - at.0 != TRAILER_LEN as u64 {
        return Ok(false);
    }
    input.read(at, TRAILER_LEN, bytes)?;
    Ok(bytes.first_chunk().and_then(get_trailer).is_some())
}

/// The next place from `at` on that begins like a chunk, or the end.
fn next_magic(input: &Input, mut at: FileOff, bytes: &mut Vec<u8>) -> Result<FileOff, Error> {
    while at.0 < input.len() {
        input.read(at, WINDOW, bytes)?;
        if let Some(i) = bytes.windows(MAGIC.len()).position(|w| w == MAGIC) {
            return Ok(at.offset(i as u64));
        }
        if bytes.len() < WINDOW {
            break;
        }
        at = at.offset((WINDOW - MAGIC.len() + 1) as u64);
    }
    Ok(FileOff(input.len()))
}
