//! The file: buffers, squeezed, in the order of their numbers.
//!
//! The file is a head with a note of whoever makes the trace, and then entries, each from a page's start on: a head that says what the buffer is,
//! and its bytes. It is written past the page cache where the file system can do that, which spares a copy.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod left;
mod pen;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, fstatvfs, open};
use rustix::io::Errno;

pub use left::{Bytes, Found, Left, Next};
pub use pen::{Aligned, Hurry, Pen, Stored};

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
        Pen::new(Arc::clone(self), direct)
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

#[cfg(test)]
mod tests;
