//! What the tracer tells the collector.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use ichnos_base::{EndStatus, GuestVa, Mode, Register, SignalInfo, ThreadStart};
use ichnos_rt::Context;

use super::images::Images;
use super::maps::Mapped;
use crate::code::Copy;

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Where {
    /// At the copy of this instruction, which it has not executed.
    Copy {
        /// The instruction.
        pc: GuestVa,
        /// Whether the record of the block that begins there is stored already.
        stored: bool,
        /// How many turns of its loop it has finished since the last record.
        turn: usize,
    },
    /// At this instruction in the copy that records nothing.
    Exec(GuestVa),
    /// In code that has no copy.
    Outside(GuestVa),
    /// Nobody knows.
    Unknown,
}

/// When and where a thread was when it got a new buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    /// Nanoseconds since the recording began.
    pub(crate) ns: u64,
    /// The processor it was on, if that can be told.
    pub(crate) cpu: Option<u32>,
    /// Whether all threads were stopped because no buffer was free.
    pub(crate) starved: bool,
}

/// Something that happened to a thread.
pub(crate) enum Message {
    /// It began.
    Start {
        thread: u32,
        start: ThreadStart,
        /// Its first context.
        lane: Context,
        /// The thread whose state it began with, if it goes on where that one was.
        like: Option<u32>,
    },
    /// Its process runs a new program.
    Exec { thread: u32, path: String },
    /// Its process has these copies from now on.
    Program { process: u32, images: Images },
    /// It loaded a library: its process has this copy, too.
    Library { thread: u32, process: u32, copy: Arc<Copy> },
    /// It stored words in a buffer, up to an offset in it.
    Words { thread: u32, lane: Context, buffer: u32, to: u64, last: bool },
    /// It made another one.
    Create { thread: u32, child: u32 },
    /// A signal handler began, in this mode, with so many events left until that changes.
    Signal {
        thread: u32,
        at: Where,
        outer: Context,
        inner: Context,
        info: SignalInfo,
        mode: (Mode, u64),
    },
    /// A signal handler returned, and left what it interrupted with these registers changed.
    SignalReturn {
        thread: u32,
        at: Where,
        inner: Context,
        outer: Context,
        pc: GuestVa,
        changed: Vec<(Register, u64)>,
    },
    /// A signal handler was left and will not return.
    Left { thread: u32, outer: Context },
    /// It has stopped there for a while, and has done what was told.
    Rests { thread: u32, lane: Context, at: Where },
    /// It was there at this time, in nanoseconds since the recording began.
    Stamp { thread: u32, ns: u64 },
    /// Its process has nothing any more where these were, and has these mappings.
    Maps { thread: u32, gone: Vec<Mapped>, maps: Vec<Mapped> },
    /// It got a new buffer.
    Turnover { thread: u32, moment: Moment },
    /// It begins with its own memory here: that is its handle, by which others wait for its end.
    Handle { thread: u32, handle: u64 },
    /// All threads wait until a buffer is given back.
    Starved {},
    /// It ended; so many events were left until it would have been recorded again.
    End { thread: u32, at: Where, status: EndStatus, left: u64 },
}

impl Message {
    /// Whose it is; nothing if it is a process's.
    pub(crate) const fn thread(&self) -> Option<u32> {
        Some(match self {
            Self::Program { .. } | Self::Starved {} => return None,
            Self::Start { thread, .. }
            | Self::Exec { thread, .. }
            | Self::Library { thread, .. }
            | Self::Words { thread, .. }
            | Self::Create { thread, .. }
            | Self::Signal { thread, .. }
            | Self::SignalReturn { thread, .. }
            | Self::Left { thread, .. }
            | Self::Rests { thread, .. }
            | Self::Stamp { thread, .. }
            | Self::Maps { thread, .. }
            | Self::Turnover { thread, .. }
            | Self::Handle { thread, .. }
            | Self::End { thread, .. } => *thread,
        })
    }

    /// The buffer that is done with when the message is.
    pub(crate) const fn emptied(&self) -> Option<u32> {
        match self {
            Self::Words { buffer, last: true, .. } => Some(*buffer),
            _ => None,
        }
    }
}

/// Who is told.
pub(crate) enum Listener {
    /// The collector, on a thread of its own, who gives buffers back.
    Collector { tell: Sender<Message>, freed: Receiver<u32> },
    /// Nobody: buffers are free as soon as they are full.
    Nobody,
}

impl Listener {
    /// Buffers that were given back since the last time.
    pub(crate) fn freed(&self) -> impl Iterator<Item = u32> {
        let freed = match self {
            Self::Collector { freed, .. } => Some(freed.try_iter()),
            Self::Nobody => None,
        };
        freed.into_iter().flatten()
    }

    /// Waits until a buffer is given back; nothing if none will be.
    pub(crate) fn next_freed(&self) -> Option<u32> {
        match self {
            Self::Collector { freed, .. } => freed.recv().ok(),
            Self::Nobody => None,
        }
    }
}

/// The way back for buffers.
pub(crate) struct Buffers(Sender<u32>);

impl Buffers {
    pub(crate) const fn new(give: Sender<u32>) -> Self {
        Self(give)
    }

    /// Gives a buffer back.
    pub(crate) fn free(&self, buffer: u32) {
        // If the tracer is gone nobody needs it.
        let _ = self.0.send(buffer);
    }
}
