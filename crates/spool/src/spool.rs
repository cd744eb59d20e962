//! The file: buffers, squeezed, in the order of their numbers.
//!
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

use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, Mode, OFlags, fadvise, fallocate, flock, fstatvfs, open,
};
use rustix::io::{Errno, pwritev};

use crate::squeeze::{Squeezer, stretch};
use crate::{Label, u32_at, u64_at};

/// Entries, and buffers that are not squeezed, begin at multiples of this, which disks want.
pub const PAGE: u64 = 4096;
/// What a spool begins with: the crate's version says the rest.
const MAGIC: &[u8; 16] = b"ichnos spool 3\x1a\n";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Bytes before the note: magic, lengths of version and note, version.
const HEAD_LEN: usize = 24 + VERSION.len();
/// The longest note: a command line is part of it.
const MOST_NOTE: usize = 16 << 20;
/// What every entry begins with.
const ENTRY: u32 = 0x4c4f_5053;
/// Bytes of an entry's head: what it begins with, its label's numbers; length, number, bytes stored, form, and a sum of all that.
const ENTRY_LEN: usize = 56;
/// The first number of the entry that says how the first program ended, behind all buffers.
const END: u32 = u32::MAX;
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
    let held = File::open(path).ok();
    fs::remove_file(path)?;
    held.into_iter().for_each(leave);
    Ok(())
}

/// Lets a process that ends at once close a removed file last.
fn leave(file: File) {
    if file.metadata().is_ok_and(|found| found.len() >= LARGE) {
        let mut last = Command::new("true");
        last.stdin(file).stdout(Stdio::null()).stderr(Stdio::null());
        // If there is no such program the file is closed here.
        drop(last.spawn());
    }
}

/// A spool without a name. It must be dropped after whoever writes to it or reads from it.
#[derive(Debug)]
pub struct Hidden(Option<File>);

impl Drop for Hidden {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(leave);
    }
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
    pages: Aligned,
}

impl Spool {
    /// Makes a file of at most so many bytes; a note is put at its head.
    ///
    /// # Errors
    ///
    /// If the file cannot be made, or somebody uses it.
    pub fn create(path: &Path, note: &[u8], limit: u64) -> io::Result<Arc<Self>> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let owned = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
        own(&owned)?;
        owned.set_len(0)?;
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
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes its name away: nobody opens it any more, and nothing is left of it whatever happens.
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub fn hide(&self) -> io::Result<Hidden> {
        let held = self.owned.try_clone()?;
        fs::remove_file(&self.path)?;
        Ok(Hidden(Some(held)))
    }

    /// Somebody who writes to it.
    #[must_use]
    pub fn pen(self: &Arc<Self>) -> Pen {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        let direct = open(&self.path, flags, Mode::empty()).ok().map(File::from);
        Pen {
            spool: Arc::clone(self),
            direct,
            squeezer: Squeezer::new(),
            pages: Aligned::default(),
        }
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
    ///
    /// # Errors
    ///
    /// If it cannot be written.
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
        let label = Label { numbers: [word(1), word(2), word(3)], len };
        let start = self.at + start;
        let end = start.checked_add(size).filter(|end| *end <= self.len && len <= MOST_BUFFER);
        let Some(end) = end else { return Ok(Next::Cut) };
        self.at = end.next_multiple_of(PAGE);
        self.sequence += 1;
        match self.bytes.buffer(&Stored { start, len: size, form }, len) {
            Ok(bytes) => Ok(Next::Buffer(label, bytes)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Next::Cut),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
