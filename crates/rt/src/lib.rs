//! The run-time side of inline tracing: processes under control, and the memory that
//! they share with their collector.
//!
//! Nothing is linked into a traced program. It is started, stopped and changed from
//! outside, by ptrace: [`spawn`] starts it, [`wait`] tells of its stops,
//! [`Thread`] reads and sets registers and memory and makes it execute
//! system calls, [`Pool`] is the memory into which the inserted code stores. Every function
//! is safe to call with any argument: a wrong thread number or address is the kernel's
//! to refuse, and comes back as an error.
//!
//! The thread that calls [`spawn`] is the tracer; all other calls about the program
//! must come from it.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod clock;
mod pool;
mod remote;
mod spawn;
mod thread;
mod wait;
mod word;

pub use clock::Clock;
pub use pool::{Context, Layout, Pool};
pub use spawn::{Randomize, spawn};
pub use thread::{Regs, Resume, SignalInfo, SignalSource, Thread};
pub use wait::{Change, Stop, times_of_children, wait};
pub use word::Word;
