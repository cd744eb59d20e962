//! Who reads a spool: while it is written, or later.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use rustix::fs::{Advice, fadvise};

use super::pen::{Form, Stored};
use super::{
    END, ENTRY, ENTRY_LEN, FORGET_EVERY, HEAD_LEN, MAGIC, MOST_BUFFER, MOST_NOTE, PAGE, VERSION,
    own, sum,
};
use crate::squeeze::stretch;
use crate::{Label, u32_at, u64_at};

/// The bytes of a spool, read while it is written or later.
pub struct Bytes {
    file: File,
    buffer: Vec<u8>,
    stretched: Vec<u8>,
    forgotten: u64,
}

impl Bytes {
    /// Opens a spool to read buffers from it.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, buffer, stretched) = (File::open(path)?, Vec::new(), Vec::new());
        Ok(Self { file, buffer, stretched, forgotten: 0 })
    }

    /// A buffer of so many bytes.
    ///
    /// # Errors
    ///
    /// If it cannot be read; of the kind `InvalidData` if that is no such buffer.
    pub fn buffer(&mut self, stored: &Stored, len: u64) -> io::Result<&[u8]> {
        self.at(stored.start, stored.len)?;
        if stored.form == Form::Plain {
            return Ok(&self.buffer);
        }
        match stretch(&self.buffer, len as usize, &mut self.stretched) {
            Some(()) => Ok(&self.stretched),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "a buffer is damaged")),
        }
    }

    /// So many bytes from an offset on.
    fn at(&mut self, offset: u64, len: u64) -> io::Result<&[u8]> {
        self.buffer.resize(len as usize, 0);
        self.file.read_exact_at(&mut self.buffer, offset)?;
        if offset > self.forgotten + FORGET_EVERY {
            // Nobody reads it again soon.
            let len = std::num::NonZeroU64::new(offset - self.forgotten);
            let _ = fadvise(&self.file, self.forgotten, len, Advice::DontNeed);
            self.forgotten = offset;
        }
        Ok(&self.buffer)
    }
}

/// A spool that was left behind.
pub struct Left {
    bytes: Bytes,
    note: Vec<u8>,
    at: u64,
    sequence: u64,
    len: u64,
}

/// Where the next buffer of a spool is that was left behind.
#[derive(Clone, Copy, Debug)]
pub enum Found {
    /// There.
    Buffer(Label, Stored),
    /// The first program ended like this, and there is no more.
    End(ExitStatus),
    /// There is no more, though more was taken.
    Cut,
}

/// What comes next in a spool that was left behind.
pub enum Next<'a> {
    /// A buffer.
    Buffer(Label, &'a [u8]),
    /// The first program ended like this, and there is no more.
    End(ExitStatus),
    /// There is no more, though more was taken.
    Cut,
}

impl Left {
    /// Opens a spool.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or somebody uses it; of the kind `InvalidData` if that is no spool of this build.
    pub fn open(path: &Path) -> io::Result<Self> {
        let no = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let mut bytes = Bytes::open(path)?;
        own(&bytes.file)?;
        let len = bytes.file.metadata()?.len();
        if len < 24 || bytes.at(0, 16)? != MAGIC {
            return Err(no("this is no spool"));
        }
        let lens = bytes.at(16, 8)?;
        let (version, note) = (u32_at(lens, 0).unwrap_or(0), u32_at(lens, 4).unwrap_or(0) as usize);
        if version as usize != VERSION.len() || len < HEAD_LEN as u64 {
            return Err(no("the spool was written by another version of ichnos"));
        }
        if bytes.at(24, VERSION.len() as u64)? != VERSION.as_bytes() {
            return Err(no("the spool was written by another version of ichnos"));
        }
        if note > MOST_NOTE || (HEAD_LEN + note) as u64 > len {
            return Err(no("the head of the spool is damaged"));
        }
        let note = bytes.at(HEAD_LEN as u64, note as u64)?.to_vec();
        let at = ((HEAD_LEN + note.len()) as u64).next_multiple_of(PAGE);
        Ok(Self { bytes, note, at, sequence: 0, len })
    }

    /// The note at its head.
    #[must_use]
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    /// How far it was read, and how long it is.
    #[must_use]
    pub fn place(&self) -> (u64, u64) {
        (self.at.min(self.len), self.len)
    }

    /// The next entry.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn next_entry(&mut self) -> io::Result<Next<'_>> {
        let (label, stored) = match self.find()? {
            Found::Buffer(label, stored) => (label, stored),
            Found::End(status) => return Ok(Next::End(status)),
            Found::Cut => return Ok(Next::Cut),
        };
        match self.bytes.buffer(&stored, label.len) {
            Ok(bytes) => Ok(Next::Buffer(label, bytes)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Next::Cut),
            Err(error) => Err(error),
        }
    }

    /// A buffer that was found.
    ///
    /// # Errors
    ///
    /// As [`Bytes::buffer`].
    pub fn read(&mut self, label: &Label, stored: &Stored) -> io::Result<&[u8]> {
        self.bytes.buffer(stored, label.len)
    }

    /// Where the next entry is, without reading it.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn find(&mut self) -> io::Result<Found> {
        if self.at + PAGE > self.len {
            return Ok(Found::Cut);
        }
        let head = self.bytes.at(self.at, ENTRY_LEN as u64)?;
        let word = |i: usize| u32_at(head, 4 * i).unwrap_or(0);
        let number = |i: usize| u64_at(head, 16 + 8 * i).unwrap_or(0);
        let (len, sequence, size) = (number(0), number(1), number(2));
        if word(0) != ENTRY || number(4) != sum(&head[..48]) || sequence != self.sequence {
            return Ok(Found::Cut);
        }
        if word(1) == END {
            return Ok(Found::End(ExitStatus::from_raw(word(2) as i32)));
        }
        let (form, start) = match number(3) {
            0 => (Form::Plain, PAGE),
            _ => (Form::Squeezed, ENTRY_LEN as u64),
        };
        let label = Label { numbers: [word(1), word(2), word(3)], len };
        let start = self.at + start;
        let end = start.checked_add(size).filter(|end| *end <= self.len && len <= MOST_BUFFER);
        let Some(end) = end else { return Ok(Found::Cut) };
        self.at = end.next_multiple_of(PAGE);
        self.sequence += 1;
        Ok(Found::Buffer(label, Stored { start, len: size, form }))
    }
}
