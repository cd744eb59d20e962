//! The engine's heap: size classes of powers of two over memory in the window.
//!
//! The executable that holds this crate runs in two roles. As host it uses the
//! system's allocator; as engine it must not, because that one would move the
//! program's break and keep thread-local state which the engine's threads do not
//! have. The role is decided once, before anything is allocated in the engine.
//!
//! Invariant: every block of class `c` is `1 << c` bytes and so aligned; blocks of
//! [`LARGE`] or more are mappings of their own.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::lock::Lock;
use super::sys;
use crate::window;

/// Class of the smallest mapping of its own.
const LARGE: u32 = 20;
const SMALLEST: u32 = 4;
const CHUNK: u64 = 1 << 20;

static ENGINE: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicU64 = AtomicU64::new(window::HEAP);
static POOL: Lock<Pool> = Lock::new(Pool { free: [0; LARGE as usize], at: 0, end: 0 });

#[global_allocator]
static ALLOCATOR: Roles = Roles;

struct Roles;

struct Pool {
    /// First free block of each class; each holds the address of the next.
    free: [u64; LARGE as usize],
    at: u64,
    end: u64,
}

/// From here on this process is an engine.
pub fn become_engine() {
    ENGINE.store(true, Ordering::Release);
}

/// Bytes of address space that the heap has taken.
pub fn taken() -> u64 {
    NEXT.load(Ordering::Relaxed) - window::HEAP
}

/// For the child of a fork: another thread may have held the heap then, but not while
/// `during` runs.
pub fn held<T>(during: impl FnOnce() -> T) -> T {
    let _pool = POOL.lock();
    during()
}

// SAFETY: blocks come from mappings that are never given back while in use, are at least
// as large and aligned as asked (a class covers size and alignment), and each is on
// the free list or in use but never both, which the lock protects.
unsafe impl GlobalAlloc for Roles {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !ENGINE.load(Ordering::Relaxed) {
            // SAFETY: the caller's promise is passed on.
            return unsafe { System.alloc(layout) };
        }
        let class = class_of(layout);
        if class >= LARGE {
            return map(1 << class);
        }
        POOL.lock().take(class)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if !ENGINE.load(Ordering::Relaxed) {
            // SAFETY: the caller's promise is passed on.
            return unsafe { System.dealloc(ptr, layout) };
        }
        let class = class_of(layout);
        if class >= LARGE {
            // SAFETY: `alloc` mapped exactly this.
            unsafe { sys::call(libc::SYS_munmap, [ptr as u64, 1 << class, 0, 0, 0, 0]) };
            return;
        }
        let mut pool = POOL.lock();
        // SAFETY: the block is ours again and at least 16 bytes, aligned.
        unsafe { ptr.cast::<u64>().write(pool.free[class as usize]) };
        pool.free[class as usize] = ptr as u64;
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !ENGINE.load(Ordering::Relaxed) {
            // SAFETY: the caller's promise is passed on.
            return unsafe { System.realloc(ptr, layout, new_size) };
        }
        // SAFETY: the caller promises that the new size is one of a layout.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let (from, to) = (class_of(layout), class_of(new));
        if from == to {
            return ptr;
        }
        if from >= LARGE && to > from {
            return moved(ptr, 1 << from, 1 << to);
        }
        // SAFETY: the caller's promise is passed on; both blocks are as large as the smaller of the two.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                to.copy_from_nonoverlapping(ptr, layout.size().min(new_size));
                self.dealloc(ptr, layout);
            }
            to
        }
    }
}

impl Pool {
    fn take(&mut self, class: u32) -> *mut u8 {
        let head = self.free[class as usize];
        if head != 0 {
            // SAFETY: a free block holds the next one's address.
            self.free[class as usize] = unsafe { (head as *const u64).read() };
            return head as *mut u8;
        }
        let size = 1u64 << class;
        let mut at = self.at.next_multiple_of(size);
        if at + size > self.end {
            let chunk = map(CHUNK);
            if chunk.is_null() {
                return chunk;
            }
            (at, self.end) = (chunk as u64, chunk as u64 + CHUNK);
        }
        self.at = at + size;
        at as *mut u8
    }
}

fn class_of(layout: Layout) -> u32 {
    let size = layout.size().max(layout.align()).max(1 << SMALLEST);
    size.next_power_of_two().trailing_zeros()
}

fn map(len: u64) -> *mut u8 {
    let Some(at) = place(len) else { return null_mut() };
    match sys::map_at(at, len, libc::PROT_READ | libc::PROT_WRITE) {
        Ok(()) => at as *mut u8,
        Err(_) => null_mut(),
    }
}

/// Address space for a mapping.
fn place(len: u64) -> Option<u64> {
    let at = NEXT.fetch_add(len, Ordering::Relaxed);
    // Every request is a power of two of at least a chunk, so places stay chunk-aligned.
    (at + len <= window::HEAP_END).then_some(at)
}

/// A mapping made larger: its pages go to another place, and are not copied.
fn moved(ptr: *mut u8, len: u64, new_len: u64) -> *mut u8 {
    let Some(at) = place(new_len) else { return null_mut() };
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
    // SAFETY: `alloc` mapped exactly this, whoever holds the block gives it up for the new one, and nothing lies there.
    let got = unsafe { sys::call(libc::SYS_mremap, [ptr as u64, len, new_len, flags, at, 0]) };
    if sys::failed(got) { null_mut() } else { at as *mut u8 }
}
