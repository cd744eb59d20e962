//! The host's end of the tap: the memory, and the waking of those who wait.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ichnos_tap::{BufferKind, Header, Layout};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapped tap.
#[derive(Debug)]
pub struct Channel {
    file: OwnedFd,
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is shared by nature; all access goes through atomics or by the rules of the
// tap (a full buffer belongs to the collector alone).
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// Makes a tap with buffers of this layout.
    pub fn new(layout: Layout) -> io::Result<Self> {
        let file = memfd_create("ichnos-tap", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, layout.total())?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let len = layout.total() as usize;
        // SAFETY: a new mapping of a file of this length, wherever the kernel likes.
        let base = unsafe { mmap(null_mut(), len, prot, MapFlags::SHARED, &file, 0) }?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(io::Error::other("mapped at zero"));
        };
        // SAFETY: the mapping is page-aligned and longer than the header.
        unsafe { base.cast::<Header>().write(Header::new(layout, std::process::id())) };
        Ok(Self { file, base, layout })
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
        self.layout.total()
    }

    /// The bytes of a full buffer.
    pub fn bytes(&self, index: u32, len: u64) -> &[u8] {
        let len = len.min(self.layout.len) as usize;
        let offset = self.layout.offset(index.min(self.layout.count as u32 - 1)) as usize;
        // SAFETY: inside the mapping; a full buffer is written by nobody until it is freed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// Empties a buffer that the caller has taken, so that its end can be found again.
    pub fn clear(&self, index: u32, len: u64) {
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

    /// Gives a buffer back and wakes who waits for one.
    pub fn free(&self, index: u32) {
        if self.header().free(index) {
            wake(&self.header().room);
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.header().closed.store(1, Ordering::Release);
        wake(&self.header().room);
        // SAFETY: the mapping is ours and not used again.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len() as usize) };
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
    // SAFETY: the word lives across the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
