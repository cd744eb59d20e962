//! Who writes to a spool.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::{Errno, pwritev};

use super::{ENTRY, ENTRY_LEN, PAGE, Spool, sum};
use crate::Label;
use crate::squeeze::Squeezer;

/// Bytes from a page's start on.
#[derive(Default, Debug)]
pub struct Aligned {
    bytes: Vec<u8>,
    skipped: usize,
}

impl Aligned {
    /// So many bytes at least, with what was in them.
    pub fn with_room(&mut self, len: usize) -> &mut [u8] {
        let (page, has) = (PAGE as usize, self.bytes.len() - self.skipped);
        if has < len {
            self.bytes = vec![0; len + page];
            self.skipped = self.bytes.as_ptr().align_offset(page).min(page);
        }
        &mut self.bytes[self.skipped..]
    }

    fn get(&self, len: usize) -> &[u8] {
        self.bytes.get(self.skipped..self.skipped + len).unwrap_or_default()
    }
}
/// How a buffer is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Form {
    /// As it is, from the next page on.
    Plain,
    /// Squeezed, right behind the head.
    Squeezed,
}

/// How long the program can wait for whoever writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hurry {
    /// It need not wait.
    None,
    /// It is about to wait.
    Much,
}

/// Where a buffer is in a spool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) form: Form,
}

/// Who writes to a spool: there may be several.
pub struct Pen {
    spool: Arc<Spool>,
    /// The same file past the page cache, if that is possible.
    direct: Option<File>,
    squeezer: Squeezer,
    pages: Aligned,
}
impl Pen {
    pub(super) fn new(spool: Arc<Spool>, direct: Option<File>) -> Self {
        Self { spool, direct, squeezer: Squeezer::new(), pages: Aligned::default() }
    }

    /// Puts the buffer with this number into the spool, once all before it have a place; `bytes` goes on to a page's end. Whoever is in a
    /// `hurry` lets the disk work rather than the processor, which has others to serve, as long as that is possible.
    ///
    /// # Errors
    ///
    /// If there is no room for it, or the disk fails: it is not there then.
    pub fn put(
        &mut self,
        sequence: u64,
        label: Label,
        bytes: &[u8],
        hurry: Hurry,
    ) -> io::Result<Stored> {
        if hurry == Hurry::Much && self.direct.is_some() && self.spool.is_idle() {
            self.spool.plain.fetch_add(1, Ordering::Relaxed);
            let stored = self.store(sequence, label, bytes, Form::Plain, label.len as usize);
            self.spool.plain.fetch_sub(1, Ordering::Relaxed);
            return stored;
        }
        let len = label.len as usize;
        let out = self.pages.with_room(ENTRY_LEN + Squeezer::most(len) + PAGE as usize);
        let squeezed = self.squeezer.squeeze(&bytes[..len], &mut out[ENTRY_LEN..]);
        match squeezed.filter(|squeezed| *squeezed < len) {
            Some(size) => self.store(sequence, label, &[], Form::Squeezed, size),
            None => self.store(sequence, label, bytes, Form::Plain, len),
        }
    }

    /// Writes an entry whose bytes are these, or have been squeezed.
    fn store(
        &mut self,
        sequence: u64,
        label: Label,
        bytes: &[u8],
        form: Form,
        size: usize,
    ) -> io::Result<Stored> {
        self.head(label.numbers, [label.len, sequence, size as u64, form as u64]);
        let (head, start) = match form {
            Form::Plain => (PAGE as usize, PAGE),
            Form::Squeezed => {
                ((ENTRY_LEN + size).next_multiple_of(PAGE as usize), ENTRY_LEN as u64)
            }
        };
        let claimed = self.spool.claim(sequence, (head + bytes.len()) as u64);
        let at = claimed.ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
        self.write(at, head, bytes)?;
        Ok(Stored { start: at + start, len: size as u64, form })
    }

    /// Makes the head of an entry.
    pub(super) fn head(&mut self, ids: [u32; 3], numbers: [u64; 4]) {
        let head = self.pages.with_room(PAGE as usize);
        head[..4].copy_from_slice(&ENTRY.to_le_bytes());
        for (to, id) in head[4..16].chunks_exact_mut(4).zip(ids) {
            to.copy_from_slice(&id.to_le_bytes());
        }
        for (to, number) in head[16..48].chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        let sum = sum(&head[..48]);
        head[48..ENTRY_LEN].copy_from_slice(&sum.to_le_bytes());
    }

    /// Writes so many bytes of the entry that was made, and others behind them.
    pub(super) fn write(&mut self, at: u64, head: usize, bytes: &[u8]) -> io::Result<()> {
        let head = self.pages.get(head);
        let pieces = [IoSlice::new(head), IoSlice::new(bytes)];
        let done = loop {
            match pwritev(self.direct.as_ref().unwrap_or(&self.spool.owned), &pieces, at) {
                Err(Errno::INTR) => {}
                // It was opened past the cache, but cannot be written so after all.
                Err(Errno::INVAL) if self.direct.is_some() => self.direct = None,
                done => break done?,
            }
        };
        if done != head.len() + bytes.len() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}
