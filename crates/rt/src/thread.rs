//! A stopped thread: its registers, its memory, its signals.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr;

/// The general registers, as the kernel hands them out.
pub type Regs = libc::user_regs_struct;

/// A thread of the operating system that this thread traces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Thread(pub i32);

/// How a stopped thread goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// Freely.
    Cont,
    /// Until it enters or leaves a system call.
    Syscall,
    /// One instruction.
    Step,
    /// Stays in its group stop, but tells when that ends.
    Listen,
    /// Freely and no longer traced.
    Detach,
}

/// Where a signal comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalSource {
    /// The kernel's `si_code`.
    pub code: i32,
    /// The address of a fault; meaningless for other signals.
    pub addr: u64,
}

/// All that is known of a signal.
#[derive(Clone, Copy, Debug)]
pub struct SignalInfo(libc::siginfo_t);

/// Asks the kernel for what a thread has registered for restartable sequences.
const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;

/// What a thread has registered for restartable sequences.
#[repr(C)]
#[derive(Default)]
struct RseqConfiguration {
    pointer: u64,
    size: u32,
    signature: u32,
    flags: u32,
    pad: u32,
}

/// Bytes of a set of signals.
const MASK_LEN: usize = size_of::<u64>();

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Thread {
    /// A request whose last two arguments are plain numbers.
    fn request(self, request: libc::c_uint, addr: usize, data: usize) -> io::Result<()> {
        // SAFETY: only requests that take numbers reach this function (set options
        // and the resuming ones), so the kernel touches none of our memory.
        check(unsafe { libc::ptrace(request, self.0, addr, data) })
    }

    /// A request that fills `into`.
    fn fetch<T>(self, request: libc::c_uint, into: &mut T) -> io::Result<()> {
        // SAFETY: each caller passes the type that its request writes, so the kernel
        // writes within `into`; all of them are plain data.
        check(unsafe { libc::ptrace(request, self.0, 0usize, ptr::from_mut(into)) })
    }

    /// Lets it go on, handing it `signal` if that is not 0.
    pub fn resume(self, how: Resume, signal: i32) -> io::Result<()> {
        let code = match how {
            Resume::Cont => libc::PTRACE_CONT,
            Resume::Syscall => libc::PTRACE_SYSCALL,
            Resume::Step => libc::PTRACE_SINGLESTEP,
            Resume::Listen => libc::PTRACE_LISTEN,
            Resume::Detach => libc::PTRACE_DETACH,
        };
        self.request(code, 0, usize::try_from(signal).unwrap_or(0))
    }

    pub(crate) fn seize(self, options: c_int) -> io::Result<()> {
        self.request(libc::PTRACE_SEIZE, 0, options as usize)
    }

    /// Stops it, wherever it is; [`wait`](crate::wait) tells when it has.
    pub fn interrupt(self) -> io::Result<()> {
        self.request(libc::PTRACE_INTERRUPT, 0, 0)
    }

    /// Its registers.
    pub fn regs(self) -> io::Result<Regs> {
        // SAFETY: the structure consists of integers only.
        let mut regs: Regs = unsafe { std::mem::zeroed() };
        self.fetch(libc::PTRACE_GETREGS, &mut regs)?;
        Ok(regs)
    }

    /// Sets its registers.
    pub fn set_regs(self, regs: &Regs) -> io::Result<()> {
        // SAFETY: the request reads one `user_regs_struct` from the address given.
        check(unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.0, 0usize, ptr::from_ref(regs)) })
    }

    /// The number that comes with the event at which it is stopped.
    pub fn message(self) -> io::Result<u64> {
        let mut message: libc::c_ulong = 0;
        self.fetch(libc::PTRACE_GETEVENTMSG, &mut message)?;
        Ok(message)
    }

    /// Where the signal at which it is stopped comes from.
    pub fn signal_source(self) -> io::Result<SignalSource> {
        // SAFETY: the structure consists of integers only.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        self.fetch(libc::PTRACE_GETSIGINFO, &mut info)?;
        // SAFETY: reading the field of another variant reads other integers of the same
        // structure, which are all initialised.
        let addr = unsafe { info.si_addr() } as u64;
        Ok(SignalSource { code: info.si_code, addr })
    }

    /// All that is known of the signal at which it is stopped.
    pub fn signal_info(self) -> io::Result<SignalInfo> {
        // SAFETY: the structure consists of integers only.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        self.fetch(libc::PTRACE_GETSIGINFO, &mut info)?;
        Ok(SignalInfo(info))
    }

    /// Makes the signal at which it is stopped another one's.
    pub fn set_signal_info(self, info: &SignalInfo) -> io::Result<()> {
        let info = ptr::from_ref(&info.0);
        // SAFETY: the request reads one `siginfo_t` from the address given.
        check(unsafe { libc::ptrace(libc::PTRACE_SETSIGINFO, self.0, 0usize, info) })
    }

    /// The signals that it holds back, a bit each.
    pub fn signal_mask(self) -> io::Result<u64> {
        let mut mask = 0u64;
        // SAFETY: the request writes as many bytes as it is told, those of `mask`.
        check(unsafe {
            libc::ptrace(libc::PTRACE_GETSIGMASK, self.0, MASK_LEN, ptr::from_mut(&mut mask))
        })?;
        Ok(mask)
    }

    /// Makes it hold back these signals.
    pub fn set_signal_mask(self, mask: u64) -> io::Result<()> {
        // SAFETY: the request reads as many bytes as it is told, those of `mask`.
        check(unsafe {
            libc::ptrace(libc::PTRACE_SETSIGMASK, self.0, MASK_LEN, ptr::from_ref(&mask))
        })
    }

    /// Where it has asked the kernel to keep the number of its processor, a word of four bytes; nothing if it has not, or the
    /// kernel does not tell.
    #[must_use]
    pub fn processor_word(self) -> Option<u64> {
        /// Behind the number of the processor on which a sequence began.
        const PROCESSOR: u64 = 4;
        const LEN: usize = size_of::<RseqConfiguration>();
        let mut found = RseqConfiguration::default();
        let into = ptr::from_mut(&mut found);
        // SAFETY: the request writes as many bytes as it is told, those of `found`.
        check(unsafe { libc::ptrace(GET_RSEQ_CONFIGURATION, self.0, LEN, into) }).ok()?;
        (found.pointer != 0).then(|| found.pointer.wrapping_add(PROCESSOR))
    }

    /// Reads one word of its memory while it is stopped: cheaper than [`Thread::word`].
    pub fn peek(self, addr: u64) -> io::Result<u64> {
        let mut word = 0u64;
        let (request, into) = (libc::PTRACE_PEEKDATA, ptr::from_mut(&mut word));
        // SAFETY: the kernel's own call, unlike the C library's function, writes the word to the last argument.
        check(unsafe { libc::syscall(libc::SYS_ptrace, request, self.0, addr, into) })?;
        Ok(word)
    }

    fn memory(self) -> io::Result<File> {
        let path = format!("/proc/{}/mem", self.0);
        File::options().read(true).write(true).open(path)
    }

    /// Reads all of `into` from its memory.
    pub fn read(self, addr: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory()?.read_exact_at(into, addr)
    }

    /// Writes to its memory, also where it may not write itself.
    pub fn write(self, addr: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory()?.write_all_at(bytes, addr)
    }

    /// Reads one word of its memory.
    pub fn word(self, addr: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.read(addr, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Sends it a signal.
    pub fn send(self, signal: i32) -> io::Result<()> {
        // SAFETY: the call takes two integers.
        check(unsafe { libc::syscall(libc::SYS_tkill, self.0, signal) })
    }

    /// Sends it a signal that cannot be refused.
    pub fn kill(self) {
        // SAFETY: kill takes two integers.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}
