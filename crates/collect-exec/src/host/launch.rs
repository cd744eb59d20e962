//! Starts a program under the engine and waits for its end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use super::inject::inject;
use super::remote::wait_stop;
use crate::{Error, engine};

/// Whether the kernel chooses a program's addresses at random.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Randomize {
    /// No: two runs have the same addresses.
    #[default]
    Off,
    /// As the system is set up.
    System,
}

/// What to run, and how.
#[derive(Debug)]
pub struct Launch {
    program: OsString,
    command: Command,
    randomize: Randomize,
    debug: u64,
}

/// A program that runs under the engine.
#[derive(Debug)]
pub struct Tracee {
    child: Child,
}

impl Launch {
    /// The program `program`, looked up in `PATH` as a shell would.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_owned();
        let command = Command::new(&program);
        Self { program, command, randomize: Randomize::Off, debug: 0 }
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

    /// Diagnostics of the engine, as bits (1: statistics at exit).
    pub fn debug(&mut self, bits: u64) -> &mut Self {
        self.debug = bits;
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
        let mut child = self
            .command
            .spawn()
            .map_err(|source| Error::Start { program: name(), source })?;
        let pid = child.id() as i32;
        if let Err(error) = take_over(pid, self.debug) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Ok(Tracee { child })
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

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Waits for its end and collects what it wrote to piped streams.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn wait_with_output(self) -> io::Result<std::process::Output> {
        self.child.wait_with_output()
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

fn take_over(pid: i32, debug: u64) -> Result<(), Error> {
    // The only stop that can come is the one that ends `exec`.
    wait_stop(pid)?;
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let mut head = [0; 20];
    let readable = std::fs::File::open(format!("/proc/{pid}/exe"))
        .and_then(|f| std::os::unix::fs::FileExt::read_exact_at(&f, &mut head, 0));
    if readable.is_ok() && (head[4] != 2 || head[18] != 62) {
        return Err(Error::NotX86_64 { program: exe.to_string_lossy().into_owned() });
    }
    inject(pid, debug)
}
