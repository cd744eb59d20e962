//! What happened to a thread between two of its instructions.
//!
//! Events keep their place in the thread's stream. What each one guarantees is
//! written in `docs/EVENTS.md`. Texts and bytes are borrowed: whoever wants to
//! keep an event copies what it needs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{FileOff, GuestVa, ProcessId, ThreadId};

/// Something that happened to a thread at this point of its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The thread begins: always the first thing in its stream.
    ThreadStart(ThreadStart),
    /// The thread ends: always the last thing in its stream, unless the trace
    /// was cut short.
    ThreadEnd(EndStatus),
    /// The thread made another one (in its own or, by fork, a new process).
    ThreadCreate {
        /// The new thread.
        child: ThreadId,
    },
    /// The thread waited for the end of another one, and has it.
    ThreadJoin {
        /// The thread that ended.
        child: ThreadId,
    },
    /// The process replaced its program. All its mappings are gone; those of
    /// the new program follow.
    Exec {
        /// The new program's path.
        path: &'a str,
    },
    /// Memory appeared in the process, or changed what it is.
    Map(Map<'a>),
    /// Memory went away.
    Unmap {
        /// First address.
        start: GuestVa,
        /// Bytes.
        len: u64,
    },
    /// An operation on a lock.
    Lock {
        /// What was done.
        op: LockOp,
        /// To what sort of lock.
        kind: LockKind,
        /// Which lock: its address.
        addr: GuestVa,
    },
    /// A barrier.
    Barrier {
        /// Coming or going.
        phase: BarrierPhase,
        /// Which barrier.
        addr: GuestVa,
    },
    /// An operation on a condition variable.
    Cond {
        /// What was done.
        op: CondOp,
        /// Which one.
        addr: GuestVa,
    },
    /// The system-call instruction just recorded asked for this.
    Syscall {
        /// The call's number.
        number: u64,
        /// Its arguments, as many as the interface has registers.
        args: [u64; 6],
    },
    /// The system call came back.
    SyscallReturn {
        /// The call's number.
        number: u64,
        /// What it returned.
        result: i64,
    },
    /// A signal was delivered to a handler: the next instruction is the
    /// handler's first.
    Signal(SignalInfo),
    /// A signal handler returned: the next instruction is the interrupted one,
    /// or wherever the handler sent it.
    SignalReturn {
        /// Where execution goes on.
        pc: GuestVa,
    },
    /// The processor took a trap or an interrupt: the next instruction is the
    /// handler's first. Only whole machines have such; what their handlers return
    /// by is an instruction like any other.
    Trap(TrapInfo),
    /// The processor runs at this level from here on.
    Privilege {
        /// The level.
        level: Privilege,
    },
    /// The processor's addresses are those of this space from here on.
    AddressSpace {
        /// What tells spaces apart: on RV64 the `satp` register.
        id: u64,
    },
    /// The thread now runs on another processor.
    Migrate {
        /// The processor's number.
        cpu: u32,
    },
    /// The program, or the user, left a mark.
    Marker {
        /// A number that the mark's author chose.
        id: u64,
        /// A text that the mark's author chose.
        text: &'a str,
    },
    /// Tracing was switched on or off for this thread.
    ModeSwitch {
        /// What runs from here on.
        mode: Mode,
    },
    /// Something is missing here.
    Gap {
        /// Why.
        reason: GapReason,
        /// How many instructions are missing, if known.
        insns: Option<u64>,
        /// How many switch events (calls, loop turns) were passed, if known.
        skipped: Option<u64>,
    },
    /// The clock at this point: nanoseconds on one clock shared by all threads
    /// of the trace.
    Timestamp {
        /// The time.
        ns: u64,
    },
}

impl Event<'_> {
    /// The id of a [`Event::Marker`] which says that the trace holds one process of several: threads that its threads made, or that
    /// made them, may be elsewhere.
    pub const APART: u64 = 3;

    /// Its text and its bytes, empty where it has none.
    #[must_use]
    pub const fn texts(&self) -> (&str, &[u8]) {
        match *self {
            Self::Exec { path } => (path, &[]),
            Self::Map(Map { path, build_id, .. }) => (path, build_id),
            Self::Marker { text, .. } => (text, &[]),
            _ => ("", &[]),
        }
    }

    /// The same event with other texts: whoever keeps an event keeps those elsewhere.
    #[must_use]
    pub const fn with_texts<'b>(&self, text: &'b str, bytes: &'b [u8]) -> Event<'b> {
        match *self {
            Self::Exec { .. } => Event::Exec { path: text },
            Self::Map(map) => {
                let Map { start, len, protection, kind, offset, bias, .. } = map;
                let (path, build_id) = (text, bytes);
                Event::Map(Map { start, len, protection, kind, offset, bias, path, build_id })
            }
            Self::Marker { id, .. } => Event::Marker { id, text },
            Self::ThreadStart(start) => Event::ThreadStart(start),
            Self::ThreadEnd(status) => Event::ThreadEnd(status),
            Self::ThreadCreate { child } => Event::ThreadCreate { child },
            Self::ThreadJoin { child } => Event::ThreadJoin { child },
            Self::Unmap { start, len } => Event::Unmap { start, len },
            Self::Lock { op, kind, addr } => Event::Lock { op, kind, addr },
            Self::Barrier { phase, addr } => Event::Barrier { phase, addr },
            Self::Cond { op, addr } => Event::Cond { op, addr },
            Self::Syscall { number, args } => Event::Syscall { number, args },
            Self::SyscallReturn { number, result } => Event::SyscallReturn { number, result },
            Self::Signal(info) => Event::Signal(info),
            Self::SignalReturn { pc } => Event::SignalReturn { pc },
            Self::Trap(info) => Event::Trap(info),
            Self::Privilege { level } => Event::Privilege { level },
            Self::AddressSpace { id } => Event::AddressSpace { id },
            Self::Migrate { cpu } => Event::Migrate { cpu },
            Self::ModeSwitch { mode } => Event::ModeSwitch { mode },
            Self::Gap { reason, insns, skipped } => Event::Gap { reason, insns, skipped },
            Self::Timestamp { ns } => Event::Timestamp { ns },
        }
    }
}

/// How a thread begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadStart {
    /// The address space it runs in.
    pub process: ProcessId,
    /// The thread that made it, if that is traced.
    pub creator: Option<ThreadId>,
    /// The operating system's process number.
    pub os_pid: u32,
    /// The operating system's thread number.
    pub os_tid: u32,
}

/// How a thread ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EndStatus {
    /// It exited with this status.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
    /// It was let go before its end, or its end was not seen.
    Unknown,
}

/// A stretch of memory and what stands behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Map<'a> {
    /// First address.
    pub start: GuestVa,
    /// Bytes.
    pub len: u64,
    /// What may be done with it.
    pub protection: Protection,
    /// What sort of memory it is.
    pub kind: MapKind,
    /// Where in the file it begins; 0 without a file.
    pub offset: FileOff,
    /// For images: the difference between run-time addresses and the file's own.
    pub bias: u64,
    /// The file's path, or a name like `[stack]`; empty if there is none.
    pub path: &'a str,
    /// The image's build-id, if it has one.
    pub build_id: &'a [u8],
}

/// What may be done with memory: a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Protection(pub u8);

impl Protection {
    /// May be read.
    pub const READ: Self = Self(1);
    /// May be written.
    pub const WRITE: Self = Self(2);
    /// May be executed.
    pub const EXEC: Self = Self(4);

    /// Whether all bits of `other` are set.
    #[inline]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What sort of memory a mapping is. Unknown values survive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct MapKind(pub u8);

impl MapKind {
    /// Anonymous memory, or something without a better name.
    pub const OTHER: Self = Self(0);
    /// Part of an executable or shared library.
    pub const IMAGE: Self = Self(1);
    /// A file that is not an image.
    pub const FILE: Self = Self(2);
    /// The heap that `brk` moves.
    pub const HEAP: Self = Self(3);
    /// The first thread's stack, which grows downwards by itself. The mapping
    /// covers all that it may grow to.
    pub const STACK: Self = Self(4);
    /// The kernel's code in user space (vdso).
    pub const VDSO: Self = Self(5);

    /// The name in text and JSON output, if it has one.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::OTHER => "anonymous",
            Self::IMAGE => "image",
            Self::FILE => "file",
            Self::HEAP => "heap",
            Self::STACK => "stack",
            Self::VDSO => "vdso",
            _ => return None,
        })
    }
}

/// A lock operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockOp {
    /// The lock was made.
    Create,
    /// The thread wants the lock and may have to wait.
    Request,
    /// The thread has the lock.
    Acquire,
    /// The thread gave the lock back.
    Release,
    /// The lock is no more.
    Destroy,
}

/// A sort of lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockKind {
    /// One holder.
    Mutex,
    /// One holder, waiting by spinning.
    Spin,
    /// A read-write lock, held for reading.
    Read,
    /// A read-write lock, held for writing.
    Write,
    /// A semaphore: acquire takes one, release gives one.
    Semaphore,
    /// A bare futex word, of which nothing more is known.
    Futex,
}

/// A thread's way through a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BarrierPhase {
    /// The barrier was made.
    Create,
    /// The thread arrived and waits.
    Enter,
    /// The thread goes on.
    Leave,
    /// The barrier is no more.
    Destroy,
}

/// A condition-variable operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CondOp {
    /// The variable was made.
    Create,
    /// The thread begins to wait.
    Wait,
    /// The thread's wait is over.
    Wake,
    /// The thread wakes one waiter.
    Signal,
    /// The thread wakes all waiters.
    Broadcast,
    /// The variable is no more.
    Destroy,
}

/// A signal's delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalInfo {
    /// The signal's number.
    pub number: i32,
    /// The kernel's `si_code`: who sent it.
    pub code: i32,
    /// The instruction that would have been next, or that faulted.
    pub interrupted: GuestVa,
    /// The handler's first instruction.
    pub handler: GuestVa,
}

/// A trap's or interrupt's delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrapInfo {
    /// Why, as the instruction set numbers it. On RV64 as in `mcause`: the top bit
    /// is set for interrupts.
    pub cause: u64,
    /// What goes with it: an address, an instruction, or 0.
    pub value: u64,
    /// The instruction that would have been next, or that trapped.
    pub interrupted: GuestVa,
    /// The handler's first instruction.
    pub handler: GuestVa,
}

/// A level of privilege. Unknown values survive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Privilege(pub u8);

impl Privilege {
    /// Programs.
    pub const USER: Self = Self(0);
    /// The operating system.
    pub const SUPERVISOR: Self = Self(1);
    /// Firmware.
    pub const MACHINE: Self = Self(3);

    /// The name in text and JSON output, if it has one.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::USER => "user",
            Self::SUPERVISOR => "supervisor",
            Self::MACHINE => "machine",
            _ => return None,
        })
    }
}

/// Which copy of the code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// The uninstrumented one: nothing is recorded.
    Exec,
    /// The instrumented one: everything is recorded.
    Inst,
}

/// Why something is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GapReason {
    /// The user asked for samples.
    Sampling,
    /// The user asked for a window, and this lies outside.
    Window,
    /// Buffers were full and the user preferred loss to waiting.
    Overflow,
    /// The code was not instrumented.
    Untraced,
    /// The file was damaged and this part is lost.
    Damage,
    /// `cut` took this part out.
    Cut,
}
