//! The memory into which the code inserted in traced programs stores, and from which the
//! collector reads: contexts, one for each thread, and buffers.
//!
//! A context is what a thread's `gs` points to: the address at which it stores next,
//! and a few words to put registers aside. A buffer belongs to one context or to
//! nobody; behind each lies a page that traced programs cannot touch, so that a store
//! beyond the end is noticed. Who owns what is the collector's business.
//!
//! All reads are plain copies out of memory that the traced program may be writing: a copy
//! may be torn, never anything worse.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const PAGE: u64 = 4096;
/// Bytes of a context.
const CONTEXT: u64 = 128;

/// How the memory is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// How many contexts there are.
    pub contexts: u32,
    /// How many buffers there are.
    pub buffers: u32,
    /// Bytes of a buffer, a multiple of the page size.
    pub buffer_len: u64,
}

/// Which context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Context(pub u32);

impl Layout {
    /// Where a context lies.
    #[must_use]
    pub const fn context(&self, context: Context) -> u64 {
        context.0 as u64 * CONTEXT
    }

    /// Where a buffer lies.
    #[must_use]
    pub const fn buffer(&self, index: u32) -> u64 {
        let first = (self.contexts as u64 * CONTEXT).next_multiple_of(PAGE);
        first + index as u64 * (self.buffer_len + PAGE)
    }

    /// Where the page behind a buffer lies.
    #[must_use]
    pub const fn guard(&self, index: u32) -> u64 {
        self.buffer(index) + self.buffer_len
    }

    /// Bytes in all.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.buffer(self.buffers)
    }
}

/// The memory, as the collector sees it.
#[derive(Debug)]
pub struct Pool {
    file: OwnedFd,
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is shared by nature; it is reached by copies alone.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// New memory, all zero.
    pub fn new(layout: Layout) -> io::Result<Self> {
        let file = memfd_create("ichnos-tap", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, layout.total())?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let len = usize::try_from(layout.total()).map_err(io::Error::other)?;
        // SAFETY: a new mapping of a file of this length, wherever the kernel likes.
        let base = unsafe { mmap(null_mut(), len, prot, MapFlags::SHARED, &file, 0) }?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(io::Error::other("mapped at zero"));
        };
        Ok(Self { file, base, layout })
    }

    /// How it is divided.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Its file in this process, for others to open.
    #[must_use]
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Copies `into.len()` bytes from an offset; false if they lie outside.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let fits = offset.checked_add(into.len() as u64).is_some_and(|e| e <= self.layout.total());
        if fits {
            // SAFETY: the range lies inside the mapping, which nothing else in this process
            // refers to; a concurrent writer makes the copied bytes arbitrary, and any
            // byte is a valid one.
            unsafe {
                let from = self.base.as_ptr().add(offset as usize);
                std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
            }
        }
        fits
    }

    /// The word at an offset; zero outside.
    #[must_use]
    pub fn word(&self, offset: u64) -> u64 {
        let mut word = [0; 8];
        self.read(offset, &mut word);
        u64::from_le_bytes(word)
    }

    /// Sets the word at an offset; nothing happens outside.
    pub fn set_word(&self, offset: u64, word: u64) {
        if offset.checked_add(8).is_some_and(|end| end <= self.layout.total()) {
            // SAFETY: as for `read`.
            unsafe {
                let to = self.base.as_ptr().add(offset as usize);
                to.cast::<u64>().write_unaligned(word);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and not used again.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.layout.total() as usize) };
    }
}
