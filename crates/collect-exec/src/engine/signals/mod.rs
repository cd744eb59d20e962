//! Signals: the kernel delivers them to the engine, the engine to the program.
//!
//! Every signal for which the program has a handler, and the faults that the engine needs
//! itself, arrive in `handler` on a stack of the engine's. There nothing is delivered: the
//! signal is queued, everything else is blocked, and the thread is brought to the next place at
//! which the program's state is whole (`deliver` then builds the program's frame).
//! Signals that the program leaves to the kernel never come here.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod action;
mod deliver;
mod frame;
pub mod handler;
mod queue;
mod ret;

pub use action::{Action, Actions, NATIVE_ALWAYS, bit, native_mask, set_native_mask, start};
pub use deliver::{deliver, is_canonical, raise_fault};
pub use frame::Frame;
pub use queue::Queue;
pub use ret::sigreturn;

/// An alternate signal stack, as `sigaltstack` has it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AltStack {
    /// First address.
    pub sp: u64,
    /// `SS_DISABLE`, `SS_AUTODISARM`.
    pub flags: u64,
    /// Bytes.
    pub size: u64,
}

impl AltStack {
    /// No stack.
    pub const NONE: Self = Self { sp: 0, flags: libc::SS_DISABLE as u64, size: 0 };

    /// Whether a stack pointer is on it.
    pub fn holds(&self, sp: u64) -> bool {
        self.size != 0 && sp > self.sp && sp - self.sp <= self.size
    }
}
