//! Requests of processes that are about to replace their program and want to be followed.
//!
//! A process claims a free slot and posts its thread number; the collector takes hold of the thread and
//! grants, or refuses; the process then makes the call. If the call fails the process says so by a stop
//! that the collector sees. The slot is freed by the collector.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::sync::atomic::{AtomicU32, Ordering};

use crate::Header;

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct ExecState(pub u32);

impl ExecState {
    /// Nobody uses the slot.
    pub const FREE: Self = Self(0);
    /// A process is writing its request.
    pub const CLAIMED: Self = Self(1);
    /// The collector is asked.
    pub const POSTED: Self = Self(2);
    /// The collector has taken notice.
    pub const SEEN: Self = Self(3);
    /// The collector holds the thread: go ahead.
    pub const GRANTED: Self = Self(4);
    /// The collector cannot follow: go ahead alone.
    pub const REFUSED: Self = Self(5);
}

/// A place for one request.
#[repr(C)]
#[derive(Debug)]
pub struct ExecSlot {
    /// An [`ExecState`], and the futex on which the process waits.
    pub state: AtomicU32,
    /// The thread that will call.
    pub thread: AtomicU32,
    /// The trace's number of its process.
    pub process: AtomicU32,
    /// The trace's number of its thread.
    pub traced: AtomicU32,
}

impl ExecSlot {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            process: AtomicU32::new(0),
            traced: AtomicU32::new(0),
        }
    }

    /// The state now.
    #[must_use]
    pub fn state(&self) -> ExecState {
        ExecState(self.state.load(Ordering::Acquire))
    }

    /// Sets the state; the caller wakes whoever waits.
    pub fn set(&self, state: ExecState) {
        self.state.store(state.0, Ordering::Release);
    }

    /// Moves from one state to another; false if it was not in the first.
    pub fn advance(&self, from: ExecState, to: ExecState) -> bool {
        self.state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Header {
    /// Posts a request; `None` if all slots are taken.
    pub fn post_exec(&self, thread: u32, process: u32, traced: u32) -> Option<&ExecSlot> {
        let claim = |slot: &&ExecSlot| slot.advance(ExecState::FREE, ExecState::CLAIMED);
        let slot = self.exec.iter().find(claim)?;
        slot.thread.store(thread, Ordering::Relaxed);
        slot.process.store(process, Ordering::Relaxed);
        slot.traced.store(traced, Ordering::Relaxed);
        slot.set(ExecState::POSTED);
        self.request();
        Some(slot)
    }

    /// A request that nobody has seen yet, now seen.
    pub fn see_exec(&self) -> Option<&ExecSlot> {
        self.exec.iter().find(|slot| slot.advance(ExecState::POSTED, ExecState::SEEN))
    }
}
