//! The life of a buffer: free, owned, full, free again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::Header;

const FREE: u32 = 0;
const OWNED: u32 = 1;
const FULL: u32 = 2;
const LEAVING: u32 = 3;

/// What a buffer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct BufferKind(pub u32);

impl BufferKind {
    /// A thread's stream.
    pub const STREAM: Self = Self(0);
    /// Roadmap: what the blocks in later streams are.
    pub const ROADMAP: Self = Self(1);
    /// A stream that its thread left unfinished, by dying; its last item may be cut.
    pub const LEFT: Self = Self(2);
}

/// What is known about a buffer.
#[repr(C)]
#[derive(Debug)]
pub struct Descriptor {
    state: AtomicU32,
    kind: AtomicU32,
    thread: AtomicU32,
    process: AtomicU32,
    noted: AtomicU32,
    stale: AtomicU64,
    len: AtomicU64,
    ticket: AtomicU64,
}

/// A full buffer in the collector's hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Which buffer.
    pub index: u32,
    /// What it holds.
    pub kind: BufferKind,
    /// Whose stream it is.
    pub thread: u32,
    /// Whose roadmap it is.
    pub process: u32,
    /// Bytes filled.
    pub len: u64,
    /// Whether its thread noted that it holds something to be looked at soon.
    pub noted: bool,
}

impl Descriptor {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            kind: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            process: AtomicU32::new(0),
            noted: AtomicU32::new(0),
            stale: AtomicU64::new(0),
            len: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
        }
    }
}

impl Header {
    fn used(&self) -> &[Descriptor] {
        let count = self.layout.count as usize;
        self.buffers.get(..count).unwrap_or(&self.buffers)
    }

    /// The same as far as they may be used now.
    fn usable(&self) -> &[Descriptor] {
        let used = self.used();
        let number = |n: &AtomicU32| n.load(Ordering::Relaxed) as usize;
        match number(&self.crowd) {
            0 => used,
            crowd => {
                let count = crowd + number(&self.threads) + number(&self.processes);
                used.get(..count).unwrap_or(used)
            }
        }
    }

    /// Makes a free buffer owned; `None` if there is none.
    pub fn take(&self, kind: BufferKind, process: u32, thread: u32) -> Option<u32> {
        // Looking is cheap where many threads look at many buffers; trying to change them is not.
        let free = |d: &Descriptor| {
            d.state.load(Ordering::Relaxed) == FREE
                && d.state
                    .compare_exchange(FREE, OWNED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let index = self.usable().iter().position(free)?;
        let d = &self.used()[index];
        d.kind.store(kind.0, Ordering::Relaxed);
        d.process.store(process, Ordering::Relaxed);
        d.thread.store(thread, Ordering::Relaxed);
        d.noted.store(0, Ordering::Relaxed);
        d.len.store(0, Ordering::Relaxed);
        Some(index as u32)
    }

    /// How many bytes of an owned buffer must be made zero, by whoever took it, so that its end can be found.
    #[must_use]
    pub fn stale(&self, index: u32) -> u64 {
        let stale = self.used().get(index as usize).map_or(0, |d| d.stale.load(Ordering::Relaxed));
        stale.min(self.layout.len)
    }

    /// They are zero.
    pub fn cleaned(&self, index: u32) {
        if let Some(d) = self.used().get(index as usize) {
            d.stale.store(0, Ordering::Release);
        }
    }

    /// Notes that an owned buffer holds something to be looked at soon.
    pub fn note(&self, index: u32) {
        if let Some(d) = self.used().get(index as usize) {
            d.noted.store(1, Ordering::Relaxed);
        }
    }

    /// Makes an owned buffer full: `len` bytes count. The caller rings and wakes.
    pub fn submit(&self, index: u32, len: u64) {
        let Some(d) = self.used().get(index as usize) else { return };
        // Whoever comes second, thread or collector, leaves it to the first.
        let first = d.state.compare_exchange(OWNED, LEAVING, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_err() {
            return;
        }
        d.len.store(len, Ordering::Relaxed);
        d.ticket.store(self.tickets.fetch_add(1, Ordering::AcqRel), Ordering::Relaxed);
        d.state.store(FULL, Ordering::Release);
    }

    /// The full buffer with this ticket.
    #[must_use]
    pub fn next_full(&self, ticket: u64) -> Option<Taken> {
        let full = |d: &Descriptor| {
            d.state.load(Ordering::Acquire) == FULL && d.ticket.load(Ordering::Relaxed) == ticket
        };
        let index = self.used().iter().position(full)?;
        Some(self.taken(index))
    }

    /// Submits what a process left behind that has ended or replaced its program: roadmap first.
    /// Where it ends in the buffers, its contents must say.
    pub fn submit_left(&self, process: u32) {
        for roadmap in [true, false] {
            for (i, d) in self.used().iter().enumerate() {
                let kind = BufferKind(d.kind.load(Ordering::Relaxed));
                let is = d.state.load(Ordering::Acquire) == OWNED
                    && d.process.load(Ordering::Relaxed) == process
                    && (kind == BufferKind::ROADMAP) == roadmap;
                if is && !roadmap {
                    d.kind.store(BufferKind::LEFT.0, Ordering::Relaxed);
                }
                // Who died before it was clean has put nothing in.
                let clean = d.stale.load(Ordering::Acquire) == 0;
                if is {
                    self.submit(i as u32, if clean { self.layout.len } else { 0 });
                }
            }
        }
    }

    /// How many buffers are free.
    #[must_use]
    pub fn free_buffers(&self) -> usize {
        self.used().iter().filter(|d| d.state.load(Ordering::Relaxed) == FREE).count()
    }

    fn taken(&self, index: usize) -> Taken {
        let d = &self.used()[index];
        Taken {
            index: index as u32,
            kind: BufferKind(d.kind.load(Ordering::Relaxed)),
            thread: d.thread.load(Ordering::Relaxed),
            process: d.process.load(Ordering::Relaxed),
            len: d.len.load(Ordering::Relaxed).min(self.layout.len),
            noted: d.noted.load(Ordering::Relaxed) != 0,
        }
    }

    /// Gives a buffer back of which the first bytes, so many, are not zero; as [`Header::free`] otherwise.
    #[must_use]
    pub fn free_stale(&self, index: u32, len: u64) -> bool {
        if let Some(d) = self.used().get(index as usize) {
            d.stale.fetch_max(len, Ordering::Relaxed);
        }
        self.free(index)
    }

    /// Gives a buffer back; whether threads wait for room, so that the caller must wake one of them.
    #[must_use]
    pub fn free(&self, index: u32) -> bool {
        let Some(d) = self.used().get(index as usize) else { return false };
        d.state.store(FREE, Ordering::Release);
        self.room.fetch_add(1, Ordering::SeqCst);
        self.waiting.load(Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::Layout;
    use std::boxed::Box;

    #[test]
    fn full_buffers_come_in_the_order_of_submission() {
        let header = Box::new(Header::new(Layout::new(4, 100), 1));
        let take = |t| header.take(BufferKind::STREAM, 0, t);
        let (a, b) = (take(7).unwrap(), take(8).unwrap());
        header.submit(b, 50);
        assert_eq!(header.next_full(0).map(|t| (t.thread, t.len)), Some((8, 50)));
        assert_eq!(header.next_full(1), None);
        header.submit(a, 1 << 40);
        assert_eq!(header.next_full(1).map(|t| (t.thread, t.len)), Some((7, 4096)));
        assert!(take(1).is_some() && take(1).is_some() && take(1).is_none());
        header.note(b);
        assert!(!header.free_stale(b, 50));
        assert_eq!(take(3), Some(b));
        assert_eq!(header.stale(b), 50);
        header.cleaned(b);
        assert_eq!(header.stale(b), 0);
        assert!(header.next_full(1).is_some_and(|t| !t.noted));
        header.submit(a, 1);
        header.submit_left(0);
        let kinds = (2..5).map(|t| header.next_full(t).map(|t| t.kind));
        assert!(kinds.into_iter().all(|kind| kind == Some(BufferKind::LEFT)));
        assert_eq!((header.next_full(5), header.free_buffers()), (None, 0));
    }

    #[test]
    fn exec_requests_are_seen_once() {
        let header = Box::new(Header::new(Layout::new(1, 1), 1));
        let slot = header.post_exec(5, 0, 0).unwrap();
        assert!(header.see_exec().is_some() && header.see_exec().is_none());
        slot.set(crate::ExecState::FREE);
        (0..64).for_each(|i| assert!(header.post_exec(i, 0, 0).is_some()));
        assert!(header.post_exec(9, 0, 0).is_none());
    }
}
