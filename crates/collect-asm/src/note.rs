//! The notes about functions that a program carries: where they are, and where control
//! can come into them.
//!
//! One section, not loaded, gathered by the linker, which fills in the addresses. Each note:
//!
//! | bytes | |
//! |---|---|
//! | 4 | [`MAGIC`] |
//! | 4 | length of the note |
//! | 8 | address of the function's first byte; 0 if the linker threw it away |
//! | 8 | the same of the function whose cold part it is, or its own |
//! | 4 | bytes of code |
//! | 4 | flags: [`COMPILED`] |
//! | 4 | number of entries |
//! | 4 each | entries: offsets of labels whose address is taken, [`PAD`] set in landing pads |
// SPDX-License-Identifier: MIT OR Apache-2.0

/// The section's name. The linker treats sections of such names as debugging information: it
/// keeps them when it drops unused code, and does not mind references to what it dropped.
pub(crate) const SECTION: &str = ".debug_ichnos";
/// The first four bytes of a note.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"ichn");
/// Bytes of a note without entries.
pub(crate) const HEAD_LEN: usize = 36;
/// A compiler made the function, and kept the calling convention.
pub(crate) const COMPILED: u32 = 1;

/// Set in an entry that is a landing pad: control comes there with another frame.
pub(crate) const PAD: u32 = 1 << 31;

/// A note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    /// The function's first byte, in the image's own addresses.
    pub(crate) start: u64,
    /// The function that it is part of.
    pub(crate) parent: u64,
    /// Bytes of code.
    pub(crate) size: u32,
    /// Whether a compiler made it.
    pub(crate) compiled: bool,
    /// Offsets of labels whose address is taken, [`PAD`] set in landing pads.
    pub(crate) entries: Vec<u32>,
}

/// All notes of an image's section, except those about code that is gone. What is no note ends
/// the list.
pub(crate) fn parse(mut bytes: &[u8]) -> Vec<Note> {
    let mut notes = Vec::new();
    while let Some((note, len)) = one(bytes) {
        bytes = bytes.get(len..).unwrap_or_default();
        if note.start != 0 && note.size != 0 {
            notes.push(note);
        }
    }
    notes
}

fn one(bytes: &[u8]) -> Option<(Note, usize)> {
    let len = u32_at(bytes, 4)? as usize;
    if u32_at(bytes, 0)? != MAGIC || len < HEAD_LEN {
        return None;
    }
    let bytes = bytes.get(..len)?;
    let count = u32_at(bytes, 32)? as usize;
    let list = bytes.get(HEAD_LEN..)?;
    if list.len() / 4 != count {
        return None;
    }
    let note = Note {
        start: u64_at(bytes, 8)?,
        parent: u64_at(bytes, 16)?,
        size: u32_at(bytes, 24)?,
        compiled: u32_at(bytes, 28)? & COMPILED != 0,
        entries: (0..count).filter_map(|i| u32_at(list, 4 * i)).collect(),
    };
    Some((note, len))
}

/// Four bytes at an offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Eight bytes at an offset.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
