//! Columns of bytes to a chunk's payload and back: each column is packed by zstd
//! alone, or stored as it is where packing does not help.
//!
//! Unpacking allocates exactly what the chunk header announced, which was
//! checked against the limit before, and refuses a column that unpacks to anything else.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;

use zstd::bulk::{Compressor, Decompressor};

use crate::bytes::{Cursor, Parse, put_varint};
use crate::error::Flaw;

/// Packs columns; keeps zstd's working memory from chunk to chunk.
pub(crate) struct ColumnPacker {
    zstd: Compressor<'static>,
}

impl ColumnPacker {
    pub(crate) fn new(level: i32) -> std::io::Result<Self> {
        Ok(Self { zstd: Compressor::new(level)? })
    }

    /// The payload of these columns, and how many bytes they were. The one numbered `dense` is stored as it is.
    pub(crate) fn pack(
        &mut self,
        columns: &[Vec<u8>],
        dense: Option<usize>,
    ) -> std::io::Result<(Vec<u8>, usize)> {
        let mut out = Vec::new();
        let mut raw = 0;
        for (i, column) in columns.iter().enumerate() {
            raw += column.len();
            put_varint(&mut out, column.len() as u64);
            if column.is_empty() {
                continue;
            }
            let packed = if dense == Some(i) { Vec::new() } else { self.zstd.compress(column)? };
            let is_shorter = !packed.is_empty() && packed.len() < column.len();
            let best = if is_shorter { &packed } else { column };
            put_varint(&mut out, best.len() as u64);
            out.extend_from_slice(best);
        }
        Ok((out, raw))
    }
}

/// Unpacks columns; keeps zstd's working memory from chunk to chunk.
pub(crate) struct ColumnUnpacker {
    zstd: Decompressor<'static>,
}

impl ColumnUnpacker {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { zstd: Decompressor::new()? })
    }

    /// Fills `columns` from a payload that must unpack to `raw_len` bytes in all.
    pub(crate) fn unpack(
        &mut self,
        payload: &[u8],
        raw_len: u32,
        columns: &mut [Vec<u8>],
    ) -> Parse<()> {
        let mut from = Cursor::new(payload);
        let mut left = u64::from(raw_len);
        for column in columns {
            left = left
                .checked_sub(self.unpack_one(&mut from, left, column)?)
                .ok_or(Flaw("its columns are longer than announced"))?;
        }
        if left != 0 {
            return Err(Flaw("its columns are shorter than announced"));
        }
        from.end()
    }

    fn unpack_one(&mut self, from: &mut Cursor<'_>, left: u64, column: &mut Vec<u8>) -> Parse<u64> {
        column.clear();
        let raw = from.varint()?;
        if raw > left {
            return Err(Flaw("its columns are longer than announced"));
        }
        if raw == 0 {
            return Ok(0);
        }
        let packed = from.bytes()?;
        if packed.len() as u64 == raw {
            column.extend_from_slice(packed);
            return Ok(raw);
        }
        column.reserve_exact(raw as usize);
        let got = self.zstd.decompress_to_buffer(packed, column);
        if got.is_ok_and(|n| n as u64 == raw) && column.len() as u64 == raw {
            Ok(raw)
        } else {
            Err(Flaw("a column does not unpack"))
        }
    }
}

impl fmt::Debug for ColumnPacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnPacker").finish_non_exhaustive()
    }
}

impl fmt::Debug for ColumnUnpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnUnpacker").finish_non_exhaustive()
    }
}
