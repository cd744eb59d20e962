//! Which process a thread belongs to, as models need it: equal addresses of
//! different processes are different memory.
//!
//! The process number is folded into the address from bit 48 up, which no user
//! address reaches. Process 0, the only one of most traces, changes nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{Event, ProcessId, ThreadId};

/// What to fold into the addresses of a process.
pub(crate) const fn space(process: ProcessId) -> u64 {
    (process.0 as u64) << 48
}

/// The process of every thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spaces {
    of_thread: HashMap<ThreadId, u64>,
}

impl Spaces {
    /// Takes note of a thread's start.
    pub(crate) fn event(&mut self, thread: ThreadId, event: &Event<'_>) {
        if let Event::ThreadStart(start) = event {
            self.of_thread.insert(thread, space(start.process));
        }
    }

    /// What to fold into the addresses of a thread.
    pub(crate) fn of(&self, thread: ThreadId) -> u64 {
        self.of_thread.get(&thread).copied().unwrap_or(0)
    }
}
