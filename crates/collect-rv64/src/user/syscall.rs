//! System calls by number, and what time does to threads that wait.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod files;
mod folders;
mod info;
mod mapping;
mod processes;
mod signals;
mod threads;
mod transfer;
mod waiting;

use ichnos_base::EndStatus;
use rustix::io::Errno;

use crate::user::kernel::Kernel;
use crate::user::process::{Process, Wait};
use crate::user::space::View;
pub(crate) use waiting::{expire, idle};

/// What a system call comes to.
#[derive(Debug)]
pub(crate) enum Answer {
    /// This result.
    Value(u64),
    /// This error.
    Error(Errno),
    /// The registers are as they should be already.
    Set,
    /// The call must be made again when the wait is over.
    Wait(Wait),
    /// The thread waits; whoever ends the wait sets the result.
    WaitThen(Wait),
    /// The thread ends.
    ExitThread(EndStatus),
    /// The whole process ends.
    ExitProcess(EndStatus),
}

impl From<Result<u64, Errno>> for Answer {
    fn from(result: Result<u64, Errno>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(errno) => Self::Error(errno),
        }
    }
}

impl From<Result<Answer, Errno>> for Answer {
    fn from(result: Result<Answer, Errno>) -> Self {
        result.unwrap_or_else(Self::Error)
    }
}

/// A call being carried out.
pub(crate) struct Call<'a> {
    kernel: &'a mut Kernel,
    thread: usize,
    args: [u64; 6],
}

impl Call<'_> {
    fn view(&mut self) -> View<'_> {
        self.kernel.view(self.thread)
    }

    fn process(&mut self) -> &mut Process {
        self.kernel.process(self.thread)
    }
}

/// Carries out a system call. A flat table: numbers of the generic Linux ABI.
pub(crate) fn perform(kernel: &mut Kernel, thread: usize, number: u64) -> Answer {
    let cpu = &kernel.threads[thread].cpu;
    let args = std::array::from_fn(|n| cpu.x(10 + n as u8));
    let mut call = Call { kernel, thread, args };
    let c = &mut call;
    match number {
        17 => c.getcwd().into(),
        23 => c.dup().into(),
        24 => c.dup3().into(),
        25 => c.fcntl().into(),
        29 => c.ioctl().into(),
        34 => c.mkdirat().into(),
        35 => c.unlinkat().into(),
        36 => c.symlinkat().into(),
        37 => c.linkat().into(),
        43 => c.statfs().into(),
        44 => c.fstatfs().into(),
        46 => c.ftruncate().into(),
        48 | 439 => c.faccessat().into(),
        49 => c.chdir().into(),
        50 => c.fchdir().into(),
        52 => c.fchmod().into(),
        53 => c.fchmodat().into(),
        54 => c.fchownat().into(),
        55 => c.fchown().into(),
        56 => c.openat().into(),
        57 => c.close().into(),
        59 => c.pipe2().into(),
        61 => c.getdents64().into(),
        62 => c.lseek().into(),
        63 => c.read().into(),
        64 => c.write().into(),
        65 => c.readv().into(),
        66 => c.writev().into(),
        67 => c.pread64().into(),
        68 => c.pwrite64().into(),
        71 => c.sendfile().into(),
        72 => c.pselect6().into(),
        73 => c.ppoll().into(),
        78 => c.readlinkat().into(),
        79 => c.newfstatat().into(),
        80 => c.fstat().into(),
        81..=83 => c.sync().into(),
        88 => c.utimensat().into(),
        93 => c.exit(),
        94 => c.exit_group(),
        96 => c.set_tid_address().into(),
        98 => c.futex().into(),
        // Robust lists matter only when a thread dies with a lock held.
        99 => Answer::Value(0),
        101 => c.nanosleep().into(),
        113 => c.clock_gettime().into(),
        114 => c.clock_getres().into(),
        115 => c.clock_nanosleep().into(),
        122 => Answer::Value(0),
        123 => c.sched_getaffinity().into(),
        124 => Answer::Value(0),
        129 => c.kill().into(),
        130 => c.tkill().into(),
        131 => c.tgkill().into(),
        132 => c.sigaltstack().into(),
        133 => c.rt_sigsuspend().into(),
        134 => c.rt_sigaction().into(),
        135 => c.rt_sigprocmask().into(),
        139 => c.rt_sigreturn().into(),
        153 => c.times().into(),
        154..=157 => c.groups(number).into(),
        160 => c.uname().into(),
        163 | 261 => c.rlimit(number).into(),
        165 => c.getrusage().into(),
        166 => c.umask().into(),
        167 => c.prctl().into(),
        169 => c.gettimeofday().into(),
        172 => Answer::Value(c.process().pid.into()),
        173 => Answer::Value(c.process().parent.into()),
        174..=177 => c.user_ids(number).into(),
        178 => Answer::Value(c.kernel.threads[thread].tid.into()),
        179 => c.sysinfo().into(),
        214 => Answer::Value(c.brk()),
        215 => c.munmap().into(),
        216 => c.mremap().into(),
        220 => c.clone_().into(),
        221 => c.execve().into(),
        222 => c.mmap().into(),
        223 => Answer::Value(0),
        226 => c.mprotect().into(),
        227 => c.msync().into(),
        233 => c.madvise().into(),
        // Decoded code is never stale.
        259 => Answer::Value(0),
        260 => c.wait4().into(),
        276 => c.renameat2().into(),
        278 => c.getrandom().into(),
        291 => c.statx().into(),
        435 => c.clone3().into(),
        _ => Answer::Error(Errno::NOSYS),
    }
}
