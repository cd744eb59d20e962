//! Why a tracee stopped: the kernel's status word, taken apart.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::EndStatus;

/// What a wait reported. See `ptrace(2)` for the words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The thread is gone, with this exit status.
    Exited(i32),
    /// The thread is gone, killed by this signal.
    Killed(i32),
    /// A signal is about to be delivered. `SIGTRAP` is usually our own step.
    Signal(i32),
    /// It enters or leaves a system call.
    Syscall,
    /// It made another thread or process.
    Cloned(Cloning),
    /// The child of its vfork let it go.
    VforkDone,
    /// It executed a new program.
    Exec,
    /// It is about to end.
    Exiting,
    /// Its process is stopped by this signal.
    Group(i32),
    /// It was made, interrupted, or its group stop ended.
    Trap,
}

/// How a new thread was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cloning {
    /// By clone with some other exit signal: usually a thread.
    Clone,
    /// By fork.
    Fork,
    /// By vfork: the maker sleeps until the child's exec or end.
    Vfork,
}

impl Stop {
    /// Takes a wait status apart.
    #[inline]
    pub(crate) fn from_status(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            return Self::Exited(libc::WEXITSTATUS(status));
        }
        if libc::WIFSIGNALED(status) {
            return Self::Killed(libc::WTERMSIG(status));
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 if signal == libc::SIGTRAP | 0x80 => Self::Syscall,
            0 => Self::Signal(signal),
            libc::PTRACE_EVENT_CLONE => Self::Cloned(Cloning::Clone),
            libc::PTRACE_EVENT_FORK => Self::Cloned(Cloning::Fork),
            libc::PTRACE_EVENT_VFORK => Self::Cloned(Cloning::Vfork),
            libc::PTRACE_EVENT_VFORK_DONE => Self::VforkDone,
            libc::PTRACE_EVENT_EXEC => Self::Exec,
            libc::PTRACE_EVENT_EXIT => Self::Exiting,
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => Self::Group(signal),
            _ => Self::Trap,
        }
    }
}

/// The end that a status word, as of an exit event, tells of.
pub(crate) fn end_of_status(status: i32) -> EndStatus {
    if libc::WIFSIGNALED(status) {
        EndStatus::Killed(libc::WTERMSIG(status))
    } else {
        EndStatus::Exited(libc::WEXITSTATUS(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_taken_apart() {
        let stopped = |signal: i32, event: i32| Stop::from_status(event << 16 | signal << 8 | 0x7f);
        assert_eq!(stopped(libc::SIGTRAP, 0), Stop::Signal(libc::SIGTRAP));
        assert_eq!(stopped(libc::SIGTRAP | 0x80, 0), Stop::Syscall);
        assert_eq!(stopped(libc::SIGTRAP, libc::PTRACE_EVENT_EXEC), Stop::Exec);
        assert_eq!(stopped(libc::SIGTSTP, libc::PTRACE_EVENT_STOP), Stop::Group(libc::SIGTSTP));
        assert_eq!(stopped(libc::SIGTRAP, libc::PTRACE_EVENT_STOP), Stop::Trap);
        assert_eq!(Stop::from_status(3 << 8), Stop::Exited(3));
        assert_eq!(Stop::from_status(9), Stop::Killed(9));
        assert_eq!(end_of_status(11 | 0x80), EndStatus::Killed(11));
    }
}
