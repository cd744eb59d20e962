//! The system calls that std does not wrap: ptrace, wait, another process's
//! memory, and the fork that starts a tracee. All `unsafe` of the crate is here.
//!
//! Every function is safe to call with any argument: a wrong thread number or
//! address is the kernel's to refuse, and comes back as an error. The kernel
//! writes only into buffers whose length travels with them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// The general registers as the kernel hands them out.
pub(crate) type UserRegs = libc::user_regs_struct;

/// A thread number of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Tid(pub(crate) i32);

/// How a stopped tracee goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resume {
    /// One instruction.
    Step,
    /// Until it enters or leaves a system call.
    Syscall,
    /// Freely.
    Cont,
    /// Stays in its group stop, but tells when that ends.
    Listen,
    /// Freely and no longer traced.
    Detach,
}

/// Whether to sleep until there is something to report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Ask once.
    Ask,
    /// Sleep.
    Sleep,
}

const OPTIONS: c_int = libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEVFORKDONE;

/// The kernel's signal sets are 64 bits wide, whatever libc's are.
const KERNEL_SIGSET_BYTES: usize = 8;

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A ptrace request whose last two arguments are plain numbers.
fn request(request: libc::c_uint, tid: Tid, addr: usize, data: usize) -> io::Result<()> {
    // SAFETY: only requests that take numbers reach this function (seize,
    // interrupt and the resuming ones), so the kernel touches none of our
    // memory.
    check(unsafe { libc::ptrace(request, tid.0, addr, data) })
}

/// A ptrace request that fills `into`.
fn fetch<T>(request: libc::c_uint, tid: Tid, addr: usize, into: &mut T) -> io::Result<()> {
    // SAFETY: each caller passes the type that its request writes, so the
    // kernel writes within `into`, which outlives the call; all of them are
    // plain data for which every bit pattern is valid.
    check(unsafe { libc::ptrace(request, tid.0, addr, ptr::from_mut(into)) })
}

/// Becomes the tracer of a running process, with all options of this crate.
pub(crate) fn seize(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, OPTIONS as usize)
}

/// Asks a running tracee to stop.
pub(crate) fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets a stopped tracee go on, handing it `signal` if that is not 0.
#[inline]
pub(crate) fn resume(tid: Tid, how: Resume, signal: i32) -> io::Result<()> {
    let code = match how {
        Resume::Step => libc::PTRACE_SINGLESTEP,
        Resume::Syscall => libc::PTRACE_SYSCALL,
        Resume::Cont => libc::PTRACE_CONT,
        Resume::Listen => libc::PTRACE_LISTEN,
        Resume::Detach => libc::PTRACE_DETACH,
    };
    request(code, tid, 0, usize::try_from(signal).unwrap_or(0))
}

/// Reads the general registers of a stopped tracee.
#[inline]
pub(crate) fn get_regs(tid: Tid, into: &mut UserRegs) -> io::Result<()> {
    fetch(libc::PTRACE_GETREGS, tid, 0, into)
}

/// A set of registers that are all zero.
pub(crate) fn zero_regs() -> UserRegs {
    // SAFETY: the structure consists of integers only.
    unsafe { mem::zeroed() }
}

/// Writes the general registers of a stopped tracee.
pub(crate) fn set_regs(tid: Tid, regs: &UserRegs) -> io::Result<()> {
    // SAFETY: the request reads one `user_regs_struct` from the address given.
    check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid.0, 0usize, ptr::from_ref(regs)) })
}

/// The message of the event at which a tracee is stopped.
pub(crate) fn event_message(tid: Tid) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    fetch(libc::PTRACE_GETEVENTMSG, tid, 0, &mut message)?;
    Ok(message)
}

/// All about the signal at which a tracee is stopped.
pub(crate) fn get_siginfo(tid: Tid) -> io::Result<libc::siginfo_t> {
    // SAFETY: the structure consists of integers only.
    let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
    fetch(libc::PTRACE_GETSIGINFO, tid, 0, &mut info)?;
    Ok(info)
}

/// Changes what is said about the signal at which a tracee is stopped.
pub(crate) fn set_siginfo(tid: Tid, info: &libc::siginfo_t) -> io::Result<()> {
    // SAFETY: the request reads one `siginfo_t` from the address given.
    check(unsafe { libc::ptrace(libc::PTRACE_SETSIGINFO, tid.0, 0usize, ptr::from_ref(info)) })
}

/// The `si_code` of the signal at which a tracee is stopped.
pub(crate) fn signal_code(tid: Tid) -> io::Result<i32> {
    get_siginfo(tid).map(|info| info.si_code)
}

/// The signals that a stopped tracee blocks, bit `n - 1` for signal `n`.
pub(crate) fn get_mask(tid: Tid) -> io::Result<u64> {
    let mut mask = 0u64;
    fetch(libc::PTRACE_GETSIGMASK, tid, KERNEL_SIGSET_BYTES, &mut mask)?;
    Ok(mask)
}

/// Sets the signals that a stopped tracee blocks.
pub(crate) fn set_mask(tid: Tid, mask: u64) -> io::Result<()> {
    let mut mask = mask;
    fetch(libc::PTRACE_SETSIGMASK, tid, KERNEL_SIGSET_BYTES, &mut mask)
}

/// Reads the extended state (xsave area) of a stopped tracee; answers how many
/// bytes of `into` were filled.
pub(crate) fn get_xstate(tid: Tid, into: &mut [u8]) -> io::Result<usize> {
    const NT_X86_XSTATE: usize = 0x202;
    let mut vec = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    fetch(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &mut vec)?;
    Ok(vec.iov_len)
}

/// Asks after, or waits for, the next change of state of one tracee. `None`:
/// nothing has changed yet.
#[inline]
pub(crate) fn wait(tid: Tid, patience: Patience) -> io::Result<Option<i32>> {
    let flags = libc::__WALL | if patience == Patience::Ask { libc::WNOHANG } else { 0 };
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live integer.
        match unsafe { libc::waitpid(tid.0, &raw mut status, flags) } {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(Some(status)),
        }
    }
}

/// Sends a signal to a process.
pub(crate) fn kill(pid: Tid, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes two integers.
    check(unsafe { libc::kill(pid.0, signal) }.into())
}

/// Reads from a process's memory; answers how many bytes could be read.
#[inline]
pub(crate) fn read_memory(tid: Tid, addr: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: addr as *mut c_void, iov_len: into.len() };
    // SAFETY: `local` describes `into`, which is exclusively borrowed; `remote`
    // names the other process's memory, which the kernel checks.
    let got =
        unsafe { libc::process_vm_readv(tid.0, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(got).unwrap_or(0)
}

/// Reads one word of a stopped tracee, even where it may not read itself.
pub(crate) fn peek(tid: Tid, addr: u64) -> Option<u64> {
    let mut word: libc::c_long = 0;
    // SAFETY: the kernel's own form of the request (not libc's wrapper, which
    // rearranges the arguments) writes one word to the address given last.
    let result = unsafe {
        libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKDATA, tid.0, addr, &raw mut word)
    };
    (result == 0).then_some(word as u64)
}

/// Writes one word of a stopped tracee.
pub(crate) fn poke(tid: Tid, addr: u64, word: u64) -> io::Result<()> {
    // SAFETY: the request takes its word by value.
    check(unsafe { libc::ptrace(libc::PTRACE_POKEDATA, tid.0, addr, word) })
}

/// How large a process's stack may grow, if that is limited.
pub(crate) fn stack_limit(pid: Tid) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing is set, and `limit` is a live structure to be filled.
    let result = unsafe { libc::prlimit(pid.0, libc::RLIMIT_STACK, ptr::null(), &raw mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Nanoseconds on the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live structure to be filled.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Host name, kernel release and machine.
pub(crate) fn uname() -> Option<[String; 3]> {
    let mut name = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: the kernel fills the structure, which consists of characters.
    let name = unsafe {
        if libc::uname(name.as_mut_ptr()) != 0 {
            return None;
        }
        name.assume_init()
    };
    let text = |chars: &[c_char]| {
        chars.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8)).collect()
    };
    Some([text(&name.nodename), text(&name.release), text(&name.machine)])
}

/// Whether this process could execute the file, by the real kernel's rules.
pub(crate) fn may_execute(path: &CStr) -> bool {
    // SAFETY: `path` ends with a zero byte.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// What to run, ready for a child that may not allocate.
pub(crate) struct Launch {
    /// The file to execute.
    pub(crate) path: CString,
    /// All arguments, the program's name first.
    pub(crate) args: Vec<CString>,
    /// The environment, as `NAME=value`.
    pub(crate) env: Vec<CString>,
    /// Where to run, if elsewhere.
    pub(crate) folder: Option<CString>,
    /// What to add to the child's personality.
    pub(crate) personality: c_int,
}

/// A child that waits before its exec until it is let go.
pub(crate) struct Child {
    /// Its process number.
    pub(crate) pid: Tid,
    gate: File,
    report: File,
}

impl Child {
    /// Lets the child go on to its exec.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        self.gate.write_all(&[1])
    }

    /// After the child's end: why its exec failed.
    pub(crate) fn failure(&mut self) -> Option<io::Error> {
        let mut errno = [0; 4];
        self.report.read_exact(&mut errno).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [0; 2];
    // SAFETY: `ends` has room for the two numbers.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
    // SAFETY: the kernel just made both descriptors and nobody else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Forks a child that will execute `launch` once it is [released](Child::release).
pub(crate) fn fork(launch: &Launch) -> io::Result<Child> {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (args, env) = (pointers(&launch.args), pointers(&launch.env));
    let (gate_read, gate_write) = pipe()?;
    let (report_read, report_write) = pipe()?;
    // SAFETY: the child calls only async-signal-safe functions (see
    // `child_main`) and never returns into this process's code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => child_main(launch, &args, &env, [gate_read.as_raw_fd(), report_write.as_raw_fd()]),
        pid => Ok(Child { pid: Tid(pid), gate: gate_write.into(), report: report_read.into() }),
    }
}

/// What the forked child does: no allocation, no locks, system calls only.
fn child_main(
    launch: &Launch,
    args: &[*const c_char],
    env: &[*const c_char],
    [gate, report]: [RawFd; 2],
) -> ! {
    // SAFETY: all pointers come from strings and tables that live in the copy
    // of the parent's memory, and end with a zero byte or a null pointer. All
    // functions called are async-signal-safe.
    unsafe {
        let mut byte = 0u8;
        if libc::read(gate, ptr::from_mut(&mut byte).cast(), 1) != 1 {
            libc::_exit(127);
        }
        // As std does for its children: Rust programs ignore SIGPIPE, others
        // expect the default, and nobody expects a strange mask.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        if launch.personality != 0 {
            let now = libc::personality(0xffff_ffff);
            libc::personality((now | launch.personality) as libc::c_ulong);
        }
        let moved = launch.folder.as_ref().is_none_or(|f| libc::chdir(f.as_ptr()) == 0);
        if moved {
            libc::execve(launch.path.as_ptr(), args.as_ptr(), env.as_ptr());
        }
        let errno = (*libc::__errno_location()).to_ne_bytes();
        libc::write(report, errno.as_ptr().cast(), errno.len());
        libc::_exit(127)
    }
}
