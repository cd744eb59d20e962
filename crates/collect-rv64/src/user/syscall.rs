//! System calls by number, and what time does to threads that wait.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod address;
mod attributes;
mod control;
mod files;
mod folders;
mod info;
mod mapping;
mod posix_timers;
mod process_files;
mod processes;
mod readiness;
mod signal_files;
mod signals;
mod sockets;
mod threads;
mod timers;
mod transfer;
mod waiting;

use ichnos_base::EndStatus;
use rustix::io::Errno;

use crate::user::kernel::Kernel;
use crate::user::process::{Process, Wait};
use crate::user::space::View;
pub(crate) use posix_timers::PosixTimer;
pub(crate) use process_files::ProcessFile;
pub(crate) use signal_files::SignalFile;
use sockets::Peer;
pub(crate) use timers::Timer;
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

/// Whether a call that a signal interrupted is made again if the handler's
/// action asks for it. Those that wait for a time or under a mask are not.
pub(crate) const fn may_restart(number: u64) -> bool {
    !matches!(number, 22 | 72 | 73 | 133 | 137)
}

/// Carries out a system call. A flat table: numbers of the generic Linux ABI.
pub(crate) fn perform(kernel: &mut Kernel, thread: usize, number: u64) -> Answer {
    let cpu = &kernel.threads[thread].cpu;
    let args = std::array::from_fn(|n| cpu.x(10 + n as u8));
    if !kernel.timers.is_empty() {
        timers::tick(kernel);
    }
    if !kernel.signal_files.is_empty() {
        signal_files::tick(kernel);
    }
    if !kernel.process_files.is_empty() {
        process_files::tick(kernel);
    }
    let mut call = Call { kernel, thread, args };
    let c = &mut call;
    match number {
        8..=10 => c.attribute(number).into(),
        11..=13 => c.attributes(number).into(),
        17 => c.getcwd().into(),
        19 => c.eventfd2().into(),
        20 => c.epoll_create1().into(),
        21 => c.epoll_ctl().into(),
        22 => c.epoll_pwait().into(),
        23 => c.dup().into(),
        24 => c.dup3().into(),
        25 => c.fcntl().into(),
        29 => c.ioctl().into(),
        // Nobody competes with a simulation for a file.
        32 => Answer::Value(0),
        34 => c.mkdirat().into(),
        35 => c.unlinkat().into(),
        36 => c.symlinkat().into(),
        37 => c.linkat().into(),
        43 => c.statfs().into(),
        44 => c.fstatfs().into(),
        45 => c.truncate().into(),
        46 => c.ftruncate().into(),
        47 => c.fallocate().into(),
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
        69 => c.preadv().into(),
        70 => c.pwritev().into(),
        71 => c.sendfile().into(),
        72 => c.pselect6().into(),
        73 => c.ppoll().into(),
        74 => c.signalfd4().into(),
        76 => c.splice().into(),
        77 => c.tee().into(),
        78 => c.readlinkat().into(),
        79 => c.newfstatat().into(),
        80 => c.fstat().into(),
        81..=83 => c.sync().into(),
        85 => c.timerfd_create().into(),
        86 => c.timerfd_settime().into(),
        87 => c.timerfd_gettime().into(),
        88 => c.utimensat().into(),
        92 => Answer::Value(0),
        93 => c.exit(),
        94 => c.exit_group(),
        95 => c.waitid().into(),
        96 => c.set_tid_address().into(),
        98 => c.futex().into(),
        // Robust lists matter only when a thread dies with a lock held.
        99 => Answer::Value(0),
        102 => c.getitimer().into(),
        103 => c.setitimer().into(),
        101 => c.nanosleep().into(),
        107 => c.timer_create().into(),
        108 => c.timer_gettime().into(),
        109 => c.timer_getoverrun().into(),
        110 => c.timer_settime().into(),
        111 => c.timer_delete().into(),
        113 => c.clock_gettime().into(),
        114 => c.clock_getres().into(),
        115 => c.clock_nanosleep().into(),
        // One policy, one priority, one processor.
        118..=120 | 122 | 140 => Answer::Value(0),
        125 | 126 => c.priority_limit(number).into(),
        121 => c.sched_getparam().into(),
        141 => Answer::Value(20),
        123 => c.sched_getaffinity().into(),
        124 => Answer::Value(0),
        129 => c.kill().into(),
        130 => c.tkill().into(),
        131 => c.tgkill().into(),
        132 => c.sigaltstack().into(),
        133 => c.rt_sigsuspend().into(),
        134 => c.rt_sigaction().into(),
        135 => c.rt_sigprocmask().into(),
        136 => c.rt_sigpending().into(),
        137 => c.rt_sigtimedwait().into(),
        138 => c.rt_sigqueueinfo().into(),
        139 => c.rt_sigreturn().into(),
        153 => c.times().into(),
        // Who programs are cannot be changed; that they may is what they hear.
        143..=147 | 149 | 151 | 152 | 159 => Answer::Value(0),
        148 | 150 => c.three_ids(number).into(),
        154..=157 => c.groups(number).into(),
        158 => Answer::Value(0),
        160 => c.uname().into(),
        163 | 261 => c.rlimit(number).into(),
        164 => Answer::Value(0),
        165 => c.getrusage().into(),
        166 => c.umask().into(),
        167 => c.prctl().into(),
        168 => c.getcpu().into(),
        169 => c.gettimeofday().into(),
        172 => Answer::Value(c.process().pid.into()),
        173 => Answer::Value(c.process().parent.into()),
        174..=177 => c.user_ids(number).into(),
        178 => Answer::Value(c.kernel.threads[thread].tid.into()),
        179 => c.sysinfo().into(),
        198 => c.socket().into(),
        199 => c.socketpair().into(),
        200 => c.bind().into(),
        201 => c.listen().into(),
        202 => c.accept(0).into(),
        203 => c.connect().into(),
        204 => c.socket_name(Peer::Own).into(),
        205 => c.socket_name(Peer::Other).into(),
        206 => c.sendto().into(),
        207 => c.recvfrom().into(),
        208 => c.setsockopt().into(),
        209 => c.getsockopt().into(),
        210 => c.shutdown().into(),
        211 => c.sendmsg().into(),
        212 => c.recvmsg().into(),
        214 => Answer::Value(c.brk()),
        215 => c.munmap().into(),
        216 => c.mremap().into(),
        220 => c.clone_().into(),
        221 => c.execve().into(),
        222 => c.mmap().into(),
        223 => Answer::Value(0),
        226 => c.mprotect().into(),
        227 => c.msync().into(),
        // All memory is resident.
        228..=231 => Answer::Value(0),
        232 => c.mincore().into(),
        233 => c.madvise().into(),
        242 => c.accept(args[3]).into(),
        240 => c.rt_tgsigqueueinfo().into(),
        // Decoded code is never stale.
        259 => Answer::Value(0),
        260 => c.wait4().into(),
        276 => c.renameat2().into(),
        278 => c.getrandom().into(),
        279 => c.memfd_create().into(),
        283 => c.membarrier().into(),
        285 => c.copy_file_range().into(),
        291 => c.statx().into(),
        424 => c.pidfd_send_signal().into(),
        434 => c.pidfd_open().into(),
        435 => c.clone3().into(),
        436 => c.close_range().into(),
        _ => Answer::Error(Errno::NOSYS),
    }
}
