//! The simulated kernel's state: processes, threads, memory and clock. System
//! calls are functions over it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ichnos_base::{EndStatus, GuestVa, ProcessId, ThreadId};
use rustix::io::Errno;

use crate::cpu::Cpu;
use crate::error::Error;
use crate::memory::{Place, World};
use crate::ram::{PAGE_SIZE, Ram};
use crate::tracer::Fetch;
use crate::trap::{Access, Trap};
use crate::user::Config;
use crate::user::frames::Frames;
use crate::user::loader::{self, Image};
use crate::user::process::{FutexKey, OpenFile, Process, Thread, Wait};
use crate::user::signal::{
    Action, Effect, Info, Queue, SIGCHLD, SIGCONT, SIGKILL, SIGNALS, SignalSet,
};
use crate::user::space::{Space, View};
use crate::user::syscall::{ProcessFile, SignalFile, Timer};

/// The first process's number. Fixed, like everything that programs can print.
const FIRST_PID: u32 = 1000;

/// What the machine must tell the trace about.
#[derive(Debug)]
pub(crate) enum News {
    /// A thread was there from the start.
    Began { thread: ThreadId },
    /// A thread was made by another.
    Created { creator: ThreadId, child: ThreadId },
    /// A program was loaded.
    Loaded { thread: ThreadId, path: PathBuf, images: Vec<Image>, stack: (u64, u64) },
    /// Memory was mapped.
    Mapped { thread: ThreadId, map: OwnedMap },
    /// Memory was unmapped, or its rights changed.
    Unmapped { thread: ThreadId, start: u64, len: u64 },
    /// A handler was left.
    Returned { thread: ThreadId, pc: u64 },
}

/// A mapping to be told.
#[derive(Clone, Debug)]
pub(crate) struct OwnedMap {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) protection: ichnos_base::Protection,
    pub(crate) path: String,
    pub(crate) offset: u64,
}

/// Processes, threads, memory and clock.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) ram: Ram,
    pub(crate) frames: Frames,
    pub(crate) processes: Vec<Process>,
    /// How many of them nobody forked; they come first.
    programs: usize,
    pub(crate) threads: Vec<Thread>,
    /// Nanoseconds since the start: instructions executed, and idle time.
    pub(crate) now: u64,
    pub(crate) start_time_ns: u64,
    pub(crate) sysroot: Option<PathBuf>,
    pub(crate) random: u64,
    pub(crate) next_pid: u32,
    pub(crate) news: Vec<News>,
    /// Timers that are files.
    pub(crate) timers: Vec<Timer>,
    /// Files that signals are read from.
    pub(crate) signal_files: Vec<SignalFile>,
    /// Files that stand for processes.
    pub(crate) process_files: Vec<ProcessFile>,
}

/// One process's memory as its harts reach it.
pub(crate) struct UserWorld<'a>(pub(crate) View<'a>);

impl World for UserWorld<'_> {
    #[inline(always)]
    fn ram(&self) -> &Ram {
        self.0.ram
    }

    #[inline(always)]
    fn ram_mut(&mut self) -> &mut Ram {
        self.0.ram
    }

    fn reach(&mut self, cpu: &mut Cpu, va: u64, access: Access) -> Result<Place, Trap> {
        let epoch = self.0.space.epoch;
        let (index, rights) =
            self.0.frame(va, access).ok_or(Trap::at(access.page_fault(), GuestVa(va)))?;
        // A page of the process's own took the place of a shared one.
        if self.0.space.epoch != epoch {
            cpu.tlb.flush();
        }
        cpu.tlb.fill(va, index, rights);
        Ok(Place::Ram(index + va as usize % PAGE_SIZE))
    }

    fn device_read(&mut self, _: u64, _: usize) -> Option<u64> {
        None
    }

    fn device_write(&mut self, _: u64, _: usize, _: u64) -> Option<bool> {
        None
    }
}

impl Fetch for View<'_> {
    fn fetch(&mut self, pc: GuestVa, bytes: &mut [u8]) -> bool {
        self.read_for(pc.0, bytes, Access::Fetch).is_ok()
    }
}

impl Kernel {
    /// A kernel with its first processes, ready to run.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let limit = usize::try_from(config.memory / PAGE_SIZE as u64).unwrap_or(usize::MAX);
        let mut kernel = Self {
            ram: Ram::new(0),
            frames: Frames::new(limit),
            processes: Vec::new(),
            programs: 0,
            threads: Vec::new(),
            now: 0,
            start_time_ns: config.start_time_ns,
            sysroot: config.sysroot.clone(),
            random: 0x001c_4051_c405,
            next_pid: FIRST_PID,
            news: Vec::new(),
            timers: Vec::new(),
            signal_files: Vec::new(),
            process_files: Vec::new(),
        };
        for (program, command) in config.commands() {
            kernel.begin(config, program, &command)?;
        }
        kernel.programs = kernel.processes.len();
        Ok(kernel)
    }

    /// A process that nobody forked.
    fn begin(
        &mut self,
        config: &Config,
        program: &Path,
        command: &loader::Command,
    ) -> Result<(), Error> {
        let pid = self.take_pid();
        let process = self.processes.len();
        self.processes.push(Process {
            id: ProcessId(process as u32),
            pid,
            parent: 1,
            space: Space::default(),
            files: stdio(config)?,
            actions: [Action::default(); SIGNALS],
            program: program.canonicalize().unwrap_or_else(|_| program.to_owned()),
            threads: 1,
            ended: None,
            reaped: false,
            group: pid,
            stopped: None,
            stop_told: false,
            pending: Queue::default(),
            alarm: None,
            timers: Vec::new(),
        });
        let thread = ThreadId(self.threads.len() as u32);
        self.threads.push(Thread::new(thread, pid, process));
        self.news.push(News::Began { thread });
        self.load(thread.index(), command)
    }

    /// How the programs that it began with ended, once all have: the status of
    /// the first that did not end well, or a good one.
    pub(crate) fn verdict(&self) -> Option<EndStatus> {
        let programs = &self.processes[..self.programs];
        let bad = |status: &EndStatus| *status != EndStatus::Exited(0);
        if programs.iter().any(|p| p.ended.is_none()) {
            return None;
        }
        Some(programs.iter().filter_map(|p| p.ended).find(bad).unwrap_or(EndStatus::Exited(0)))
    }

    /// Loads a program into a thread's empty space and points the thread at it.
    pub(crate) fn load(&mut self, thread: usize, command: &loader::Command) -> Result<(), Error> {
        let sysroot = self.sysroot.clone();
        let loaded = loader::load(&mut self.view(thread), command, sysroot.as_deref())?;
        let t = &mut self.threads[thread];
        t.cpu.pc = loaded.entry;
        t.cpu.set_x(2, loaded.stack_pointer);
        self.news.push(News::Loaded {
            thread: t.id,
            path: command.file.clone(),
            images: loaded.images,
            stack: loaded.stack,
        });
        Ok(())
    }

    /// The memory that a thread sees.
    pub(crate) fn view(&mut self, thread: usize) -> View<'_> {
        let process = self.threads[thread].process;
        View {
            ram: &mut self.ram,
            frames: &mut self.frames,
            space: &mut self.processes[process].space,
        }
    }

    /// A thread with the memory it sees.
    pub(crate) fn hart(&mut self, thread: usize) -> (&mut Thread, UserWorld<'_>) {
        let t = &mut self.threads[thread];
        let space = &mut self.processes[t.process].space;
        if t.epoch != space.epoch {
            t.cpu.tlb.flush();
            t.epoch = space.epoch;
        }
        let view = View { ram: &mut self.ram, frames: &mut self.frames, space };
        (t, UserWorld(view))
    }

    pub(crate) fn process(&mut self, thread: usize) -> &mut Process {
        let process = self.threads[thread].process;
        &mut self.processes[process]
    }

    /// Whether all threads but this one wait or have ended.
    pub(crate) fn is_alone(&self, thread: usize) -> bool {
        (0..self.threads.len()).all(|n| n == thread || !self.can_run(n))
    }

    pub(crate) fn take_pid(&mut self) -> u32 {
        self.next_pid += 1;
        self.next_pid - 1
    }

    /// The place in RAM of a futex word.
    pub(crate) fn futex_key(&mut self, thread: usize, va: u64) -> Result<FutexKey, Errno> {
        let (index, _) = self.view(thread).frame(va, Access::Load).ok_or(Errno::FAULT)?;
        Ok(FutexKey(index + va as usize % PAGE_SIZE))
    }

    /// Wakes up to `count` threads that wait for a futex with these bits.
    pub(crate) fn futex_wake(&mut self, key: FutexKey, count: u64, bits: u32) -> u64 {
        let mut woken = 0;
        for t in &mut self.threads {
            if woken == count {
                break;
            }
            if matches!(t.wait, Wait::Futex { key: k, mask, .. } if k == key && mask & bits != 0) {
                t.wait = Wait::Runnable;
                t.cpu.set_x(10, 0);
                woken += 1;
            }
        }
        woken
    }

    /// Ends one thread, and its process if it was the last.
    pub(crate) fn end_thread(&mut self, thread: usize, status: EndStatus) {
        let clear = std::mem::take(&mut self.threads[thread].clear_tid);
        if clear != 0
            && self.view(thread).write_u32(clear, 0).is_ok()
            && let Ok(key) = self.futex_key(thread, clear)
        {
            self.futex_wake(key, 1, u32::MAX);
        }
        self.threads[thread].wait = Wait::Ended;
        let process = self.process(thread);
        process.threads -= 1;
        if process.threads == 0 {
            self.end_process(self.threads[thread].process, status);
        }
    }

    /// Ends all threads of a process.
    pub(crate) fn end_process(&mut self, process: usize, status: EndStatus) {
        for t in self.threads.iter_mut().filter(|t| t.process == process) {
            t.wait = Wait::Ended;
        }
        let p = &mut self.processes[process];
        p.threads = 0;
        p.files.clear();
        p.ended = Some(status);
        let (pid, parent) = (p.pid, p.parent);
        View { ram: &mut self.ram, frames: &mut self.frames, space: &mut p.space }.clear();
        self.release_vfork(pid);
        let (code, status) = match status {
            EndStatus::Killed(signal) => (CLD_KILLED, signal),
            EndStatus::Exited(status) => (CLD_EXITED, status),
            _ => (CLD_EXITED, 0),
        };
        self.tell_parent(process, parent, (code, status));
    }

    /// Lets a parent know of what happened to its child.
    pub(crate) fn tell_parent(&mut self, child: usize, parent: u32, (code, status): (i32, i32)) {
        let pid = u64::from(self.processes[child].pid);
        let is_it = |p: &Process| p.pid == parent && p.ended.is_none();
        if let Some(parent) = self.processes.iter().position(is_it) {
            // A parent that ignores its children need not wait for them.
            if self.processes[parent].actions[SIGCHLD as usize].handler == 1 {
                self.processes[child].reaped |= self.processes[child].ended.is_some();
            }
            let extra = u64::from(status as u32);
            self.signal_process(parent, Info { signal: SIGCHLD, code, value: pid, extra });
        }
        for t in &mut self.threads {
            if t.wait == Wait::Child {
                t.wait = Wait::Runnable;
            }
        }
    }

    /// Lets the parent of a `vfork` go on.
    pub(crate) fn release_vfork(&mut self, child: u32) {
        for t in &mut self.threads {
            if t.wait == (Wait::Vfork { child }) {
                t.wait = Wait::Runnable;
            }
        }
    }

    /// Sends a signal to a process: any thread that does not block it takes it.
    pub(crate) fn signal_process(&mut self, process: usize, info: Info) {
        if !self.arrives(process, info.signal) {
            return;
        }
        self.processes[process].pending.push(info);
        let open = |t: &Thread| {
            t.process == process && t.wait != Wait::Ended && !t.blocked.has(info.signal)
        };
        if let Some(thread) = self.threads.iter().position(open) {
            self.interrupt(thread);
        }
    }

    /// Sends a signal to a thread.
    pub(crate) fn signal_thread(&mut self, thread: usize, info: Info) {
        if self.arrives(self.threads[thread].process, info.signal) {
            self.threads[thread].pending.push(info);
            self.interrupt(thread);
        }
    }

    /// What a signal does at once; false if that is all, as nobody wants it.
    fn arrives(&mut self, process: usize, signal: u32) -> bool {
        let p = &mut self.processes[process];
        let stops = SignalSet(0xf << (SIGCONT as u64));
        if signal == SIGCONT {
            p.pending.remove(stops);
            if p.stopped.take().is_some() {
                p.stop_told = false;
            }
        }
        if signal == SIGKILL {
            p.stopped = None;
        }
        let ignored = p.actions[signal as usize].effect(signal) == Effect::Ignore;
        // One that is blocked may still be waited for.
        let of = |t: &&Thread| t.process == process && t.wait != Wait::Ended;
        !ignored || self.threads.iter().filter(of).all(|t| t.blocked.has(signal))
    }

    /// Ends a thread's wait if a signal is there for it.
    pub(crate) fn interrupt(&mut self, thread: usize) {
        let t = &self.threads[thread];
        let waits = !matches!(t.wait, Wait::Runnable | Wait::Ended | Wait::Vfork { .. });
        let due =
            t.pending.is_open(t.blocked) || self.processes[t.process].pending.is_open(t.blocked);
        if !waits || !due {
            return;
        }
        let t = &mut self.threads[thread];
        t.wait = Wait::Runnable;
        t.poll_until = None;
        t.interrupted = t.in_call.take();
        if t.interrupted.is_none() {
            t.cpu.set_x(10, -i64::from(Errno::INTR.raw_os_error()) as u64);
        }
    }

    /// The next signal that a thread must deal with.
    pub(crate) fn take_signal(&mut self, thread: usize) -> Option<Info> {
        let t = &mut self.threads[thread];
        let blocked = t.blocked.without(SIGKILL);
        let shared = &mut self.processes[t.process].pending;
        t.pending.take_outside(blocked).or_else(|| shared.take_outside(blocked))
    }

    /// Stops a process and tells its parent.
    pub(crate) fn stop(&mut self, process: usize, signal: u32) {
        let p = &mut self.processes[process];
        (p.stopped, p.stop_told) = (Some(signal), false);
        let parent = p.parent;
        self.tell_parent(process, parent, (CLD_STOPPED, signal as i32));
    }

    /// Whether a thread can run now.
    pub(crate) fn can_run(&self, thread: usize) -> bool {
        let t = &self.threads[thread];
        t.wait == Wait::Runnable && self.processes[t.process].stopped.is_none()
    }
}

/// What `siginfo` says of children.
const CLD_EXITED: i32 = 1;
const CLD_KILLED: i32 = 2;
const CLD_STOPPED: i32 = 5;

/// Guest descriptors 0, 1 and 2.
fn stdio(config: &Config) -> Result<Vec<Option<OpenFile>>, Error> {
    let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let open = |(given, own): (&Option<_>, _)| {
        let fd = match given {
            Some(fd) => rustix::io::dup(fd),
            None => rustix::io::dup(own),
        };
        match fd {
            Ok(fd) => Ok(Some(OpenFile { fd: Rc::new(fd), close_on_exec: false })),
            Err(Errno::BADF) => Ok(None),
            Err(e) => Err(Error::Host { what: "a copy of a standard file", source: e.into() }),
        }
    };
    config.stdio.iter().zip(own).map(open).collect()
}
