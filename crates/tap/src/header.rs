//! The head of the channel: what both sides agree on, and the shared counters.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Descriptor, ExecSlot, Life};

/// The first eight bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"ichnotap");
/// The layout's version; both sides must have the same.
pub const VERSION: u32 = 5;
/// The most buffers there can be.
pub const MOST_BUFFERS: usize = 2048;
/// How many processes can wait for an exec at once.
pub const EXEC_SLOTS: usize = 64;
/// How many processes of a tree can live at once.
pub const MOST_PROCESSES: usize = 4096;
/// Pages are kept whole, so that each side can protect what is between buffers.
const PAGE: u64 = 4096;

/// The head. Lies at the channel's first byte; everything in it is shared.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// The collector's process.
    pub collector: u32,
    /// How the buffers lie.
    pub layout: Layout,
    /// A futex that changes when a buffer is full.
    pub doorbell: AtomicU32,
    /// A futex that changes when a buffer becomes free.
    pub room: AtomicU32,
    /// Not zero once the collector takes nothing more.
    pub closed: AtomicU32,
    /// How many threads found no free buffer, for statistics.
    pub waits: AtomicU32,
    /// Next thread id.
    pub threads: AtomicU32,
    /// Next process id.
    pub processes: AtomicU32,
    /// Next block id; 0 is none.
    pub blocks: AtomicU32,
    /// A futex that changes when a process asks for something else than room.
    pub requests: AtomicU32,
    /// Not zero while the collector sleeps on the doorbell: only then must it be woken.
    pub sleeping: AtomicU32,
    /// How many threads sleep until there is room.
    pub waiting: AtomicU32,
    /// Not zero while the user wants nothing recorded.
    pub paused: AtomicU32,
    /// Not zero if the user may change that.
    pub switchable: AtomicU32,
    /// How many processes have said that they end.
    pub ends: AtomicU32,
    /// How many buffers may be in use beside one for each thread and process that there was; all if this is zero. Few are soon used
    /// again, while they are in the processors' caches, and more take memory that has to be found first.
    pub crowd: AtomicU32,
    /// Next ticket for a full buffer.
    pub tickets: AtomicU64,
    /// The latest time that any thread told, in nanoseconds.
    pub clock: AtomicU64,
    /// The processes of the tree that live.
    pub lives: [Life; MOST_PROCESSES],
    /// Requests to follow an exec.
    pub exec: [ExecSlot; EXEC_SLOTS],
    /// One descriptor per buffer.
    pub buffers: [Descriptor; MOST_BUFFERS],
}

/// How the buffers lie in the channel.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Offset of the first buffer.
    pub first: u64,
    /// Bytes of a buffer, a multiple of the page size.
    pub len: u64,
    /// How many there are.
    pub count: u64,
}

impl Layout {
    /// `count` buffers of `len` bytes, rounded up to pages.
    #[must_use]
    pub const fn new(count: usize, len: u64) -> Self {
        let count = if count > MOST_BUFFERS { MOST_BUFFERS } else { count } as u64;
        let first = (size_of::<Header>() as u64).next_multiple_of(PAGE);
        Self { first, len: len.next_multiple_of(PAGE), count }
    }

    /// Offset of a buffer. Behind each lies a page that is never used, as a guard.
    #[must_use]
    pub const fn offset(&self, index: u32) -> u64 {
        self.first + index as u64 * (self.len + PAGE)
    }

    /// Bytes of the whole channel.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.offset(self.count as u32)
    }
}

impl Header {
    /// A fresh head for a channel of this layout.
    #[must_use]
    pub fn new(layout: Layout, collector: u32) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            collector,
            layout,
            doorbell: AtomicU32::new(0),
            room: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            threads: AtomicU32::new(0),
            processes: AtomicU32::new(0),
            blocks: AtomicU32::new(1),
            requests: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            paused: AtomicU32::new(0),
            switchable: AtomicU32::new(0),
            ends: AtomicU32::new(0),
            crowd: AtomicU32::new(0),
            tickets: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            lives: [const { Life::new() }; MOST_PROCESSES],
            exec: [const { ExecSlot::new() }; EXEC_SLOTS],
            buffers: [const { Descriptor::new() }; MOST_BUFFERS],
        }
    }

    /// Where [`Header::paused`] lies, for those who only switch it.
    pub const PAUSED_AT: usize = core::mem::offset_of!(Header, paused);
    /// Where [`Header::switchable`] lies.
    pub const SWITCHABLE_AT: usize = core::mem::offset_of!(Header, switchable);

    /// Switches recording off; threads notice within about a million instructions.
    pub fn pause(&self) {
        self.paused.store(1, Ordering::Relaxed);
    }

    /// Switches recording on again.
    pub fn resume(&self) {
        self.paused.store(0, Ordering::Relaxed);
    }

    /// Whether this is a channel of this version.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.magic == MAGIC && self.version == VERSION
    }

    /// A time that is later than every one given before, near `now`.
    pub fn stamp(&self, now: u64) -> u64 {
        let before = self.clock.fetch_max(now, Ordering::Relaxed);
        if before < now { now } else { self.clock.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    /// Rings for the collector; whether it sleeps, so that the caller must wake the futex.
    ///
    /// A collector that is about to sleep says so first and then sleeps only if the
    /// doorbell has not changed, so one of the two sees the other.
    #[must_use]
    pub fn ring(&self) -> bool {
        self.doorbell.fetch_add(1, Ordering::SeqCst);
        self.sleeping.load(Ordering::SeqCst) != 0
    }

    /// Notes a request; the caller then wakes the futex.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Release);
    }
}
