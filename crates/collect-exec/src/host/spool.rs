//! The spool: full buffers of the tap in a file, squeezed, in the order in which they were taken.
//!
//! It lives no longer than it takes to make a trace of it, and only the build that wrote it understands it: no format for others.
//! The file is a head with a note of whoever makes the trace, and then entries, each from a page's start on: a head that says what the buffer is,
//! and its bytes. It is written past the page cache where the file system can do that, which spares a copy.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use ichnos_tap::{BufferKind, Taken};
use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, Mode, OFlags, fadvise, fallocate, flock, fstatvfs, open,
};
use rustix::io::{Errno, pwritev};

use super::squeeze::{Squeezer, stretch};
use crate::words::{u32_at, u64_at};

/// Entries, and buffers that are not squeezed, begin at multiples of this, which disks want.
pub const PAGE: u64 = 4096;
/// What a spool begins with: the crate's version says the rest.
const MAGIC: &[u8; 16] = b"ichnos spool 2\x1a\n";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Bytes before the note: magic, lengths of version and note, version.
const HEAD_LEN: usize = 24 + VERSION.len();
/// The longest note: a command line is part of it.
const MOST_NOTE: usize = 16 << 20;
/// What every entry begins with.
const ENTRY: u32 = 0x4c4f_5053;
/// Bytes of an entry's head: what it begins with, kind, thread, process; length, number, bytes stored, form, and a sum of all that.
const ENTRY_LEN: usize = 56;
/// The kind of the entry that says how the first program ended, behind all buffers.
const END: u32 = 0x100;
/// No buffer is longer.
const MOST_BUFFER: u64 = 1 << 30;
/// So much of the disk is left free for everybody else, the trace among them.
const RESERVE: u64 = 1 << 30;
/// How many buffers are written as they are at once: then the disk is busy.
const MOST_PLAIN: usize = 3;
/// Buffers are written as they are in this part of a spool only: what comes behind it is to fit, too.
const PLAIN_PART: u64 = 4;
/// How many bytes a spool grows at a time.
const GROW: u64 = 64 << 20;
/// How many bytes are read before they are taken out of the page cache.
const FORGET_EVERY: u64 = 16 << 20;

/// Bytes from a page's start on.
#[derive(Default)]
struct Pages {
    bytes: Vec<u8>,
    skipped: usize,
}

impl Pages {
    /// So many bytes at least, with what was in them.
    fn with_room(&mut self, len: usize) -> &mut [u8] {
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

/// A spool that is being written: who owns it, and how much of it is given away.
pub struct Spool {
    owned: File,
    path: PathBuf,
    desk: Mutex<Desk>,
    /// Somebody has been given a place.
    turn: Condvar,
    /// How many write a buffer as it is.
    plain: AtomicUsize,
}

/// Where places are given away, in order.
struct Desk {
    at: u64,
    sequence: u64,
    limit: u64,
    /// Up to where blocks of the disk were asked for; several can write at once only there.
    grown: u64,
}

/// Files that are not as large as this are closed in no time.
const LARGE: u64 = 64 << 20;

/// Removes a spool that nobody has open any more.
///
/// Where a file system tells the disk which blocks are free again, that takes a second for some gigabytes, and whoever closes
/// a removed file last has to wait for it. So that is a process that does nothing else.
///
/// # Errors
///
/// If it cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    let held = File::open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.len() >= LARGE));
    fs::remove_file(path)?;
    if let Some(held) = held {
        let mut last = Command::new("true");
        last.stdin(held).stdout(Stdio::null()).stderr(Stdio::null());
        // If there is no such program the file is closed here.
        drop(last.spawn());
    }
    Ok(())
}

/// How a buffer is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Form {
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
    start: u64,
    len: u64,
    form: Form,
}

/// Who writes to a spool: there may be several.
pub struct Pen {
    spool: Arc<Spool>,
    /// The same file past the page cache, if that is possible.
    direct: Option<File>,
    squeezer: Squeezer,
    pages: Pages,
}

impl Spool {
    /// Makes a file of at most so many bytes; a note is put at its head.
    pub fn create(path: &Path, note: &[u8], limit: u64) -> io::Result<Arc<Self>> {
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::CLOEXEC;
        let owned = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
        own(&owned)?;
        let mut head = MAGIC.to_vec();
        head.extend((VERSION.len() as u32).to_le_bytes());
        head.extend((note.len() as u32).to_le_bytes());
        head.extend(VERSION.as_bytes());
        head.extend(note);
        let at = (head.len() as u64).next_multiple_of(PAGE);
        head.resize(at as usize, 0);
        owned.write_all_at(&head, 0)?;
        let desk = Mutex::new(Desk { at, sequence: 0, limit, grown: at });
        Ok(Arc::new(Self {
            owned,
            path: path.to_owned(),
            desk,
            turn: Condvar::new(),
            plain: AtomicUsize::new(0),
        }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Somebody who writes to it.
    pub fn pen(self: &Arc<Self>) -> Pen {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        let direct = open(&self.path, flags, Mode::empty()).ok().map(File::from);
        Pen { spool: Arc::clone(self), direct, squeezer: Squeezer::new(), pages: Pages::default() }
    }

    /// Whether a buffer had better be written as it is: the disk has nothing to do, and there is much room.
    fn is_idle(&self) -> bool {
        let desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        self.plain.load(Ordering::Relaxed) < MOST_PLAIN && desk.at < desk.limit / PLAIN_PART
    }

    /// A place of so many bytes for the entry with this number, once all before it have theirs. Nothing if there is no more
    /// room, and then never again.
    fn claim(&self, sequence: u64, len: u64) -> Option<u64> {
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        while desk.sequence < sequence {
            desk = self.turn.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
        desk.sequence = sequence + 1;
        self.turn.notify_all();
        let (at, end) = (desk.at, desk.at + len);
        if end > desk.limit || (end > desk.grown && !desk.grow(&self.owned, end)) {
            desk.limit = 0;
            return None;
        }
        desk.at = end;
        Some(at)
    }

    /// Says how the first program ended: the spool is whole then. All that was claimed must be written.
    pub fn end(self: &Arc<Self>, status: ExitStatus) -> io::Result<()> {
        let (sequence, at) = {
            let desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
            (desk.sequence, desk.at)
        };
        let mut pen = self.pen();
        pen.head([END, status.into_raw() as u32, 0], [0, sequence, 0, 0]);
        pen.write(at, PAGE as usize, &[])?;
        self.owned.set_len(at + PAGE)
    }
}

impl Desk {
    fn grow(&mut self, file: &File, end: u64) -> bool {
        let free = fstatvfs(file).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        if free < RESERVE {
            return false;
        }
        let to = (end + GROW).min(self.limit);
        let grown = fallocate(file, FallocateFlags::empty(), self.grown, to - self.grown);
        self.grown = to;
        // A file system that cannot do so finds blocks as they are written.
        !matches!(grown, Err(Errno::NOSPC))
    }
}

impl Pen {
    /// Puts the buffer with this number into the spool, once all before it have a place; `bytes` goes on to a page's end. Whoever is in a
    /// `hurry` lets the disk work rather than the processor, which has others to serve, as long as that is possible.
    pub fn put(
        &mut self,
        sequence: u64,
        taken: &Taken,
        bytes: &[u8],
        hurry: Hurry,
    ) -> io::Result<Stored> {
        if hurry == Hurry::Much && self.direct.is_some() && self.spool.is_idle() {
            self.spool.plain.fetch_add(1, Ordering::Relaxed);
            let stored = self.store(sequence, taken, bytes, Form::Plain, taken.len as usize);
            self.spool.plain.fetch_sub(1, Ordering::Relaxed);
            return stored;
        }
        let len = taken.len as usize;
        let out = self.pages.with_room(ENTRY_LEN + Squeezer::most(len) + PAGE as usize);
        let squeezed = self.squeezer.squeeze(&bytes[..len], &mut out[ENTRY_LEN..]);
        match squeezed.filter(|squeezed| *squeezed < len) {
            Some(size) => self.store(sequence, taken, &[], Form::Squeezed, size),
            None => self.store(sequence, taken, bytes, Form::Plain, len),
        }
    }

    /// Writes an entry whose bytes are these, or have been squeezed.
    fn store(
        &mut self,
        sequence: u64,
        taken: &Taken,
        bytes: &[u8],
        form: Form,
        size: usize,
    ) -> io::Result<Stored> {
        let ids = [taken.kind.0, taken.thread, taken.process];
        self.head(ids, [taken.len, sequence, size as u64, form as u64]);
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
    fn head(&mut self, ids: [u32; 3], numbers: [u64; 4]) {
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
    fn write(&mut self, at: u64, head: usize, bytes: &[u8]) -> io::Result<()> {
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

/// Takes hold of a spool, so that nobody makes a trace of it while it is written.
fn own(file: &File) -> io::Result<()> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => io::Error::other("a recording or another `ichnos pack` uses it"),
        other => other.into(),
    })
}

/// A cheap sum by which a head is told from whatever else lies on a disk.
fn sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The bytes of a spool, read while it is written or later.
pub struct Bytes {
    file: File,
    buffer: Vec<u8>,
    stretched: Vec<u8>,
    forgotten: u64,
}

impl Bytes {
    /// Opens a spool to read buffers from it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, buffer, stretched) = (File::open(path)?, Vec::new(), Vec::new());
        Ok(Self { file, buffer, stretched, forgotten: 0 })
    }

    /// A buffer of so many bytes; an error of the kind `InvalidData` if that is none.
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

/// What comes next in a spool that was left behind.
pub enum Next<'a> {
    /// A buffer.
    Buffer(Taken, &'a [u8]),
    /// The first program ended like this, and there is no more.
    End(ExitStatus),
    /// There is no more, though more was taken.
    Cut,
}

impl Left {
    /// Opens a spool; an error of the kind `InvalidData` if that is none of this build.
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
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    /// How far it was read, and how long it is.
    pub fn place(&self) -> (u64, u64) {
        (self.at.min(self.len), self.len)
    }

    /// The next entry.
    pub fn next(&mut self) -> io::Result<Next<'_>> {
        if self.at + PAGE > self.len {
            return Ok(Next::Cut);
        }
        let head = self.bytes.at(self.at, ENTRY_LEN as u64)?;
        let word = |i: usize| u32_at(head, 4 * i).unwrap_or(0);
        let number = |i: usize| u64_at(head, 16 + 8 * i).unwrap_or(0);
        let (len, sequence, size) = (number(0), number(1), number(2));
        if word(0) != ENTRY || number(4) != sum(&head[..48]) || sequence != self.sequence {
            return Ok(Next::Cut);
        }
        if word(1) == END {
            return Ok(Next::End(ExitStatus::from_raw(word(2) as i32)));
        }
        let (form, start) = match number(3) {
            0 => (Form::Plain, PAGE),
            _ => (Form::Squeezed, ENTRY_LEN as u64),
        };
        let (kind, thread, process) = (BufferKind(word(1)), word(2), word(3));
        let start = self.at + start;
        let end = start.checked_add(size).filter(|end| *end <= self.len && len <= MOST_BUFFER);
        let Some(end) = end else { return Ok(Next::Cut) };
        self.at = end.next_multiple_of(PAGE);
        self.sequence += 1;
        let taken = Taken { index: 0, kind, thread, process, len, noted: false };
        match self.bytes.buffer(&Stored { start, len: size, form }, len) {
            Ok(bytes) => Ok(Next::Buffer(taken, bytes)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Next::Cut),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
