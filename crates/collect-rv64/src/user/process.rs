//! Processes and threads of the simulated Linux.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;
use std::rc::Rc;

use ichnos_base::{EndStatus, ProcessId, ThreadId};
use rustix::fd::OwnedFd;

use crate::cpu::{Cpu, FloatState};
use crate::user::signal::{Action, Queue, SIGNALS, SignalSet};
use crate::user::space::Space;
use crate::user::syscall::PosixTimer;

/// An open file of a process.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) fd: Rc<OwnedFd>,
    pub(crate) close_on_exec: bool,
}

/// One process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) space: Space,
    pub(crate) files: Vec<Option<OpenFile>>,
    pub(crate) actions: [Action; SIGNALS],
    /// The absolute path of the program, for `/proc/self/exe`.
    pub(crate) program: PathBuf,
    pub(crate) threads: u32,
    /// How it ended, until its parent asks.
    pub(crate) ended: Option<EndStatus>,
    /// Whether its parent has asked.
    pub(crate) reaped: bool,
    /// The process group.
    pub(crate) group: u32,
    /// The signal that stopped it, if it is stopped.
    pub(crate) stopped: Option<u32>,
    /// Whether the parent has heard of that.
    pub(crate) stop_told: bool,
    /// Signals for whichever thread takes them.
    pub(crate) pending: Queue,
    /// When SIGALRM comes, and how long after that again.
    pub(crate) alarm: Option<(u64, u64)>,
    /// Its other timers, by number.
    pub(crate) timers: Vec<Option<PosixTimer>>,
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Nothing: it can run.
    Runnable,
    /// A futex word, perhaps until a time.
    Futex { key: FutexKey, mask: u32, until: Option<u64> },
    /// A time, perhaps.
    Until(Option<u64>),
    /// A host file that is not ready: the call is made again later.
    File { fd: i32, write: bool },
    /// Any of several host files, or a signal: the call is made again when time
    /// has passed since it was tried.
    Poll { until: Option<u64>, tried: u64 },
    /// A child's end: the call is made again later.
    Child,
    /// The end or exec of the process it made by `vfork`.
    Vfork { child: u32 },
    /// It is no more.
    Ended,
}

/// A futex: the word's place in RAM, so that all who map it mean the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FutexKey(pub(crate) usize);

/// One thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) id: ThreadId,
    pub(crate) tid: u32,
    /// The index of its process.
    pub(crate) process: usize,
    pub(crate) cpu: Cpu,
    pub(crate) wait: Wait,
    /// Cleared and woken when the thread ends.
    pub(crate) clear_tid: u64,
    pub(crate) blocked: SignalSet,
    pub(crate) pending: Queue,
    /// The mask to be restored when a call that lent another is over.
    pub(crate) lent_mask: Option<SignalSet>,
    /// A call that a signal interrupted.
    pub(crate) interrupted: Option<u64>,
    pub(crate) signal_stack: SignalStack,
    /// The space's epoch that the translation table was filled in.
    pub(crate) epoch: u64,
    /// When a call that polls gives up.
    pub(crate) poll_until: Option<u64>,
    /// Bytes that a call has written before it had to wait.
    pub(crate) transferred: u64,
    /// A system call whose return is still to be told.
    pub(crate) in_call: Option<u64>,
}

/// The stack that signal handlers may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SignalStack {
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) flags: u32,
}

impl Thread {
    pub(crate) fn new(id: ThreadId, tid: u32, process: usize) -> Self {
        let mut cpu = Cpu::new();
        cpu.float_state = FloatState::Initial;
        Self {
            id,
            tid,
            process,
            cpu,
            wait: Wait::Runnable,
            clear_tid: 0,
            blocked: SignalSet::default(),
            pending: Queue::default(),
            lent_mask: None,
            interrupted: None,
            signal_stack: SignalStack { flags: 2, ..SignalStack::default() },
            epoch: 0,
            poll_until: None,
            transferred: 0,
            in_call: None,
        }
    }
}

impl Process {
    /// The host's file behind a guest descriptor.
    pub(crate) fn file(&self, fd: u64) -> Result<&OpenFile, rustix::io::Errno> {
        let index = usize::try_from(fd).map_err(|_| rustix::io::Errno::BADF)?;
        self.files.get(index).and_then(Option::as_ref).ok_or(rustix::io::Errno::BADF)
    }

    /// Puts a file at the lowest free descriptor from `from` on.
    pub(crate) fn install(&mut self, file: OpenFile, from: usize) -> u64 {
        let free = (from..self.files.len()).find(|&i| self.files[i].is_none());
        let index = free.unwrap_or(self.files.len().max(from));
        if self.files.len() <= index {
            self.files.resize(index + 1, None);
        }
        self.files[index] = Some(file);
        index as u64
    }
}
