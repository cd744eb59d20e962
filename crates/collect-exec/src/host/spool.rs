//! The spool: full buffers of the tap in a file, as they are, in the order in which they were taken.
//!
//! It lives no longer than it takes to make a trace of it, and only the build that wrote it understands it: no format for others.
//! The file is a head with a note of whoever makes the trace, and then entries: a page that says what the buffer is, and its
//! bytes up to a page's end. It is written past the page cache where the file system can do that: the bytes go from the tap to the
//! disk without being copied, which costs a tenth of the processor time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;

use ichnos_tap::{BufferKind, Taken};
use rustix::fs::{
    Advice, FallocateFlags, FlockOperation, Mode, OFlags, fadvise, fallocate, flock, fstatvfs, open,
};
use rustix::io::{Errno, pwritev};

use crate::words::{u32_at, u64_at};

/// Heads and the bytes of buffers begin at multiples of this, which disks want.
const PAGE: u64 = 4096;
/// What a spool begins with: the crate's version says the rest.
const MAGIC: &[u8; 16] = b"ichnos spool 1\x1a\n";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Bytes before the note: magic, lengths of version and note, version.
const HEAD_LEN: usize = 24 + VERSION.len();
/// The longest note: a command line is part of it.
const MOST_NOTE: usize = 16 << 20;
/// What every entry begins with.
const ENTRY: u32 = 0x4c4f_5053;
/// The kind of the entry that says how the first program ended, behind all buffers.
const END: u32 = 0x100;
/// So much of the disk is left free for everybody else, the trace among them.
const RESERVE: u64 = 1 << 30;
/// How many bytes a spool grows at a time.
const GROW: u64 = 64 << 20;
/// How many bytes are read before they are taken out of the page cache.
const FORGET_EVERY: u64 = 16 << 20;

#[repr(C, align(4096))]
struct Page([u8; PAGE as usize]);

/// A spool that is being written: who owns it, and how much of it is given away.
pub struct Spool {
    owned: Arc<File>,
    path: PathBuf,
    at: u64,
    sequence: u64,
    limit: u64,
    /// Up to where blocks of the disk were asked for; several can write at once only there.
    grown: u64,
}

/// A place in a spool for one entry.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    at: u64,
    sequence: u64,
}

/// Who writes to a spool: there may be several.
pub struct Pen {
    owned: Arc<File>,
    /// The same past the page cache, if that is possible.
    direct: Option<File>,
    page: Box<Page>,
}

impl Slot {
    /// Where the bytes of the entry begin.
    pub const fn start(&self) -> u64 {
        self.at + PAGE
    }
}

impl Spool {
    /// Makes a file of at most so many bytes; a note is put at its head.
    pub fn create(path: &Path, note: &[u8], limit: u64) -> io::Result<Self> {
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
        own(&file)?;
        let mut head = MAGIC.to_vec();
        head.extend((VERSION.len() as u32).to_le_bytes());
        head.extend((note.len() as u32).to_le_bytes());
        head.extend(VERSION.as_bytes());
        head.extend(note);
        let at = (head.len() as u64).next_multiple_of(PAGE);
        head.resize(at as usize, 0);
        file.write_all_at(&head, 0)?;
        let (owned, path) = (Arc::new(file), path.to_owned());
        Ok(Self { owned, path, at, sequence: 0, limit, grown: at })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Somebody who writes to it.
    pub fn pen(&self) -> Pen {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        let direct = open(&self.path, flags, Mode::empty()).ok().map(File::from);
        let page = Box::new(Page([0; PAGE as usize]));
        Pen { owned: Arc::clone(&self.owned), direct, page }
    }

    /// The place behind all others for a buffer of so many bytes. Nothing if there is no more room, and then never again.
    pub fn claim(&mut self, len: u64) -> Option<Slot> {
        let end = self.at + PAGE + len.next_multiple_of(PAGE);
        if end > self.limit || (end > self.grown && !self.grow(end)) {
            self.limit = 0;
            return None;
        }
        let slot = Slot { at: self.at, sequence: self.sequence };
        (self.at, self.sequence) = (end, self.sequence + 1);
        Some(slot)
    }

    fn grow(&mut self, end: u64) -> bool {
        let free = fstatvfs(&*self.owned).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        if free < RESERVE {
            return false;
        }
        let to = (end + GROW).min(self.limit);
        let grown = fallocate(&*self.owned, FallocateFlags::empty(), self.grown, to - self.grown);
        self.grown = to;
        // A file system that cannot do so finds blocks as they are written.
        !matches!(grown, Err(Errno::NOSPC))
    }

    /// Says how the first program ended: the spool is whole then. All that was claimed must be written.
    pub fn end(&mut self, status: ExitStatus) -> io::Result<()> {
        let slot = Slot { at: self.at, sequence: self.sequence };
        self.pen().write(slot, [END, status.into_raw() as u32, 0], 0, &[])?;
        self.owned.set_len(self.at + PAGE)
    }
}

impl Pen {
    /// Puts a buffer into a place of its length; `bytes` goes on to a page's end.
    pub fn put(&mut self, slot: Slot, taken: &Taken, bytes: &[u8]) -> io::Result<()> {
        self.write(slot, [taken.kind.0, taken.thread, taken.process], taken.len, bytes)
    }

    fn write(&mut self, slot: Slot, ids: [u32; 3], len: u64, bytes: &[u8]) -> io::Result<()> {
        let head = &mut self.page.0;
        head[..4].copy_from_slice(&ENTRY.to_le_bytes());
        for (to, id) in head[4..16].chunks_exact_mut(4).zip(ids) {
            to.copy_from_slice(&id.to_le_bytes());
        }
        head[16..24].copy_from_slice(&len.to_le_bytes());
        head[24..32].copy_from_slice(&slot.sequence.to_le_bytes());
        let sum = sum(&head[..32]);
        head[32..40].copy_from_slice(&sum.to_le_bytes());
        let pieces = [IoSlice::new(&self.page.0), IoSlice::new(bytes)];
        let done = loop {
            match pwritev(self.direct.as_ref().unwrap_or(&self.owned), &pieces, slot.at) {
                Err(Errno::INTR) => {}
                // It was opened past the cache, but cannot be written so after all.
                Err(Errno::INVAL) if self.direct.is_some() => self.direct = None,
                done => break done?,
            }
        };
        if done as u64 != PAGE + bytes.len() as u64 {
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
    forgotten: u64,
}

impl Bytes {
    /// Opens a spool to read buffers from it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, buffer: Vec::new(), forgotten: 0 })
    }

    /// So many bytes from an offset on.
    pub fn at(&mut self, offset: u64, len: u64) -> io::Result<&[u8]> {
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
pub enum Next {
    /// A buffer, and where its bytes begin.
    Buffer(Taken, u64),
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
    pub fn next(&mut self) -> io::Result<Next> {
        if self.at + PAGE > self.len {
            return Ok(Next::Cut);
        }
        let head = self.bytes.at(self.at, PAGE)?;
        let word = |i: usize| u32_at(head, 4 * i).unwrap_or(0);
        let number = |at: usize| u64_at(head, at).unwrap_or(0);
        let good =
            word(0) == ENTRY && number(32) == sum(&head[..32]) && number(24) == self.sequence;
        if !good {
            return Ok(Next::Cut);
        }
        if word(1) == END {
            return Ok(Next::End(ExitStatus::from_raw(word(2) as i32)));
        }
        let (kind, thread, process) = (BufferKind(word(1)), word(2), word(3));
        let (len, start) = (number(16), self.at + PAGE);
        let Some(end) = start.checked_add(len).filter(|end| *end <= self.len) else {
            return Ok(Next::Cut);
        };
        self.at = end.next_multiple_of(PAGE);
        self.sequence += 1;
        Ok(Next::Buffer(Taken { index: 0, kind, thread, process, len, noted: false }, start))
    }

    /// The bytes of a buffer.
    pub fn bytes(&mut self, start: u64, len: u64) -> io::Result<&[u8]> {
        self.bytes.at(start, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(thread: u32, len: u64) -> Taken {
        let (kind, process) = (BufferKind::STREAM, 3);
        Taken { index: 9, kind, thread, process, len, noted: true }
    }

    /// A spool with two buffers in a folder of its own, and where it is.
    fn example(name: &str, limit: u64) -> (Spool, PathBuf) {
        let name = format!("ichnos-spool-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut spool = Spool::create(&path, b"a note", limit).unwrap();
        let page = Box::new(Page([7; PAGE as usize]));
        let slots = [10, PAGE].map(|len| spool.claim(len).unwrap());
        assert_eq!(slots.map(|slot| slot.start()), [8192, 16384]);
        // The second may be written first.
        let mut pen = spool.pen();
        pen.put(slots[1], &taken(2, PAGE), &page.0).unwrap();
        pen.put(slots[0], &taken(1, 10), &page.0).unwrap();
        (spool, path)
    }

    fn all(path: &Path) -> (Vec<(u32, Vec<u8>)>, Option<ExitStatus>) {
        let mut left = Left::open(path).unwrap();
        assert_eq!(left.note(), b"a note");
        let mut found = Vec::new();
        loop {
            match left.next().unwrap() {
                Next::Buffer(taken, start) => {
                    let bytes = left.bytes(start, taken.len).unwrap().to_vec();
                    found.push((taken.thread, bytes));
                }
                Next::End(status) => return (found, Some(status)),
                Next::Cut => return (found, None),
            }
        }
    }

    #[test]
    fn what_was_put_comes_back() {
        let (mut spool, path) = example("whole", 1 << 20);
        let two = vec![(1, vec![7; 10]), (2, vec![7; PAGE as usize])];
        assert!(Left::open(&path).is_err(), "it is in use");
        spool.end(ExitStatus::from_raw(0x300)).unwrap();
        drop(spool);
        assert_eq!(all(&path), (two.clone(), Some(ExitStatus::from_raw(0x300))));
        // A file that was cut anywhere holds what lies whole before the cut.
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for (len, count) in [(24576, 2), (20479, 1), (12288, 1), (8200, 0), (4096, 0)] {
            file.set_len(len).unwrap();
            assert_eq!(all(&path), (two[..count].to_vec(), None), "{len}");
        }
        file.set_len(20).unwrap();
        assert!(Left::open(&path).is_err());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_spool_ends_before_what_was_never_written() {
        let (mut spool, path) = example("hole", 1 << 20);
        let [_, last] = [1, 1].map(|len| spool.claim(len).unwrap());
        spool.pen().put(last, &taken(4, 1), &[1; PAGE as usize]).unwrap();
        drop(spool);
        assert_eq!(all(&path).0.len(), 2);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_full_spool_takes_no_more() {
        let (mut spool, path) = example("full", 22000);
        assert!(spool.claim(1).is_none() && spool.claim(0).is_none());
        drop(spool);
        assert_eq!(all(&path).0.len(), 2);
        std::fs::remove_file(path).unwrap();
    }
}
