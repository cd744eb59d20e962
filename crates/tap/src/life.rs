//! The processes of a tree that live: how the collector knows when the last has ended.
//!
//! A parent claims a place before it makes a child, and the child begins its life there: at no moment
//! is a process alive without a place. The collector watches the operating system's numbers and frees the places of
//! those that have ended.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::sync::atomic::{AtomicU32, Ordering};

use crate::Header;

/// The state of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct LifeState(pub u32);

impl LifeState {
    /// Nobody's.
    pub const FREE: Self = Self(0);
    /// A parent is writing it.
    pub const TAKEN: Self = Self(1);
    /// A process is about to be made; `os` is its parent's number.
    pub const CLAIMED: Self = Self(2);
    /// A process lives; `os` is its own number.
    pub const LIVE: Self = Self(3);
}

/// A place for one process.
#[repr(C)]
#[derive(Debug)]
pub struct Life {
    state: AtomicU32,
    os: AtomicU32,
    process: AtomicU32,
}

impl Life {
    pub(crate) const fn new() -> Self {
        Self { state: AtomicU32::new(0), os: AtomicU32::new(0), process: AtomicU32::new(0) }
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> LifeState {
        LifeState(self.state.load(Ordering::Acquire))
    }

    /// The operating system's number of the process, or of its parent while it is claimed.
    #[must_use]
    pub fn os(&self) -> u32 {
        self.os.load(Ordering::Relaxed)
    }

    /// The trace's number of the process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process.load(Ordering::Relaxed)
    }

    /// The process lives, under this number.
    pub fn begin(&self, os: u32) {
        self.os.store(os, Ordering::Relaxed);
        self.state.store(LifeState::LIVE.0, Ordering::Release);
    }

    /// The process has ended, or was not made after all.
    pub fn end(&self) {
        self.state.store(LifeState::FREE.0, Ordering::Release);
    }
}

impl Header {
    /// Claims a place for a process to come, for its parent `os`; `None` if there are too many.
    pub fn claim_life(&self, os: u32, process: u32) -> Option<&Life> {
        let free = |life: &&Life| {
            let (free, taken) = (LifeState::FREE.0, LifeState::TAKEN.0);
            life.state.compare_exchange(free, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let life = self.lives.iter().find(free)?;
        life.os.store(os, Ordering::Relaxed);
        life.process.store(process, Ordering::Relaxed);
        life.state.store(LifeState::CLAIMED.0, Ordering::Release);
        Some(life)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::Layout;
    use std::boxed::Box;

    #[test]
    fn a_life_is_claimed_begun_and_ended() {
        let header = Box::new(Header::new(Layout::new(1, 1), 1));
        let life = header.claim_life(7, 3).unwrap();
        assert_eq!((life.state(), life.os(), life.process()), (LifeState::CLAIMED, 7, 3));
        assert!(!core::ptr::eq(header.claim_life(7, 4).unwrap(), life));
        life.begin(9);
        assert_eq!((life.state(), life.os()), (LifeState::LIVE, 9));
        life.end();
        assert!(core::ptr::eq(header.claim_life(1, 5).unwrap(), life));
    }

    #[test]
    fn times_never_repeat() {
        let header = Box::new(Header::new(Layout::new(1, 1), 1));
        let times = [10, 10, 5, 11, 40].map(|now| header.stamp(now));
        assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    }
}
