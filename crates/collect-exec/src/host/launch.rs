//! Starts a program under the engine and waits for its end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ichnos_base::{EndStatus, Sieve};
use ichnos_tap::{Layout, MOST_BUFFERS};

use super::channel::Channel;
use super::choice::Choice;
use super::family::Family;
use super::follow::Follower;
use super::inject::{How, Order, inject};
use super::remote::wait_stop;
use crate::boot::Paths;
use crate::sieve::{COUNTERS_LEN, FIRST_PIECE, MOST_THREADS};
use crate::{Error, engine};

/// Buffers of the tap: one for each thread that runs; threads that sleep give theirs back when there
/// are few.
const BUFFERS: usize = MOST_BUFFERS;
/// Bytes of each: large enough to make a switch cheap, small enough to stay in a cache level.
const BUFFER_LEN: u64 = 256 << 10;
/// The same where paths are made of all that comes a few times: they are looked for when a buffer is full.
const SMALL_BUFFER_LEN: u64 = 16 << 10;
/// Milliseconds after which one who waits for a program looks which processes of its tree have ended.
const BETWEEN_LOOKS: i32 = 100;

/// Whether the kernel chooses a program's addresses at random.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Randomize {
    /// No: two runs have the same addresses.
    #[default]
    Off,
    /// As the system is set up.
    System,
}

/// Whether a program sees the vdso.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Vdso {
    /// As the kernel has it.
    #[default]
    Shown,
    /// Its pages stay, but the program is not told of them: it asks the kernel instead.
    Hidden,
}

/// What becomes of a program with which the engine cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fallback {
    /// It ends with a message; what was recorded is kept.
    #[default]
    Stop,
    /// It goes on without the engine, untraced.
    Untraced,
}

/// What is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Record {
    /// Nothing: the program runs from the code cache, that is all.
    #[default]
    Nothing,
    /// Every instruction and reference. Somebody must call [`Tracee::collect`], or the
    /// program will wait for ever once the tap is full.
    All,
    /// What such a sieve does not keep back, for a sink that asked for one ([`ichnos_base::Sink::sieve`]), and how
    /// much that is.
    Sifted(Sieve),
}

/// What to run, and how.
#[derive(Debug)]
pub struct Launch {
    program: OsString,
    command: Command,
    randomize: Randomize,
    how: How,
}

/// A program that runs under the engine.
#[derive(Debug)]
pub struct Tracee {
    child: Child,
    // Ended before the channel on which it listens.
    _follower: Follower,
    channel: Arc<Channel>,
    choice: Option<Choice>,
    sieve: Option<Sieve>,
}

impl Launch {
    /// The program `program`, looked up in `PATH` as a shell would.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_owned();
        let command = Command::new(&program);
        Self { program, command, randomize: Randomize::Off, how: How::default() }
    }

    /// Arguments, environment, streams and working directory are set as for any command.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Whether addresses are random.
    pub fn randomize(&mut self, randomize: Randomize) -> &mut Self {
        self.randomize = randomize;
        self
    }

    /// Which paths become one piece of code.
    pub fn paths(&mut self, paths: Paths) -> &mut Self {
        self.how.paths = paths;
        self
    }

    /// Diagnostics of the engine, as bits (1: statistics at exit).
    pub fn debug(&mut self, bits: u64) -> &mut Self {
        self.how.debug = bits;
        self
    }

    /// Records not everything but this.
    pub fn choose(&mut self, choice: Choice) -> &mut Self {
        self.how.choice = Some(choice);
        self
    }

    /// Whether the program sees the vdso.
    pub fn vdso(&mut self, vdso: Vdso) -> &mut Self {
        self.how.vdso = vdso;
        self
    }

    /// What becomes of a program with which the engine cannot go on.
    pub fn fallback(&mut self, fallback: Fallback) -> &mut Self {
        self.how.fallback = fallback;
        self
    }

    /// How many bytes of translated code each process may have (in each of its two places); when they are used
    /// up, all is translated anew as it is needed. What is below 128 KiB counts as that.
    pub fn cache_limit(&mut self, bytes: u64) -> &mut Self {
        self.how.limit_cache(bytes);
        self
    }

    /// Whether what the program does is recorded, for [`Tracee::collect`].
    pub fn record(&mut self, record: Record) -> &mut Self {
        self.how.traced = record != Record::Nothing;
        self.how.sieve = match record {
            Record::Sifted(sieve) => Some(sieve).filter(engine::fits),
            Record::Nothing | Record::All => None,
        };
        self
    }

    /// Starts the program.
    ///
    /// The calling thread is the program's tracer until this returns.
    ///
    /// # Errors
    ///
    /// If the program cannot be started or the engine cannot be put into it; the
    /// process is then gone.
    pub fn spawn(mut self) -> Result<Tracee, Error> {
        engine::keep();
        let randomize = self.randomize;
        // SAFETY: the closure makes two system calls and touches no memory that another
        // thread could hold.
        unsafe { self.command.pre_exec(move || prepare(randomize)) };
        let name = || self.program.to_string_lossy().into_owned();
        let mut child =
            self.command.spawn().map_err(|source| Error::Start { program: name(), source })?;
        let pid = child.id() as i32;
        let how = self.how;
        match open_channel(how).and_then(|c| take_over(pid, &c.0, how).map(|()| c)) {
            Ok((channel, follower)) => {
                let (choice, sieve) = (how.choice, how.sieve);
                Ok(Tracee { child, _follower: follower, channel, choice, sieve })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }
}

impl Tracee {
    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process as the standard library knows it, for its streams.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The channel to the engines.
    pub(super) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&self.channel)
    }

    /// What is recorded, if not all.
    pub(super) fn choice(&self) -> Option<Choice> {
        self.choice
    }

    /// What is kept back.
    pub(super) fn sieve(&self) -> Option<Sieve> {
        self.sieve
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        await_end(self.child.id() as i32, 0).unwrap_or(true)
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(input) = self.child.stdin.take() {
            drop(input);
        }
        // An ordinary wait would also take the stops that belong to the follower. The places of processes that have ended
        // are needed for others.
        let mut family = Family::default();
        while !await_end(self.child.id() as i32, BETWEEN_LOOKS)? {
            family.look(&self.channel);
        }
        self.child.wait()
    }

    /// Waits for its end and collects what it wrote to piped streams.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let reader = std::thread::spawn(move || drain(err));
        let stdout = drain(out)?;
        let stderr = reader.join().map_err(|_| io::Error::other("a reader failed"))??;
        Ok(Output { status: self.wait()?, stdout, stderr })
    }
}

fn drain(stream: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Waits until a child has ended, for some milliseconds, without taking its status; whether it has.
fn await_end(pid: i32, time: i32) -> io::Result<bool> {
    // SAFETY: the call takes no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: the structure lives across the call.
        match unsafe { libc::poll(&raw mut poll, 1, time) } {
            0 => return Ok(false),
            1.. => return Ok(true),
            _ => {}
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn prepare(randomize: Randomize) -> io::Result<()> {
    if randomize == Randomize::Off {
        // SAFETY: the call takes no pointer.
        let old = unsafe { libc::personality(0xffff_ffff) };
        let wanted = old as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
        // SAFETY: as above.
        if unsafe { libc::personality(wanted) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the request passes no memory.
    if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn open_channel(how: How) -> Result<(Arc<Channel>, Follower), Error> {
    let failed = |source| Error::Channel { source };
    let layout = match (how.traced, how.paths) {
        (false, _) => Layout::new(1, 4096),
        (true, Paths::Eager) => Layout::new(BUFFERS, SMALL_BUFFER_LEN),
        (true, _) => Layout::new(BUFFERS, BUFFER_LEN),
    };
    let counters = how.sieve.map_or(0, |_| u64::from(MOST_THREADS) * COUNTERS_LEN);
    let channel = Arc::new(Channel::new(layout, counters).map_err(failed)?);
    // The first process and its first thread are number 0.
    channel.header().threads.store(1, Ordering::Relaxed);
    channel.header().processes.store(1, Ordering::Relaxed);
    if how.sieve.is_some() {
        channel.header().blocks.store(FIRST_PIECE, Ordering::Relaxed);
    }
    if how.choice.is_some_and(|choice| choice.begins_paused()) {
        channel.header().pause();
    }
    channel.header().switchable.store(u32::from(how.choice.is_some()), Ordering::Relaxed);
    let follower = Follower::start(Arc::clone(&channel), how).map_err(failed)?;
    Ok((channel, follower))
}

fn take_over(pid: i32, channel: &Channel, how: How) -> Result<(), Error> {
    // The only stop that can come is the one that ends `exec`.
    wait_stop(pid)?;
    if !is_x86_64(pid) {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        return Err(Error::NotX86_64 { program: exe.to_string_lossy().into_owned() });
    }
    if let Some(life) = channel.header().claim_life(std::process::id(), 0) {
        life.begin(pid as u32);
    }
    let (tap, tap_len) = (channel.fd(), channel.len());
    inject(pid, &Order { tap, tap_len, ids: [0, 0], follows: false, how })
}

/// How a process ended that was waited for.
pub fn end_of(status: ExitStatus) -> EndStatus {
    match (status.code(), status.signal()) {
        (Some(code), _) => EndStatus::Exited(code),
        (None, Some(signal)) => EndStatus::Killed(signal),
        (None, None) => EndStatus::Unknown,
    }
}

/// Whether a process runs a 64-bit x86 program; yes if that cannot be found out.
pub fn is_x86_64(pid: i32) -> bool {
    let mut head = [0; 20];
    let readable = std::fs::File::open(format!("/proc/{pid}/exe"))
        .and_then(|f| std::os::unix::fs::FileExt::read_exact_at(&f, &mut head, 0));
    readable.is_err() || (head[4] == 2 && head[18] == 62)
}
