//! The host's end of the tap: the memory, and the waking of those who wait.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ichnos_tap::{BufferKind, Header, Layout};
use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom, fallocate, ftruncate, memfd_create, seek};
use rustix::io::pread;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::sieve::COUNTERS_LEN;
use crate::words::u64_at;

/// How many buffers are few.
const FEW: u32 = 64;

/// A mapped tap.
#[derive(Debug)]
pub struct Channel {
    file: OwnedFd,
    base: NonNull<u8>,
    layout: Layout,
    /// Bytes behind the buffers, which only engines map.
    behind: u64,
}

// SAFETY: the memory is shared by nature; all access goes through atomics or by the rules of the
// tap (a full buffer belongs to the collector alone).
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// Makes a tap with buffers of this layout, and so many bytes behind them.
    pub fn new(layout: Layout, behind: u64) -> io::Result<Self> {
        let file = memfd_create("ichnos-tap", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, layout.total() + behind)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let len = layout.total() as usize;
        // SAFETY: a new mapping of a file of this length, wherever the kernel likes.
        let base = unsafe { mmap(null_mut(), len, prot, MapFlags::SHARED, &file, 0) }?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(io::Error::other("mapped at zero"));
        };
        // SAFETY: the mapping is page-aligned and longer than the header.
        unsafe { base.cast::<Header>().write(Header::new(layout, std::process::id())) };
        Ok(Self { file, base, layout, behind })
    }

    /// The shared head.
    pub fn header(&self) -> &Header {
        // SAFETY: written by `new`; its plain fields never change, the others are atomics.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    /// The descriptor, for other processes to open.
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.layout.total() + self.behind
    }

    /// The counters of a thread that are not zero, by their numbers; they are gone then.
    pub fn take_counters(&self, thread: u32) -> Vec<(usize, u64)> {
        let start = self.layout.total() + u64::from(thread) * COUNTERS_LEN;
        let end = start + COUNTERS_LEN;
        let mut found = Vec::new();
        let mut page = [0; 4096];
        let mut at = start;
        // Pages that nobody has touched are holes.
        while let Ok(data) = seek(&self.file, SeekFrom::Data(at)) {
            if data >= end {
                break;
            }
            let len = pread(&self.file, &mut page, data).unwrap_or(0);
            if len == 0 {
                break;
            }
            let first = ((data - start) / 8) as usize;
            let counts = page[..len].chunks_exact(8).enumerate();
            let counts = counts.filter_map(|(i, bytes)| Some((first + i, u64_at(bytes, 0)?)));
            found.extend(counts.filter(|(_, count)| *count != 0));
            at = data + len as u64;
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Memory that cannot be given back early goes with the channel.
        let _ = fallocate(&self.file, mode, start, COUNTERS_LEN);
        found
    }

    /// The bytes of a full buffer.
    pub fn bytes(&self, index: u32, len: u64) -> &[u8] {
        let len = len.min(self.layout.len) as usize;
        let offset = self.layout.offset(index.min(self.layout.count as u32 - 1)) as usize;
        // SAFETY: inside the mapping; a full buffer is written by nobody until it is freed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// Empties a buffer that the caller has taken, so that its end can be found again.
    fn clear(&self, index: u32, len: u64) {
        let len = len.min(self.layout.len) as usize;
        let offset = self.layout.offset(index.min(self.layout.count as u32 - 1)) as usize;
        // SAFETY: inside the mapping; a full buffer belongs to the collector until it is freed.
        unsafe { self.base.as_ptr().add(offset).write_bytes(0, len) };
    }

    /// Puts an item into a stream of a thread that cannot do so itself; `ids` are its process and itself.
    pub fn put(&self, ids: [u32; 2], item: &[u8]) {
        let len = item.len() as u64;
        if len > self.layout.len {
            return;
        }
        let index = loop {
            let seen = self.header().room.load(Ordering::Acquire);
            match self.header().take(BufferKind::STREAM, ids[0], ids[1]) {
                Some(index) => break index,
                None => wait(&self.header().room, seen, Duration::from_millis(20)),
            }
        };
        self.clear(index, self.header().stale(index));
        self.header().cleaned(index);
        let offset = self.layout.offset(index) as usize;
        // SAFETY: inside the mapping, as the length was checked; a buffer that was taken is ours.
        unsafe {
            let to = self.base.as_ptr().add(offset);
            to.copy_from_nonoverlapping(item.as_ptr(), item.len());
        }
        self.header().submit(index, len);
        if self.header().ring() {
            wake(&self.header().doorbell);
        }
    }

    /// Sleeps until the doorbell is no longer `seen`, or for the time at most.
    pub fn sleep(&self, seen: u32, time: Duration) {
        let header = self.header();
        header.sleeping.store(1, Ordering::SeqCst);
        wait(&header.doorbell, seen, time);
        header.sleeping.store(0, Ordering::SeqCst);
    }

    /// From now on few buffers are used at a time: whoever reads them frees them soon.
    pub fn use_few(&self) {
        self.header().crowd.store(FEW, Ordering::Relaxed);
    }

    /// Gives a buffer back of which so many bytes were filled, and wakes one who waits for it: if others woke, too,
    /// a crowd would look through all buffers for the one.
    pub fn free(&self, index: u32, len: u64) {
        if self.header().free_stale(index, len) {
            wake_one(&self.header().room);
        }
    }

    /// The same if nobody looks at what is in buffers.
    pub fn free_unseen(&self, index: u32) {
        if self.header().free(index) {
            wake_one(&self.header().room);
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.header().closed.store(1, Ordering::Release);
        wake(&self.header().room);
        // SAFETY: the mapping is ours and not used again.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.layout.total() as usize) };
    }
}

/// Waits until a shared word is no longer `seen`, or for the time at most.
pub fn wait(word: &AtomicU32, seen: u32, time: Duration) {
    let limit =
        libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: the word and the limit live across the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const limit);
    }
}

/// Wakes all who wait on a shared word.
pub fn wake(word: &AtomicU32) {
    wake_some(word, i32::MAX);
}

/// Wakes one who waits on a shared word.
fn wake_one(word: &AtomicU32) {
    wake_some(word, 1);
}

fn wake_some(word: &AtomicU32, most: i32) {
    // SAFETY: the word lives across the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, most) };
}
