//! One thread of the traced tree and one process of it: their state as the
//! collector knows it. What happens to them is decided in `engine`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;

use ichnos_base::{ProcessId, ThreadId};

use crate::code::CodeCache;
use crate::disposition::{Action, Disposition};
use crate::maps::Vma;
use crate::sys::{self, Tid, UserRegs};

/// A thread, from its making to its reaping.
pub(crate) struct Tracee {
    pub(crate) tid: Tid,
    pub(crate) process: ProcessId,
    pub(crate) creator: Option<ThreadId>,
    pub(crate) state: State,
    /// Whether its first and its last event were told.
    pub(crate) told: Told,
    /// The registers at its stop, when [`State::Ready`].
    pub(crate) regs: UserRegs,
    /// The signal to be delivered when it goes on.
    pub(crate) signal: Option<PendingSignal>,
    /// The system call it is in.
    pub(crate) call: Call,
    /// The repeated string instruction that was cut short, if its record was
    /// told: without a handler in between, it goes on as the same one.
    pub(crate) rep_told: Option<u64>,
    /// What it is about to set for `SIGTRAP`.
    pub(crate) new_action: Option<Action>,
    /// Whether the program has `SIGTRAP` blocked. Stepping unblocks it behind
    /// the program's back, so it is blocked again whenever the kernel looks.
    pub(crate) trap_blocked: bool,
}

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Stopped between two instructions; waits for its turn.
    Ready,
    /// In the kernel's hands: resumed and not yet reported.
    Busy,
    /// Runs code that cannot be stepped (32-bit), unwatched but for its end.
    Free,
    /// Reaped.
    Gone,
}

/// How much of a thread's life was told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Told {
    Nothing,
    Start,
    End,
}

/// A signal between its stop and its delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingSignal {
    pub(crate) number: i32,
    pub(crate) code: i32,
}

/// A system call's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Number {
    Of64(u64),
    /// As 32-bit programs have it, by `int 0x80`.
    Of32(u64),
}

/// Where a thread is with respect to system calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// In user code.
    Outside,
    /// Inside this call.
    Inside(Number),
    /// Inside the exec that renewed it: its return has no event.
    Born,
    /// Just made, and not seen stopped yet.
    Made,
    /// Came back from a call that the kernel will repeat or give up.
    Interrupted,
}

impl Tracee {
    pub(crate) fn new(tid: Tid, process: ProcessId) -> Self {
        Self {
            tid,
            process,
            creator: None,
            state: State::Busy,
            told: Told::Nothing,
            regs: sys::zero_regs(),
            signal: None,
            call: Call::Born,
            rep_told: None,
            new_action: None,
            trap_blocked: false,
        }
    }

    /// Whether the program has a handler for this signal.
    pub(crate) fn catches(&self, signal: i32) -> bool {
        let path = format!("/proc/{}/status", self.tid.0);
        let status = fs::read_to_string(path).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
        signal > 0 && caught >> (signal - 1) & 1 != 0
    }
}

/// A process: an address space and what is known about it.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) pid: Tid,
    /// How many of its threads are not yet reaped.
    pub(crate) threads: u32,
    pub(crate) maps: Vec<Vma>,
    pub(crate) code: CodeCache,
    pub(crate) disposition: Disposition,
}

impl Process {
    pub(crate) fn new(id: ProcessId, pid: Tid) -> Self {
        Self {
            id,
            pid,
            threads: 0,
            maps: Vec::new(),
            code: CodeCache::new(),
            disposition: Disposition::default(),
        }
    }

    /// The program was replaced: nothing known holds any more.
    pub(crate) fn renew(&mut self) {
        self.maps.clear();
        self.code = CodeCache::new();
        self.disposition.exec();
    }
}
