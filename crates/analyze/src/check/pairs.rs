//! Which events of one thread go together: locks, barriers, condition
//! variables, system calls, signals, modes and the clock.
//!
//! After a gap or a switch of mode some partners may be missing, so that from
//! then on an end without its beginning is no longer wrong. A beginning without
//! an end is never wrong by itself: a thread may die anywhere.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

use ichnos_base::{BarrierPhase, CondOp, GuestVa, LockKind, LockOp, Mode};

use super::rule::Rule;

/// A broken rule and the words for it.
pub(crate) type Complaint = (Rule, String, String);

/// What one thread has begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// Something is missing from the stream, and with it perhaps beginnings.
    torn: bool,
    held: HashMap<(Sort, GuestVa), u64>,
    barrier: Option<GuestVa>,
    waiting: Option<GuestVa>,
    syscall: Option<u64>,
    /// Signal handlers being run, each with the call that it interrupted.
    handlers: Vec<Option<u64>>,
    /// A call that a handler interrupted, which may or may not return again.
    interrupted: Option<u64>,
    mode: Option<Mode>,
    clock: u64,
}

/// Handlers deeper than this are left by long jumps; the oldest are forgotten.
const DEEPEST: usize = 1024;

/// Which locks are the same lock. Unlocking a read-write lock does not say
/// which of the two it was.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Sort {
    Exclusive,
    ReadWrite,
}

impl Pairs {
    /// Something is missing from here on.
    pub fn tear(&mut self) {
        self.torn = true;
        self.syscall = None;
        self.interrupted = None;
        self.barrier = None;
        self.waiting = None;
    }

    /// The program was replaced: what it had begun is gone.
    pub fn exec(&mut self) {
        let (mode, clock, torn) = (self.mode, self.clock, self.torn);
        *self = Self { mode, clock, torn, ..Self::default() };
    }

    /// How many locks the thread holds.
    pub fn held(&self) -> u64 {
        self.held.values().sum()
    }

    /// Whether records may come now.
    pub fn recording(&self) -> bool {
        self.mode != Some(Mode::Exec)
    }

    /// A system call that has not come back although the next instruction
    /// retires. Forgets it.
    pub fn take_open_syscall(&mut self) -> Option<u64> {
        self.syscall.take()
    }

    pub fn lock(&mut self, op: LockOp, kind: LockKind, addr: GuestVa) -> Option<Complaint> {
        let sort = match kind {
            LockKind::Mutex | LockKind::Spin => Sort::Exclusive,
            LockKind::Read | LockKind::Write => Sort::ReadWrite,
            // Semaphores and bare futexes have no holder.
            _ => return None,
        };
        match op {
            LockOp::Acquire => *self.held.entry((sort, addr)).or_default() += 1,
            LockOp::Release => match self.held.get_mut(&(sort, addr)) {
                Some(1) => drop(self.held.remove(&(sort, addr))),
                Some(count) => *count -= 1,
                None if self.torn => {}
                None => {
                    let got = format!("a release of {addr}");
                    return Some((Rule::Lock, "a lock that the thread holds".into(), got));
                }
            },
            _ => {}
        }
        None
    }

    pub fn barrier(&mut self, phase: BarrierPhase, addr: GuestVa) -> Option<Complaint> {
        let was = self.barrier;
        let fits = match phase {
            BarrierPhase::Enter => {
                self.barrier = Some(addr);
                was.is_none()
            }
            BarrierPhase::Leave => {
                self.barrier = None;
                was == Some(addr) || was.is_none() && self.torn
            }
            _ => true,
        };
        (!fits).then(|| complain(Rule::Barrier, "barrier", was, format!("{phase:?} of {addr}")))
    }

    pub fn cond(&mut self, op: CondOp, addr: GuestVa) -> Option<Complaint> {
        let was = self.waiting;
        let fits = match op {
            CondOp::Wait => {
                self.waiting = Some(addr);
                was.is_none()
            }
            CondOp::Wake => {
                self.waiting = None;
                was == Some(addr) || was.is_none() && self.torn
            }
            _ => true,
        };
        (!fits).then(|| complain(Rule::Cond, "condition", was, format!("{op:?} of {addr}")))
    }

    pub fn syscall(&mut self, number: u64) -> Option<Complaint> {
        self.interrupted = None;
        let was = self.syscall.replace(number)?;
        let expected = format!("the return of system call {was}");
        Some((Rule::Syscall, expected, format!("system call {number}")))
    }

    /// `first` says that nothing but its start was told of the thread: a new
    /// thread comes out of the call that made it.
    pub fn syscall_return(&mut self, number: u64, first: Fresh) -> Option<Complaint> {
        let open = self.syscall.take().or_else(|| self.interrupted.take());
        let expected = match open {
            Some(open) if open == number => return None,
            Some(open) => format!("the return of system call {open}"),
            None if self.torn || first == Fresh::Yes => return None,
            None => "no return, as no system call is open".into(),
        };
        Some((Rule::Syscall, expected, format!("the return of system call {number}")))
    }

    pub fn signal(&mut self) {
        if self.handlers.len() == DEEPEST {
            self.handlers.remove(0);
            self.torn = true;
        }
        self.handlers.push(self.syscall.take());
    }

    pub fn signal_return(&mut self) -> Option<Complaint> {
        // The call that ends a handler does not return itself.
        self.syscall = None;
        match self.handlers.pop() {
            Some(interrupted) => self.interrupted = interrupted,
            None if self.torn => {}
            None => {
                let got = "a return from a handler".into();
                return Some((Rule::Signal, "a running signal handler".into(), got));
            }
        }
        None
    }

    pub fn mode(&mut self, mode: Mode) -> Option<Complaint> {
        let was = self.mode.replace(mode);
        self.tear();
        (was == Some(mode)).then(|| {
            let expected = "a switch to the other mode".into();
            (Rule::Mode, expected, format!("a second switch to {mode:?}"))
        })
    }

    pub fn timestamp(&mut self, ns: u64) -> Option<Complaint> {
        let was = self.clock;
        self.clock = ns;
        (ns < was).then(|| (Rule::Timestamp, format!("{was} ns or later"), format!("{ns} ns")))
    }
}

/// Whether a thread has done anything yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fresh {
    Yes,
    No,
}

fn complain(rule: Rule, noun: &str, was: Option<GuestVa>, got: String) -> Complaint {
    let expected = match was {
        Some(addr) => format!("an end of the wait at {noun} {addr}"),
        None => format!("a wait at a {noun} first"),
    };
    (rule, expected, got)
}
